"""Whether whoever holds money still runs: a file in its attempt, locked as long as it does. The kernel lets go of it however that
ends, and where several machines work in the session, the file system does."""

from __future__ import annotations

import os
from pathlib import Path

from lib.disk import locks

NAME = ".holding"
_held: dict[Path, int] = {}


def begin(attempt: Path) -> None:
    if attempt.is_dir() and attempt not in _held:
        _held[attempt] = os.open(attempt / NAME, locks.APPEND, 0o644)
        locks.take(_held[attempt])


def end(attempt: Path) -> None:
    descriptor = _held.pop(attempt, None)
    if descriptor is not None:
        (attempt / NAME).unlink(missing_ok=True)
        os.close(descriptor)


def is_gone(attempt: Path) -> bool:
    """Whether it had begun, and runs no more without having said what it came to."""
    return (attempt / NAME).exists() and not locks.is_held(attempt / NAME)
