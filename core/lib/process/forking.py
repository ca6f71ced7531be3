"""Inside the nursery: every request becomes a forked process that turns into the tool that was asked for."""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from typing import Any, NamedTuple, NoReturn

from lib.contract import CORE
from lib.process import keeper, streams
from lib.process.channels import NUMBER, readable

# Few tools need them: they import half of the network, or are for work on other machines.
RARE = ("lib.web", "lib.tool.service", "lib.machines", "lib.temporal")
INSIST_SECONDS = 15.0  # a tool whose asker is gone is told to stop; after this long it is killed


def serve(control: socket.socket) -> NoReturn:
    """Forks a child for every request and tells its end, until the tool that owns us goes away."""
    os.setsid()  # a Ctrl-C is for the tool, which decides what becomes of its children
    close_all_but({control.fileno()})
    take_command_line([sys.executable, str(CORE / "lib/process/nursery.py"), "--of", str(os.getppid())])
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, _heard)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _load()
    channels: dict[int, socket.socket] = {}
    told: list[
        socket.socket
    ] = []  # whose end was told; they are closed from the other side, or an order on its way would undo it
    asked_by: dict[int, int] = {}  # by tool: the process that asked for it
    alone: dict[int, float] = {}  # whose asker is gone, with the moment at which they are killed
    while True:
        ready = readable([control, wake, *channels.values(), *told], 1.0 if alone else None)
        for child in [c for c, at in alone.items() if time.monotonic() > at]:
            keeper.send(child, signal.SIGKILL)
            del alone[child]
        for channel in [c for c in told if c.fileno() in ready]:
            if not _order(channel):
                told.remove(channel)
                channel.close()
        for child in [c for c, channel in channels.items() if channel.fileno() in ready]:
            order = _order(channels[child])
            keeper.send(child, order or signal.SIGTERM)
            if not order:
                channels.pop(child).close()
                alone[child] = time.monotonic() + INSIST_SECONDS
        if wake in ready:
            os.read(wake, 4096)
        for child, code in _ended():
            alone.pop(child, None)
            _end_below(child, asked_by)  # before its end is told: whoever hears of it may start the same work again
            if child in channels:
                channel = channels.pop(child)
                try:
                    channel.send(NUMBER.pack(code))
                    told.append(channel)
                except OSError:
                    channel.close()  # nobody is left to hear it
        if control.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, 16)
            if not data:
                os._exit(0)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(descriptors)
            asked_by[child] = NUMBER.unpack(data)[0]
            channels[child] = socket.socket(fileno=descriptors[0])
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def _end_below(asker: int, asked_by: dict[int, int]) -> None:
    """Ends every tool that a process had asked for, and all below those: it has ended, and left them behind."""
    asked_by.pop(asker, None)
    for child in [c for c, by in asked_by.items() if by == asker]:
        _end_below(child, asked_by)
        for pid in [*keeper.descendants(child), child]:
            keeper.send(pid, signal.SIGKILL)


def _order(channel: socket.socket) -> int:
    """The signal somebody sends a tool; 0 where that somebody is gone."""
    try:
        order = channel.recv(1)
    except ConnectionResetError:
        return 0
    return order[0] if order else 0


loaded = False  # whether a process forked from here has the library


class Ready(NamedTuple):
    """A tool whose script has been run up to where it would begin."""

    main: types.ModuleType
    changed: int
    begin: Callable[[], NoReturn]


ready: dict[str, Ready] = {}  # by the script's path


def run_script(script: str) -> types.ModuleType:
    """Runs it as an interpreter does that is started with it."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    code = SourceFileLoader("__main__", script).get_code("__main__")
    assert code
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        exec(code, main.__dict__)
    finally:
        sys.modules["__main__"] = before
    return main


@cache  # a nursery below another has it all from there
def _load() -> None:
    global loaded
    loaded = True
    for path in sorted((CORE / "lib").rglob("*.py")):
        name = ".".join(path.relative_to(CORE).with_suffix("").parts)
        if name.startswith(RARE):
            continue
        module = importlib.import_module(name.removesuffix(".__init__"))
        prepare = getattr(module, "prepare_for_forks", None)
        if prepare:
            prepare()
    for words in ((None,), ("?",), (None, "*"), ("?", "*")):  # compiles the patterns that parsers of tools need
        parser = argparse.ArgumentParser()
        for number, nargs in enumerate(words):
            parser.add_argument(f"word-{number}", nargs=nargs)
        parser.add_argument("--flag")
        parser.parse_args(["--flag", "x", "--", "a"])
    next(CORE.rglob("*"), None)  # and that of a search for everything
    gc.freeze()  # what is shared stays shared


def _heard(_number: int, _frame: object) -> None:
    """The wake-up descriptor is what tells us."""


def _ended() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((ended[0], os.waitstatus_to_exitcode(ended[1])))
    except ChildProcessError:
        pass  # none is left
    return found


def _become(descriptors: Sequence[int]) -> NoReturn:
    """Turns this process into the tool that was asked for, and ends with it."""
    keeper.die_with_parent()
    os.setsid()
    _, request, *given = descriptors
    asked = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    inherit = dict(zip(asked["inherit"], given[3:], strict=True))
    turn_into(asked["argv"], asked["cwd"], asked["env"], given[:3], inherit)


def turn_into(argv: list[str], cwd: str, env: Mapping[str, str], given: Sequence[int], inherit: Mapping[str, int]) -> NoReturn:
    """Of a forked process: from here on it is that tool, with these three streams. `inherit` names the variables that tell it the
    numbers of the descriptors it keeps."""
    code = 1
    try:
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in given]  # none is overwritten before its turn
        kept = {name: fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for name, descriptor in inherit.items()}
        for number in range(3):
            os.dup2(high[number], number)
        close_all_but(set(kept.values()))
        os.chdir(cwd)
        _take_environment({**env, **{name: str(descriptor) for name, descriptor in kept.items()}})
        take_command_line(argv)
        _run(argv[1:])
        code = 0  # as of a script that simply ends
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001 - what an interpreter does with an exception that nobody caught
        sys.excepthook(type(error), error, error.__traceback__)
    streams.end_process(code)


def _run(argv: list[str]) -> None:
    sys.argv = argv
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old: Any = getattr(sys, name) or sys.__stderr__
        stream = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    if argv[0] in ready and ready[argv[0]].changed == os.stat(argv[0]).st_mtime_ns:  # noqa: PTH116
        sys.modules["__main__"] = ready[argv[0]].main
        ready[argv[0]].begin()
    run_script(argv[0])


def close_all_but(kept: set[int]) -> None:
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if (number := int(entry)) > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:
                pass  # the descriptor the listing itself was read from


def _take_environment(env: Mapping[str, str]) -> None:
    """Most of it is what the nursery has already: what is written again is a page copied."""
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    for name, value in env.items():
        if os.getenv(name) != value:
            os.environ[name] = value


@cache  # once: a forked process has it where the one that it was forked from has moved it to
def _move_environment() -> None:
    environment_now = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment_now)


def take_command_line(argv: Sequence[str]) -> None:
    """So that `ps` and `pgrep` show what this process is. The kernel reads it from where the first one's was, and on
    into the environment behind it, which is moved out of the way first."""
    _move_environment()
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        fields = file.read().rpartition(b")")[2].split()
    first, arguments_end, environment, last = (int(fields[n]) for n in (45, 46, 47, 48))
    if arguments_end == environment and last > first:
        title = " ".join(argv).encode("utf-8", "surrogateescape").replace(b"\0", b" ")
        ctypes.memmove(first, title.ljust(last - first, b"\0")[: last - first - 1] + b"\0", last - first)
