"""The attempts at a step, and all attempts of a session: folders that are made once and never reused."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

from msgspec import Struct

from lib.contract import STATUS, ExitCode, Json
from lib.disk import files, records
from lib.session.outcome import VERSION, Begun, FileChange, Left, Outcome
from lib.session.step import Step

AGAIN = "again.json"  # which steps a person asked for again
ANSWER = "answer.json"  # beside the attempts of a step: what a person answered to what it asked
OUTCOME = "outcome.json"
MERGED = "merged.json"  # beside the attempts of a step that worked in a worktree: what came back from there
NOT_STEPS = {"workspace", "worktrees", "lost-worktrees", "artifacts"}  # folders of a session that hold work, not its record
_NAME = re.compile(r"attempt-(\d+)")


class Attempt(Struct, frozen=True):
    """One attempt at a step. `outcome.json`, written last, says that it ended and what came of it."""

    step: Step
    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name.removeprefix("attempt-"))

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def outcome(self) -> Outcome | None:
        path = self.folder / OUTCOME
        return read_outcome(path) if path.exists() else None

    def finish(self, outcome: Json, before: Callable[[str], None] = lambda sha256: None) -> None:
        """Written last. `before` is told the hash of what is about to be there."""
        data = files.as_written(outcome)
        before(hashlib.sha256(data).hexdigest())
        files.write_atomic(self.folder / OUTCOME, data)


def read_outcome(path: Path) -> Outcome:
    """An outcome that can be relied on: anybody may have changed it since."""
    outcome = records.read(path, Outcome)
    if outcome.version != VERSION or outcome.exit_code not in STATUS:
        raise files.corrupt(path, f"{path}: version {outcome.version}, not {VERSION}")
    return outcome


def of_step(session: Path, step: Step) -> list[Attempt]:
    """Oldest first."""
    try:
        found = [int(m[1]) for e in os.scandir(session / step.folder) if (m := _NAME.fullmatch(e.name))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Attempt(step, session / step.folder / f"attempt-{number}") for number in sorted(found)]


def every_attempt(session: Path, phase: str = "") -> Generator[Attempt]:
    """The attempts of all steps, or of one phase's. What an agent puts into a folder of its own is never taken for one."""
    places = [f"phases/{phase}/*/stages"] if phase else ["stages", "*/stages", "phases/*/stages", "phases/*/*/stages"]
    for pattern in places:
        for stages in sorted(session.glob(pattern)):
            if not set(stages.relative_to(session).parts) & NOT_STEPS:
                for folder in _attempts_below(stages, 3):  # stage, round, item
                    yield Attempt(Step.of_folder(folder.parent.relative_to(session)), folder)


def _attempts_below(folder: Path, levels: int) -> Generator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            if _NAME.fullmatch(entry.name):
                yield Path(entry.path)  # and nothing below it: that is where agents write
            elif levels:
                yield from _attempts_below(Path(entry.path), levels - 1)


def every_outcome(session: Path, phase: str = "") -> list[tuple[Attempt, Outcome]]:
    """What has ended, in the order it did, whatever the clock says."""
    found = [(attempt, outcome) for attempt in every_attempt(session, phase) if (outcome := attempt.outcome)]
    return sorted(found, key=lambda pair: (pair[1].number, str(pair[0].folder)))


def finished(session: Path, phase: str = "") -> list[tuple[Attempt, Outcome]]:
    """The same, of what ended with work that counts."""
    return [(attempt, outcome) for attempt, outcome in every_outcome(session, phase) if outcome.good]


def merge_of(session: Path, step: Step) -> Left | None:
    """What a step that worked in a worktree has brought into the workspace."""
    path = session / step.folder / MERGED
    return records.read(path, Left) if path.exists() else None


def cut_short(attempts: list[Attempt]) -> list[Attempt]:
    """The attempts since the last one that ended, the newest first. One may have been killed before it did anything."""
    found: list[Attempt] = []
    for attempt in reversed(attempts):
        if attempt.outcome is not None:
            break
        found.append(attempt)
    return found


def ended(attempts: list[Attempt]) -> list[tuple[Attempt, Outcome]]:
    """Those that ran to an end of their own, oldest first. An interrupted one was cut short and does not count."""
    pairs = [(attempt, attempt.outcome) for attempt in attempts]
    return [(attempt, outcome) for attempt, outcome in pairs if outcome and outcome.exit_code != ExitCode.INTERRUPTED]


def prepare_for_forks() -> None:
    records.prepare(Outcome, Left, Begun, list[FileChange])


def redo_before(session: Path) -> Counter[str]:
    """Steps that were asked for again on purpose, each with the last attempt from before."""
    path = session / AGAIN
    return Counter(records.read(path, dict[str, int]) if path.exists() else {})
