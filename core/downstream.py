# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: what a run has found out becomes what people use. `uv run core/downstream.py run latest`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.campaign import named
from lib.cli import Tool
from lib.stages import runs
from packs.downstream import operating

TOOL = Tool(
    "downstream",
    layer=2,
    summary="Hand what a run produced to every downstream agent whose contract it can fulfil; or look at contracts first.",
    example="uv run core/downstream.py check --agents downstream/agents",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "verb",
        choices=tuple(operating.VERBS),
        metavar="VERB",
        help="check, order, bundle or run",
    )
    add(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="the finished run: its session, latest, or its manifest",
    )
    add("--agents", metavar="DIR", default="", help="where the contracts stand (default: agents_dir of the settings)")
    add(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="run only this agent and those it needs, enabled or not (repeatable)",
    )
    add("--partial", action="store_true", help="bundle: also what the run left unfinished")
    add("--review", action="store_true", help="run: ask a person before the results count")
    runs.arguments(parser, modifier=False)


if __name__ == "__main__":
    cli.run(TOOL, arguments, operating.main, words=named.words)
