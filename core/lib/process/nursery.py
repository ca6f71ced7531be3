"""A helper process of the outermost tool that starts all tools below by forking, with their shared libraries already loaded.

Starting an interpreter and importing a library costs more than most steps do. The nursery is forked before the tool has
threads, imports the rest of the library once, and then becomes each tool that is asked for: a process like any other,
with its own session, environment, descriptors and command line. Every tool that it starts can ask it for more. Who asked for a
tool holds a channel to it: when that is gone, so is the tool. A request is a memory file that says what to run, and
descriptors: the channel its end is told on, its three streams, and what it inherits. Linux only; elsewhere, and for a
tool that was made for other dependencies, a new interpreter is started.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from lib import names
from lib.contract import CORE
from lib.process import keeper
from lib.process.channels import NUMBER, readable

ARGUMENT_LIMIT = 128 * 1024  # bytes in one word of a command line, on Linux
_LOST = -signal.SIGKILL  # what we say of a child whose end nobody could tell us

pid = 0  # the nursery this process opened itself; 0: it has none, or was lent one
_control: socket.socket | None = None
_closing = threading.Lock()


def open_nursery(serve: Callable[[socket.socket], NoReturn]) -> None:
    """To be called before this process starts a thread. A tool that a nursery started goes on asking that one. `serve`: what the
    nursery does (`forking`)."""
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
        pid, _control = 0, None  # what a tool finds that is forked from here
        serve(theirs)
    theirs.close()
    pid, _control = forked, ours


def open_apart(program: Path) -> None:
    """One for a process that has threads already: not forked from it, but a program that serves on the descriptor it is given."""
    global pid, _control
    if sys.platform == "linux":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, str(program), str(theirs.fileno())]
            child = subprocess.Popen(argv, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        pid, _control = child.pid, ours
        child.returncode = 0  # `close_nursery` waits for it


def is_open() -> bool:
    return _control is not None


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
        if self.returncode is None and readable([self._channel], timeout):
            try:
                told = self._channel.recv(NUMBER.size)
            except ConnectionResetError:
                told = b""  # the nursery itself was ended
            self.returncode = NUMBER.unpack(told)[0] if told else _LOST
            self._channel.close()
        return self.returncode


def require_words(argv: Sequence[str]) -> None:
    """What a new interpreter could not be told, nobody is told."""
    for word in argv:
        if "\0" in word:
            raise ValueError("embedded null byte")
        if len(os.fsencode(word)) >= ARGUMENT_LIMIT:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))


def start(argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], inherit: Mapping[str, int], stdin: bool) -> Child:
    """Starts a tool. `inherit` names the variables that tell it the numbers of the descriptors it is given."""
    assert _control
    require_words(argv)
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked = {"argv": list(argv), "cwd": os.fspath(cwd) if cwd else _here(), "env": dict(env), "inherit": list(inherit)}
    request = os.memfd_create("request")
    os.write(request, json.dumps(asked).encode())
    their_in, our_in = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), None)
    (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe()
    given = (theirs.detach(), request, their_in, their_out, their_err)
    try:
        socket.send_fds(_control, [NUMBER.pack(os.getpid())], [*given, *inherit.values()])
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
