# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16", "httpx2>=2.16,<3", "protego>=0.5,<1", "trafilatura>=2.1,<3",
#   "pypdfium2>=5,<6",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: what a research run has from elsewhere: searches, pages, documents. `uv run core/deep_research_fetch.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.deep_research import fetching, tools

TOOL = Tool(
    "deep_research_fetch",
    layer=1,
    summary="Search for a wave, or fetch what a research run cites and look every claim up in it. Its orchestrator calls it.",
    example="uv run core/deep_research_fetch.py citations wikis",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tick", choices=(*fetching.TICKS, tools.FETCHES))
    parser.add_argument(
        "words", nargs="*", default=[], metavar="WORD", help="of a search, 1 or 2, the wave; and last the run's id"
    )
    executor.arguments(parser)


def main(call: Call) -> Json:
    tick, words = call.options.tick, call.options.words

    def work(task: Task, out: Path) -> Verdict:
        return fetching.tick(tick, call, task, out, tuple(words[:-1]))

    target = words[-1] if words else ""
    return executor.run_function(call, f"research-{tick}", executor.read_task(call, Task(action="TICK", target=target)), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
