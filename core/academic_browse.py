# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
#   "httpx2>=2.16,<3", "protego>=0.5,<1", "playwright>=1.60,<2", "parsel>=1.12,<2",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: walks portals and databases of an academic run in a browser. `uv run core/academic_browse.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.academic import browsing
from packs.academic.at import At, Step, carry_out

TOOL = Tool(
    "academic_browse",
    layer=1,
    summary="Walk a portal, or search a database through its pages, in a browser. Its orchestrator calls it.",
    example="uv run core/academic_browse.py search run --output found=found.json",
)
STEPS = {
    "portal": Step(0, "portal", browsing.portal, "discipline"),
    "search": Step(2, "browse", browsing.search, "database"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(STEPS))
    parser.add_argument("run", help="the folder of the run")
    executor.arguments(parser)


def main(call: Call) -> Json:
    action, run = call.options.action, call.options.run

    def work(task: Task, out: Path) -> Json | Verdict:
        return carry_out(At(call, task, out, run), STEPS[action])

    return executor.run_function(
        call, f"academic-{action}", executor.read_task(call, Task(action=action.upper(), target=run)), work
    )


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
