# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: research of one topic from one side. `uv run core/researcher.py market "Self-hosted wikis"`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.plan import agents
from lib.plan.task import Task
from lib.stages import agent_mode

TOOL = Tool(
    "researcher",
    layer=1,
    summary="Research a topic in one domain.",
    example='uv run core/researcher.py tech "Self-hosted wikis"',
)
PREFIX = "researcher-"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("domain", metavar="DOMAIN", help=f"{', '.join(domains())}; a further one is a file {PREFIX}<domain>.md")
    parser.add_argument("topic", metavar="TOPIC")
    executor.arguments(parser)


def domains() -> list[str]:
    return sorted(p.stem.removeprefix(PREFIX) for p in agents.PROMPTS.glob(f"*/{PREFIX}*.md"))


def main(call: Call) -> Json:
    domain = call.options.domain
    if domain not in domains():
        usage(f"there is no research domain {domain!r}", f"one of {', '.join(domains())}, or write {PREFIX}{domain}.md")
    action = "CONSOLIDATE" if domain == "consolidator" else "RESEARCH"
    task = Task(action=action, target=call.options.topic)
    return executor.run_agent(call, agents.load(PREFIX + domain), executor.read_task(call, task))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=agent_mode.words)
