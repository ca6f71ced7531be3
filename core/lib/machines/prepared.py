"""A process that is forked while its parent has no threads yet, and waits to be told which tool it is to become: in a session of
its own, and in a PID namespace of its own where the machine has them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from lib import names
from lib.process import forking, keeper

UNPRIVILEGED = ("--user", "--map-current-user")  # for unshare: a namespace of users, in which this one may make the others
_NEW_PID, _NEW_MOUNTS, _NEW_USER = 0x20000000, 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_NO_SUID, _NO_DEVICES, _NO_EXEC = 0x2, 0x4, 0x8
_TITLE = ("unshare", "--pid", "--fork")  # what `ps` shows of the process that waits for the command


class Prepared:
    """As much of `subprocess.Popen` as is needed to follow it."""

    def __init__(self, apart: Sequence[str]) -> None:
        """`apart`: the words that `unshare` would be told."""
        orders, self._orders = os.pipe()
        out_read, out = os.pipe()
        err_read, err = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self._orders, out_read, err_read):
                os.close(descriptor)
            _wait(orders, out, err, apart)
        for descriptor in (orders, out, err):
            os.close(descriptor)
        self.stdout: IO[bytes] = open(out_read, "rb", buffering=0)  # noqa: PTH123, SIM115
        self.stderr: IO[bytes] = open(err_read, "rb", buffering=0)  # noqa: PTH123, SIM115
        self.returncode: int | None = None

    def become(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: Path | None) -> None:
        """Its lease is the pipe on which it was told: at its end of file we are gone."""
        told = {"argv": list(argv), "env": dict(env), "cwd": cwd, "stdin": str(stdin or os.devnull)}
        left = memoryview(json.dumps(told).encode() + b"\n")
        while left:
            left = left[os.write(self._orders, left) :]

    def poll(self) -> int | None:
        if self.returncode is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(ended[1])
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _wait(orders: int, out: int, err: int, apart: Sequence[str]) -> NoReturn:
    keeper.die_with_parent(signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # those of the supervisor, whose end others wait for
        os.dup2(nothing, stream)
    os.close(nothing)
    forking.take_command_line([*_TITLE, "nothing yet"])
    told = bytearray()
    while not told.endswith(b"\n"):
        data = os.read(orders, 65536)
        if not data:
            os._exit(0)
        told += data
    asked = json.loads(told)
    if not apart:
        _turn_into(asked, orders, out, err)
    forking.take_command_line([*_TITLE, *asked["argv"]])
    first = _open_namespace(UNPRIVILEGED[0] in apart)
    command = os.fork()
    if command == 0:
        keeper.die_with_parent(signal.SIGKILL)
        os.setsid()
        _turn_into(asked, orders, out, err)
    for descriptor in (orders, out, err):
        os.close(descriptor)
    signal.signal(signal.SIGTERM, lambda number, _: keeper.send(command, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(first, signal.SIGKILL)  # and with it all that is left in the namespace
    os.waitpid(first, 0)
    if code < 0:
        os.kill(os.getpid(), -code)  # as the command ended
        os._exit(128 - code)
    os._exit(code)


def _open_namespace(unprivileged: bool) -> int:
    """Of process ids, for whatever is forked from here on. Its first process is not the command, which may then be treated as any
    other: it adopts what is left behind, and with it the kernel ends all the others."""
    user, group = os.geteuid(), os.getegid()
    _require(_libc.unshare(_NEW_PID | _NEW_MOUNTS | (_NEW_USER if unprivileged else 0)))
    if unprivileged:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_bytes(text.encode())
        keeper.die_with_parent(signal.SIGKILL)  # the kernel may have forgotten it with the change
    ready, told = os.pipe()
    hold, _held = os.pipe()  # its other end is open as long as this process is there
    pid = os.fork()
    if pid == 0:
        keeper.die_with_parent(signal.SIGKILL)
        _require(_libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
        _require(_libc.mount(b"proc", b"/proc", b"proc", _NO_SUID | _NO_DEVICES | _NO_EXEC, None))
        forking.take_command_line([*_TITLE, "its first process"])
        os.write(told, b".")
        forking.close_all_but({hold})
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what ends below it is gone at once
        os.read(hold, 1)
        os._exit(0)
    os.close(told)
    if not os.read(ready, 1):
        os._exit(1)
    os.close(ready)
    os.close(hold)
    return pid


def _turn_into(asked: dict[str, object], orders: int, out: int, err: int) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    source = os.open(str(asked["stdin"]), os.O_RDONLY)
    forking.turn_into(asked["argv"], asked["cwd"], asked["env"], (source, out, err), {names.LEASE: orders})  # type: ignore[arg-type]


_libc = ctypes.CDLL(None, use_errno=True)


def _require(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        sys.stderr.write(f"a namespace: {os.strerror(number)}\n")
        os._exit(1)
