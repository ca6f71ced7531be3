# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
#   "httpx2>=2.16,<3", "protego>=0.5,<1", "pyalex>=0.21,<1", "habanero>=2.9,<3", "semanticscholar>=0.12,<1", "arxiv>=4,<5",
#   "rapidfuzz>=3.14,<4",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: asks the services of an academic run. `uv run core/academic_search.py --help`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json
from packs.academic import at, searching
from packs.academic.at import Step

TOOL = Tool(
    "academic_search",
    layer=1,
    summary="Ask services with an API, and make one list of what they found. The orchestrator of an academic run calls it.",
    example="uv run core/academic_search.py open2 run --output entries=entries.json",
)
STEPS = {
    "probe": Step(1, "probe", searching.probe),
    "open2": Step(2, "setup", searching.open2),
    "search": Step(2, "search", searching.search, "database"),
    "merge": Step(2, "merge", searching.merge),
    "retractions": Step(5, "retractions", searching.retractions),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    at.arguments(parser, STEPS)


def main(call: Call) -> Json:
    return at.run_step(call, STEPS)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
