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
from lib.contract import Json, usage
from lib.disk import files
from lib.evidence import findings
from lib.plan.task import Task

REVISE = "revise-at="
TOOL = Tool(
    "findings",
    layer=1,
    summary="Merge findings: the worst first, with attribution and tensions.",
    example="uv run core/findings.py --input a=docs/security.json --input b=docs/clarity.json --output review=review.md",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    about = (
        "the title of the page (default: Findings); revise-at=SEVERITY asks for a revision where a finding is so severe, or more"
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help=about)
    executor.arguments(parser)


def main(call: Call) -> Json:
    thresholds = [word.removeprefix(REVISE) for word in call.options.words if word.startswith(REVISE)]
    for word in thresholds:
        if word not in findings.SEVERITIES:
            usage(f"{REVISE}{word}: there is no such severity", f"one of {', '.join(findings.SEVERITIES)}")
    title = " ".join(word for word in call.options.words if not word.startswith(REVISE)) or "Findings"
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
                files.write_atomic(place, findings.markdown(title, found))
        grave = [f for f in found if any(findings.at_least(f.severity, word) for word in thresholds)]
        words = "; ".join(f.claim for f in grave[:3])
        return Verdict("needs_revision", f"{len(grave)} at {thresholds[-1]} or worse: {words}") if grave else Verdict("done")

    return executor.run_function(call, "findings", task, merge)


def _who(name: str, path: Path) -> str:
    """The input's name; where one input is the files of many, the folder each was left in."""
    return path.parent.name if name == "all" else name


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
