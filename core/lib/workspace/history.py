"""What the session's own work did to the workspace, in the order it happened: which file was left how, and by which step.

A file that differs from what a finished step read or left was changed by later work of this session, or from outside. Later work
says what it left: a finished, failed or interrupted attempt lists its changes, and so does a merge. Only an attempt that was
killed could not: what it may have written, up to its last sign of life, is taken for its work.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lib.contract import Json
from lib.disk import files, globs
from lib.session.folder import MERGED, NUMBERS, every_attempt
from lib.workspace import snapshot

BEGUN = "begun.json"  # in an attempt's folder: its number, what it may write, and by its time of change its last sign of life
INTERRUPTED = "interrupted.json"  # what an attempt that was asked to stop had changed by then
BEAT_SECONDS = 0.5
LATE_SECONDS = 1.0  # a sign of life may be so old when its attempt is killed
EVERYTHING = ("**",)
_LINK = "link:"


@dataclass(frozen=True)
class Write:
    """How one piece of work left one file."""

    number: int
    step: str
    sha256: str  # "": it deleted the file


@dataclass(frozen=True)
class CutOff:
    """An attempt that ended without saying what it had changed."""

    number: int
    step: str
    may_write: tuple[str, ...]
    since: float
    until: float  # its last sign of life

    def explains(self, cwd: Path, path: str) -> bool:
        """Whether a file of the workspace may be as this attempt left it. One that is gone tells by its folder."""
        place = cwd / path
        while not place.exists() and place != cwd:
            place = place.parent
        info = place.lstat()
        then = any(self.since - LATE_SECONDS <= at <= self.until for at in (info.st_mtime, info.st_ctime))
        return then and globs.matches(path, self.may_write)


@dataclass
class History:
    session: Path
    _version: int = -1
    _writes: dict[str, list[Write]] = field(default_factory=dict[str, list[Write]])
    _cut_off: list[CutOff] = field(default_factory=list[CutOff])
    _records: dict[str, Json] = field(default_factory=dict[str, Json])  # what is on disk once does not change
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
        found: list[tuple[int, str, Json]] = []
        cut_off: list[CutOff] = []
        merged: dict[Path, str] = {}
        for step, folder in every_attempt(self.session):
            ended = self._record(folder / "outcome.json") or self._record(folder / INTERRUPTED)
            begun = self._record(folder / BEGUN)
            merged[folder.parent / MERGED] = str(step)
            if ended is not None and ended.get("artifacts") is not None:
                if not ended.get("isolation"):  # what was done in a worktree counts when it is merged
                    found.append((int(ended.get("number", 0)), str(step), ended))
            elif begun is not None and not begun.get("isolation"):
                since, until = _time(begun.get("at")), _until(folder / BEGUN, ended)
                cut_off.append(CutOff(int(begun["number"]), str(step), tuple(begun["may_write"]), since, until))
        for path, step in merged.items():
            if path.exists():
                record = files.read_json(path)  # a later merge of the same step replaces it
                found.append((int(record["number"]), step, record))
        writes: dict[str, list[Write]] = {}
        for number, step, record in sorted(found, key=lambda entry: entry[:2]):
            for path, sha256 in left(record).items():
                writes.setdefault(path, []).append(Write(number, step, sha256))
        self._writes, self._cut_off = writes, cut_off

    def _record(self, path: Path) -> Json | None:
        known = self._records.get(str(path))
        if known is None and path.exists():
            known = self._records[str(path)] = files.read_json(path)
        return known


def left(record: Json) -> dict[str, str]:
    """Of an outcome or a merge: each file of the workspace it made or changed, with the hash it left ("" where it is gone)."""
    found: dict[str, str] = {}
    for change in changes(record):
        if change["root"] == "workspace" and change.get("kind", "file") != "folder":
            link = change.get("kind") == "symlink"
            found[change["path"]] = f"{_LINK}{change['target']}" if link else change.get("sha256", "")
    listed: list[Json] = record.get("outputs") or []
    for entry in listed:
        if entry["in"] == "workspace":
            found[entry["path"]] = entry["sha256"]
    return found


def made(outcome: Json) -> dict[str, str]:
    """What is the work of a step: all that an agent changed, and what a tool declares. What else a tool touches (a log, a cache)
    is known, but is not its product."""
    return left(outcome if outcome.get("agent") else {**outcome, "artifacts": []})


def stands_as(path: Path, sha256: str) -> bool:
    """Whether a file is the one that was left so."""
    if sha256.startswith(_LINK):
        return path.is_symlink() and snapshot.text_name(str(path.readlink())) == sha256.removeprefix(_LINK)
    return files.fingerprint(path) == sha256


def changes(record: Json) -> list[Json]:
    return record.get("artifacts") or []


def _until(begun: Path, ended: Json | None) -> float:
    """When an attempt that did not say what it changed was last alive: by its parent's word, or by its own last sign."""
    return max(_time((ended or {}).get("finished_at")), begun.stat().st_mtime + LATE_SECONDS)


def _time(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


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
            except OSError:
                return  # its folder is gone, and so is the reason to beat

    def stop(self) -> None:
        self._ended.set()
