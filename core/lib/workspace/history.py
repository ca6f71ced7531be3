"""What the session's own work did to the workspace, in the order it happened: which file was left how, and by which step.

A file that differs from what a finished step read or left was changed by later work of this session, or from outside. Later work
says what it left: a finished, failed or interrupted attempt lists its changes, and so does a merge. Only an attempt that was
killed could not: what it may have written, up to its last sign of life, is taken for its work.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from lib.disk import files, globs, records
from lib.disk.clock import when
from lib.session.attempts import OUTCOME, Attempt, every_attempt, merge_of
from lib.session.folder import NUMBERS
from lib.session.outcome import Begun, Left, Outcome, link_of
from lib.session.step import Step
from lib.workspace import snapshot

Record = TypeVar("Record")
BEGUN = "begun.json"  # in an attempt's folder: its number, what it may write, and by its time of change its last sign of life
INTERRUPTED = "interrupted.json"  # what an attempt that was asked to stop had changed by then
BEAT_SECONDS = 0.5
LATE_SECONDS = 1.0  # a sign of life may be so old when its attempt is killed
EVERYTHING = ("**",)


class Write(Struct, frozen=True):
    """How one piece of work left one file."""

    number: int
    step: str
    sha256: str  # "": it deleted the file


class CutOff(Struct, frozen=True):
    """An attempt that ended without saying what it had changed."""

    number: int
    step: str
    may_write: tuple[str, ...]
    since: float
    until: float  # its last sign of life

    def explains(self, cwd: Path, path: str) -> bool:
        """Whether a file of the workspace may be as this attempt left it. One that is gone tells by its folder, and a folder by
        what was changed last of all it holds."""
        place = cwd / path
        while not place.exists() and place != cwd:
            place = place.parent
        held = [place, *(place.rglob("*") if place == cwd / path and place.is_dir() and not place.is_symlink() else ())]
        times = [(info.st_mtime, info.st_ctime) for info in (p.lstat() for p in held)]
        then = any(self.since - LATE_SECONDS <= at <= self.until for at in (max(t[0] for t in times), max(t[1] for t in times)))
        return then and globs.matches(path, self.may_write)


class History(Struct):
    session: Path
    _version: int = -1
    _writes: dict[str, list[Write]] = {}
    _cut_off: list[CutOff] = []
    _records: dict[Path, Any] = {}  # what is on disk once does not change
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def writes(self, path: str) -> list[Write]:
        """What was done to a file of the workspace, the oldest first."""
        self._refresh()
        return self._writes.get(path, [])

    def all_writes(self) -> dict[str, list[Write]]:
        self._refresh()
        return self._writes

    def cut_off(self) -> list[CutOff]:
        self._refresh()
        return self._cut_off

    def _refresh(self) -> None:
        """Reads what is new. The session counts: as long as the count is the same, nothing has begun or ended."""
        with self._reading:
            numbers = self.session / NUMBERS
            version = numbers.stat().st_size if numbers.exists() else 0
            if version != self._version:
                self._version = version
                self._read()

    def _read(self) -> None:
        found: list[tuple[int, str, dict[str, str]]] = []
        cut_off: list[CutOff] = []
        steps: dict[Step, None] = {}
        for attempt in every_attempt(self.session):
            steps[attempt.step] = None
            work = self._outcome(attempt) or self._once(attempt.folder / INTERRUPTED, Left)
            begun = self._once(attempt.folder / BEGUN, Begun)
            if work is not None and work.changes is not None:
                if not work.isolation:  # what was done in a worktree counts when it is merged
                    found.append((work.number, str(attempt.step), work.left))
            elif begun is not None and not begun.isolation:
                until = max(
                    when(getattr(work, "finished_at", "")) or 0.0, (attempt.folder / BEGUN).stat().st_mtime + LATE_SECONDS
                )
                cut_off.append(CutOff(begun.number, str(attempt.step), begun.may_write, when(begun.at) or 0.0, until))
        for step in steps:
            merged = merge_of(self.session, step)  # a later merge of the same step replaces it
            found += [(merged.number, str(step), merged.left)] if merged else []
        writes: dict[str, list[Write]] = {}
        for number, step, left in sorted(found, key=lambda entry: entry[:2]):
            for path, sha256 in left.items():
                writes.setdefault(path, []).append(Write(number, step, sha256))
        self._writes, self._cut_off = writes, cut_off

    def _outcome(self, attempt: Attempt) -> Outcome | None:
        known = self._records.get(attempt.folder / OUTCOME)
        if known is None and (known := attempt.outcome) is not None:
            self._records[attempt.folder / OUTCOME] = known
        return known

    def _once(self, path: Path, kind: type[Record]) -> Record | None:
        known = self._records.get(path)
        if known is None and path.exists():
            known = self._records[path] = records.read(path, kind)
        return known


def stands_as(path: Path, sha256: str) -> bool:
    """Whether a file is the one that was left so."""
    link = link_of(sha256)
    if link is not None:
        return path.is_symlink() and snapshot.text_name(str(path.readlink())) == link
    return files.fingerprint(path) == sha256


class Beat:
    """Touches a file now and then while a piece of work goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        threading.Thread(target=self._go_on, name="beat", daemon=True).start()

    def _go_on(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                return  # its folder is gone, and so is the reason to beat
            except OSError:
                continue  # a shared folder may be away for a moment

    def stop(self) -> None:
        self._ended.set()
