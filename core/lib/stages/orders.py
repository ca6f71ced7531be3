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
from lib.plan.orchestration import PLACEHOLDER, Orchestration, Piece, Reference, Stage, Worker
from lib.plan.task import Task
from lib.session.step import Step
from lib.stages.order import Order, sealed
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


class Orders(Struct):
    """Knows the parameters and what earlier stages produced; makes the orders of the next one."""

    call: Call
    params: dict[str, Any]
    outputs: dict[str, Outputs] = {}  # by stage
    did: dict[str, str] = {}  # by stage: what it changed in the workspace
    causes: dict[str, Path] = {}  # by stage: why a loop came back to it

    def of(self, stage: Stage, step: Step) -> list[Order]:
        pieces = stage.pieces(lambda text: self.resolve(text, None))
        return [self._order(stage, step, piece) for piece in pieces]

    def behind(self, order: Order, before: dict[str, tuple[Order, str]]) -> Order:
        """The order of a member or item that waited for others: what those came to is part of what it is made of."""
        if not before:
            return order
        steps = dict.fromkeys(s for other, _ in before.values() for s in (*other.waited, str(other.step)))
        after = {key: came_to for key, (_, came_to) in before.items()}
        return sealed(self.call, replace(order, after=after, waited=tuple(steps)))

    def _order(self, stage: Stage, step: Step, piece: Piece) -> Order:
        worker, key, item = piece.worker, piece.key, piece.item
        agent, outputs = worker.agent, worker.outputs
        if worker.agent_from:
            agent = str(self.resolve(worker.agent_from, item))
            if agent not in worker.allow:
                message = f"{stage.name}: {key!r} asks for the agent {agent!r}"
                raise StrataError("AGENT_NOT_ALLOWED", message, f"allowed: {', '.join(worker.allow)}")
            outputs = tuple({o.name: o for o in (*agents.load(agent).outputs, *stage.worker.declared)}.values())
        task = Task(
            action=worker.action,
            target=self.fill(worker.target, item),
            inputs={name: v for name, text in worker.inputs.items() if (v := self.resolve(text, item)) is not None},
            outputs=outputs,
            item=item,
            isolation=stage.isolation,
            limits=stage.limits,
        )
        cause = self.causes.get(stage.name)
        order = Order(
            step=replace(step, item=files.safe_name(key) if key else ""),
            key=key,
            worker=worker,
            waits_for=piece.after,
            agent=agent,
            args=tuple(self.fill(a, item) for a in worker.args),
            task=task,
            made_from={name: self.did.get(name, "") for name in self.sources(worker)},
            context=(cause,) if cause else (),
            reads=(self.call.session.folder / step.artifacts.parents[0 if not step.round else 1],) if cause else (),
        )
        return sealed(self.call, order)

    def sources(self, worker: Worker) -> list[str]:
        """The stages whose outcomes this work consumes."""
        heads = {r.head for r in map(Reference.parse, worker.references) if r}
        return sorted(heads - {"param", "item"})

    def fill(self, text: str, item: Any) -> str:
        """`{param.topic}`, `{item.id}` and `{plan.tasks}` in a text."""

        def value(found: re.Match[str]) -> str:
            inner = self.resolve(found[1], item)
            return inner if isinstance(inner, str) else json.dumps(inner)

        return PLACEHOLDER.sub(value, text)

    def resolve(self, text: str, item: Any) -> Any:
        """A reference's value: a text, an item, a path, or a list of paths; None for an optional one that is absent."""
        reference = Reference.parse(text)
        assert reference
        if reference.head == "param":
            return self.params[reference.rest[0]]
        if reference.head == "item":
            value = item
            for part in reference.rest:
                value = _field(value, part)
            if value is None and not reference.optional:
                raise StrataError("BAD_ITEMS", f"an item has no {'.'.join(reference.rest)!r}: {str(item)[:200]}")
            return value
        table = self.outputs.get(reference.head, {})
        member, output = reference.rest if len(reference.rest) == 2 else ("", reference.rest[0])
        if member == "*":
            return [outputs[output] for outputs in table.values() if output in outputs]
        path = table.get(member, {}).get(output)
        if path is None and not reference.optional:
            hint = f"write `optional {text}` if it can do without"
            raise StrataError("MISSING_INPUT", f"{text}: the stage {reference.head!r} did not produce it", hint)
        return path


def _field(value: Any, name: str) -> Any:
    return cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
