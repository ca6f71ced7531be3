# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: accepts an offer that names a price."""

from __future__ import annotations

from lib import cli
from lib.attempt import judging
from lib.cli import Call, Tool
from lib.contract import Json

TOOL = Tool("has_price", layer=1, summary="Accept an offer.", example="uv run has_price.py euro --made made.json")


def main(call: Call) -> Json:
    unit = call.options.words[0]

    def look(made: judging.Made) -> list[str]:
        return [] if unit in made.json("offer")["text"] else [f"there is no price in {unit} on the page"]

    return judging.answer(TOOL.name, call.options.made, look)


if __name__ == "__main__":
    cli.run(TOOL, judging.arguments, main)
