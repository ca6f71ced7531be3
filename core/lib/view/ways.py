"""The ways a run went, or may go, besides forward: loops that lead back, and checkpoints where a person decides."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.disk import lenient
from lib.session.documents import Decision, Effective


class Back(Struct, frozen=True):
    """A loop, from the stage that sends work back to the one it goes back to."""

    name: str
    source: str
    target: str
    times: int = 0  # how often it was taken


class Gate(Struct, frozen=True):
    """A checkpoint of a phase."""

    at: str  # before or after
    question: str
    decision: str = ""
    by: str = ""

    @property
    def words(self) -> str:
        said = f"{self.decision}d by {self.by}" if self.decision == "approve" else f"{self.decision}ed by {self.by}"
        return f"checkpoint: {said if self.decision else 'waits for a person'}"


def loops_of(home: Path) -> list[Back]:
    """Those that were taken in the run of an orchestrator."""
    found: dict[tuple[str, str], Back] = {}
    for path in sorted((home / "loops").glob("*.json")):
        taken = lenient.read(path, _Taken)
        if taken.stage and taken.rounds:
            key = (taken.loop, taken.stage)
            times = found[key].times + 1 if key in found else 1
            found[key] = Back(taken.loop, taken.stage, next(iter(taken.rounds)), times)
    return list(found.values())


class _Taken(Struct, frozen=True):
    """Of the record of a loop, what a view shows."""

    loop: str = ""
    stage: str = ""
    rounds: dict[str, int] = {}  # the stages it went back over, the first of them where it went


def gates(session: Path) -> dict[str, Gate]:
    """By phase: its checkpoint, and what was decided there."""
    found: dict[str, Gate] = {}
    for phase in lenient.read(session / "effective-config.json", Effective).plan.phases:
        if phase.checkpoint and phase.checkpoint.at:
            at = phase.checkpoint.at
            said = lenient.read(session / "approvals" / f"{phase.name}-{at}.json", Decision)
            found[phase.name] = Gate(at, phase.checkpoint.question, said.decision, said.by)
    return found


def home(session: Path, phase: str, run: str) -> Path:
    """Where a run of a phase has its files; of one that was run alone, its own folder."""
    planned = {p.name: p.folder for p in lenient.read(session / "effective-config.json", Effective).plan.phases}
    return session / "phases" / planned[phase] / run if phase in planned else session / run
