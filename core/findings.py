# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: merges findings of several reviewers, with who said what. `uv run core/findings.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.disk import files
from lib.evidence import findings
from lib.plan.task import Task

TOOL = Tool(
    "findings",
    layer=1,
    summary="Merge findings: the worst first, with attribution and tensions.",
    example="uv run core/findings.py --input a=docs/security.json --input b=docs/clarity.json --output review=review.md",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TITLE", help="of the page (default: Findings)")
    parser.add_argument(
        "--revise-at", choices=findings.SEVERITIES, help="ask for a revision where a finding is this severe, or more"
    )
    executor.arguments(parser)


def main(call: Call) -> Json:
    options = call.options
    task = executor.read_task(call, Task(action="MERGE"))

    def merge(task: Task, out: Path) -> Verdict:
        """Inputs are lists of findings, each named after who made it where the findings do not say."""
        found = findings.merge(
            one for name in task.inputs for path in task.input_paths(name) for one in findings.read(path, _who(name, path))
        )
        for output in task.outputs:
            place = output.locate(out, call.cwd, task.target)
            if place.suffix == ".json":
                files.write_json(place, findings.document(found))
            else:
                files.write_atomic(place, findings.markdown(" ".join(options.words) or "Findings", found))
        grave = [f for f in found if options.revise_at and findings.at_least(f.severity, options.revise_at)]
        words = "; ".join(f.claim for f in grave[:3])
        return Verdict("needs_revision", f"{len(grave)} at {options.revise_at} or worse: {words}") if grave else Verdict("done")

    return executor.run_function(call, "findings", task, merge)


def _who(name: str, path: Path) -> str:
    """The input's name; where one input is the files of many, the folder each was left in."""
    return path.parent.name if name == "all" else name


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
