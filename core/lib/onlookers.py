"""The views that attend a run: the tree at the terminal, the report in Markdown, and the page."""

from __future__ import annotations

from pathlib import Path

from lib import live, page, report, watchers
from lib.contract import Json


class Onlookers:
    def opened(self, session: Path) -> None:
        live.begin(session)

    def reported(self, session: Path) -> None:
        report.write(session)

    def left(self) -> None:
        live.end()

    def ended(self, session: Path, document: Json) -> Path | None:
        return page.write(session, ended=True)


def attend() -> None:
    watchers.watchers[:] = [Onlookers()]
