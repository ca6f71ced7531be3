"""A command that can be ended whole, whatever it started and whatever state it is in: in a session of its own, in a namespace of
its own where the machine has them, and killed by the kernel where nobody else can."""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from lib import names
from lib.contract import CORE
from lib.machines.prepared import UNPRIVILEGED, Prepared
from lib.process import keeper

STDOUT_LIMIT = 64 * 1024 * 1024
LINE_LIMIT = 4096  # of a line that is longer only the beginning is heard
SETTLE_SECONDS = 5.0


def _unheard(_line: bytes, _sha256: str, _size: int) -> None:
    """A document is read when it is whole."""


class Copy(threading.Thread):
    """One stream of the command, on its way into a file. In a thread: a shared folder may hang, and who watches may not."""

    def __init__(self, source: IO[bytes], target: Path, limit: float, on_line: Callable[[bytes, str, int], None]) -> None:
        super().__init__(daemon=True)
        self.hash = hashlib.sha256()
        self.size = 0
        self.too_much = False
        self.error: OSError | None = None  # why it is not all in the file
        self._source, self._target, self._limit, self._on_line = source, target, limit, on_line
        self.start()

    def run(self) -> None:
        try:
            with self._target.open("wb", buffering=0) as file:
                self._copy(file)
                os.fsync(file.fileno())
        except OSError as error:
            self.error = error  # nobody reads on: the command is ended

    def _copy(self, file: IO[bytes]) -> None:
        rest = b""
        while data := os.read(self._source.fileno(), 65536):
            self.too_much = self.too_much or self.size + len(data) > self._limit
            if self.too_much:
                continue
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._target))
            self.hash.update(data)
            self.size += len(data)
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:LINE_LIMIT]
            for line in lines:
                self._on_line(line, self.hash.hexdigest(), self.size)


class Deadman:
    """A timer of the kernel that kills this process, frozen or not, unless it is put off. With it goes the command, which has
    asked to be killed with its parent."""

    _BOOTTIME = 7  # goes on while the machine sleeps

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._timer = ctypes.c_void_p()
        event = (ctypes.c_char * 64)()
        ctypes.memmove(ctypes.addressof(event) + 8, bytes(ctypes.c_int(signal.SIGKILL)), 4)  # sigev_signo; 0 notifies by signal
        create = getattr(self._libc, "timer_create", None)  # an older C library has it elsewhere
        if not create or create(self._BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer)) != 0:
            self._libc = None  # no such timer here: what a frozen process holds ends when it wakes

    def put_off(self, seconds: float) -> None:
        if self._libc:
            value = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))
            self._libc.timer_settime(self._timer, 0, ctypes.byref(value), None)

    def stop(self) -> None:
        self.put_off(0)


@cache
def namespace() -> tuple[str, ...]:
    """The words that give a command a PID namespace of its own, where the machine has them: with its first process the kernel
    ends all of it."""
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL")
    if sys.platform != "linux" or not shutil.which(words[0]):
        return ()
    ways = (words, (*words, *UNPRIVILEGED))
    return next((way for way in ways if not subprocess.run([*way, "true"], capture_output=True, check=False).returncode), ())


def can_become(argv: Sequence[str]) -> bool:
    return argv[0] == sys.executable and Path(argv[1]).parent == CORE


class Captive:
    def __init__(
        self,
        prepared: Prepared | None,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdin: Path | None,
        streams: tuple[Path, Path],
        on_line: Callable[[bytes, str, int], None],
    ) -> None:
        """`prepared`: a process that can become the command, if that is one of our tools. `on_line` hears each line of stderr
        once it is in its file, with the hash and the size of all until then."""
        self._apart = namespace()
        if prepared and can_become(argv):
            prepared.become(argv, env, cwd, stdin)
            self.child = prepared
        else:
            self.child = self._started(argv, env, cwd, stdin)
        assert self.child.stdout and self.child.stderr
        self._kill_at = 0.0
        self.stdout = Copy(self.child.stdout, streams[0], STDOUT_LIMIT, _unheard)
        self.stderr = Copy(self.child.stderr, streams[1], float("inf"), on_line)

    def _started(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: Path | None) -> subprocess.Popen[bytes]:
        lease_read, self._lease = os.pipe()
        with Path(stdin or os.devnull).open("rb") as source:
            child = subprocess.Popen(
                [*self._apart, *argv],
                cwd=cwd,
                env={**env, names.LEASE: str(lease_read)},
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(lease_read,),
                start_new_session=True,
                preexec_fn=functools.partial(keeper.die_with_parent, signal.SIGKILL),  # noqa: PLW1509 - a system call
            )
        os.close(lease_read)
        return child

    def ask(self, grace: float) -> None:
        """To end; after so many seconds it is ended. The shortest time counts."""
        if not self._kill_at:
            waits = self._apart and isinstance(self.child, subprocess.Popen)  # unshare passes no signal on
            first = keeper.descendants(self.child.pid)[:1] if waits else [self.child.pid]
            for pid in first:
                keeper.send(pid, signal.SIGTERM)
        at = time.monotonic() + grace
        self._kill_at = min(self._kill_at or at, at)

    def insist(self) -> None:
        if not (self.stdout.is_alive() or self.stderr.is_alive()):  # it has said all it has to say
            self._kill_at = self._kill_at or time.monotonic() + SETTLE_SECONDS
        if self.stdout.too_much or self.error or (self._kill_at and time.monotonic() > self._kill_at):
            self.end()

    def end(self) -> None:
        for pid in [self.child.pid, *keeper.descendants(self.child.pid)]:
            keeper.send(pid, signal.SIGKILL)

    def settled(self) -> None:
        """It has ended: nothing is left below it, and all it printed is on disk."""
        keeper.end_descendants(ask_seconds=0.2)
        for stream in (self.stdout, self.stderr):
            stream.join(SETTLE_SECONDS)

    @property
    def error(self) -> OSError | None:
        """Why what it printed is not all on disk."""
        return self.stdout.error or self.stderr.error

    @property
    def exit_code(self) -> int:
        """As its own first process ended; unshare says a signal as a shell does."""
        code = self.child.wait()
        return 128 - code if self._apart and code > 128 else code
