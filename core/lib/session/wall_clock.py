"""A budget of time: what every run of the session took, and the clock that ends what runs when it is used up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

from lib.contract import StrataError
from lib.process import processes
from lib.session import budget
from lib.session.ledger import Ledger


class Clock:
    """Ends what runs when a budget of time is used up: asks this process to stop, as a person would, and says why."""

    def __init__(self, session: Path, scope: str) -> None:
        self.ledger = Ledger(session)
        self.scope = scope
        self.ran_out = False
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        limit = self.ledger.limits.get(self.scope, {}).get("wall_seconds")
        if limit is not None:
            left = max(limit - self.ledger.wall_seconds(self.scope), 0.0)
            threading.Thread(target=self._wait, args=(left,), name="wall-clock", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _wait(self, seconds: float) -> None:
        if not self._ended.wait(seconds) and not processes.stopping.is_set():
            self.ran_out = True
            processes.stopping.set()

    def error(self) -> StrataError:
        limit = self.ledger.limits[self.scope]["wall_seconds"]
        what = f"{budget.named(self.scope)} has used up its {limit:g} wall_seconds, and what was running was stopped"
        return self.ledger.exceeded(self.scope, "wall_seconds", what)
