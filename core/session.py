# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: looks at sessions, from their files alone; list, show, watch, report and more. `uv run core/session.py list`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib import cli
from lib.campaign import background
from lib.cli import Call, Tool
from lib.contract import HOUSE, Interrupted, Json
from lib.disk import lenient, places
from lib.process import processes, streams
from lib.session import catalogue, events
from lib.session.documents import Places
from lib.tool.arguments import count, keyword
from lib.view import gallery, page, reader, report, terminal

TOOL = Tool(
    "session",
    layer=0,
    summary="Look at sessions: list them, show or watch one, read its report, draw its graph, remove old ones.",
    example="uv run core/session.py show latest",
)
VERBS = {
    "list": "the sessions there are, newest first",
    "show": "one session as a tree",
    "watch": "the same, live, until the run ends",
    "tail": "what happened last; follows while it runs",
    "report": "makes report.html and execution-report.md, and says where they are",
    "stop": "asks the run, or the service, in a session to end, and waits until it has",
    "outputs": "what a run produced, with types and dimensions; --type, --dimension and --tag choose",
    "graph": "a session, or a plan.yaml, as a Mermaid flowchart",
    "prune": "removes sessions older than --older-than; without --yes it only lists them",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("verb", choices=tuple(VERBS), help="; ".join(f"{verb}: {what}" for verb, what in VERBS.items()))
    add("session", metavar="SESSION", nargs="?", help="its folder, its name or the beginning of it, or `latest` (the default)")
    add("--older-than", metavar="AGE", help="prune: since it was last worked on: 30d, 12h, 2w, 90m")
    add("--yes", action="store_true", help="prune: do it")
    add("--type", metavar="T", help="outputs: only of this type")
    add("--dimension", metavar="NAME=VALUE", action="append", default=[], help="outputs: only of this dimension (repeatable)")
    add("--tag", metavar="T", action="append", default=[], help="outputs: only with this tag (repeatable)")
    add("--lines", metavar="N", type=count, default=20, help="tail: how many to begin with (default 20)")


def main(call: Call) -> Json:
    options = call.options
    base = Path(options.session_base).absolute() if options.session_base else HOUSE / "sessions"
    name = options.session or options.session_dir or "latest"
    if options.verb == "list":
        found = gallery.listing(base)
        return said(sessions=found, text=gallery.table(found, base))
    if options.verb == "prune":
        return said(**gallery.prune(base, options.older_than, options.yes))
    if options.verb == "graph":
        drawn = gallery.graph(name, base)
        return said(graph=drawn, text=drawn)
    folder = catalogue.find(name, base)
    if options.verb == "show":
        return show(folder)
    if options.verb == "stop":
        return background.stop(folder, "session")
    if options.verb == "outputs":
        return said(**gallery.outputs(folder, options.type or "", keyword(options.dimension, "--dimension"), options.tag))
    if options.verb == "watch":
        return watch(folder)
    if options.verb == "tail":
        return tail(folder, options.lines, follow=options.output_format == "text")
    seen = reader.Reader(folder).look()
    made = page.write(folder, seen=seen)
    return said(report=str(made), markdown=str(report.write(folder, seen)), text=str(made))


def said(**fields: object) -> Json:
    return {"tool": "session", "status": "success", "exit_code": 0, **fields}


def show(folder: Path) -> Json:
    seen = reader.Reader(folder).look()
    out = terminal.console(stderr=False)
    lines = [
        line.plain for line in terminal.picture(seen, 200 if not sys.stdout.isatty() else out.width, None, terminal.plain(out))
    ]
    error = seen.manifest.error
    lines += [f"! {warning}" for warning in seen.manifest.warnings]
    if error and not seen.alive:
        lines += ["", f"{error.code}: {error.message}", *([f"→ {error.hint}"] if error.hint else [])]
    found = lenient.read(folder / places.KEPT, Places).found
    lines += ["", *(f"{name}: {path}" for name, path in found.items())] if found else []
    return said(session=gallery.entry(seen), found=found, text="\n".join([*lines, "", str(folder)]))


def watch(folder: Path) -> Json:
    """Until the run has ended; one that has ended is shown as it is."""
    if terminal.wanted() and catalogue.alive(folder):
        terminal.View(folder, terminal.console()).follow(lambda seen: processes.stopping.is_set() or not seen.alive)
    else:
        while catalogue.alive(folder):
            if processes.stopping.wait(0.5):
                raise Interrupted()
    if processes.stopping.is_set():
        raise Interrupted()
    return show(folder)


def tail(folder: Path, count: int, follow: bool) -> Json:
    if not follow:
        return said(lines=gallery.lines_of(folder, count))
    path = folder / ".live-report"
    shown = gallery.lines_of(folder, count)
    offset = path.stat().st_size if path.exists() else 0
    for event in shown:
        print(streams.harmless(events.for_person(event)), flush=True)
    while catalogue.alive(folder):
        if processes.stopping.wait(0.3):
            raise Interrupted()
        with path.open("rb") as file:
            file.seek(offset)
            whole, found, _ = file.read().rpartition(b"\n")
        offset += len(whole) + len(found)
        for line in whole.decode("utf-8", "replace").splitlines():
            print(streams.harmless(events.for_person(events.parse(line))), flush=True)
    return said(text="")


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
