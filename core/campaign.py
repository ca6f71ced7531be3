# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 4: runs a plan, phase by phase, and resumes it. `uv run core/campaign.py config/plans/quickstart.yaml`"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from lib import cli
from lib.campaign import (
    approvals,
    background,
    campaigns,
    checkpoints,
    forecast,
    goals,
    outlook,
    people,
    phases,
    redo_plan,
    resumed,
)
from lib.campaign.campaigns import Campaign
from lib.cli import Call, Tool
from lib.contract import HOUSE, MINIMUM_STACK, Json, StrataError, command, usage
from lib.plan import plan, plan_file
from lib.plan.plan import Plan
from lib.session import catalogue, ledger, remembered
from lib.session.folder import new_folder
from lib.stages import look, redo
from lib.tool.arguments import keyword, read_text

TOOL = Tool(
    "campaign",
    layer=4,
    summary="Run a plan: its phases by dependency, each verified, resumable at any time.",
    example="uv run core/campaign.py config/plans/quickstart.yaml",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN", nargs="?", help="a plan, such as config/plans/quickstart.yaml")
    add("--goal", metavar="TEXT", help="have a plan written for this, and run it once you have said yes; - reads it from stdin")
    add("--rounds", metavar="N", type=int, help="with --goal: how often what is missing may be planned and run (default 1)")
    add("--approve-plan", action="store_true", help="run what was planned for a goal without asking, within its budget")
    add("--checks", metavar="FILE", help="with --goal: the checks a plan may name (default: config/checks.yaml)")
    add("--resume", metavar="SESSION", help="go on with a session: its folder, or its name under sessions/")
    add("--dry-run", action="store_true", help="check everything and say what would run; create nothing")
    add("--only", metavar="PHASE", help="do this phase again, and nothing else")
    add("--list", action="store_true", help="the campaigns there are, newest first")
    add("--detach", action="store_true", help="run in the background; prints how to watch and how to stop it")
    add("--stop", metavar="SESSION", help="end a run that works in this session; it can be resumed")
    add("--budget", metavar="LIMITS", help="usd=20,tokens=2e6,agents=60,wall_seconds=7200: any of them, over the plan's own")
    add("--approve", metavar="PHASE", nargs="?", const=approvals.EVERY, help="say yes to what waits (or only to this phase)")
    add("--reject", metavar="WHY", help="say no to what waits, or give up on what was escalated")
    add("--resolution", metavar="FILE", help="a person's answer to an escalation; - reads it from stdin")
    phases.arguments(parser)


def main(call: Call) -> Json:
    base = Path(call.options.session_base).absolute() if call.options.session_base else HOUSE / "sessions"
    if call.options.list:
        return {"tool": "campaign", "status": "success", "exit_code": 0, "sessions": catalogue.listing(base)}
    if call.options.stop:
        return background.stop(catalogue.find_session(call.options.stop, base))
    if not call.options.goal and (call.options.rounds is not None or call.options.checks):
        usage("--rounds and --checks are for --goal", "a plan says them itself: rounds: 2, checks: checks.yaml")
    if call.options.goal and call.options.detach:
        return detached(call, base, "goal")
    try:
        chosen, path, text = read_goal(call) if call.options.goal else read_plan(call, base)
    except StrataError as error:
        return campaigns.unplanned(call, error)
    phases.settle(call, chosen, 4)
    said = hear(call)
    given = ledger.read_budget(call.options.budget) if call.options.budget else {}
    needed = chosen.depth_needed(call.options.mode)
    call.depth.require(needed if call.depth.current == 0 else needed - 1)
    if call.options.dry_run:
        return {
            "tool": "campaign",
            "status": "success",
            "exit_code": 0,
            "plan": chosen.name,
            **forecast.of(dataclasses.replace(chosen, budget=chosen.budget | given), base, call.cwd),
        }
    asked = read_again(call, chosen)
    if call.options.explain:
        return explained(call, chosen, asked)
    if call.options.detach:
        return detached(call, base, chosen.name)
    if not call.session_dir:
        known = bool(call.options.session_dir) and (Path(call.options.session_dir) / goals.GOAL).exists()
        call.open_session(chosen.name, "goal" if known else chosen.name)  # a goal's run signals under one name from the start
    if asked:
        redo.mark(call.session.folder, asked)
    campaign = Campaign(call, chosen, campaigns.prepare(call, chosen, path, text), said=said, only=call.options.only or "")
    if call.options.reject is not None and resumed.escalated(call.session.folder):
        return campaign.give_up(call.options.reject)
    if call.options.resolution:
        people.keep_resolution(call.session.folder, read_text(call.options.resolution, "--resolution"))
    campaign.resolutions = people.resolutions(call.session.folder)
    return campaign.go()


def detached(call: Call, base: Path, name: str) -> Json:
    folder = Path(call.options.session_dir).resolve() if call.options.session_dir else new_folder(base, name)
    return background.detach("campaign", sys.argv[1:], folder)


def read_goal(call: Call) -> tuple[Plan, Path, str]:
    """The plan that an agent writes for a goal. Before it exists the session is one without phases: it can be resumed."""
    options = call.options
    if options.resume:
        usage("--goal begins something; a session goes on with the goal it has", "leave out --goal, or --resume")
    if options.plan or options.dry_run or options.explain:
        usage("--goal has a plan written: it comes without one, and there is nothing to look at before", "add --goal alone")
    if options.rounds is not None and not 1 <= options.rounds <= goals.MAX_ROUNDS:
        usage(f"--rounds {options.rounds}: from 1 to {goals.MAX_ROUNDS}")
    options.goal = read_text("-", "--goal").strip() if options.goal == "-" else options.goal.strip()
    if not options.goal:
        usage("the goal is empty", "--goal 'what is wanted, in words'")
    unplanned = Plan(name="goal", description=options.goal, phases=(), goal=options.goal)
    phases.settle(call, unplanned, 4)
    call.depth.require(MINIMUM_STACK[4])
    call.open_session(options.goal, "goal")
    goals.begin(call)
    if not (call.session.folder / catalogue.EFFECTIVE).exists():
        campaigns.prepare(call, unplanned, call.session.folder / goals.GOAL, "")
    return planned(call)


def planned(call: Call) -> tuple[Plan, Path, str]:
    path = goals.write_plan(call, goals.read(call.session.folder), 1)
    return goals.load(call.session.folder, 1), path, path.read_text(encoding="utf-8")


def read_plan(call: Call, base: Path) -> tuple[Plan, Path, str]:
    """The plan given, or, on resume, the session's own; a plan given with --resume replaces it."""
    options = call.options
    if not options.plan and not options.resume:
        usage("which plan?", f"{command('campaign')} {HOUSE / 'config/plans/quickstart.yaml'}")
    if not options.resume:
        file = plan_file.find(options.plan)
        return plan_file.load(options.plan), file, file.read_text(encoding="utf-8")
    folder = catalogue.find_session(options.resume, base)
    options.session_dir = str(folder)
    reached = checkpoints.read(folder)
    if reached:  # a session that was itself started by an agent goes on at its own depth, never at less
        options.current_depth = max(options.current_depth or 0, reached["depth_used"])
    effective = remembered.read_effective(folder)
    resumed.restore(call, effective)
    if not options.plan and not effective["plan"]["phases"]:
        if options.dry_run or options.explain:
            usage("there is no plan for this goal yet", f"{command('campaign')} --resume {folder} has one written")
        phases.settle(call, plan.read(effective["plan"]), 4)
        call.open_session(folder.name, "goal")
        return planned(call)
    if not options.plan:
        text = (folder / "plan.yaml").read_text(encoding="utf-8")
        return plan.read(effective["plan"]), Path(effective["settings"]["plan_file"]), text
    file = plan_file.find(options.plan)
    chosen = goals.given(folder, file, plan_file.load(options.plan), effective["plan"].get("round", 1))
    return resumed.keep_folders(chosen, folder), file, file.read_text(encoding="utf-8")


def read_again(call: Call, chosen: Plan) -> redo.Chosen | None:
    """Which finished steps are to be done again on purpose."""
    options = call.options
    if options.start_from and options.only:
        usage("--from and --only are two different things", "give one of them")
    if (options.start_from or options.only) and not options.resume:
        usage("--from and --only do finished work again", "add --resume SESSION")
    if (options.start_from or options.only) and call.driver == "replay":
        usage("a recording has each step as it was done: there is none of doing it again", "--driver live, or without --from")
    if options.only and options.mode == "agent":
        usage("--only is for tool mode", "an agent takes all phases, or leave out --mode agent")
    if options.only:
        return redo_plan.only_phase(chosen, options.only)
    return redo_plan.from_step(chosen, options.start_from, Path(options.session_dir)) if options.start_from else None


def explained(call: Call, chosen: Plan, asked: redo.Chosen | None) -> Json:
    call.look_at_session()
    phases.stand(call, chosen)
    shown = tuple(p for p in chosen.phases if call.options.only in (None, p.name, p.folder))
    said = outlook.plan(look.begin(call, asked), chosen, shown)
    if chosen.goal and not call.options.only:
        done = goals.judged(call.session.folder, chosen) and all(line["does"] == look.SKIP for line in said.lines)
        why = "the goal is held against what came of it" if not done else "nothing has changed since it was judged"
        said.say("goal/evaluate", look.SKIP if done else look.RUN, why, "evaluator", 0 if done else 1)
    return said.document()


def hear(call: Call) -> approvals.Said:
    """What a person decided on the command line, held against what is waiting, before anything runs."""
    options = call.options
    spoke = options.approve is not None or options.reject is not None or options.resolution
    if spoke and not options.resume:
        usage("--approve, --reject and --resolution answer a campaign that waits", "add --resume SESSION")
    if options.resolution and options.resolution != "-" and not read_text(options.resolution, "--resolution").strip():
        usage("the resolution is empty")
    if not options.resume:
        return approvals.Said()
    folder = Path(options.session_dir)
    waited = resumed.waited(folder)
    if options.reject is not None and not waited and not resumed.escalated(folder):
        usage("--reject: nothing waits for a decision", f"{command('campaign')} --resume SESSION goes on")
    return approvals.hear(waited, options.approve, options.reject, keyword(options.answer, "--answer"))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
