# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: fetches one paper; the second is behind a wall."""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json, StrataError
from lib.plan.task import Task

TOOL = Tool("fetch_paper", layer=1, summary="Fetch one paper.", example="uv run core/fetch_paper.py 10.1000/1")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper")
    executor.arguments(parser)


def main(call: Call) -> Json:
    paper = call.options.paper

    def work(task: Task, out: Path) -> Json:
        if paper.endswith("/2"):
            raise StrataError("PAYWALL", f"{paper} is behind a wall", final=True)
        (out / "paper.txt").write_text(f"The text of {paper}.\n")
        return {"verdict": "done"}

    return executor.run_function(call, TOOL.name, executor.read_task(call, Task()), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
