# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: turns the grave gaps of the first wave into the items of the second."""

from __future__ import annotations

import json
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task

TOOL = Tool("pivot", layer=1, summary="A tool of a skeleton.", example="uv run core/pivot.py")


def work(task: Task, out: Path) -> Json:
    lines = [line for path in task.input_paths("reports") for line in path.read_text().splitlines()]
    grave = [line[7:] for line in lines if line.startswith(("- (P0) ", "- (P1) "))]
    gaps = [{"id": f"gap-{n}", "text": text} for n, text in enumerate(grave, 1)]
    (out / "gaps.json").write_text(json.dumps({"gaps": gaps}))
    return {"verdict": "done"}


def main(call: Call) -> Json:
    return executor.run_function(call, TOOL.name, executor.read_task(call, Task()), work)


if __name__ == "__main__":
    cli.run(TOOL, executor.arguments, main)
