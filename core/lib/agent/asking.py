"""Asking an agent: through the driver that was chosen, patiently where the model cannot be reached, and within the budget."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lib import names
from lib.agent.drivers import Answer, Request
from lib.agent.drivers.conversation import AGENT_SESSION
from lib.agent.drivers.live import live
from lib.agent.drivers.replay import replay
from lib.agent.parking import Parking
from lib.agent.request import confinement
from lib.contract import ExitCode, Interrupted, Json
from lib.process import processes
from lib.session.attempts import Attempt
from lib.session.ledger import CUT_OFF, Ledger
from lib.session.ledger_lines import Line
from lib.session.outcome import FileChange, Outcome
from lib.session.step import Step
from lib.tool.call import Call

GO_ON = "The model could not be reached for a while. Continue your task where you were."
LoadSdk = Callable[[], Any]


class Room:
    """What one session may spend. Whatever becomes of it, also where it is asked to stop, it is settled: what it had cost by then
    is known, or is not."""

    def __init__(self, call: Call, attempt: Attempt) -> None:
        self.call = call
        self.attempt = attempt
        self.heard: list[Answer] = []
        options = call.options
        self.ledger = Ledger(call.session.folder)
        place = call.session.relative(self.attempt.folder)
        parent = os.getenv(names.AGENT, "")
        tell = partial(call.report, "waiting", {"for": "room in the budget: others hold what it needs"})
        again = options.resume_id or ""
        step, cap = self.attempt.step, options.max_budget_usd
        self.reservation = self.ledger.reserve(step, options.name, place, cap, parent, call.driver, again, tell)
        self.earlier = self.ledger.session(again)  # what the same agent session had come to before

    @property
    def cap_usd(self) -> float | None:
        return self.reservation.cap_usd

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        for near in self._settle():
            self.call.report("budget-warning", near)

    def _settle(self) -> list[str]:
        if self.heard:
            whole, part = self.heard[-1], self.heard[-1].without(self.earlier)
            so_far = Line(
                "settle", agent_session_id=whole.agent_session_id, session_usd=whole.cost_usd, session_usage=whole.usage
            )
            return self.ledger.settle(self.reservation, part.cost_usd, part.tokens, part.cost_source, so_far)
        begun = (self.attempt.folder / AGENT_SESSION).exists()
        unknown = (None, 0, CUT_OFF) if begun else (0.0, 0, "not-begun")
        return self.ledger.settle(self.reservation, *unknown)

    def ask(self, request: Request, step: Step, ordinal: int, roots: dict[str, Path], load_sdk: LoadSdk) -> Answer:
        """The answer, after as many rate limits as it takes to get one and `--max-wait` allows. A session that had got somewhere
        is continued."""
        parking = Parking(self.call)
        denials: list[Json] = []
        uses: Counter[str] = Counter()
        caps = request.max_uses
        while True:
            answer = self._once(request, step, ordinal, roots, load_sdk)
            denials += [d for d in answer.denials if d not in denials]
            uses += Counter(answer.tool_uses)
            wait = parking.seconds(answer)
            if not wait:
                return replace(answer, denials=denials, tool_uses=dict(uses)).without(self.earlier)
            request = replace(request, max_uses={tool: max(most - uses[tool], 0) for tool, most in caps.items()})
            parking.park(wait, answer)
            if answer.turns > 1 and answer.agent_session_id:
                request = replace(request, resume_id=answer.agent_session_id, prompt=GO_ON)

    def _once(self, request: Request, step: Step, ordinal: int, roots: dict[str, Path], load_sdk: LoadSdk) -> Answer:
        options = self.call.options
        if self.call.driver == "replay":
            self.heard.append(replay(request, Path(options.fixtures), step, ordinal, options.accept_drift, roots))
        else:
            self.heard.append(live(request, load_sdk))
        if processes.stopping.is_set():
            raise Interrupted()
        return self.heard[-1]


def came_to(call: Call, attempt: Attempt, request: Request, answer: Answer, changes: tuple[FileChange, ...]) -> Outcome:
    return Outcome(
        answer.exit_code,
        verdict="done" if answer.exit_code == ExitCode.SUCCESS else "failed",
        error=answer.error,
        tool="spawn",
        agent=request.agent,
        model=request.model,
        step=str(attempt.step),
        attempt=attempt.number,
        changes=tuple(c for c in changes if c.kind != "folder"),
        driver=call.driver,
        result=answer.result,
        structured_output=answer.structured_output,
        cost_usd=answer.cost_usd,
        cost_source=answer.cost_source,
        usage=answer.usage,
        turns=answer.turns,
        agent_session_id=answer.agent_session_id,
        duration_seconds=round(answer.duration_seconds, 3),
        denials=tuple(answer.denials),
        tool_uses=answer.tool_uses,
        confinement=confinement(request),
        grant=json.loads(request.env[names.GRANT]),
        depth=call.depth.current + 1,
        max_depth=call.depth.maximum,
        trace_id=call.trace_id,
    )
