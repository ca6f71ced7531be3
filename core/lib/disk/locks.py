"""Locks on files: whoever holds one is alone, also among processes, and the kernel lets go of it when its holder ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


@contextmanager
def held(path: Path | str, flags: int = APPEND) -> Generator[int]:
    """The descriptor of a file, or a folder, with everybody else waiting."""
    descriptor = os.open(path, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def take(descriptor: int) -> bool:
    """Whether the lock is ours now. It is kept as long as the descriptor is open, here or in a child."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def is_held(path: Path) -> bool:
    """Whether anybody holds it: the kernel knows, whatever stands in the file. Asked with a shared lock: NFS gives one that is
    alone only to who may write."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False  # there never was one
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
