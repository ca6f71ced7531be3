"""Which steps of a plan `--from` and `--only` mean."""

from __future__ import annotations

from pathlib import Path

from lib.contract import nearest, usage
from lib.plan import orchestrator_file
from lib.plan.plan import Phase, Plan
from lib.process import fanout
from lib.session.step import Step
from lib.stages.redo import Chosen, from_stage


def from_step(plan: Plan, text: str, session: Path | None) -> Chosen:
    """`PHASE`, `PHASE/RUN`, `PHASE/RUN/STAGE[/ITEM]` of a plan: that, and all that comes after it by dependency."""
    name, _, rest = text.partition("/")
    phase = _phase(plan, name, "--from")
    later = {
        p.folder for p in plan.phases if phase.name in fanout.all_before({p.name: p.depends_on for p in plan.phases}, p.name)
    }
    within: Chosen = _in_phase(phase, rest, session) if rest else lambda step: True
    return lambda step: step.phase in later or (step.phase == phase.folder and within(step))


def from_run(phase: Phase, text: str, session: Path | None) -> Chosen:
    """The same inside one phase."""
    within = _in_phase(phase, text, session)
    return lambda step: step.phase == phase.folder and within(step)


def only_phase(plan: Plan, name: str) -> Chosen:
    folder = _phase(plan, name, "--only").folder
    return lambda step: step.phase == folder


def _phase(plan: Plan, name: str, flag: str) -> Phase:
    found = next((p for p in plan.phases if name in (p.name, p.folder)), None)
    if not found:
        usage(f"{flag}: there is no phase {name!r}", nearest(name, [p.name for p in plan.phases]))
    return found


def _in_phase(phase: Phase, text: str, session: Path | None) -> Chosen:
    name, _, rest = text.partition("/")
    runs = {r.name: r for r in phase.runs}
    if name == "sentinel" and name not in runs:
        return lambda step: step.orchestrator == "sentinel"
    if name not in runs:
        usage(f"--from: the phase {phase.name} has no run {name!r}", nearest(name, [*runs, "sentinel"]))
    behind = {r.name for r in phase.runs if name in fanout.all_before({r.name: r.depends_on for r in phase.runs}, r.name)}
    run = runs[name]
    orchestration = orchestrator_file.load(run.orchestrator, run.modifier)
    within: Chosen = lambda step: step.orchestrator == name  # noqa: E731
    if rest:
        within = from_stage(orchestration, Step(phase.folder, name), rest, session)
    return lambda step: within(step) or step.orchestrator in behind or step.orchestrator == "sentinel"
