# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: a step of Forge that Python does, such as building, merging findings, deciding. `uv run core/forge_step.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.forge import steps
from packs.forge.step import Step

TOOL = Tool(
    "forge_step",
    layer=1,
    summary="Do a step of Forge that needs no model. Its orchestrator calls it.",
    example='uv run core/forge_step.py setup add-a-flag --input request="Add a flag" --cwd my-project',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", choices=tuple(steps.VERBS))
    parser.add_argument("words", nargs="*", metavar="WORD", help="what the step needs to know, and last the feature's short name")
    executor.arguments(parser)


def main(call: Call) -> Json:
    verb, words = call.options.verb, call.options.words
    slug = words[-1] if words else ""

    def work(task: Task, out: Path) -> Verdict:
        return steps.VERBS[verb](Step(call, task, out, tuple(words[:-1]), []))

    return executor.run_function(call, f"forge-{verb}", executor.read_task(call, Task(action="STEP", target=slug)), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
