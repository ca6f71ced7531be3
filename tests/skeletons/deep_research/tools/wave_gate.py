# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: accepts a report that has its sections."""

from __future__ import annotations

from lib import cli
from lib.attempt import judging
from lib.cli import Tool

TOOL = Tool("wave_gate", layer=1, summary="Accept a report.", example="uv run core/wave_gate.py --made made.json")


def look(made: judging.Made) -> list[str]:
    return [f"it lacks {s}" for s in ("Findings", "Sources", "Gaps") if f"# {s}" not in made.text("report")]


if __name__ == "__main__":
    cli.run(TOOL, judging.arguments, lambda call: judging.answer(TOOL.name, call.options.made, look))
