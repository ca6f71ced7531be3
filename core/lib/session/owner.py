"""Who works in a session: the lock that one run holds, and the process that wrote itself into it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lib.contract import StrataError
from lib.disk import locks, records
from lib.process import processes

LOCK_NAME = ".lock"
PLACED = ".placed"  # what the run has on other machines
RENEW_SECONDS = 5.0
SIZE = 400  # bytes of the file
LEASE_SECONDS = 30.0  # a run on another machine that has not been heard of for so long is gone
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
    Owner.this().write(descriptor)
    _released.clear()
    threading.Thread(target=_renew, args=(descriptor, folder), name="session-lease", daemon=True).start()
    return descriptor


_released = threading.Event()


def _renew(descriptor: int, folder: Path) -> None:
    """Says again and again that this run is there: on another machine nothing else tells. A run that finds another in its place,
    because it was not heard of for too long, stops: two do not work in one session."""
    this = Owner.this()
    while not _released.wait(RENEW_SECONDS) and not processes.stopping.is_set():
        there = Owner.read(folder)
        if there is not None and (there.host, there.pid, there.began) != (this.host, this.pid, this.began):
            processes.stopping.set()
            return
        try:
            replace(this, renewed=time.time()).write(descriptor)
        except OSError:
            continue  # a full disk, or a file system that is away: it may come back in time


def release(descriptor: int) -> None:
    """The run has ended: who asks on another machine need not wait to see that."""
    _released.set()
    replace(Owner.this(), renewed=0.0).write(descriptor)


class Owner(Struct, frozen=True):
    """The process that works in a session, as its lock says: a number means something only on its machine, since its last
    start, and for a process that began when this one did."""

    pid: int
    host: str
    boot: str
    began: str
    renewed: float = 0.0  # by the clock of its machine

    @staticmethod
    def this() -> Owner:
        return Owner(os.getpid(), socket.gethostname(), _boot(), _began(os.getpid()), time.time())

    @staticmethod
    def read(session: Path) -> Owner | None:
        return records.look(session / LOCK_NAME, Owner)

    def write(self, descriptor: int) -> None:
        """In one piece, always of the same length: whoever reads it at that moment sees one or the other."""
        os.pwrite(descriptor, json.dumps(asdict(self)).ljust(SIZE).encode() + b"\n", 0)
        os.ftruncate(descriptor, SIZE + 1)

    @property
    def name(self) -> str:
        """This run and no other; nothing once it has let go."""
        return f"{self.host}/{self.boot}/{self.pid}/{self.began}" if self.renewed else ""

    @property
    def elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether it runs. Of one on another machine its last renewal tells."""
        if self.elsewhere:
            return time.time() - self.renewed < LEASE_SECONDS
        return self.boot == _boot() and self.began == _began(self.pid) and self.began != "-"

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
        ours, owner = locks.take(descriptor), Owner.read(folder)
        if ours:
            return not (owner and owner.elsewhere and owner.alive)  # a lock may not reach as far as the folder does
        killed = owner is not None and not owner.elsewhere and not owner.alive
        if not killed or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
