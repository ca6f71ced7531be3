# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: a step of a downstream run that Python does. `uv run core/downstream_step.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.downstream import steps
from packs.downstream.at import At

TOOL = Tool(
    "downstream_step",
    layer=1,
    summary="Do a step of a downstream run that needs no model. Its orchestrator calls it.",
    example="uv run core/downstream_step.py context --input folder=house --output baseline=baseline.yaml",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=tuple(steps.VERBS))
    parser.add_argument("words", nargs="*", default=[], metavar="WORD", help="what the step needs to know")
    executor.arguments(parser)


def main(call: Call) -> Json:
    verb, words = call.options.verb, tuple(call.options.words)

    def work(task: Task, out: Path) -> Json:
        return steps.VERBS[verb](At(call, task, out, words))

    return executor.run_function(call, f"downstream-{verb}", executor.read_task(call, Task(action="STEP")), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
