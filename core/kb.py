# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: the knowledge base, built from runs in versions, and asked. `uv run core/kb.py ask "What does a CFO fear?"`"""

from __future__ import annotations

import argparse
import sys

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from packs.kb import operating

TOOL = Tool(
    "kb",
    layer=1,
    summary="Build a knowledge base from what a run produced, ask it, and look after its versions.",
    example='uv run core/kb.py ask "What does a CFO in healthcare fear?" --no-model',
    serves=sys.argv[1:2] == ["serve"],
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "verb",
        choices=tuple(operating.VERBS),
        metavar="VERB",
        help="build, ask, chat, serve (MCP), versions, diff, prune or page",
    )
    add(
        "words",
        nargs="*",
        default=[],
        metavar="RUN|QUESTION|VERSION",
        help="build RUN (a session, latest, or a manifest); ask QUESTION; diff 1 2; page [FILE]",
    )
    add("--kb", metavar="DIR", default="", help="its folder (default: downstream/knowledge_base here)")
    add("--version", type=int, default=0, metavar="N", help="read this version of the knowledge base (default: the current one)")
    add("--no-model", action="store_true", help="ask: show the best passages, even in doubt; ask no model")
    add("--write", action="store_true", help="ask: have an agent write the answer from the documents")
    add("--conversation", metavar="NAME", default="", help="ask: continue the conversation with this name")
    add("--keep", type=int, choices=range(1, 1001), default=5, metavar="N", help="prune: versions to keep (default 5)")
    add("--yes", action="store_true", help="prune: remove them")
    executor.arguments(parser)


def main(call: Call) -> Json:
    return operating.VERBS[call.options.verb](call)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
