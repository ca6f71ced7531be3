# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: one stage of taking a specification to tested code. `uv run core/spec.py PLAN docs/spec.md`"""

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
    "spec",
    layer=1,
    summary="Take a specification one stage further.",
    example="uv run core/spec.py PLAN docs/spec.md --self-heal",
)
STAGES = ("CREATE", "RESEARCH", "PLAN", "PLAN_REVIEW", "IMPLEMENT", "REVIEW", "TEST", "DOCUMENT")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stage", metavar="STAGE", choices=STAGES, help=", ".join(STAGES))
    parser.add_argument("target", metavar="TARGET", help="the specification, as a path in the working folder")
    parser.add_argument("extra", metavar="EXTRA", nargs="*", help="further words for the agent, such as the path of a plan")
    executor.arguments(parser)


def main(call: Call) -> Json:
    stage = call.options.stage
    if stage != "CREATE" and not (call.cwd / call.options.target).is_file():
        usage(f"there is no specification {call.options.target!r} in {call.cwd}", "CREATE writes one")
    agent = agents.load(f"spec-{stage.lower().replace('_', '-')}")
    task = Task(action=stage, target=call.options.target, extra=tuple(call.options.extra))
    return executor.run_agent(call, agent, executor.read_task(call, task))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=agent_mode.words)
