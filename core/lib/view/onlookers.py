"""The views that attend a run: the tree at the terminal, the report in Markdown, and the page. Each is loaded where it is drawn:
most tools that start draw none."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct

from lib.contract import Json
from lib.disk import files, lenient, records
from lib.session import events, watchers
from lib.session.folder import Session

DRAWN = ".drawn"  # in the session: of what the page was made


class Drawn(Struct, frozen=True):
    """Of what a page was made."""

    numbers: int = -9
    said: str = ""


class Onlookers:
    def opened(self, session: Path) -> None:
        if sys.stderr.isatty():
            from lib.view import terminal

            terminal.begin(session)

    def reported(self, session: Path) -> None:
        from lib.view import report

        report.write(session)

    def left(self) -> None:
        if events.screen:
            from lib.view import terminal

            terminal.end()

    def ended(self, session: Path, document: Json) -> Path | None:
        made, drawn = session / "report.html", session / DRAWN
        said = files.digest([document.get(name) for name in ("exit_code", "error", "waiting")])
        now = Drawn(Session(session, None).numbers(), said)
        before = lenient.read(drawn, Drawn)
        if made.exists() and before.said == now.said and now.numbers - before.numbers <= 1:  # that the last run has ended is one
            files.write_json(drawn, records.document(now))
            return made  # a run that did nothing has nothing new to show
        from lib.view import page, reader, report

        seen = reader.Reader(session).look(ended=True)
        report.write(session, seen)
        page.write(session, ended=True, seen=seen)
        files.write_json(drawn, records.document(now))
        return made


def attend() -> None:
    watchers.watchers[:] = [Onlookers()]
