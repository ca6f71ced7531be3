"""Waiting out a rate limit or an overloaded model: visibly, for a bounded time, and only in the branch that met it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from lib.agent.drivers import Answer
from lib.contract import LAYER_NAMES, Interrupted, Json, part
from lib.process import processes
from lib.session import signals
from lib.tool.call import Call

DEFAULT_MAX_WAIT = 6 * 3600.0  # a five-hour limit, and a little
FIRST_SECONDS = 30.0  # where nobody says when it is over: longer each time …
LONGEST_SECONDS = 600.0  # … but not longer than this
PARKED_BY = ("RATE_LIMITED", "API_OVERLOADED")


class Parking:
    """How long one agent session has waited so far."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.left = DEFAULT_MAX_WAIT if call.options.max_wait is None else call.options.max_wait
        self.times = 0

    def seconds(self, answer: Answer) -> float:
        """How long to wait before it is worth asking again; 0 where it is not to be waited for."""
        if part(answer.error, "code") not in PARKED_BY:
            return 0.0
        resets_at: int | None = (answer.error or {}).get("resets_at")
        wait = min(FIRST_SECONDS * 2**self.times, LONGEST_SECONDS) if resets_at is None else resets_at - time.time()
        wait = max(wait, 1.0)
        return wait if wait <= self.left else 0.0

    def park(self, seconds: float, answer: Answer) -> None:
        """Stands still until then. A `.parked` signal stands as long as it does."""
        self.times += 1
        self.left -= seconds
        call, layer = self.call, LAYER_NAMES[self.call.tool.layer]
        until = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        why: Json = {"code": part(answer.error, "code"), "until": until}
        signals.park(call.session.folder, layer, call.label, call.trace_id, until)
        call.report("parked", why)
        try:
            if processes.stopping.wait(seconds):
                raise Interrupted()
        finally:
            signals.unpark(call.session.folder, layer, call.label)
        call.report("unparked")
