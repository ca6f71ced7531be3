"""A process that the outermost tool keeps beside itself and that starts all tools below by forking, with what they share loaded.

Starting an interpreter and importing a library costs more than most steps do. The nursery is forked before the tool has
threads, imports the rest of the library once, and then becomes each tool that is asked for: a process like any other,
with its own session, environment, descriptors and command line. Every tool that it starts can ask it for more. Who asked for a
tool holds a channel to it: when that is gone, so is the tool. A request is a memory file that says what to run, and
descriptors: the channel its end is told on, its three streams, and what it inherits. Linux only; elsewhere, and for a
tool that was made for other dependencies, a new interpreter is started.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import IO, Any, NoReturn

from lib import names
from lib.contract import CORE
from lib.process import keeper

ARGUMENT_LIMIT = 128 * 1024  # bytes in one word of a command line, on Linux
_NUMBER = struct.Struct("i")
_LOST = -signal.SIGKILL  # what we say of a child whose end nobody could tell us

INSIST_SECONDS = 15.0  # a tool whose asker is gone is told to stop; after this long it is killed

pid = 0  # the nursery this process opened itself; 0: it has none, or was lent one
_control: socket.socket | None = None
_closing = threading.Lock()


def open_nursery() -> None:
    """To be called before this process starts a thread. A tool that a nursery started goes on asking that one."""
    global pid, _control
    if sys.platform != "linux":
        return
    lent = lent_nursery()
    if lent is not None:
        _control = socket.socket(fileno=lent)
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forked = os.fork()
    if forked == 0:
        _serve(theirs)
    theirs.close()
    pid, _control = forked, ours


def lent_nursery() -> int | None:
    """The descriptor of the nursery that started this process, taken out of the environment."""
    text = os.environ.pop(names.NURSERY, "")
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        return None
    try:
        os.set_inheritable(int(text), False)
        return int(text) if stat.S_ISSOCK(os.fstat(int(text)).st_mode) else None
    except OSError:
        return None  # a variable without its descriptor means nothing


def give_back() -> None:
    lent = lent_nursery()
    if lent is not None:
        os.close(lent)


def lend() -> dict[str, int]:
    """What a tool is given so that it can ask the same nursery."""
    return {names.NURSERY: _control.fileno()} if _control else {}


def close_nursery() -> None:
    """What it started and is still there becomes ours, as its subreaper; new tools get an interpreter of their own. One that was
    lent is only given back."""
    global pid, _control
    with _closing:
        if _control:
            if pid:
                keeper.send(pid, signal.SIGKILL)
                keeper.wait_for(pid)
            _control.close()
            pid, _control = 0, None


def can_start(argv: Sequence[str]) -> bool:
    return _control is not None and len(argv) > 1 and argv[0] == sys.executable and Path(argv[1]).parent == CORE


class Child:
    """A tool that was started by the nursery: as much of `subprocess.Popen` as is needed to follow it."""

    def __init__(self, channel: socket.socket, stdin: int | None, stdout: int, stderr: int) -> None:
        self.stdin: IO[bytes] | None = open(stdin, "wb", buffering=0) if stdin is not None else None  # noqa: PTH123, SIM115
        self.stdout: IO[bytes] | None = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.stderr: IO[bytes] | None = open(stderr, "rb", buffering=0)  # noqa: SIM115
        self.returncode: int | None = None
        self.lost = False
        self._channel = channel

    def poll(self) -> int | None:
        return self._wait_for_end(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait_for_end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a tool", timeout or 0)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def give_up(self) -> None:
        """Nobody can tell what became of it."""
        if self.returncode is None:
            self.returncode = _LOST
            self.lost = True
            self._channel.close()

    def _send(self, number: int) -> None:
        try:
            self._channel.send(bytes([number]))  # the nursery knows whether the process is still the one we mean
        except OSError:
            pass  # it has ended

    def _wait_for_end(self, timeout: float | None) -> int | None:
        if self.returncode is None and _readable([self._channel], timeout):
            try:
                told = self._channel.recv(_NUMBER.size)
            except ConnectionResetError:
                told = b""  # the nursery itself was ended
            self.returncode = _NUMBER.unpack(told)[0] if told else _LOST
            self._channel.close()
        return self.returncode


def start(argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], inherit: Mapping[str, int], stdin: bool) -> Child:
    """Starts a tool. `inherit` names the variables that tell it the numbers of the descriptors it is given."""
    assert _control
    for word in argv:  # what a new interpreter could not be told, we are not told either
        if "\0" in word:
            raise ValueError("embedded null byte")
        if len(os.fsencode(word)) >= ARGUMENT_LIMIT:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked = {"argv": list(argv), "cwd": os.fspath(cwd) if cwd else _here(), "env": dict(env), "inherit": list(inherit)}
    request = os.memfd_create("request")
    os.write(request, json.dumps(asked).encode())
    their_in, our_in = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), None)
    (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe()
    given = (theirs.detach(), request, their_in, their_out, their_err)
    try:
        socket.send_fds(_control, [_NUMBER.pack(os.getpid())], [*given, *inherit.values()])
    except OSError:
        channel.close()
        for descriptor in (our_in, our_out, our_err):
            if descriptor is not None:
                os.close(descriptor)
        raise
    finally:
        for descriptor in given:
            os.close(descriptor)
    return Child(channel, our_in, our_out, our_err)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "/"  # the folder we stand in is gone; a tool is told where to work anyway


def _readable(sources: Sequence[socket.socket | int], timeout: float | None = None) -> list[int]:
    poll = select.poll()  # select() itself knows no descriptor above 1023
    for source in sources:
        poll.register(source, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if timeout is None else int(timeout * 1000))]


# In the nursery


def _serve(control: socket.socket) -> NoReturn:
    """Forks a child for every request and tells its end, until the tool that owns us goes away."""
    os.setsid()  # a Ctrl-C is for the tool, which decides what becomes of its children
    _close_all_but({control.fileno()})
    _take_command_line([sys.executable, __file__, "--of", str(os.getppid())])
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
        ready = _readable([control, wake, *channels.values(), *told], 1.0 if alone else None)
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
                    channel.send(_NUMBER.pack(code))
                    told.append(channel)
                except OSError:
                    channel.close()  # nobody is left to hear it
        if control.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(control, _NUMBER.size, 16)
            if not data:
                os._exit(0)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(descriptors)
            asked_by[child] = _NUMBER.unpack(data)[0]
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


@cache  # a nursery below another has it all from there
def _load() -> None:
    for path in sorted((CORE / "lib").rglob("*.py")):
        name = ".".join(path.relative_to(CORE).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        prepare = getattr(module, "prepare_for_forks", None)
        if prepare:
            prepare()
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--flag")
    parser.parse_args(["--flag", "x", "--", "a", "b"])  # compiles the patterns that every tool's parser needs
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
    global pid, _control
    pid, _control = 0, None
    code = 1
    try:
        _, request, *streams = descriptors
        asked = json.loads(os.pread(request, os.fstat(request).st_size, 0))
        kept = dict(zip(asked["inherit"], streams[3:], strict=True))
        keeper.die_with_parent()
        os.setsid()
        high = [fcntl.fcntl(streams[number], fcntl.F_DUPFD, 10) for number in range(3)]  # none is overwritten before its turn
        kept = {name: fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for name, descriptor in kept.items()}
        for number in range(3):
            os.dup2(high[number], number)
        _close_all_but(set(kept.values()))
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"] | {name: str(descriptor) for name, descriptor in kept.items()})
        _take_command_line(asked["argv"])
        _run(asked["argv"][1:])
        code = 0  # as of a script that simply ends
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001 - what an interpreter does with an exception that nobody caught
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120  # as an interpreter does when nobody takes its last words
    os._exit(code)


def _run(argv: list[str]) -> None:
    sys.argv = argv
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old: Any = getattr(sys, name) or sys.__stderr__
        stream = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    main = types.ModuleType("__main__")
    main.__file__ = argv[0]
    code = SourceFileLoader("__main__", argv[0]).get_code("__main__")
    assert code
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _close_all_but(kept: set[int]) -> None:
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if (number := int(entry)) > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:
                pass  # the descriptor the listing itself was read from


def _take_command_line(argv: Sequence[str]) -> None:
    """So that `ps` and `pgrep` show what this process is. The kernel reads it from where the first one's was, and on
    into the environment behind it, which is moved out of the way first."""
    environment_now = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment_now)
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        fields = file.read().rpartition(b")")[2].split()
    first, arguments_end, environment, last = (int(fields[n]) for n in (45, 46, 47, 48))
    if arguments_end == environment and last > first:
        title = " ".join(argv).encode("utf-8", "surrogateescape").replace(b"\0", b" ")
        ctypes.memmove(first, title.ljust(last - first, b"\0")[: last - first - 1] + b"\0", last - first)
