"""The views that attend a run: the tree at the terminal, the report in Markdown, and the page."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json
from lib.session import watchers
from lib.view import page, reader, report, terminal


class Onlookers:
    def opened(self, session: Path) -> None:
        terminal.begin(session)

    def reported(self, session: Path) -> None:
        report.write(session)

    def left(self) -> None:
        terminal.end()

    def ended(self, session: Path, document: Json) -> Path | None:
        seen = reader.Reader(session).look(ended=True)
        if not (session / "manifest.json").exists():  # a campaign has written its own
            report.write(session, seen)
        return page.write(session, ended=True, seen=seen)


def attend() -> None:
    watchers.watchers[:] = [Onlookers()]
