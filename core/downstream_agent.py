# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: one run of a downstream agent. `uv run core/downstream_agent.py --help`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.downstream import working

TOOL = Tool(
    "downstream_agent",
    layer=1,
    summary="Have a downstream agent do one job, whatever it is run by, and take what it left. Its orchestrator calls it.",
    example="uv run core/downstream_agent.py word_count --input run=upstream/manifest.json --input agents=my-agents",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="by its name; an orchestrator sends the job besides")
    executor.arguments(parser)


def main(call: Call) -> Json:
    return working.run(call, working.asked(call, executor.read_task(call, Task(target=call.options.agent))))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
