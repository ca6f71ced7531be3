# /// script
# requires-python = ">=3.11"
# dependencies = ["claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "pyyaml>=6.0,<7", "pytest>=8.3,<10", "ruff>=0.12,<1"]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 4: runs a plan, phase by phase, and resumes it. `uv run core/campaign.py config/plans/quickstart.yaml`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib import (
    approvals,
    background,
    campaigns,
    checkpoints,
    cli,
    depth,
    forecast,
    people,
    phases,
    plan,
    plan_file,
    session,
    trees,
)
from lib.campaigns import Campaign
from lib.cli import Call, Tool
from lib.contract import HOUSE, Json, usage
from lib.plan import Plan

TOOL = Tool(
    "campaign",
    layer=4,
    summary="Run a plan: its phases by dependency, each verified, resumable at any time.",
    example="uv run core/campaign.py config/plans/quickstart.yaml",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN", nargs="?", help="a plan, such as config/plans/quickstart.yaml")
    add("--resume", metavar="SESSION", help="go on with a session: its folder, or its name under sessions/")
    add("--dry-run", action="store_true", help="check everything and say what would run; create nothing")
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
        return {"tool": "campaign", "status": "success", "exit_code": 0, "sessions": campaigns.listing(base)}
    if call.options.stop:
        return background.stop(campaigns.find_session(call.options.stop, base))
    chosen, text = read_plan(call, base)
    settle(call, chosen)
    if call.options.dry_run:
        return {"tool": "campaign", "status": "success", "exit_code": 0, "plan": chosen.name, **forecast.of(chosen, base)}
    call.depth.require(depth.MINIMUM_STACK[4] - 1 if call.depth.current == 0 else 1)
    if call.options.detach:
        folder = Path(call.options.session_dir).resolve() if call.options.session_dir else session.new_folder(base, chosen.name)
        return background.detach("campaign", sys.argv[1:], folder)
    call.open_session(chosen.name, chosen.name)
    campaign = hear(call, Campaign(call, chosen, campaigns.prepare(call, chosen, text)))
    if call.options.reject is not None and campaigns.escalated(call.session.folder):
        return campaign.give_up(call.options.reject)
    return campaign.go()


def hear(call: Call, campaign: Campaign) -> Campaign:
    """What a person decided on the command line."""
    options = call.options
    if (options.approve or options.reject is not None or options.resolution) and not options.resume:
        usage("--approve, --reject and --resolution answer a campaign that waits", "add --resume SESSION")
    campaign.said = approvals.Said(options.approve, options.reject, cli.keyword(options.answer, "--answer"))
    if options.resolution:
        text = cli.read_text(options.resolution, "--resolution")
        if not text.strip():
            usage("the resolution is empty")
        campaign.resolutions = [people.keep_resolution(call.session.folder, text)]
    return campaign


def read_plan(call: Call, base: Path) -> tuple[Plan, str]:
    """The plan given, or, on resume, the session's own; a plan given with --resume replaces it."""
    options = call.options
    if not options.plan and not options.resume:
        usage("which plan?", "uv run core/campaign.py config/plans/quickstart.yaml")
    if options.resume:
        session = campaigns.find_session(options.resume, base)
        options.session_dir = str(session)
        reached = checkpoints.read(session)
        if reached:  # a session that was itself started by an agent goes on at its own depth, never at less
            options.current_depth = max(options.current_depth or 0, reached["depth_used"])
        if not options.plan:
            effective = campaigns.read_effective(session)
            settings = effective["settings"]
            options.model = options.model or settings["model"]
            call.driver = options.driver or settings["driver"]
            call.cwd = Path(options.cwd).resolve() if options.cwd else Path(settings["cwd"])
            return plan.read(effective["plan"]), (session / "plan.yaml").read_text(encoding="utf-8")
    chosen = plan_file.load(options.plan)
    return chosen, plan_file.find(options.plan).read_text(encoding="utf-8")


def settle(call: Call, chosen: Plan) -> None:
    """What the plan says, where the command line says nothing."""
    options = call.options
    if chosen.driver and not options.driver and not options.resume:
        call.driver = chosen.driver
    if call.driver == "replay" and not options.fixtures:
        options.fixtures = chosen.fixtures or None
    if chosen.workspace not in ("session", ".") and not options.cwd and not options.resume:
        call.cwd = Path(chosen.workspace).resolve()
        if not call.cwd.is_dir():
            usage(f"the workspace {chosen.workspace} is not there", "stand where it is, or give --cwd")
    for phase in chosen.phases:
        if phase.rollback:
            trees.require_repository(call.cwd, f"the phase {phase.name}")
    call.depth = depth.from_environment(
        4, options.current_depth, chosen.max_depth if options.max_depth is None else options.max_depth
    )


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
