"""Observers of a run: a view registers here and is told when a session opens, when there is something to report, and how a tool
ended. The run knows nothing of its observers, and their failures do not change how it ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lib.contract import Json
from lib.session import events

REPORT = "execution-report.md"


class Watcher(Protocol):
    def opened(self, session: Path) -> None:
        """This process works in the session from now on, and a person may be at its terminal."""
        ...

    def reported(self, session: Path) -> None:
        """A phase or a campaign has come to something that people read about."""
        ...

    def left(self) -> None:
        """The work is over; what is printed from now on is the tool's last word."""
        ...

    def ended(self, session: Path, document: Json) -> Path | None:
        """The run has ended like this. Returns what a person opens to read about it."""
        ...


watchers: list[Watcher] = []


def place(session: Path) -> Path:
    """Where the report will be when the run has ended: it is made together with the page."""
    return session / REPORT


def report(session: Path) -> Path:
    for watcher in watchers:
        try:
            watcher.reported(session)
        except Exception as error:  # noqa: BLE001 - it reads what agents could have written: none of that may change how a run ends
            events.emit_event("monitor", session.name, "no-report", detail=f"{type(error).__name__}: {error}")
    return session / REPORT
