# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
#   "httpx2>=2.16,<3", "protego>=0.5,<1", "playwright>=1.60,<2", "parsel>=1.12,<2",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: walks portals and databases of an academic run in a browser. `uv run core/academic_browse.py --help`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json
from packs.academic import at, browsing
from packs.academic.at import Step

TOOL = Tool(
    "academic_browse",
    layer=1,
    summary="Walk a portal, or search a database through its pages, in a browser. Its orchestrator calls it.",
    example="uv run core/academic_browse.py search run --output found=found.json",
)
STEPS = {
    "portal": Step(0, "portal", browsing.portal, "discipline"),
    "search": Step(2, "browse", browsing.search, "database"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    at.arguments(parser, STEPS)


def main(call: Call) -> Json:
    return at.run_step(call, STEPS)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
