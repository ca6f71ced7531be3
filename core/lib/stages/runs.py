"""What every orchestrator does, from its arguments to its manifest: check, then walk its stages, or explain what it would do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lib.contract import MINIMUM_STACK, Json, StrataError, nearest, usage
from lib.disk import files
from lib.plan import agents, checks_file
from lib.plan.orchestration import Orchestration
from lib.session.step import Step
from lib.stages import agent_mode, look, redo
from lib.stages.orders import read_params
from lib.stages.run import Run
from lib.tool.arguments import keyword
from lib.tool.call import Call


def arguments(parser: argparse.ArgumentParser, modifier: bool = True, stages: bool = True) -> None:
    """What every orchestrator understands, besides its own words."""
    add = parser.add_argument
    if modifier:
        add("--modifier", default="", help="run only the stages this modifier keeps")
    add("--resume", metavar="SESSION", help="resume a session as it was started: its folder, or its name under sessions/")
    add(
        "--explain",
        "--dry-run",
        action="store_true",
        dest="explain",
        help="print what would happen to every step, and why; run nothing",
    )
    if stages:
        add("--from", metavar="STAGE", dest="start_from", help="run this stage (or STAGE/ITEM) and all later ones again")
    if stages:
        add("--until", metavar="STAGE", help="stop after this stage; a resume runs the rest")
    if stages:
        add("--mode", choices=agent_mode.MODES, default="tool", help="agent: an agent calls the stages (costs a level of depth)")
    add("--answer", metavar="STAGE=ANSWER", action="append", default=[], help="answer a waiting stage; @FILE reads the answer")
    add("--extra-context", metavar="FILE", action="append", default=[], help="a text file for every stage that runs (repeatable)")
    add("--checks", metavar="FILE", help="where named checks are defined (default: config/checks.yaml)")
    add("--inherit-settings", action="store_true", help="let agents load CLAUDE.md, settings, hooks and MCP servers")
    add("--rerun", type=int, default=0, help=argparse.SUPPRESS)  # its coordinator gives what had failed by then one more try
    add("--phase", default="", help=argparse.SUPPRESS)
    add("--run-name", default="", help=argparse.SUPPRESS)


def run(call: Call, orchestration: Orchestration, params: dict[str, Any], topic: str) -> Json:
    """Runs the stages and returns the stage manifest."""
    # The seed's minimum leaves an executor room to heal; below an agent the warning at 1 level left applies instead.
    by_agent = call.options.mode == "agent"
    call.depth.require(MINIMUM_STACK[2] + by_agent if call.depth.current == 0 else 1 + by_agent)
    values = read_params(orchestration, params, call.cwd)
    require_checks(call, orchestration)
    for flag in ("phase", "run_name"):
        value = getattr(call.options, flag)
        if value and not files.is_safe(value):
            usage(f"--{flag.replace('_', '-')} {value!r} is not a plain name")
    step = Step(phase=call.options.phase, orchestrator=call.options.run_name or orchestration.name)
    require_stage(orchestration, call.options.until)
    again_from = call.options.start_from
    chosen = redo.from_stage(orchestration, step, again_from, _session(call)) if again_from else None
    if call.options.explain:
        call.look_at_session()
        return look.orchestrator(look.begin(call, chosen), orchestration, values, step).document()
    call.open_session(f"{orchestration.name}-{topic}" if topic else orchestration.name, step.slug)
    if chosen:
        redo.mark(call.session.folder, chosen)
    walk = Run(call, orchestration, values, step)
    walk.answers.receive(orchestration, step, keyword(call.options.answer, "--answer"))
    return agent_mode.orchestrate(call, orchestration, values, step) if by_agent else walk.go()


def answered(call: Call, orchestration: Orchestration, params: dict[str, Any], answer: str) -> Json:
    """Walks on in the session that is open: somebody at the terminal has answered what it waited for."""
    step = Step(phase=call.options.phase, orchestrator=call.options.run_name or orchestration.name)
    walk = Run(call, orchestration, read_params(orchestration, params, call.cwd), step)
    walk.answers.receive(orchestration, step, keyword([answer], "--answer"))
    return walk.go()


def _session(call: Call) -> Path | None:
    return Path(call.options.session_dir) if call.options.session_dir else None


def require_stage(orchestration: Orchestration, name: str | None) -> None:
    known = [s.name for s in orchestration.stages]
    if name and name not in known:
        usage(f"--until {name}: {orchestration.name} has no such stage", nearest(name, known))


def require_checks(call: Call, orchestration: Orchestration) -> None:
    """Checks that stages and agents name exist, before anything is spent on the way to them."""
    workers = [w for s in orchestration.stages for w in s.workers]
    named = [(f"{orchestration.name}: ", a) for w in workers if w.tool == "check.py" for a in w.args if "{" not in a]
    definitions = [agents.load(agent) for w in workers for agent in w.agents]
    named += [(f"{d.file}: ", name) for d in definitions for name in d.checks]
    source = str(Path(call.options.checks).absolute()) if call.options.checks else ""
    known = checks_file.known(source) if named else None
    for where, name in named:
        if known and name not in known.names:
            raise StrataError("UNKNOWN_CHECK", f"{where}there is no check {name!r}", nearest(name, known.table))
