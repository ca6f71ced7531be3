# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: runs an orchestrator of config/orchestrators. `uv run core/orchestrator.py oresearch --param topic=Wikis`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.campaign import background, named
from lib.cli import Call, Tool
from lib.contract import HOUSE, Json, usage
from lib.disk import files
from lib.plan import listing, orchestrator_file
from lib.session import catalogue
from lib.stages import runs
from lib.tool.arguments import keyword

TOOL = Tool(
    "orchestrator",
    layer=2,
    summary="Run the stages of an orchestrator.",
    example='uv run core/orchestrator.py oresearch --param topic="Self-hosted wikis"',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="your own, a pack's or a built-in orchestrator, or a file")
    parser.add_argument("--list", action="store_true", help="list all orchestrators, and where each was found")
    parser.add_argument("--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter (repeatable)")
    parser.add_argument("--params", metavar="FILE", help="parameters as a JSON object")
    parser.add_argument("--stop", metavar="SESSION", help="stop the run in a session; --resume continues it")
    runs.arguments(parser)


def main(call: Call) -> Json:
    if call.options.stop:
        base = Path(call.options.session_base).absolute() if call.options.session_base else HOUSE / "sessions"
        return background.stop(catalogue.find_session(call.options.stop, base), "orchestrator")
    if call.options.list:
        return listing.of("orchestrator", "orchestrator")
    if not call.options.name:
        usage("which orchestrator?", "--list shows those there are")
    chosen = orchestrator_file.load(call.options.name, call.options.modifier)
    params = files.read_json(Path(call.options.params)) if call.options.params else {}
    params |= keyword(call.options.param, "--param")
    return runs.run(call, chosen, params, topic=str(next(iter(params.values()), "")))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
