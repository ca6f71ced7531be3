# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16", "httpx2>=2.16,<3", "protego>=0.5,<1",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: sends a bundle of texts to a URL and keeps the receipt."""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from lib.web.door import Door

TOOL = Tool("post_bundle", layer=1, summary="Send texts to a URL.", example="uv run core/post_bundle.py http://127.0.0.1:1/")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url")
    executor.arguments(parser)


def main(call: Call) -> Json:
    def work(task: Task, out: Path) -> Json:
        bundle = {path.parent.name: path.read_text() for path in task.input_paths("bundle")}
        receipt = Door(call, out).post(call.options.url, "delivering the bundle", bundle).require()
        (out / "receipt.json").write_bytes(receipt.content)
        return {"verdict": "done"}

    return executor.run_function(call, TOOL.name, executor.read_task(call, Task()), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
