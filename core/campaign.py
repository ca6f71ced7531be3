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
import sys
from pathlib import Path

from lib import cli
from lib.campaign import approvals, background, beginning, forecast, goals, outlook, people, phases, preparing, resumed
from lib.campaign.campaigns import Campaign
from lib.campaign.choosing import Choice, choose, hear, what_to_redo
from lib.cli import Call, Tool
from lib.contract import HOUSE, Json, StrataError
from lib.plan.plan import Plan
from lib.session import budget, catalogue
from lib.session.folder import new_folder
from lib.stages import look, redo
from lib.tool.arguments import read_text
from msgspec.structs import replace

TOOL = Tool(
    "campaign",
    layer=4,
    summary="Run a plan: its phases by dependency, each verified, resumable at any time.",
    example="uv run core/campaign.py config/plans/quickstart.yaml",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN", nargs="?", help="a plan, such as config/plans/quickstart.yaml")
    add("--goal", metavar="TEXT", help="write a plan for this goal and run it once you approve it; - reads the goal from stdin")
    add("--rounds", metavar="N", type=int, help="with --goal: at most this many rounds of planning and running (default 1)")
    add("--approve-plan", action="store_true", help="approve a plan for a goal beforehand, within its budget")
    add("--checks", metavar="FILE", help="with --goal: the checks a plan may name (default: config/checks.yaml)")
    add("--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the plan (repeatable)")
    add("--resume", metavar="SESSION", help="resume a session: its folder, or its name under sessions/")
    add("--dry-run", action="store_true", help="check everything and say what would run; create nothing")
    add("--only", metavar="PHASE", help="run this phase again, and nothing else")
    add("--list", action="store_true", help="list all campaigns, newest first")
    add("--detach", action="store_true", help="run in the background; prints how to watch and how to stop it")
    add("--stop", metavar="SESSION", help="stop the run in this session; it can be resumed")
    add("--budget", metavar="LIMITS", help="usd=20,tokens=2e6,agents=60,wall_seconds=7200: any of these, in place of the plan's")
    add("--approve", metavar="PHASE", nargs="?", const=approvals.EVERY, help="approve what is waiting (or only this phase)")
    add("--reject", metavar="WHY", help="reject what is waiting, or give up on an escalation")
    add("--resolution", metavar="FILE", help="a person's answer to an escalation; - reads it from stdin")
    phases.arguments(parser)


def main(call: Call) -> Json:
    options = call.options
    base = Path(options.session_base).absolute() if options.session_base else HOUSE / "sessions"
    if options.list:
        return said(sessions=catalogue.listing(base))
    if options.stop:
        return background.stop(catalogue.find_session(options.stop, base))
    if options.goal and options.detach:
        return detached(call, base, "goal")
    try:
        choice = choose(call, base)
    except StrataError as error:
        return beginning.unplanned(call, error)
    preparing.apply_settings(call, choice.plan, 4)
    decided = hear(call, choice.plan)
    require_depth(call, choice.plan)
    if options.dry_run:
        return dry_run(call, choice.plan, base)
    again = what_to_redo(call, choice.plan)
    if options.explain:
        return explained(call, choice.plan, again)
    if options.detach:
        return detached(call, base, choice.plan.name)
    campaign = opened(call, choice, decided, again)
    if options.reject is not None and resumed.escalated(call.session.folder):
        return campaign.give_up(options.reject)
    campaign.resolutions = resolutions(call)
    return campaign.go()


def said(**fields: object) -> Json:
    return {"tool": "campaign", "status": "success", "exit_code": 0, **fields}


def require_depth(call: Call, plan: Plan) -> None:
    needed = plan.depth_needed(call.options.mode)
    call.depth.require(needed if call.depth.current == 0 else needed - 1)


def dry_run(call: Call, plan: Plan, base: Path) -> Json:
    given = budget.given(call.options.budget) if call.options.budget else {}
    return said(plan=plan.name, **forecast.of(replace(plan, budget=plan.budget | given), base, call.cwd))


def detached(call: Call, base: Path, name: str) -> Json:
    folder = Path(call.options.session_dir).resolve() if call.options.session_dir else new_folder(base, name)
    return background.detach("campaign", sys.argv[1:], folder)


def explained(call: Call, chosen: Plan, asked: redo.Chosen | None) -> Json:
    call.look_at_session()
    preparing.enter_workspace(call, chosen)
    shown = tuple(p for p in chosen.phases if call.options.only in (None, p.name, p.folder))
    told = outlook.plan(look.begin(call, asked), chosen, shown)
    if chosen.goal and not call.options.only:
        done = goals.judged(call.session.folder, chosen) and all(line["does"] == look.SKIP for line in told.lines)
        why = "the goal is compared with what came of it" if not done else "nothing has changed since it was judged"
        told.say("goal/evaluate", look.SKIP if done else look.RUN, why, "evaluator", 0 if done else 1)
    return told.document()


def opened(call: Call, choice: Choice, decided: approvals.Said, again: redo.Chosen | None) -> Campaign:
    """The session, with what was asked written down before anything runs."""
    if not call.session_dir:
        known = bool(call.options.session_dir) and (Path(call.options.session_dir) / goals.GOAL).exists()
        # A goal's run signals under one name from the start.
        call.open_session(choice.plan.name, "goal" if known else choice.plan.name)
    if again:
        redo.mark(call.session.folder, again)
    effective = beginning.prepare(call, choice.plan, choice.file, choice.text)
    return Campaign(call, choice.plan, effective, said=decided, only=call.options.only or "")


def resolutions(call: Call) -> list[Path]:
    if call.options.resolution:
        people.keep_resolution(call.session.folder, read_text(call.options.resolution, "--resolution"))
    return people.resolutions(call.session.folder)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
