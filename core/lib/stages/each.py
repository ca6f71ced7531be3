"""What an item says of its own bounds: its scope, its limits, its model. Never wider than what its stage and its agent allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from lib.contract import StrataError
from lib.disk import config, globs
from lib.plan.agents import Agent
from lib.plan.orchestration import FanOut
from lib.plan.task import Limits

Scope = tuple[str, ...] | None  # None: as the agent's
TIERS = ("low-tier", "medium-tier", "high-tier")


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields an item may speak of; None: it does not."""

    scope: tuple[str, ...] | None = None
    timeout_seconds: float | None = None
    stall_timeout: float | None = None
    model: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_uses: dict[str, int] | None = None


def bounds(stage: FanOut, key: str, agent: Agent | None, resolve: Callable[[str], Any]) -> tuple[Limits, Scope]:
    """The limits and the scope of one item."""
    given = {name: resolve(text) for name, text in stage.each.items()}
    try:
        own = msgspec.convert(given, Own)
    except msgspec.ValidationError as error:
        raise StrataError("BAD_ITEMS", f"{stage.name}: {key!r}: {error}", "see foreach.each in the orchestrator") from None
    _within(stage, key, agent, own)
    known = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None and name != "scope"}
    known |= {"max_uses": stage.limits.max_uses | own.max_uses} if own.max_uses is not None else {}
    return replace(stage.limits, **known), own.scope


def _within(stage: FanOut, key: str, agent: Agent | None, own: Own) -> None:
    limits = stage.limits
    most: dict[str, float | None] = {
        "timeout_seconds": limits.timeout_seconds,
        "stall_timeout": limits.stall_timeout,
        "max_turns": limits.max_turns or (agent.max_turns if agent else None),
        "max_budget_usd": limits.max_budget_usd,
    }
    for name, bound in most.items():
        wanted = getattr(own, name)
        if wanted is not None and (not wanted > 0 or not math.isfinite(wanted) or (bound is not None and wanted > bound)):
            raise _wider(stage, key, f"{name}: {wanted:g}", f"at most {bound:g}" if bound is not None else "more than 0")
    for tool, wanted in (own.max_uses or {}).items():
        bound = min([c[tool] for c in (limits.max_uses, agent.max_uses if agent else {}) if tool in c], default=wanted)
        if wanted > bound:
            raise _wider(stage, key, f"{wanted} calls of {tool}", f"at most {bound}")
    if own.model is not None:
        config.model_id(own.model)
        highest = limits.model or (agent.tier if agent else "")
        tiers = own.model in TIERS and highest in TIERS
        if highest and not (own.model == highest or (tiers and TIERS.index(own.model) <= TIERS.index(highest))):
            raise _wider(stage, key, f"the model {own.model}", f"at most {highest}")
    for glob in own.scope or ():
        if agent and not globs.inside(glob, agent.scope):
            raise _wider(stage, key, f"scope {glob}", ", ".join(agent.scope) or f"only what {agent.name} leaves as outputs")


def _wider(stage: FanOut, key: str, wants: str, allowed: str) -> StrataError:
    return StrataError("WIDENING_REFUSED", f"{stage.name}: {key!r} asks for {wants}; allowed: {allowed}", "narrow the item")
