# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: a step of an academic run that Python does between the agents. `uv run core/academic_step.py --help`"""

from __future__ import annotations

import argparse
from functools import partial

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json
from packs.academic import at, beginning, steps
from packs.academic.at import Step

TOOL = Tool(
    "academic_step",
    layer=1,
    summary="Do one step of an academic run, over the files of its folder. Its orchestrator calls it.",
    example="uv run core/academic_step.py begin run --output entries=entries.json",
)
STEPS = {
    "begin": Step(0, "setup", beginning.begin),
    "databases": Step(0, "databases", beginning.databases),
    "check0": Step(0, "checkpoint", partial(steps.check, 0)),
    "open1": Step(1, "setup", steps.open1),
    "save1": Step(1, "search-strategist", steps.save1),
    "check1": Step(1, "checkpoint", partial(steps.check, 1)),
    "open3": Step(3, "setup", steps.open3),
    "score": Step(3, "scoring", steps.score),
    "check3": Step(3, "checkpoint", partial(steps.check, 3)),
    "open4": Step(4, "setup", steps.open4),
    "downloads": Step(4, "downloads", steps.downloads),
    "check5": Step(5, "checkpoint", partial(steps.check, 5)),
    "check6": Step(6, "checkpoint", partial(steps.check, 6)),
    "close": Step(6, "bibliography", steps.close),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    at.arguments(parser, STEPS)


def main(call: Call) -> Json:
    return at.run_step(call, STEPS)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
