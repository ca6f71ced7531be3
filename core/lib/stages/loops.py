"""The records of loops that were taken: which went back over which rounds, and setting one aside that does not count any more."""

from __future__ import annotations

from pathlib import Path

from lib.session.step import Step


def set_aside(record: Path) -> None:
    """A loop that does not count any more. It stays on disk."""
    number = 1 + len(list(record.parent.glob("before-*")))
    aside = record.parent / f"before-{number}"
    aside.mkdir()
    for part in (record, record.with_suffix(".md")):  # the record first: without it, the loop has not been taken
        if part.exists():
            part.replace(aside / part.name)


def led_over(rounds: dict[str, object], void: dict[str, int], home: Step) -> bool:
    """Whether a loop of the orchestrator at `home` went back over a step whose past does not count."""
    steps = [s for s in map(Step.parse, void) if (s.phase, s.orchestrator) == (home.phase, home.orchestrator)]
    return any(s.stage.partition("-")[2] in rounds for s in steps)
