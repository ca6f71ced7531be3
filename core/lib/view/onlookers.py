"""The views that attend a run: the tree at the terminal, the report in Markdown, and the page."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json
from lib.session import watchers
from lib.view import page, report, terminal


class Onlookers:
    def opened(self, session: Path) -> None:
        terminal.begin(session)

    def reported(self, session: Path) -> None:
        report.write(session)

    def left(self) -> None:
        terminal.end()

    def ended(self, session: Path, document: Json) -> Path | None:
        return page.write(session, ended=True)


def attend() -> None:
    watchers.watchers[:] = [Onlookers()]
