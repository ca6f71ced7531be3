"""`report.html`: one file that opens offline and shows what was asked, what happened, what it cost, and why. From files alone.

All text that agents, users and files bring along is escaped, or sits in a block of data that only ever becomes text; the page
itself says (by a content policy with the hashes of its own style and script) that nothing else may run or be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from lib.contract import command
from lib.disk import files
from lib.view import reader
from lib.view.page import outcomes, pictures, sections, steps
from lib.view.page.markup import date, e, tag
from lib.view.tree import Scene

WHERE = Path(__file__).parent


def write(session: Path, ended: bool = False, seen: Scene | None = None) -> Path:
    """`seen`: what somebody has read of it already."""
    path = session / "report.html"
    files.write_atomic(path, text(session, ended, seen))
    return path


def text(session: Path, ended: bool = False, seen: Scene | None = None) -> str:
    seen = seen or reader.Reader(session).look(ended)
    style, script = ((WHERE / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    data = json.dumps({"attempts": dict(steps.details(seen))}, ensure_ascii=True).replace("<", "\\u003c")
    policy = "; ".join(
        [
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
        ]
    )
    head = tag(
        "head",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", e(f"{seen.root.name}: {seen.root.status}")),
        f"<style>{style}</style>",
    )
    main = [
        *sections.first(seen),
        *sections.warnings(seen),
        *sections.goal(seen),
        *outcomes.result(seen),
        *pictures.graph(seen),
        *pictures.timeline(seen),
        *steps.listed(seen),
        *sections.cost(seen),
        *sections.verification(session),
        *sections.decisions(seen),
    ]
    made = f"Made from {e(session)} on {e(date(seen.now))}. Make it again: "
    again = tag("code", e(f"{command('session')} report {session}"))
    body = [
        '<a class="skip" href="#steps">Skip to the steps</a>',
        *sections.header(seen),
        *sections.nav(),
        tag("main", *main),
        tag("footer", made, again),
        f'<script type="application/json" id="data">{data}</script><script>{script}</script>',
    ]
    return "\n".join(["<!doctype html>", '<html lang="en">', head, "<body>", *body, "</body></html>", ""])


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
