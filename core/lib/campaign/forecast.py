"""What a plan would do: its stages, how often agents may be asked at most, and what that may cost."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from lib.attempt.healing import SELF_HEAL_MAX
from lib.contract import Json, StrataError
from lib.plan import orchestrator_file, params
from lib.plan.orchestration import Orchestration, Stage
from lib.plan.plan import Phase, Plan, Run
from lib.session import costs
from lib.stages.orders import read_params
from lib.stages.sentinel import MAX_CYCLES

RERUNS = 3  # one by the coordinator, two by the campaign, of what failed


def of(plan: Plan, base: Path, cwd: Path) -> Json:
    """Creates nothing. What an agent may cost is what it cost under `base`, on average, and its cap where it has one."""
    known = costs.known(base)
    phases: list[Json] = []
    warnings: list[str] = []
    for phase in plan.phases:
        if not phase.depends_on and plan.workspace != "session":
            warnings += _missing_files(phase, cwd)
        runs = [_run(run, known) for run in phase.runs]
        runs += [_verification(phase, known)] if phase.checks and (phase.fix or phase.audit) else []
        phases.append({"name": phase.name, "depends_on": list(phase.depends_on), "runs": runs, "checks": list(phase.checks)})
    if plan.goal:
        judged = _named("evaluate", "evaluator", 1, 2 * plan.rounds, known)
        more = [_named("roadmap", "roadmap-writer", 0, 3 * (plan.rounds - 1), known)] if plan.rounds > 1 else []
        runs = [{"name": "goal", "orchestrator": "", "stages": [judged, *more]}]
        phases.append({"name": "goal", "depends_on": [p.name for p in plan.phases], "runs": runs, "checks": []})
    stages: list[Json] = [s for p in phases for r in p["runs"] for s in r["stages"]]
    asked = [s for s in stages if s["agent_sessions_at_most"]]
    capped = [s["usd_at_most"] for s in asked if s["usd_at_most"] is not None]
    first = [s for s in asked if s["agent_sessions"]]  # the others only where something fails
    expected = [s["usd_expected"] for s in first if s["usd_expected"] is not None]
    return {
        "phases": phases,
        "agent_sessions": sum(s["agent_sessions"] for s in stages),
        "agent_sessions_at_most": sum(s["agent_sessions_at_most"] for s in stages),
        "usd_expected": round(sum(expected), 4) if len(expected) == len(first) else None,
        "usd_at_most": _most(round(sum(capped), 4) if len(capped) == len(asked) else None, plan.budget.get("usd")),
        "budget": plan.budget,
        "warnings": warnings,
        "cost_note": _note((len(asked), len(first)), len(expected), len(capped), base, plan.budget.get("usd")),
    }


def _missing_files(phase: Phase, cwd: Path) -> list[str]:
    """What a run is pointed at and is not there, where no earlier phase could still make it. Standing elsewhere may be all."""
    found: list[str] = []
    for run in phase.runs:
        try:
            given = run.params | {name: str(cwd) for name in run.inputs}
            read_params(orchestrator_file.load(run.orchestrator, run.modifier), given, cwd)
        except StrataError as error:
            found.append(f"{phase.name}/{run.name}: {error.message} ({error.hint})")
    return found


def _verification(phase: Phase, known: dict[str, float]) -> Json:
    """The sentinel's agents: the writer and the auditor where an audit is asked for, the others only when something fails."""
    asked = {"sentinel-writer": (1, 2), "sentinel-auditor": (1, 2 * (MAX_CYCLES + 1))} if phase.audit else {}
    if phase.fix:
        asked = {"sentinel-auditor": (0, 2 * MAX_CYCLES), **asked}
        asked |= {"sentinel-consolidator": (0, 2 * MAX_CYCLES), "sentinel-fixer": (0, (1 + SELF_HEAL_MAX) * MAX_CYCLES)}
    stages = [_named(agent.removeprefix("sentinel-"), agent, *times, known) for agent, times in asked.items()]
    return {"name": "sentinel", "orchestrator": "sentinel", "stages": stages}


def _named(name: str, agent: str, expected: int, most: int, known: dict[str, float]) -> Json:
    cost = known.get(agent)
    usd = None if cost is None else cost * expected
    fields: Json = {"agent_sessions": expected, "agent_sessions_at_most": most, "usd_expected": usd, "usd_at_most": None}
    return {"name": name, "by": agent, **fields}


def _most(capped: float | None, budget: float | None) -> float | None:
    return min((limit for limit in (capped, budget) if limit is not None), default=None)


def _note(stages: tuple[int, int], expected: int, capped: int, base: Path, budget: float | None) -> str:
    asked, first = stages
    if not asked:
        return "no agent is asked anything"
    rests = f"the mean of real sessions in the newest {costs.LOOKED_AT} of {base}; replayed and scripted ones do not count"
    words = [f"{expected} of {first} stages that ask agents have run before and may cost the same again ({rests})"]
    words += [f"{asked - first} more are asked only where something fails"] if asked > first else []
    if budget is not None:
        words.append(f"the budget stops it at {budget:g} USD")
    elif capped < asked:
        words.append(f"{asked - capped} have no max_budget_usd, so there is no upper bound")
    return "; ".join(words)


def _run(run: Run, known: dict[str, float]) -> Json:
    orchestration = orchestrator_file.load(run.orchestrator, run.modifier)
    given = replace(run, params=_params(orchestration, run))
    stages = [_stage(s, given, known, _rounds(orchestration, n)) for n, s in enumerate(orchestration.stages)]
    return {"name": run.name, "orchestrator": run.orchestrator, "stages": stages}


def _params(orchestration: Orchestration, run: Run) -> Json:
    """What is given, and the defaults of the rest, as far as they can be known."""
    try:
        return params.values(orchestration.name, orchestration.params, run.params, needed=False)
    except StrataError:
        return run.params


def _rounds(orchestration: Orchestration, place: int) -> int:
    """How often the stage at `place` can come up: once, and once more for every turn of a loop that leads back over it."""
    names = [s.name for s in orchestration.stages]
    rounds = 1
    for name, loop in orchestration.loops.items():
        sources = [n for n, s in enumerate(orchestration.stages) if name in s.loops]
        if sources and loop.to in names and names.index(loop.to) <= place <= max(sources):
            rounds += loop.max
    return rounds


def _stage(stage: Stage, run: Run, known: dict[str, float], rounds: int) -> Json:
    asks = [w for w in stage.workers if w.asks_agents]
    items = stage.items_expected(run.params)
    tries = 1 + stage.retry_max + RERUNS
    heals = 1 + SELF_HEAL_MAX if stage.limits.self_heal else 1
    sessions = len(asks) * stage.items_at_most * rounds * tries * heals
    usual = [known.get(w.agent or stage.name) for w in asks]
    expected = sum(c for c in usual if c is not None) * items if None not in usual else None
    return {
        "name": stage.name,
        "by": stage.by,
        "agent_sessions": len(asks) * items,
        "agent_sessions_at_most": sessions,
        "usd_expected": expected,
        "usd_at_most": sessions * stage.limits.max_budget_usd if stage.limits.max_budget_usd else None,
    }
