# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16", "bandit>=1.8,<2",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: scans what a feature changed for secrets, weak code and vulnerable dependencies. `uv run core/forge_scan.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.disk import files, records
from lib.plan.task import Task
from packs.forge import scanners
from packs.forge import tasks as plans
from packs.forge.changes import Changes

TOOL = Tool(
    "forge_scan",
    layer=1,
    summary="Scan a change for secrets, weak code and vulnerable dependencies; no model. Forge's orchestrator calls it.",
    example="uv run core/forge_scan.py add-a-flag --input diff=change.patch --cwd my-project",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="SLUG", help="the feature's short name")
    executor.arguments(parser)


def main(call: Call) -> Json:
    def work(task: Task, out: Path) -> Verdict:
        found, notes = scanners.scan(call.cwd, _diff(call, task))
        files.write_json(out / "scan.json", {"findings": records.document(found), "notes": notes})
        lines = [
            "# Scanners",
            "",
            *(f"- {note}" for note in notes),
            "",
            *(f"- {f.severity}: {f.claim} `{f.where}`" for f in found),
        ]
        (out / "scan.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Verdict("done")

    return executor.run_function(call, "forge-scan", executor.read_task(call, Task(action="SCAN")), work)


def _diff(call: Call, task: Task) -> str:
    """From the repository itself: in what a session keeps, secrets are taken out, and none would be found."""
    if "tasks" not in task.inputs:
        return task.input_path("diff").read_text(encoding="utf-8")
    tasks = plans.read(files.read_json(task.input_path("tasks")))
    return Changes.of(call.session.folder, call.cwd, tasks).diff()


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
