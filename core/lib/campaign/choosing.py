"""Which plan a campaign runs, and what a person says about it on the command line, checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.campaign import approvals, beginning, checkpoints, goals, preparing, redo_plan, resumed
from lib.contract import HOUSE, MINIMUM_STACK, command, usage
from lib.plan import orchestrator_file, plan, plan_file
from lib.plan.plan import Plan
from lib.session import budget, catalogue, remembered
from lib.stages import asking, redo
from lib.tool.arguments import keyword, read_text
from lib.tool.call import Call


class Choice(Struct, frozen=True):
    """A plan, the file it came from, and its text."""

    plan: Plan
    file: Path
    text: str


def choose(call: Call, base: Path) -> Choice:
    if not call.options.goal and (call.options.rounds is not None or call.options.checks):
        usage("--rounds and --checks work only with --goal", "in a plan, write rounds: 2 and checks: checks.yaml")
    if call.options.budget:
        budget.given(call.options.budget)  # what is wrong with it is said before a session is there
    return written_for_goal(call) if call.options.goal else given_or_remembered(call, base)


def written_for_goal(call: Call) -> Choice:
    """The plan that an agent writes for a goal. Before it exists the session is one without phases: it can be resumed."""
    options = call.options
    if options.resume:
        usage("--goal starts a new campaign; a session keeps its goal", "leave out --goal, or --resume")
    if options.plan or options.dry_run or options.explain:
        usage("--goal writes the plan itself, so it takes no PLAN, --dry-run or --explain", "use --goal alone")
    if options.rounds is not None and not 1 <= options.rounds <= goals.MAX_ROUNDS:
        usage(f"--rounds {options.rounds}: from 1 to {goals.MAX_ROUNDS}")
    options.goal = read_text("-", "--goal").strip() if options.goal == "-" else options.goal.strip()
    if not options.goal:
        usage("the goal is empty", "--goal 'what is wanted, in words'")
    unplanned = Plan(name="goal", description=options.goal, phases=(), goal=options.goal)
    preparing.apply_settings(call, unplanned, 4)
    call.depth.require(MINIMUM_STACK[4])
    call.open_session(options.goal, "goal")
    goals.begin(call)
    if not (call.session.folder / remembered.EFFECTIVE).exists():
        beginning.prepare(call, unplanned, call.session.folder / goals.GOAL, "")
    return planned(call)


def planned(call: Call) -> Choice:
    path = goals.write_plan(call, goals.read(call.session.folder), 1)
    return Choice(goals.load(call.session.folder, 1), path, path.read_text(encoding="utf-8"))


def given_or_remembered(call: Call, base: Path) -> Choice:
    """The plan given, or, on resume, the session's own; a plan given with --resume replaces it."""
    options = call.options
    given: dict[str, Any] = keyword(options.param, "--param")
    if not options.plan and not options.resume:
        usage("which plan?", f"{command('campaign')} {HOUSE / 'config/plans/quickstart.yaml'}")
    if not options.resume:
        file = plan_file.find(options.plan)
        return Choice(plan_file.load(options.plan, given), file, file.read_text(encoding="utf-8"))
    folder = catalogue.find_session(options.resume, base)
    options.session_dir = str(folder)
    # A session that was itself started by an agent goes on at its own depth, never at less.
    options.current_depth = max(options.current_depth or 0, checkpoints.depth_used(folder))
    effective = remembered.read_effective(folder)
    resumed.restore(call, effective)
    if given and not options.plan:  # the same plan, with other values
        options.plan = effective["settings"]["plan_file"]
    if not options.plan and not effective["plan"]["phases"]:
        if options.dry_run or options.explain:
            usage("there is no plan for this goal yet", f"{command('campaign')} --resume {folder} has one written")
        preparing.apply_settings(call, plan.read(effective["plan"]), 4)
        call.open_session(folder.name, "goal")
        return planned(call)
    if not options.plan:
        text = (folder / "plan.yaml").read_text(encoding="utf-8")
        return Choice(plan.read(effective["plan"]), Path(effective["settings"]["plan_file"]), text)
    file = plan_file.find(options.plan)
    before = plan.read(effective["plan"])
    kept = {name: value for name, value in before.params.items() if name in plan_file.parameters(file)}
    chosen = goals.given(folder, file, plan_file.load(options.plan, kept | given), before.round)
    return Choice(resumed.keep_folders(chosen, folder), file, file.read_text(encoding="utf-8"))


def what_to_redo(call: Call, chosen: Plan) -> redo.Chosen | None:
    """Which finished steps are to be done again on purpose."""
    options = call.options
    if options.start_from and options.only:
        usage("--from and --only cannot be combined", "give one of them")
    if (options.start_from or options.only) and not options.resume:
        usage("--from and --only do finished work again", "add --resume SESSION")
    if (options.start_from or options.only) and call.driver == "replay":
        usage("a recording has no second run of a step, so replay cannot redo it", "--driver live, or without --from")
    if options.only and options.mode == "agent":
        usage("--only is for tool mode", "an agent runs all phases: leave out --only or --mode agent")
    if options.only:
        return redo_plan.only_phase(chosen, options.only)
    return redo_plan.from_step(chosen, options.start_from, Path(options.session_dir)) if options.start_from else None


def hear(call: Call, chosen: Plan) -> approvals.Said:
    """What a person decided on the command line, compared with what is waiting, before anything runs."""
    options = call.options
    _addressed(chosen, keyword(options.answer, "--answer"))
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
        usage("--reject: nothing waits for a decision", f"{command('campaign')} --resume SESSION continues the run")
    if options.approve is not None and not waited and resumed.questions(folder):
        usage("--approve: a stage asks, and wants an answer", " ".join(asking.flag(q) for q in resumed.questions(folder)))
    return approvals.hear(waited, options.approve, options.reject, keyword(options.answer, "--answer"))


def _addressed(chosen: Plan, answers: dict[str, str]) -> None:
    """An answer names a phase with a checkpoint, or a stage of a run: one that names nothing would be lost."""
    known = {p.name for p in chosen.phases if p.checkpoint}
    for run in (r for p in chosen.phases for r in p.runs) if answers else ():
        stages = {s.name for s in orchestrator_file.load(run.orchestrator, run.modifier).stages}
        known |= stages | {f"{run.name}.{stage}" for stage in stages}
    for name in answers:
        if name.partition("/")[0] not in known:
            hint = "see `waiting` in manifest.json; PHASE for a checkpoint, STAGE, STAGE/ITEM or RUN.STAGE for a stage"
            usage(f"--answer {name}: this plan has neither a checkpoint nor a stage of that name", hint)
