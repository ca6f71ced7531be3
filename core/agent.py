# /// script
# requires-python = ">=3.11"
# dependencies = ["claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "pyyaml>=6.0,<7"]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: runs any agent definition under prompts/. `uv run core/agent.py spec-plan PLAN docs/spec.md`"""

from __future__ import annotations

import argparse

from lib import agents, cli, executor
from lib.cli import Call, Tool
from lib.contract import Json
from lib.task import Task

TOOL = Tool(
    "agent",
    layer=1,
    summary="Have an agent from prompts/ do one task, and verify what came back.",
    example="uv run core/agent.py spec-plan PLAN docs/spec.md",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="NAME", help="a definition: prompts/*/NAME.md")
    parser.add_argument("action", metavar="ACTION", nargs="?", default="", help="one of the definition's actions")
    parser.add_argument("target", metavar="TARGET", nargs="?", default="", help="what it is about: a path, a topic")
    parser.add_argument("extra", metavar="EXTRA", nargs="*", help="further words for the agent")
    executor.arguments(parser)


def main(call: Call) -> Json:
    options = call.options
    agent = agents.load(options.agent)
    task = Task(action=options.action, target=options.target, extra=tuple(options.extra))
    return executor.run_agent(call, agent, executor.read_task(call, task))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
