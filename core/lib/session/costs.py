"""What agents have cost in earlier sessions: the mean of real ones, neither replayed nor of a scripted model."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.disk import records
from lib.session.attempts import every_attempt


class _Answer(Struct, frozen=True):
    exit_code: int
    cost_source: str
    cost_usd: float | None


class _Meta(Struct, frozen=True):
    """Of `meta.json`, what says what a session cost."""

    agent: str
    answer: _Answer
    scripted: bool = False


LOOKED_AT = 20  # sessions, the newest: what an agent costs changes with its prompt and its model


def known(base: Path, session: Path | None = None) -> dict[str, float]:
    """By agent and by stage. What it cost in this very session says most."""
    earlier = sorted((p for p in base.iterdir() if p.is_dir() and p != session), reverse=True) if base.is_dir() else []
    return spent(earlier[:LOOKED_AT]) | (spent([session]) if session else {})


def spent(sessions: list[Path]) -> dict[str, float]:
    """What a session of each agent, and of each stage, cost on average: real ones, neither replayed nor of a scripted model."""
    seen: dict[str, list[float]] = {}
    for session in sessions:
        for attempt in every_attempt(session):
            meta = records.look(attempt.folder / "meta.json", _Meta)
            real = meta and meta.answer.cost_source == "reported" and not meta.scripted
            if meta and real and meta.answer.cost_usd is not None and not meta.answer.exit_code:  # one that failed says nothing
                for name in {meta.agent, attempt.step.stage.partition("-")[2]}:
                    seen.setdefault(name, []).append(meta.answer.cost_usd)
    return {name: sum(costs) / len(costs) for name, costs in seen.items()}
