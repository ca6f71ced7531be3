"""The views that attend a run: the tree at the terminal, the report in Markdown, and the page."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json
from lib.disk import files
from lib.session import watchers
from lib.session.folder import Session
from lib.view import page, reader, report, terminal

DRAWN = ".drawn"  # in the session: of what the page was made


class Onlookers:
    def opened(self, session: Path) -> None:
        terminal.begin(session)

    def reported(self, session: Path) -> None:
        report.write(session)

    def left(self) -> None:
        terminal.end()

    def ended(self, session: Path, document: Json) -> Path | None:
        made, drawn = session / "report.html", session / DRAWN
        said = [document.get(name) for name in ("exit_code", "error", "waiting")]
        now = files.digest([Session(session, None).numbers(), said])
        if made.exists() and drawn.exists() and drawn.read_text(encoding="utf-8") == now:
            return made  # a run that did nothing has nothing new to show
        seen = reader.Reader(session).look(ended=True)
        report.write(session, seen)
        page.write(session, ended=True, seen=seen)
        files.write_atomic(drawn, now)
        return made


def attend() -> None:
    watchers.watchers[:] = [Onlookers()]
