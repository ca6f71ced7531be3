"""Who works in a session: the lock that one run holds, and the process that wrote itself into it."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from lib.contract import StrataError

LOCK_NAME = ".lock"
ENDING_SECONDS = 20.0  # what is below a killed tool has ended by then


def lock(folder: Path) -> int:
    """One writer. The kernel lets go of the lock when the process ends, however it ends."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StrataError("SESSION_UNWRITABLE", f"cannot write in {folder}: {error.strerror}", "check its permissions") from None
    if not _take(descriptor, folder):
        owner = Owner.read(folder)
        os.close(descriptor)
        raise StrataError(
            "SESSION_LOCKED",
            f"another run ({owner or 'pid unknown'}) is working in {folder}",
            "wait for it, or stop it, then run this again",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, Owner.this().text().encode(), 0)
    return descriptor


@dataclass(frozen=True)
class Owner:
    """The process that works in a session, as its lock says: a number means something only on its machine, since its last
    start, and for a process that began when this one did."""

    pid: int
    host: str
    boot: str
    began: str

    @staticmethod
    def this() -> Owner:
        return Owner(os.getpid(), socket.gethostname(), _boot(), _began(os.getpid()))

    @staticmethod
    def read(session: Path) -> Owner | None:
        try:
            fields = (session / LOCK_NAME).read_text(encoding="utf-8").split()
            return Owner(int(fields[0]), *fields[1:4]) if len(fields) == 4 else None
        except (OSError, ValueError):
            return None

    def text(self) -> str:
        return f"{self.pid} {self.host} {self.boot} {self.began}\n"

    @property
    def elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether it runs here. Of one on another machine nothing is known."""
        same = not self.elsewhere and self.boot == _boot()
        return same and self.began == _began(self.pid) and self.began != "-"

    def __str__(self) -> str:
        return f"pid {self.pid}" + (f" on {self.host}" if self.elsewhere else "")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "-"


def _began(pid: int) -> str:
    """When a process was started, in the kernel's count; where there is none, whether it is there at all."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass  # it is gone, or there is no such list here
    try:
        os.kill(pid, 0)
        return "-" if Path("/proc/self").exists() else "?"
    except (OSError, OverflowError):
        return "-"


def _take(descriptor: int, folder: Path) -> bool:
    """Whether the lock is ours now. Where its owner was killed, its tree lets go of it in a moment, as it ends."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            owner = Owner.read(folder)
            killed = owner is not None and not owner.elsewhere and not owner.alive
            if not killed or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
