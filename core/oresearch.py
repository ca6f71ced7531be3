# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: researches a topic from several sides at once and consolidates. `uv run core/oresearch.py "Self-hosted wikis"`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.campaign import named
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan import agents, orchestrator_file
from lib.stages import runs

TOOL = Tool(
    "oresearch",
    layer=2,
    summary="Research a topic in several domains at once, and consolidate.",
    example='uv run core/oresearch.py "Self-hosted wikis" --domains market,tech',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--domains", metavar="LIST", default="market,ux,tech", help="comma list (default: market,ux,tech)")
    runs.arguments(parser)


def main(call: Call) -> Json:
    chosen = orchestrator_file.load("oresearch", call.options.modifier)
    for domain in call.options.domains.split(","):
        agents.find(f"researcher-{domain.strip()}")
    params = {"topic": call.options.topic, "domains": call.options.domains}
    return runs.run(call, chosen, params, topic=call.options.topic)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
