# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: one agent session, and the only file that imports the agent SDK. `uv run core/spawn.py --prompt "Say hello"`"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any, cast

from lib import cli
from lib.agent import sandbox
from lib.agent.asking import Room, came_to
from lib.agent.drivers import record
from lib.agent.drivers.stand_in import give_back, standing_in
from lib.agent.request import given_attempt, has_shell, make_request, read_texts, read_tools, watched
from lib.cli import Call, Tool
from lib.contract import Json
from lib.disk import files
from lib.disk.clock import now
from lib.process import environment
from lib.session.step import Step, bare_step
from lib.tool import grant
from lib.tool.arguments import count, positive
from lib.workspace.snapshot import Hidden, Snapshot
from msgspec.structs import replace

TOOL = Tool(
    "spawn",
    layer=0,
    summary="Run one agent session.",
    example='uv run core/spawn.py --prompt "List the files here" --allowed-tools Glob',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompt", help="what to do")
    add("--prompt-file", metavar="FILE", help="the prompt as a file of any size; - is stdin")
    add("--system-prompt", metavar="FILE", help="who the agent is and how it works")
    add("--extra-context", metavar="FILE", action="append", default=[], help="text added to the prompt (repeatable)")
    add("--allowed-tools", metavar="LIST", default="", help="comma list; only these tools exist for the agent")
    add("--name", default="spawn", help="what to call this session (letters, digits, dashes)")
    add("--permission-mode", choices=grant.PERMISSION_MODES, default="dontAsk")
    add("--add-dir", metavar="DIR", action="append", default=[], help="a further folder the agent may use")
    add("--schema", metavar="FILE", help="a JSON Schema the answer must match")
    add("--timeout", type=positive, metavar="SECONDS", default=600.0)
    add("--stall-timeout", type=positive, metavar="SECONDS", default=600.0, help="stop an agent silent for so long (600)")
    add("--max-turns", type=count, metavar="N")
    add("--max-uses", metavar="TOOL=N", action="append", default=[], help="refuse calls of a tool beyond this many (repeatable)")
    add("--max-budget-usd", type=positive, metavar="USD", help="checked after each answer, so one answer can overshoot it")
    add("--resume-id", metavar="ID", help="continue this agent session")
    add("--inherit-settings", action="store_true", help="load CLAUDE.md, settings, hooks and MCP servers of the folder")
    add("--step", help=argparse.SUPPRESS)
    add("--attempt-dir", help=argparse.SUPPRESS)
    add("--out-dir", help=argparse.SUPPRESS)
    add("--open", action="append", default=[], help=argparse.SUPPRESS)  # globs a plan opens on purpose
    add("--write-dir", action="append", default=[], help=argparse.SUPPRESS)
    add("--write-glob", action="append", default=[], help=argparse.SUPPRESS)
    add(
        "--sandbox",
        choices=sandbox.MODES,
        default="prefer",
        help="the CLI's sandbox for shell commands (default: if there is one)",
    )
    add("--domain", action="append", default=[], metavar="NAME", help="what a sandboxed shell may reach (repeatable)")
    add(
        "--env", action="append", default=[], metavar="NAME", help="a variable the agent gets besides the usual ones (repeatable)"
    )
    add("--disallowed-tools", metavar="LIST", default="", help="comma list of tools or rules that are denied in any mode")
    add("--read-dir", action="append", default=[], help=argparse.SUPPRESS)


def main(call: Call) -> Json:
    options = call.options
    environment.find_login()
    prompt, system_prompt, schema = read_texts(call)
    tools = read_tools(call)
    call.depth.require(1)
    sandboxed = call.driver != "replay" and sandbox.wanted(options.sandbox, has_shell(tools))
    step = Step.parse(options.step) if options.step else bare_step(options.name)
    call.open_session(options.name if options.name != "spawn" else prompt[:60], step.slug)
    if call.depth.remaining == 1:
        call.report("depth-warning", "this is the last level: the agent cannot start another, and cannot be healed")
    ordinal = len(call.session.ended(step)) + 1
    attempt = given_attempt(call, step) or call.session.new_attempt(step)
    with Room(call, attempt) as room:
        options.max_budget_usd = room.cap_usd
        request = make_request(call, attempt, prompt, system_prompt, schema, tools)
        request = replace(request, sandboxed=sandboxed, domains=tuple(options.domain))
        files.write_atomic(attempt.folder / "prompt.md", prompt)
        if Path(options.system_prompt or "") != attempt.folder / "system.md":  # an executor has put it there
            files.write_atomic(attempt.folder / "system.md", system_prompt)
        roots = watched(request)
        before, hidden = Snapshot(roots, exclude=(call.session.folder,)), Hidden(request.cwd)
        answer = room.ask(request, step, ordinal, roots, load_sdk)
    changes = before.changes()
    record.keep(request, answer, changes, roots, whole=call.driver == "record")
    outcome = came_to(call, attempt, request, answer, (*changes, *hidden.changes()))
    if not options.attempt_dir:
        outcome = replace(outcome, number=call.session.next_number(), finished_at=now())
        attempt.finish(request.names.hide_in(outcome.document()) if call.driver == "record" else outcome.document())
    call.artifact = attempt.folder / "output.md"
    return outcome.document() | {"session_dir": str(call.session.folder), "attempt_dir": str(attempt.folder)}


def load_sdk() -> Any:
    """Most of its import is other packages, of which it needs only names: we serve no tools from this process."""
    unfit = (ImportError, AttributeError, TypeError, RuntimeError)
    with contextlib.suppress(*unfit), standing_in("claude_agent_sdk", "mcp", "jsonschema", "importlib.metadata"):
        import claude_agent_sdk as sdk
    give_back("jsonschema", "importlib.metadata")  # others use them, and we do
    import claude_agent_sdk as sdk  # for a version that needs the real ones

    sys.modules.setdefault("opentelemetry", cast(Any, None))  # it would look for a span of this process, which has none

    return sdk


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
