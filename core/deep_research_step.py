# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: a tick of a research run, over files. `uv run core/deep_research_step.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.deep_research import ticks
from packs.deep_research.at import At

TOOL = Tool(
    "deep_research_step",
    layer=1,
    summary="Do the work of one stage of a research run, and ask once to go on. Its orchestrator calls it.",
    example='uv run core/deep_research_step.py init normal standard wikis --input query="Which wikis last?"',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tick", choices=tuple(ticks.TICKS))
    parser.add_argument("words", nargs="*", default=[], metavar="WORD", help="what the tick needs to know, and last the run's id")
    executor.arguments(parser)


def main(call: Call) -> Json:
    tick, words = call.options.tick, call.options.words

    def work(task: Task, out: Path) -> Verdict:
        return At.of(call, task, out, tuple(words[:-1])).tick(tick, ticks.TICKS[tick])

    target = words[-1] if words else ""
    return executor.run_function(call, f"research-{tick}", executor.read_task(call, Task(action="TICK", target=target)), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
