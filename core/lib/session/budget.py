"""What a session may spend: limits of money, tokens, agents and time, for the campaign and for each phase, in `budget.json`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

from lib.contract import Json, StrataError
from lib.disk import files

LIMITS = ("usd", "tokens", "agents", "wall_seconds")
WHOLE = ""  # the scope of the campaign, beside those of its phases
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
