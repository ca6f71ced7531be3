"""When there is not enough depth left for a stage whose agent starts agents of its own: the seed's three ways.

`abort` ends the run with what it has (exit 2). `escalate` asks for more depth (exit 11). `compress` has one agent, who starts
none, do this stage and all behind it; what each of them must leave behind is verified as if it had run alone.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lib.contract import ExitCode, Json
from lib.disk import files
from lib.plan import agents
from lib.plan.orchestration import PLACEHOLDER, Orchestration, Reference, Stage, Worker
from lib.plan.task import Limits, Task
from lib.session.step import Step
from lib.stages.order import Order, sealed
from lib.stages.orders import NOBODY, Orders
from lib.stages.results import StageResult, StepResult
from lib.tool.call import Call

AGENT = "stage-compressor"


def levels(stage: Stage) -> int:
    """How many levels of agents a stage needs: one more where its agent starts others."""
    return stage.depth or 1 + any(agents.load(name).calls for worker in stage.workers for name in worker.agents)


def short(call: Call, stage: Stage) -> bool:
    return any(w.agents or stage.fans_out for w in stage.workers) and levels(stage) > call.depth.remaining > 0


def stopped(call: Call, stage: Stage) -> StageResult:
    """Abort, or ask for more. What is finished stays finished, and a run with more depth goes on from here."""
    message = f"{stage.name} needs {levels(stage)} levels of agents, and {call.depth.remaining} is left of {call.depth.maximum}"
    hint = f"start it again with --max-depth {call.depth.current + levels(stage)} or more"
    code = ExitCode.NEEDS_ESCALATION if stage.on_depth == "escalate" else ExitCode.DEPTH_EXCEEDED
    return StageResult(stage.name, code, "failed", error={"code": "DEPTH_EXCEEDED", "message": message, "hint": hint})


def folder(stage: Stage) -> str:
    """Of the step that does this stage and all behind it."""
    return f"{stage.folder.partition('-')[0]}-compressed"


def tail(orchestration: Orchestration, stage: Stage) -> list[Stage]:
    return list(orchestration.behind(stage))


def as_one(call: Call, orders: Orders, stages: list[Stage], base: Step) -> tuple[Stage, Order]:
    """The given stages as a single piece of work."""
    first = stages[0]
    names = {s.name for s in stages}
    home = call.session.folder / base.home / "compressed"
    inputs: Json = {}
    outputs: list[Any] = []
    scope: list[str] = []
    briefs: dict[str, str] = {}
    for stage in stages:
        worker, agent = stage.worker, agents.load(stage.worker.agent)
        target = orders.fill(worker.target, NOBODY) if not _uses(worker.target, names) else worker.target
        given: dict[str, Any] = {}
        for name, text in worker.inputs.items():
            known = Reference.parse(text)
            later = known and known.head in names
            given[name] = f"what you write for {text.removeprefix('optional ')}" if later else orders.resolve(text, NOBODY)
        inputs |= {f"{stage.name}-{n}": v for n, v in given.items() if v is not None and not str(v).startswith("what you write")}
        own = [replace(o, name=f"{stage.name}.{o.name}", path=_path(stage, o.place, o.path, target)) for o in worker.outputs]
        outputs += own
        scope += agent.scope
        brief = home / f"{stage.folder}.md"
        told = _brief(stage, agent, target, given, [o.name for o in own])
        briefs[stage.name] = files.digest(told)
        if not call.looking:
            files.write_atomic(brief, told)
        inputs[f"{stage.name}-brief"] = str(brief)
    task = Task("COMPRESS", target=", ".join(s.name for s in stages), inputs=inputs, outputs=tuple(outputs), scope=tuple(scope))
    step = replace(base, stage=folder(first))
    order = Order(step, "", Worker(agent=AGENT, outputs=tuple(outputs)), AGENT, (), task)
    order = replace(order, made_from={**orders.did, **briefs})
    whole = Stage(
        name="compressed",
        folder=step.stage,
        worker=order.worker,
        retry_max=first.retry_max,
        limits=_limits(stages),
    )
    return whole, sealed(call, order)


def _limits(stages: list[Stage]) -> Limits:
    """What all of them may take together."""
    usd = [s.limits.max_budget_usd for s in stages]
    whole = sum(u or 0 for u in usd) if all(usd) else None
    return Limits(timeout_seconds=sum(s.limits.timeout_seconds for s in stages), max_budget_usd=whole)


def _uses(text: str, names: set[str]) -> bool:
    found = (Reference.parse(t) for t in PLACEHOLDER.findall(text))
    return any(r and r.head in names for r in found)


def _path(stage: Stage, place: str, path: str, target: str) -> str:
    path = path.replace("{target}", target)
    return path if place == "workspace" else f"{stage.name}/{path}"


def _brief(stage: Stage, agent: agents.Agent, target: str, given: dict[str, Any], outputs: list[str]) -> str:
    lines = [f"# {stage.name}", "", f"Do this: {stage.worker.action} {target}".rstrip(), ""]
    lines += [f"- given {name}: {value}" for name, value in given.items() if value is not None]
    lines += [f"- leaves behind: {', '.join(outputs) or 'only what it changes in the working folder'}", ""]
    return "\n".join([*lines, "Done alone, it would be done by somebody who was told:", "", agent.system_prompt, ""])


def apart(stages: list[Stage], done: StepResult) -> dict[str, StageResult]:
    """What the one piece of work came to, stage by stage."""
    found: dict[str, StageResult] = {}
    note = f"done together with {', '.join(s.name for s in stages)}: there was no depth left for more"
    for stage in stages:
        own = {n.removeprefix(f"{stage.name}."): p for n, p in done.outputs.items() if n.startswith(f"{stage.name}.")}
        step = replace(done, outputs=own, note=note)
        found[stage.name] = StageResult(stage.name, done.exit_code, done.verdict, (step,), done.error, note)
    return found
