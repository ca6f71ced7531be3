"""What there is to do in a stage: members or items turned into orders, with every reference replaced by its value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import StrataError, usage
from lib.disk import files
from lib.plan import agents, params
from lib.plan.orchestration import PLACEHOLDER, RESERVED, ROSTER, FanOut, Orchestration, Piece, Reference, Stage, Worker
from lib.plan.task import Limits, Task
from lib.session.produced import Label
from lib.session.step import Step
from lib.stages import asking, each
from lib.stages.order import Order, sealed
from lib.stages.results import StepResult
from lib.tool.call import Call

Outputs = dict[str, dict[str, str]]  # member, item or "" → output → full path


def read_params(orchestration: Orchestration, given: dict[str, Any], cwd: Path) -> dict[str, Any]:
    values = params.values(orchestration.name, orchestration.params, given)
    for name, value in values.items():
        if orchestration.params[name].type == "file" and value is not None:
            values[name] = _file_param(str(value), cwd)
            if not files.exists(cwd / values[name]) and not _is_written(orchestration, name):
                usage(f"{name}: there is no file {value!r}", f"give a path from here, or from {cwd}")
    return values


def _is_written(orchestration: Orchestration, param: str) -> bool:
    """Whether a stage makes the file itself: its output is its target, and its target is this parameter."""
    workers = [s.worker for s in orchestration.stages]
    return any(w.target == f"{{param.{param}}}" and any("{target}" in o.path for o in w.outputs) for w in workers)


def _file_param(value: str, cwd: Path) -> str:
    """A path as the user gave it, seen from the working folder wherever it lies inside."""
    here = Path(value).absolute()
    path = here if files.exists(here) or Path(value).is_absolute() else cwd / value
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


class Here(Struct, frozen=True):
    """For whom a reference is resolved."""

    stage: str = ""
    key: str = ""
    item: Any = None
    before: Outputs | None = None  # what those it waited for produced; None: they have not ended yet


NOBODY = Here()


class Orders(Struct):
    """Knows the parameters and what earlier stages produced; makes the orders of the next one."""

    call: Call
    params: dict[str, Any]
    outputs: dict[str, Outputs] = {}  # by stage
    rosters: dict[str, str] = {}  # by stage: the file that says who was asked, and what came of it
    did: dict[str, str] = {}  # by stage: what it changed in the workspace
    causes: dict[str, Path] = {}  # by stage: why a loop came back to it
    labels: dict[tuple[str, str], Label] = {}  # by stage and key: what is said of the outputs
    handed: dict[str, Outputs] = {}  # by loop: what the stage that took it had produced, its roster and its cause under ""

    def of(self, stage: Stage, step: Step) -> list[Order]:
        pieces = stage.pieces(lambda text: self.resolve(text, NOBODY))
        return [self._order(stage, step, piece) for piece in pieces]

    def behind(self, order: Order, before: dict[str, tuple[Order, StepResult]]) -> Order:
        """The order of a member or item that waited for others: what those came to is part of what it is made of, and what they
        produced is there to be read."""
        if not before:
            return order
        steps = dict.fromkeys(s for other, _ in before.values() for s in (*other.waited, str(other.step)))
        after = {key: result.came_to for key, (_, result) in before.items()}
        here = Here(key=order.key, item=order.task.item, before={key: result.outputs for key, (_, result) in before.items()})
        read = {name: text for name, text in order.worker.inputs.items() if _head(text) == "after"}
        inputs = order.task.inputs | {name: v for name, text in read.items() if (v := self.resolve(text, here)) is not None}
        task = replace(order.task, inputs=inputs)
        return sealed(self.call, replace(order, task=task, after=after, waited=tuple(steps)))

    def _order(self, stage: Stage, step: Step, piece: Piece) -> Order:
        worker, key, item = piece.worker, piece.key, piece.item
        here = Here(stage.name, key, item)
        agent, outputs = worker.agent, worker.outputs
        if worker.agent_from:
            agent = self._chosen(stage, worker, here)
            outputs = tuple({o.name: o for o in (*agents.load(agent).outputs, *stage.worker.declared)}.values())
        limits, scope = self._bounds(stage, agent, here)
        self.labels[stage.name, key] = self._label(worker.label, here)
        task = Task(
            action=worker.action,
            target=self.fill(worker.target, here),
            inputs={name: v for name, text in worker.inputs.items() if (v := self.resolve(text, here)) is not None},
            outputs=outputs,
            item=item,
            isolation=stage.isolation,
            scope=scope,
            limits=limits,
            accept=worker.accept,
        )
        cause = self.causes.get(stage.name)
        order = Order(
            step=replace(step, item=files.safe_name(key) if key else ""),
            key=key,
            worker=worker,
            waits_for=piece.after,
            agent=agent,
            args=tuple(self.fill(a, here) for a in worker.args),
            task=task,
            made_from={name: self.did.get(name, "") for name in self.sources(worker)},
            context=(cause,) if cause else (),
            reads=(self.call.session.folder / step.artifacts.parents[0 if not step.round else 1],) if cause else (),
        )
        order = sealed(self.call, order)
        answer = asking.answer_to(self.call.session.folder, order.step, order.task.made_of)
        return sealed(self.call, replace(order, task=replace(order.task, answer=answer))) if answer is not None else order

    def _label(self, label: Label, here: Here) -> Label:
        dimensions = {name: self.fill(text, here) for name, text in label.dimensions.items()}
        tags = tuple(dict.fromkeys(self.fill(tag, here) for tag in label.tags))
        return replace(label, dimensions=dimensions, tags=tags)

    def _bounds(self, stage: Stage, agent: str, here: Here) -> tuple[Limits, each.Scope]:
        if not isinstance(stage, FanOut) or not stage.each:
            return stage.limits, None
        return each.bounds(stage, here.key, agents.load(agent) if agent else None, lambda text: self.resolve(text, here))

    def _chosen(self, stage: Stage, worker: Worker, here: Here) -> str:
        """The agent that an item names, out of those that are allowed; a pack's own need not be named with the pack."""
        asked = str(self.resolve(worker.agent_from, here))
        chosen = next((name for name in worker.allow if asked in (name, name.rpartition("/")[2])), "")
        if not chosen:
            message = f"{stage.name}: {here.key!r} asks for the agent {asked!r}"
            raise StrataError("AGENT_NOT_ALLOWED", message, f"allowed: {', '.join(worker.allow)}")
        return chosen

    def sources(self, worker: Worker) -> list[str]:
        """The stages whose outcomes this work consumes."""
        return sorted({_head(text) for text in worker.references} - set(RESERVED))

    def fill(self, text: str, here: Here) -> str:
        """`{param.topic}`, `{item.id}` and `{plan.tasks}` in a text."""

        def value(found: re.Match[str]) -> str:
            inner = self.resolve(found[1], here)
            return inner if isinstance(inner, str) else json.dumps(inner)

        return PLACEHOLDER.sub(value, text)

    def resolve(self, text: str, here: Here) -> Any:
        """A reference's value: a text, an item, a path, or a list of paths; None for an optional one that is absent."""
        found = Reference.parse(text)
        assert found
        if found.head == "param":
            return self.params[found.rest[0]]
        if found.head == "item":
            return self._of_item(found, here.item)
        if found.head == "previous":  # nothing in the first round
            return self.outputs.get(here.stage, {}).get(here.key, {}).get(found.rest[0])
        if found.head == "loop":  # nothing before it was taken
            return _out_of(self.handed.get(found.rest[0], {}), found.rest[1:])
        if found.head == "after":
            return None if here.before is None else _out_of(here.before, found.rest)
        if found.rest == (ROSTER,):
            return self.rosters.get(found.head)
        value = _out_of(self.outputs.get(found.head, {}), found.rest)
        if value is None and not found.optional:
            hint = f"write `optional {text}` if it can do without"
            raise StrataError("MISSING_INPUT", f"{text}: the stage {found.head!r} did not produce it", hint)
        return value

    def _of_item(self, found: Reference, item: Any) -> Any:
        value = item
        for part in found.rest:
            value = _field(value, part)
        if value is None and not found.optional:
            raise StrataError("BAD_ITEMS", f"an item has no {'.'.join(found.rest)!r}: {str(item)[:200]}")
        return value


def _out_of(table: Outputs, rest: tuple[str, ...]) -> Any:
    """`OUTPUT`, `MEMBER.OUTPUT` or `*.OUTPUT` of what a stage produced; None where it is not there."""
    member, output = rest if len(rest) == 2 else ("", rest[0])
    if member == "*":
        return [outputs[output] for outputs in table.values() if output in outputs]
    return table.get(member, {}).get(output)


def _head(text: str) -> str:
    found = Reference.parse(text)
    return found.head if found else ""


def _field(value: Any, name: str) -> Any:
    return cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
