"""What the whole tree of agents has spent, and whether another one may start.

`ledger.jsonl` is shared by every process of a session, under a lock. An agent reserves its cap before it starts and settles
with what it reported. Spent is what was settled; held is what is reserved, and what an agent that was cut off may have cost: it
stays held at its cap until that agent session is continued and says so. Both count against a limit. Every line carries the sums
after it, so that looking costs one line and not the file. Limits are in `budget.json`, for the campaign and for each phase. A
limit in USD can be overshot by what one response costs in each agent that runs, because the SDK looks only between responses:
that is charged when it is known, and nothing starts any more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import ExitCode, Interrupted, Json, StrataError
from lib.disk import files, locks
from lib.disk.clock import now
from lib.disk.redact import redact
from lib.process import processes
from lib.session import budget, holding
from lib.session.budget import WHOLE
from lib.session.ledger_lines import (
    BLOCK,
    NOTHING,
    Line,
    Scoped,
    Sums,
    add,
    every,
    is_open,
    newest_first,
    open_ones,
    parse,
    spent_on,
    unknown,
    waiting,
    wall_total,
    wall_until_now,
)
from lib.session.step import Step

DEFAULT_CAP_USD = 1.0  # of an agent that was given none, where there is a limit in USD at all
LEAST_CAP_USD = 0.01
WARN_AT = 0.8
LATER = -1.0  # instead of a cap: others hold what is needed, and will give it back

CUT_OFF = "cut-off"  # the source of what nobody could settle any more
WAIT_SECONDS = 0.2  # between two looks for room


class Reservation(Struct, frozen=True):
    id: str
    phase: str
    cap_usd: float | None  # what the agent may spend, to be handed to the SDK


class Figures(Struct, frozen=True):
    """What a session has spent, and what is held besides. Every view says these two."""

    usd: float
    held: float
    tokens: int
    agents: int


NOTHING_SPENT = Figures(0.0, 0.0, 0, 0)


class Ledger:
    def __init__(self, session: Path, strict: bool = True) -> None:
        """`strict`: what cannot be read stops the run; who only looks on goes by it."""
        self.folder = session
        self.path = session / "ledger.jsonl"
        self.strict = strict
        self._descriptor: int | None = None  # while this one holds the lock
        known = budget.read(session / "budget.json", strict)
        self.limits = {scope: limits for scope, limits in known.items() if scope != budget.RAISED and limits}

    def figures(self, scope: str = WHOLE) -> Figures:
        """The one function all figures come from."""
        sums = self.sums().get(scope, NOTHING)
        return Figures(round(sums.usd, 9), round(max(sums.held, 0.0), 9), int(sums.tokens), int(sums.agents))

    # Before and after an agent

    def reserve(
        self,
        step: Step,
        agent: str,
        place: str,
        cap_usd: float | None,
        parent: str = "",
        driver: str = "live",
        continues: str = "",
        on_wait: Callable[[], None] = lambda: None,
    ) -> Reservation:
        """Room for one more agent, or exit 11 with what was spent on what. Where others hold what it needs, it waits until they
        have settled. `parent`: the agent that starts it, if one does. `continues`: the agent session that goes on; what is held
        for its earlier parts is held for it now."""
        waits = False
        for lost in self.open() if continues else ():  # its earlier part may have been killed, and have settled nothing
            if holding.is_gone(self.folder / lost):
                self.close_open(lost)
        try:
            while True:
                found = self._try_to_reserve(step, agent, place, cap_usd, parent, driver, continues)
                if found:
                    return found
                if not waits:
                    self._note(Line("wait", id=place, parent=parent, phase=step.phase))
                    waits = True
                    on_wait()
                if processes.stopping.wait(WAIT_SECONDS):
                    raise Interrupted()
        finally:
            if waits:
                self._note(Line("waited", id=place))

    def _try_to_reserve(
        self, step: Step, agent: str, place: str, cap_usd: float | None, parent: str, driver: str, continues: str
    ) -> Reservation | None:
        """The reservation; None where there may be room soon."""
        with self._open() as (descriptor, sums):
            if parent:
                budget.require_room_below(parent, self.lines(), self.limits)
            freed = self._freed(sums, continues)
            sums = freed[-1][1] if freed else sums
            scopes = [scope for scope in (WHOLE, step.phase) if scope in self.limits]
            cap = self._cap(scopes, sums, cap_usd, lambda: self._will_settle(place, parent))
            if cap == LATER:
                return None
            try:
                for scope in scopes:
                    self._require(scope, sums, cap or 0.0, agent)
            except StrataError:  # who looks next, under the same lock, sees that we wait no more: of two only one gives up
                if place in waiting(self.lines()):
                    self._append(descriptor, Line("waited", id=place), sums)
                raise
            for line, after in freed:  # only now: what is not known stays held until something else holds it
                self._append(descriptor, line, after)
            holding.begin(self.folder / place)
            held = Sums(held=cap or 0.0, agents=1)
            line = Line("reserve", id=place, agent=agent, step=str(step), phase=step.phase, parent=parent, driver=driver)
            self._append(descriptor, line.adding(held), add(sums, step.phase, held))
            return Reservation(place, step.phase, cap)

    def _note(self, line: Line) -> None:
        with self._open() as (descriptor, sums):
            self._append(descriptor, line, sums)

    def _will_settle(self, place: str, parent: str) -> bool:
        """Whether somebody holds money who will still give some of it back: not an agent above us, which waits for us, nor one
        that itself waits for an agent below it that has no room, nor one that was killed."""
        lines = self.lines()
        reserved, queue = open_ones(lines), waiting(lines)
        parents = {place: parent, **{key: line.parent for key, line in reserved.items()}}
        stuck: set[str] = set()
        for one in [place, *queue]:
            above = parents.get(one, "") or queue.get(one, "")
            while above and above not in stuck:
                stuck.add(above)
                above = parents.get(above, "")
        left = {key: line for key, line in reserved.items() if key not in stuck and line.charged.held > 0}
        return not all(holding.is_gone(self.folder / key) for key in left)

    def require(self, phase: str) -> None:
        """Whether an agent could start now, without writing anything."""
        sums = self.sums()
        scopes = [scope for scope in (WHOLE, phase) if scope in self.limits]
        cap = self._cap(scopes, sums, None, lambda: False)
        for scope in scopes:
            self._require(scope, sums, cap or 0.0, "an agent")

    def settle(
        self, reservation: Reservation, usd: float | None, tokens: int, source: str, session: Line | None = None
    ) -> list[str]:
        """What it came to. Returns the limits that are now nearly reached, each once. `session`: what the agent session has
        come to as a whole, for one that is continued later. What earlier parts of it may have cost is known by that, too."""
        if usd is not None and (not math.isfinite(usd) or usd < 0):
            usd, source = None, "refused"  # no agent earns money
        reserved = reservation.cap_usd or 0.0
        known = session or Line("settle")
        with self._open() as (descriptor, before):
            charged = Sums(tokens=tokens) if usd is None else Sums(usd, -reserved, tokens)
            after = add(before, reservation.phase, charged)
            line = replace(known, id=reservation.id, phase=reservation.phase, spent_usd=usd, source=source).adding(charged)
            self._append(descriptor, line, after)
            holding.end(self.folder / reservation.id)
            held = after[WHOLE].held > 1e-9  # or there is nothing that could be freed
            for more, sums_then in self._freed(after, known.agent_session_id if usd is not None and held else ""):
                self._append(descriptor, more, sums_then)
        return [
            f"{budget.named(scope)}: {getattr(after[scope], kind):g} of {limit:g} {kind}"
            for scope, limits in self.limits.items()
            for kind, limit in limits.items()
            if getattr(before.get(scope), kind, 0) < WARN_AT * limit <= getattr(after.get(scope), kind, 0)
        ]

    def _freed(self, sums: Scoped, agent_session: str) -> list[tuple[Line, Scoped]]:
        """The lines, each with the sums after it, that free what is held for earlier parts of an agent session: all of it is
        known, or held once more, from here on."""
        found: list[tuple[Line, Scoped]] = []
        for place, line in unknown(self.lines()).items() if agent_session else ():
            record = self.folder / place / "agent-session.json"
            if record.exists() and files.read_json(record).get("id") == agent_session:
                charged = Sums(held=-line.charged.held)
                sums = add(sums, line.phase, charged)
                found.append((Line("release", id=place, phase=line.phase).adding(charged), sums))
        return found

    def close_open(self, only: str = "") -> None:
        """When a run begins nothing of an earlier one is left running: what was reserved then is settled, as unknown. The same
        when one attempt (`only`) has ended. A replayed session has cost nothing."""
        if not (is_open(self.path, only) if only else self.open()):
            return
        with self._open() as (descriptor, sums):
            for place, line in [(p, r) for p, r in self.open().items() if only in ("", p)]:
                replayed = line.driver == "replay"
                charged = Sums(held=-line.charged.held if replayed else 0.0)
                sums = add(sums, line.phase, charged)
                known = Line("settle", id=place, phase=line.phase, spent_usd=0.0, source="replayed").adding(charged)
                self._append(descriptor, known if replayed else replace(known, spent_usd=None, source=CUT_OFF), sums)

    def _cap(self, scopes: list[str], sums: Scoped, asked: float | None, more_to_come: Callable[[], bool]) -> float | None:
        """What an agent may spend: what was asked for it, or what is usual, or what is left. `LATER`: there may be room soon."""
        left = [self.limits[s]["usd"] - sums.get(s, NOTHING).counted("usd") for s in scopes if "usd" in self.limits[s]]
        if not left:
            return asked
        wanted = DEFAULT_CAP_USD if asked is None else asked
        if wanted <= min(left) + 1e-9:
            return wanted
        if more_to_come():
            return LATER
        return asked if asked is not None else max(min(left), LEAST_CAP_USD)

    def _require(self, scope: str, sums: Scoped, cap: float, agent: str) -> None:
        spent = sums.get(scope, NOTHING)
        wanted = {"usd": cap, "agents": 1, "tokens": 1, "wall_seconds": 0.001}
        for kind, limit in self.limits[scope].items():
            current = self.wall_seconds(scope) if kind == "wall_seconds" else spent.counted(kind)
            if current + wanted[kind] > limit + 1e-9:
                message = f"{budget.named(scope)} has {max(limit - current, 0):g} of {limit:g} {kind} left"
                if kind == "usd":
                    message += f", and {agent} may need {cap:g}"
                    held = spent.held > 1e-9
                    message += f"; {spent.held:g} is held for agents that were cut off or still run" if held else ""
                raise self.exceeded(scope, kind, message)

    def exceeded(self, scope: str, kind: str, message: str) -> StrataError:
        limit = self.limits[scope][kind]
        detail = {"limit": kind, "scope": scope, "spent": spent_on(self.lines())}
        hint = f"resume with more: campaign.py --resume SESSION --budget {kind}={limit * 2:g}"
        hint = hint if scope == WHOLE else "raise the budget of that phase in the plan, and resume with the plan"
        return StrataError("BUDGET_EXCEEDED", message, hint, ExitCode.NEEDS_ESCALATION, detail=detail)

    # Time: what every run of the session took

    def begin_run(self, scope: str = WHOLE, params: Json | None = None) -> None:
        took = wall_total(self.lines(), scope)
        with self._open() as (descriptor, sums):
            self._append(descriptor, Line("begin", wall=took, scope=scope, params=params or {}), sums)

    def end_run(self, scope: str) -> None:
        took = self.wall_seconds(scope)
        with self._open() as (descriptor, sums):
            self._append(descriptor, Line("end", wall=took, scope=scope), sums)

    def wall_seconds(self, scope: str = WHOLE) -> float:
        """What every run of the scope took, this one until now."""
        known = wall_until_now(newest_first(self.path), scope)
        return wall_total(self.lines(), scope) if known is None else known

    # Reading

    def lines(self) -> list[Line]:
        """Every line. One that cannot be read stops the run: what was spent is not guessed. One without end is being written."""
        found = every(self.path)
        if self.strict and None in found:
            if self._descriptor is None:
                with self._open() as (descriptor, _):
                    self._repair(descriptor)
            else:
                self._repair(self._descriptor)
        return [line for line in found if line]

    def _repair(self, descriptor: int) -> None:
        """Keeps the file aside as it is, and in its place the lines that can be read. Under the lock, and in the same file:
        others wait for it."""
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        found = [parse(text) for text in data.splitlines()]
        good = [line for line in found if line]
        aside = files.set_aside(self.path, copy=True)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, "".join(f"{line.text()}\n" for line in good).encode())
        os.fsync(descriptor)
        message = f"{self.path} holds {len(found) - len(good)} lines that cannot be read"
        hint = f"it is kept as {aside.name}; run it again to continue from the {len(good)} lines that can"
        raise StrataError("CORRUPT_STATE", message, hint)

    def session(self, agent_session_id: str) -> Line | None:
        """What is known of an agent session that is continued: the last that was settled for it."""
        lines = newest_first(self.path) if agent_session_id else ()
        return next((line for line in lines if line.agent_session_id == agent_session_id), None)

    def sums(self) -> Scoped:
        last = self.lines()[-1:] if self.strict else list(islice(newest_first(self.path), 1))
        return last[0].sums if last else {}

    def open(self) -> dict[str, Line]:
        return open_ones(self.lines())

    @contextmanager
    def _open(self) -> Generator[tuple[int, Scoped]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locks.held(self.path) as descriptor:
            self._descriptor = descriptor
            try:
                yield descriptor, self._last_sums(descriptor)
            finally:
                self._descriptor = None

    def _last_sums(self, descriptor: int) -> Scoped:
        """Of the last line. One that was torn by a power cut, or changed by somebody, stops the run."""
        size = os.fstat(descriptor).st_size
        if not size:
            return {}
        tail = os.pread(descriptor, min(size, BLOCK), max(size - BLOCK, 0))
        last = parse(tail.splitlines()[-1]) if tail.endswith(b"\n") else None
        if last is None:
            self._repair(descriptor)
        assert last
        return last.sums

    def _append(self, descriptor: int, line: Line, sums: Scoped) -> None:
        text = redact(replace(line, at=now(), sums=sums).text()) + "\n"
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
