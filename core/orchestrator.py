# /// script
# requires-python = ">=3.11"
# dependencies = ["claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "pyyaml>=6.0,<7"]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: runs an orchestrator of config/orchestrators. `uv run core/orchestrator.py oresearch --param topic=Wikis`"""

from __future__ import annotations

import argparse

from lib import cli, orchestrator_file, stages
from lib.cli import Call, Tool
from lib.contract import Json

TOOL = Tool(
    "orchestrator",
    layer=2,
    summary="Run the stages of an orchestrator.",
    example='uv run core/orchestrator.py oresearch --param topic="Self-hosted wikis"',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="config/orchestrators/NAME.yaml, or the path of such a file")
    parser.add_argument("--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter (repeatable)")
    stages.arguments(parser)


def main(call: Call) -> Json:
    chosen = orchestrator_file.load(call.options.name, call.options.modifier)
    params = cli.keyword(call.options.param, "--param")
    return stages.run(call, chosen, params, topic=next(iter(params.values()), ""))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
