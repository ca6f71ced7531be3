"""The outputs of a run, with their labels: made from what the steps came to, however often the run was cut off."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from lib.contract import Json
from lib.disk import files, records
from lib.plan.orchestration import Orchestration
from lib.session.outcome import Outcome
from lib.session.produced import SEARCH, Label, Produced, identity
from lib.session.step import Step
from lib.stages.results import StageResult, StepResult
from lib.tool.call import Call

Labels = dict[tuple[str, str], Label]  # by stage and item or member


def listed(call: Call, orchestration: Orchestration, base: Step, results: dict[str, StageResult], labels: Labels) -> list[Json]:
    found: list[Produced] = []
    for stage in orchestration.stages:
        result = results.get(stage.name)
        for one in result.steps if result else ():
            step = replace(base, stage=stage.folder, round=result.round if result else 0)
            step = replace(step, item=files.safe_name(one.key) if one.key else "")
            label = labels.get((stage.name, one.key), Label())
            found += _of_step(call, step, one, replace(label, layer=label.layer or stage.name))
    return records.document(found)


def _of_step(call: Call, step: Step, one: StepResult, label: Label) -> list[Produced]:
    last = one.outcome
    if not one.ok or not last or not last.outputs:
        return []
    tries = [outcome for _, outcome in call.session.ended(step)] if one.attempts > 1 else [last]
    costs = [o.cost_usd for o in tries if o.cost_usd is not None]
    return [
        Produced(
            id=identity(step, one.key, output.output),
            type=label.type or output.output,
            layer=label.layer,
            dimensions=label.dimensions,
            tags=label.tags,
            output=output.output,
            root=output.root,
            path=output.path,
            sha256=output.sha256,
            size=output.size,
            cost_usd=round(sum(costs), 9) if costs else None,
            step=str(step),
            completion_status="complete" if one.verdict == "done" else "needs_revision",
            **_maker(last),
        )
        for output in last.outputs
    ]


def _maker(outcome: Outcome) -> Json:
    return {
        "agent_name": outcome.agent or outcome.tool,
        "agent_version": outcome.definition[:16],
        "model": outcome.model,
        "tool_uses": outcome.tool_uses,
        "searches_performed": Counter(outcome.tool_uses)[SEARCH],
        "completed_at": outcome.finished_at,
    }
