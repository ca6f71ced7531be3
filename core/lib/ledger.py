"""What the whole tree of agents has spent, and whether another one may start.

`ledger.jsonl` is shared by every process of a session, under a lock. An agent reserves its cap before it starts and settles
with what it reported; what is unknown stays charged at the cap. Every line carries the sums after it, so that looking costs one
line and not the file. Limits are in `budget.json`, for the campaign and for each phase. A limit in USD can be overshot by what
one response costs in each agent that runs, because the SDK looks only between responses: that is charged when it is known, and
nothing starts any more.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from lib import files
from lib.contract import ExitCode, Json, StrataError
from lib.redact import redact
from lib.session import Step, now

LIMITS = ("usd", "tokens", "agents", "wall_seconds")
DEFAULT_CAP_USD = 1.0  # of an agent that was given none, where there is a limit in USD at all
LEAST_CAP_USD = 0.01
WARN_AT = 0.8
MAX_CHILDREN = 64  # agents one agent may start through its shell
MAX_STARTED_BY_AGENTS = 256  # in one session, where no budget of agents was given
PARENT_VARIABLE = "AGENTIC_AGENT"  # the attempt of the agent this process was started by
WHOLE = ""  # the scope of the campaign, beside those of its phases
RAISED = "raised"  # what a person gave on the command line, which outlives a change of the plan

Sums = dict[str, dict[str, float]]  # scope → usd, tokens, agents


@dataclass(frozen=True)
class Reservation:
    id: str
    phase: str
    cap_usd: float | None  # what the agent may spend, to be handed to the SDK


class Ledger:
    def __init__(self, session: Path) -> None:
        self.path = session / "ledger.jsonl"
        budget = session / "budget.json"
        known: dict[str, dict[str, float]] = files.read_json(budget) if budget.exists() else {}
        self.limits = {scope: limits for scope, limits in known.items() if scope != RAISED and limits}

    # Before and after an agent

    def reserve(self, step: Step, agent: str, place: str, cap_usd: float | None, parent: str = "") -> Reservation:
        """Room for one more agent, or exit 11 with what was spent on what. `parent`: the agent that starts it, if one does."""
        with self._open() as (descriptor, sums):
            if parent:
                self._require_room_below(parent)
            scopes = [scope for scope in (WHOLE, step.phase) if scope in self.limits]
            cap = self._cap(scopes, sums, cap_usd)
            for scope in scopes:
                self._require(scope, sums, cap or 0.0, agent)
            charged = {"usd": cap or 0.0, "tokens": 0, "agents": 1}
            line = {"kind": "reserve", "id": place, "agent": agent, "step": str(step), "phase": step.phase, **charged}
            line |= {"parent": parent} if parent else {}
            self._append(descriptor, line, _add(sums, step.phase, charged))
            return Reservation(place, step.phase, cap)

    def require(self, phase: str) -> None:
        """Whether an agent could start now, without writing anything."""
        sums = self.sums()
        scopes = [scope for scope in (WHOLE, phase) if scope in self.limits]
        for scope in scopes:
            self._require(scope, sums, self._cap(scopes, sums, None) or 0.0, "an agent")

    def settle(
        self, reservation: Reservation, usd: float | None, tokens: int, source: str, session: Json | None = None
    ) -> list[str]:
        """What it came to. Returns the limits that are now nearly reached, each once. `session`: what the agent session has
        come to as a whole, for one that is continued later."""
        if usd is not None and (not math.isfinite(usd) or usd < 0):
            usd, source = None, "refused"  # no agent earns money
        reserved = reservation.cap_usd or 0.0
        with self._open() as (descriptor, sums):
            before = {scope: dict(values) for scope, values in sums.items()}
            charged = {"usd": (usd if usd is not None else reserved) - reserved, "tokens": tokens, "agents": 0}
            line = {"kind": "settle", "id": reservation.id, "phase": reservation.phase, "spent_usd": usd, "source": source}
            line |= session or {}
            after = _add(sums, reservation.phase, charged)
            self._append(descriptor, line | charged, after)
        return [
            f"{_named(scope)}: {after[scope].get(kind, 0):g} of {limit:g} {kind}"
            for scope, limits in self.limits.items()
            for kind, limit in limits.items()
            if before.get(scope, {}).get(kind, 0) < WARN_AT * limit <= after.get(scope, {}).get(kind, 0)
        ]

    def _cap(self, scopes: list[str], sums: Sums, asked: float | None) -> float | None:
        left = [self.limits[s]["usd"] - sums.get(s, {}).get("usd", 0) for s in scopes if "usd" in self.limits[s]]
        if not left or asked is not None:
            return asked
        return min(DEFAULT_CAP_USD, max(min(left), LEAST_CAP_USD))

    def _require(self, scope: str, sums: Sums, cap: float, agent: str) -> None:
        spent = sums.get(scope, {})
        wanted = {"usd": cap, "agents": 1, "tokens": 1, "wall_seconds": 0.001}
        current = {**spent, "wall_seconds": self.wall_seconds() if "wall_seconds" in self.limits[scope] else 0}
        for kind, limit in self.limits[scope].items():
            if current.get(kind, 0) + wanted[kind] > limit + 1e-9:
                message = f"{_named(scope)} has {max(limit - current.get(kind, 0), 0):g} of {limit:g} {kind} left"
                message += f", and {agent} may need {cap:g}" if kind == "usd" else ""
                detail = {"limit": kind, "scope": scope, "spent": self.spent_on()}
                hint = f"resume with more: campaign.py --resume SESSION --budget {kind}={_more(limit)}"
                hint = hint if scope == WHOLE else "raise the budget of that phase in the plan, and resume with the plan"
                raise StrataError("BUDGET_EXCEEDED", message, hint, ExitCode.NEEDS_ESCALATION, detail=detail)

    def _require_room_below(self, parent: str) -> None:
        """What agents start by themselves is bounded too: for each of them, and, where the budget does not say, in all."""
        started = [line for line in self.lines() if line["kind"] == "reserve" and line.get("parent")]
        of_parent = sum(line["parent"] == parent for line in started)
        told = "agents" in self.limits.get(WHOLE, {})
        if of_parent >= MAX_CHILDREN or (len(started) >= MAX_STARTED_BY_AGENTS and not told):
            what = f"{parent} has started {of_parent}" if of_parent >= MAX_CHILDREN else f"agents have started {len(started)}"
            detail: Json = {"limit": "agents", "scope": WHOLE, "spent": self.spent_on()}
            hint = "let an orchestrator start them (foreach), or give the campaign a budget of agents"
            raise StrataError("TOO_MANY_AGENTS", f"{what} agents by themselves", hint, ExitCode.NEEDS_ESCALATION, detail=detail)

    # Time: what every run of the session took

    def begin_run(self) -> None:
        with self._open() as (descriptor, sums):
            self._append(descriptor, {"kind": "begin"}, sums)

    def wall_seconds(self) -> float:
        """From each beginning to the last thing that was written before the next, and of this run until now."""
        total, begun, last = 0.0, None, None
        for line in self.lines():
            at = datetime.fromisoformat(line["at"])
            if line["kind"] == "begin":
                total += max((last - begun).total_seconds(), 0.0) if begun and last else 0.0  # a clock may have been set back
                begun = at
            last = at
        return total + (max((datetime.fromisoformat(now()) - begun).total_seconds(), 0.0) if begun else 0.0)

    # Reading

    def lines(self) -> list[Json]:
        """Every whole line; one that was torn by a full disk or a power cut was never counted."""
        found: list[Json] = []
        for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines() if self.path.exists() else []:
            try:
                line: Any = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and {"kind", "at", "sums"} <= line.keys():
                found.append(cast(Json, line))
        return found

    def session(self, agent_session_id: str) -> Json:
        """What is known of an agent session that is continued: the last that was settled for it."""
        found = [line for line in self.lines() if agent_session_id and line.get("agent_session_id") == agent_session_id]
        return found[-1] if found else {}

    def sums(self) -> Sums:
        lines = self.lines()
        return lines[-1]["sums"] if lines else {}

    def open(self) -> dict[str, Json]:
        """What was reserved and has not been settled, by the attempt it is for."""
        found: dict[str, Json] = {}
        for line in self.lines():
            if line["kind"] == "reserve":
                found[str(line.get("id"))] = line
            elif line["kind"] == "settle":
                found.pop(str(line.get("id")), None)
        return found

    def spent_on(self) -> list[Json]:
        """Per agent: how many, and what they were charged."""
        table: dict[str, Json] = {}
        names = {line["id"]: line["agent"] for line in self.lines() if line["kind"] == "reserve"}
        for line in self.lines():
            if line["kind"] in ("reserve", "settle"):
                entry = table.setdefault(names.get(line["id"], "?"), {"agents": 0, "usd": 0.0})
                entry["agents"] += line["agents"]
                entry["usd"] = round(entry["usd"] + line["usd"], 6)
        return [{"agent": name, **entry} for name, entry in sorted(table.items(), key=lambda pair: -pair[1]["usd"])]

    @contextmanager
    def _open(self) -> Generator[tuple[int, Sums]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor, self._last_sums(descriptor)
        finally:
            os.close(descriptor)

    def _last_sums(self, descriptor: int) -> Sums:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, min(size, 65536), max(size - 65536, 0))
        if tail and not tail.endswith(b"\n"):
            os.write(descriptor, b"\n")  # what was torn stays as it is, on a line of its own
        for text in reversed(tail.splitlines()):
            try:
                return json.loads(text)["sums"]
            except (ValueError, KeyError):
                continue
        return {}

    def _append(self, descriptor: int, line: Json, sums: Sums) -> None:
        text = redact(json.dumps({"at": now(), **line, "sums": sums}, ensure_ascii=False)) + "\n"
        os.write(descriptor, text.encode())
        os.fsync(descriptor)


def _add(sums: Sums, phase: str, charged: dict[str, float]) -> Sums:
    after = {scope: dict(values) for scope, values in sums.items()}
    for scope in {WHOLE, phase}:
        values = after.setdefault(scope, {"usd": 0.0, "tokens": 0, "agents": 0})
        for kind, amount in charged.items():
            values[kind] = round(values.get(kind, 0) + amount, 9)
    return after


def _named(scope: str) -> str:
    return f"the phase {scope}" if scope else "the campaign"


def _more(limit: float) -> str:
    return f"{limit * 2:g}"


def read_budget(text: str) -> dict[str, float]:
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
