"""What a resume of a plan would do, phase by phase: the walks of its orchestrators, its verifications, and its people."""

from __future__ import annotations

from typing import Any

from lib.campaign.approvals import Approvals
from lib.contract import StrataError
from lib.plan import orchestrator_file, outputs
from lib.plan.plan import Phase, Plan, Run
from lib.session.step import Step
from lib.stages.look import HALT, RUN, SKIP, Explanation, Look
from lib.stages.orders import read_params
from lib.stages.sentinel import Verification
from lib.stages.terms import Terms
from lib.tool.call import Call


def plan(said: Explanation, whole: Plan, phases: tuple[Phase, ...]) -> Explanation:
    """The given phases of a plan, in the order they would run."""
    said.call.options.checks = whole.checks_file or None
    state: dict[str, str] = {}  # by phase: SKIP, RUN, or why it halts
    waiting = list(phases)
    names = {p.name for p in phases}
    while waiting:
        phase = next(p for p in waiting if not (set(p.depends_on) & names) - set(state))
        waiting.remove(phase)
        halted = next((f"the phase {d} {state[d]}" for d in phase.depends_on if state.get(d, SKIP) not in (SKIP, RUN)), "")
        renewed = {d for d in state if state[d] == RUN}
        state[phase.name] = _phase(said, whole, phase, halted, renewed)
    return said


def _phase(said: Explanation, whole: Plan, phase: Phase, halted: str, renewed: set[str]) -> str:
    first = len(said.lines)
    point = phase.checkpoint
    if point and not halted and point.at == "before":
        halted = _checkpoint(said, whole, phase, news=any(text.split(".")[0] in renewed for text in point.show))
    for run in phase.runs:
        halted = _run(said, whole, phase, run, halted, renewed) or halted
        if any(line["does"] == RUN for line in said.lines[first:]):
            renewed = renewed | {f"{phase.name}.{run.name}"}
    if phase.checks:
        _verification(said, whole, phase, halted, any(line["does"] == RUN for line in said.lines[first:]))
    new = any(line["does"] == RUN for line in said.lines[first:])
    if point and not halted and point.at == "after":
        halted = _checkpoint(said, whole, phase, news=new)
    return halted or (RUN if new else SKIP)


def _checkpoint(said: Explanation, whole: Plan, phase: Phase, news: bool) -> str:
    """Says whether a person still has to say yes; returns why it halts, if it does."""
    approvals = Approvals(said.call.session.folder, whole)
    assert phase.checkpoint
    decided = None if news else approvals.decision(approvals.asked(phase))
    name = f"{phase.folder}/checkpoint"
    if decided and decided["decision"] == "approve":
        said.say(name, SKIP, f"approved by {decided['by']} at {decided['when']}")
        return ""
    why = f"{decided['by']} said no" if decided else f"a person is asked: {approvals.asked(phase).question}"
    said.say(name, HALT, why)
    return "waits for a person"


def _run(said: Explanation, whole: Plan, phase: Phase, run: Run, halted: str, renewed: set[str]) -> str:
    base = Step(phase.folder, run.name)
    chosen = orchestrator_file.load(run.orchestrator, run.modifier)
    params: dict[str, Any] = dict(run.params)
    unknown: set[str] = set()
    for name, text in run.inputs.items():
        source = text.split(".")
        if source[0] in renewed or ".".join(source[:2]) in renewed:
            unknown.add(f"param.{name}")
        answer = Approvals(said.call.session.folder, whole).answer_file(source[0])
        found = answer if len(source) == 2 else outputs.of(said.call.session.folder, whole, text)
        if not found or not found.exists():
            unknown.add(f"param.{name}")
        params[name] = str(found or "later")
    try:
        values = read_params(chosen, params, said.call.cwd)
    except StrataError as error:
        if not unknown:
            said.say(f"{phase.folder}/{run.name}", HALT, error.message)
            return f"{run.name} cannot run"
        values = params
    return Look(said, chosen, values, base, unknown).explain(halted)


def all_done(call: Call, whole: Plan, phases: tuple[Phase, ...]) -> bool:
    """Whether nothing is left to do: then no agent need be asked to do it."""
    return all(line["does"] == SKIP for line in plan(Explanation(call, {}), whole, phases).lines)


def unfinished(call: Call, whole: Plan, phase: Phase, run: Run) -> list[str]:
    """The steps of a run that would not be skipped, by their names."""
    call.options.checks = whole.checks_file or None
    said = Explanation(call, {})
    _run(said, whole, phase, run, "", set())
    return [line["step"] for line in said.lines if line["does"] != SKIP]


def _verification(said: Explanation, whole: Plan, phase: Phase, halted: str, news: bool) -> None:
    name = f"{phase.folder}/sentinel"
    if halted:
        said.say(name, HALT, halted)
        return
    why = "there is something new to verify" if news else _unverified(said, whole, phase)
    auditor = "sentinel-auditor" if phase.audit else ""
    said.say(name, RUN if why else SKIP, why or "its grade still holds", auditor, 1 if auditor else 0)


def _unverified(said: Explanation, whole: Plan, phase: Phase) -> str:
    terms = Terms.of_phase(whole, phase, said.call.cwd)
    return Verification(said.call, terms, Step(phase.folder, "sentinel")).stale(said.again)


def verification(said: Explanation, terms: Terms, base: Step) -> Explanation:
    """What a sentinel alone would do."""
    why = Verification(said.call, terms, base).stale(said.again)
    said.say(base.slug, RUN if why else SKIP, why or "its grade still holds", "sentinel-auditor", 1 if why and terms.audit else 0)
    return said
