"""The session folder: where a run lives, and what is counted in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path

from lib import names
from lib.contract import HOUSE, StrataError
from lib.disk import files, locks
from lib.disk.clock import now
from lib.process import processes
from lib.session import attempts
from lib.session.attempts import Attempt
from lib.session.outcome import VERSION, Outcome
from lib.session.owner import lock, release
from lib.session.step import Step

ENDED = "ended.json"  # the number at which the last run ended by itself
NUMBERS = ".numbers"  # one byte per beginning or end
FORMAT = ".format"  # the version of what the folder holds


class Session:
    def __init__(self, folder: Path, held: int | None) -> None:
        self.folder = folder
        self._lock = held  # held open for the life of the process that is outermost

    @property
    def outermost(self) -> bool:
        """Whether this process is the one that opened it."""
        return self._lock is not None

    def attempts(self, step: Step) -> list[Attempt]:
        return attempts.of_step(self.folder, step)

    def cut_short(self, step: Step) -> list[Attempt]:
        return attempts.cut_short(self.attempts(step))

    def ended(self, step: Step) -> list[tuple[Attempt, Outcome]]:
        return attempts.ended(self.attempts(step))

    def new_attempt(self, step: Step) -> Attempt:
        folder = self.folder / step.folder
        folder.mkdir(parents=True, exist_ok=True)
        number = max((a.number for a in self.attempts(step)), default=0) + 1
        while True:
            try:
                (folder / f"attempt-{number}").mkdir()
            except FileExistsError:
                number += 1  # another process took it between our look and our step
                continue
            attempt = Attempt(step, folder / f"attempt-{number}")
            attempt.out.mkdir()
            return attempt

    def numbers(self) -> int:
        """How many beginnings and ends there have been."""
        path = self.folder / NUMBERS
        return path.stat().st_size if path.exists() else 0

    def next_number(self) -> int:
        """Of the next beginning or end in this session. Clocks are set back; this only goes up."""
        with locks.held(self.folder / NUMBERS) as descriptor:
            if os.fstat(descriptor).st_size == 0:  # new, or lost: it is made again from the outcomes
                os.write(descriptor, b"." * max((o.number for _, o in attempts.every_outcome(self.folder)), default=0))
            os.write(descriptor, b".")
            return os.fstat(descriptor).st_size

    def say_ended(self) -> None:
        """The run has come to an end of its own: what it came to is said, and was not cut off."""
        files.write_json(self.folder / ENDED, {"number": self.next_number(), "at": now()})

    def release(self) -> None:
        """The outermost run has ended."""
        if self._lock is not None:
            release(self._lock)

    def relative(self, path: Path) -> str:
        """A path as the session's own files write it: a session can be moved, so nothing inside it is absolute."""
        resolved = path.resolve()
        return str(resolved.relative_to(self._root)) if resolved.is_relative_to(self._root) else str(path)

    @cached_property
    def _root(self) -> Path:
        return self.folder.resolve()


def open_session(
    session_dir: str | None,
    session_base: str | None,
    topic: str,
    trace_id: str,
    settle: Callable[[Path], None] = lambda folder: None,
) -> Session:
    """The session this process works in: the one named, the one it was started in, or a new one. `settle`: ends what an earlier
    run has left elsewhere, before anything is done in it."""
    inherited = os.getenv(names.SESSION)
    if session_dir:
        folder = Path(session_dir).resolve()  # the agent CLI compares real paths
        _make(folder)
    elif inherited:
        folder = Path(inherited)
        if not folder.is_dir():
            raise StrataError("NO_SESSION", f"{names.SESSION} names {inherited}, which is not a folder")
    else:
        base = Path(session_base).resolve() if session_base else HOUSE / "sessions"
        folder = new_folder(base, topic)
    inner = bool(inherited) and (inherited == str(folder) or Path(inherited or "").resolve() == folder.resolve())
    require_format(folder)
    held = None if inner else lock(folder)
    if held is not None:
        processes.session_lock = held
        settle(folder)
        files.sweep(folder)
    if not (folder / FORMAT).exists():
        files.write_atomic(folder / FORMAT, f"{VERSION}\n")
    if not (folder / ".trace").exists():
        files.write_atomic(folder / ".trace", (trace_id or secrets.token_hex(8)) + "\n")
    return Session(folder, held)


def format_of(folder: Path) -> str:
    """The version of what a session holds; of one in which nothing has begun yet, ours."""
    path = folder / FORMAT
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return "1" if (folder / NUMBERS).exists() else str(VERSION)


def require_format(folder: Path) -> None:
    found = format_of(folder)
    if found != str(VERSION):
        message = f"{folder} was made by another version of Strata (format {found}; this one reads {VERSION})"
        raise StrataError("OTHER_FORMAT", message, "resume it with the version that made it, or start anew; nothing was changed")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StrataError(
            "SESSION_UNWRITABLE",
            f"cannot make the session folder {folder}: {error.strerror}",
            "give a writable folder with --session-dir or --session-base",
        ) from None


def new_folder(base: Path, topic: str) -> Path:
    name = f"{datetime.now().strftime('%Y%m%d-%H%M')}-{files.slug(topic, 'run')}"
    _make(base)
    for number in range(1, 10_000):
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise StrataError("SESSION_UNWRITABLE", f"cannot make {folder}: {error.strerror}", "use --session-base") from None
        return folder
    raise StrataError("SESSION_UNWRITABLE", f"{base} holds 10,000 sessions of this minute", "clean it up")
