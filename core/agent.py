# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: runs any agent definition. `uv run core/agent.py spec-plan PLAN docs/spec.md`"""

from __future__ import annotations

import argparse
import re

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.plan import agents, listing
from lib.plan.task import Task
from lib.stages import agent_mode

TOOL = Tool(
    "agent",
    layer=1,
    summary="Have an agent from prompts/ do one task, and verify what came back.",
    example="uv run core/agent.py spec-plan PLAN docs/spec.md",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="NAME", nargs="?", help="your own, a pack's (PACK/NAME) or a built-in agent")
    parser.add_argument("--list", action="store_true", help="list all agents, and where each was found")
    parser.add_argument("words", metavar="[ACTION] [TARGET] EXTRA", nargs="*", help="what to do (in capitals), and to what")
    executor.arguments(parser)


def main(call: Call) -> Json:
    if call.options.list:
        return listing.of("agent", "agent")
    if not call.options.agent:
        usage("which agent?", "--list shows those there are")
    agent = agents.load(call.options.agent)
    words: list[str] = call.options.words
    has_action = bool(words) and (words[0] in ("", *agent.actions) or re.fullmatch(r"[A-Z][A-Z0-9_]*", words[0]) is not None)
    action, rest = (words[0], words[1:]) if has_action else ("", words)
    task = Task(action=action, target=rest[0] if rest else "", extra=tuple(rest[1:]))
    return executor.run_agent(call, agent, executor.read_task(call, task))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=agent_mode.words)
