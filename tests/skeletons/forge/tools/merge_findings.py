# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: merges typed findings and decides whether the design must be revised."""

from __future__ import annotations

import json
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task

TOOL = Tool("merge_findings", layer=1, summary="A tool of a skeleton.", example="uv run core/merge_findings.py")


def work(task: Task, out: Path) -> Json:
    merged = [f for path in task.input_paths("findings") for f in json.loads(path.read_text())["findings"]]
    (out / "merged.json").write_text(json.dumps({"findings": merged}))
    grave = [f["text"] for f in merged if f["severity"] in ("Blocker", "Critical", "Major")]
    return {"verdict": "needs_revision" if grave else "done", "reason": "; ".join(grave)}


def main(call: Call) -> Json:
    return executor.run_function(call, TOOL.name, executor.read_task(call, Task()), work)


if __name__ == "__main__":
    cli.run(TOOL, executor.arguments, main)
