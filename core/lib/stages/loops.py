"""The records of loops that were taken: why, and over which rounds of which stages they went back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from lib.disk import files, records
from lib.disk.redact import redact
from lib.session.step import Step


class Taken(Struct, frozen=True):
    """A loop that was taken. Its cause, in words, stands beside the record."""

    loop: str
    number: int
    stage: str  # that sent the work back
    rounds: dict[str, int]  # by stage it went back over: which round that was
    session: str  # where the cause speaks of: the session may be moved
    reason: str = ""
    failed: tuple[dict[str, str], ...] = ()  # of those that did not succeed: key, code and message


def every(home: Path) -> list[tuple[Path, Taken]]:
    return [(path, records.read(path, Taken)) for path in sorted((home / "loops").glob("*.json"))]


def write_down(home: Path, taken: Taken, text: str) -> Path:
    """The record last: with it, the loop has been taken. A walk that comes by again finds it as it is. Returns the cause."""
    cause = home / "loops" / f"{taken.loop}-{taken.number}.md"
    known = cause.with_suffix(".json")
    if not (known.exists() and cause.exists() and cause.read_text(encoding="utf-8") == redact(text)):
        files.write_atomic(cause, text)
        files.write_json(known, records.document(taken))
    return cause


def forget(home: Path, stage: str, number: int) -> None:
    """Loops that this round of a stage took in an earlier run do not count any more."""
    for path, taken in every(home):
        if taken.stage == stage and taken.rounds.get(stage) == number:
            set_aside(path)


def set_aside(record: Path) -> None:
    """A loop that does not count any more. It stays on disk."""
    number = 1 + len(list(record.parent.glob("before-*")))
    aside = record.parent / f"before-{number}"
    aside.mkdir()
    for part in (record, record.with_suffix(".md")):  # the record first: without it, the loop has not been taken
        if part.exists():
            part.replace(aside / part.name)


def led_over(rounds: Mapping[str, object], void: dict[str, int], home: Step) -> bool:
    """Whether a loop of the orchestrator at `home` went back over a step whose past does not count."""
    steps = [s for s in map(Step.parse, void) if (s.phase, s.orchestrator) == (home.phase, home.orchestrator)]
    return any(s.stage.partition("-")[2] in rounds for s in steps)
