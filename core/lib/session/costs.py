"""What agents have cost in earlier sessions: the mean of real ones, neither replayed nor of a scripted model."""

from __future__ import annotations

from pathlib import Path

from lib.disk import files
from lib.session.folder import every_attempt

LOOKED_AT = 20  # sessions, the newest: what an agent costs changes with its prompt and its model


def known(base: Path, session: Path | None = None) -> dict[str, float]:
    """By agent and by stage. What it cost in this very session says most."""
    earlier = sorted((p for p in base.iterdir() if p.is_dir() and p != session), reverse=True) if base.is_dir() else []
    return spent(earlier[:LOOKED_AT]) | (spent([session]) if session else {})


def spent(sessions: list[Path]) -> dict[str, float]:
    """What a session of each agent, and of each stage, cost on average: real ones, neither replayed nor of a scripted model."""
    seen: dict[str, list[float]] = {}
    for session in sessions:
        for step, folder in every_attempt(session):
            meta = files.read_json(folder / "meta.json") if (folder / "meta.json").exists() else {}
            answer = meta.get("answer", {})
            cost = answer.get("cost_usd")
            real = answer.get("cost_source") == "reported" and not meta.get("scripted")
            if isinstance(cost, int | float) and real and not answer.get("exit_code"):  # one that failed says nothing
                for name in {meta["agent"], step.stage.partition("-")[2]}:
                    seen.setdefault(name, []).append(float(cost))
    return {name: sum(costs) / len(costs) for name, costs in seen.items()}
