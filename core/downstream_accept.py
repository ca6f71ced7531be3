# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: accepts what a downstream agent made, or says what is wrong. `uv run core/downstream_accept.py --help`"""

from __future__ import annotations

from lib import cli
from lib.attempt import judging
from lib.cli import Call, Tool
from lib.contract import Json, usage
from packs.downstream import accepting, gtm

TOOL = Tool(
    "downstream_accept",
    layer=1,
    summary="Accept what a downstream agent, or an agent of the research before it, made. Its orchestrator calls it.",
    example="uv run core/downstream_accept.py playbook --made made.json",
)
LOOKS = {"job": accepting.look, **gtm.LOOKS}


def main(call: Call) -> Json:
    what = call.options.words[0] if call.options.words else ""
    if what not in LOOKS:
        usage(f"what is to be accepted? {what!r} is none of {', '.join(LOOKS)}")
    return judging.answer(TOOL.name, call.options.made, LOOKS[what])


if __name__ == "__main__":
    cli.run(TOOL, judging.arguments, main)
