"""What a session may spend: limits of money, tokens, agents and time, for the campaign and for each phase, in `budget.json`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

from lib.contract import ExitCode, Json, StrataError
from lib.disk import files
from lib.session.ledger_lines import Line, spent_on

LIMITS = ("usd", "tokens", "agents", "wall_seconds")
WHOLE = ""  # the scope of the campaign, beside those of its phases
MAX_CHILDREN = 64  # agents one agent may start through its shell
MAX_STARTED_BY_AGENTS = 256  # in one session, where no budget of agents was given
RAISED = "raised"  # what a person gave on the command line, which outlives a change of the plan

Scoped = dict[str, dict[str, float]]  # scope → kind → limit


def figure(value: object) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(cast(float, value)) if known else 0.0


def read(path: Path, strict: bool) -> Scoped:
    """Every limit there is. `strict`: what cannot be read stops the run."""
    try:
        known: Json = files.read_json(path) if path.exists() else {}
    except StrataError:
        if strict:
            raise
        return {}
    for scope, limits in known.items():
        sound = isinstance(limits, dict) and all(figure(v) == v and v > 0 for v in cast(Json, limits).values())
        if not sound:
            if strict:
                raise files.corrupt(path, f"{path}: the limits of {scope or 'the campaign'!r} are no figures above 0")
            return {}
    return known


def named(scope: str) -> str:
    return f"the phase {scope}" if scope else "the campaign"


def require_room_below(parent: str, lines: list[Line], limits: Scoped) -> None:
    """What agents start by themselves is bounded too: for each of them, and, where the budget does not say, in all."""
    started = [line for line in lines if line.kind == "reserve" and line.parent]
    of_parent = sum(line.parent == parent for line in started)
    told = WHOLE in limits and "agents" in limits[WHOLE]
    if of_parent >= MAX_CHILDREN or (len(started) >= MAX_STARTED_BY_AGENTS and not told):
        what = f"{parent} has started {of_parent}" if of_parent >= MAX_CHILDREN else f"agents have started {len(started)}"
        detail: Json = {"limit": "agents", "scope": WHOLE, "spent": spent_on(lines)}
        hint = "let an orchestrator start them (foreach), or give the campaign a budget of agents"
        raise StrataError("TOO_MANY_AGENTS", f"{what} agents by themselves", hint, ExitCode.NEEDS_ESCALATION, detail=detail)


def given(text: str) -> dict[str, float]:
    """`usd=20,agents=60` from a command line."""
    found: dict[str, float] = {}
    for part in text.split(","):
        kind, _, value = part.strip().partition("=")
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if kind not in LIMITS or not math.isfinite(amount) or amount <= 0:
            raise StrataError(
                "USAGE", f"--budget takes usd=20,agents=60 and the like, not {part!r}", f"known: {', '.join(LIMITS)}"
            )
        found[kind] = amount
    return found
