# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: accepts what an agent of an academic run made, or says what is wrong. `uv run core/academic_accept.py --help`"""

from __future__ import annotations

from lib import cli
from lib.attempt import judging
from lib.cli import Call, Tool
from lib.contract import Json, usage
from packs.academic import accepting

TOOL = Tool(
    "academic_accept",
    layer=1,
    summary="Accept what an agent of an academic run made. Its orchestrator calls it.",
    example="uv run core/academic_accept.py strings --made run/made.json",
)


def main(call: Call) -> Json:
    what = call.options.words[0] if call.options.words else ""
    if what not in accepting.LOOKS:
        usage(f"what is to be accepted? {what!r} is none of {', '.join(accepting.LOOKS)}")
    return judging.answer(TOOL.name, call.options.made, accepting.LOOKS[what])


if __name__ == "__main__":
    cli.run(TOOL, judging.arguments, main)
