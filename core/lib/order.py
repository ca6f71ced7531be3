"""A step to be done, and all that it is made of: once one of these parts changes, it is another work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from lib import agents, calling, checks, files, schemas
from lib.cli import Call
from lib.orchestration import Worker
from lib.session import Step
from lib.task import Task


@dataclass(frozen=True)
class Order:
    """A step to be done: who, what, and what it must be told besides."""

    step: Step
    key: str
    worker: Worker
    agent: str
    args: tuple[str, ...]
    task: Task
    context: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()  # folders the context speaks of
    place: Callable[[], AbstractContextManager[Path]] | None = (
        None  # a folder of its own for each attempt, instead of the workspace
    )
    made_from: dict[str, str] = field(default_factory=dict[str, str])  # by stage it consumes: what that did to the workspace


def made_of(call: Call, order: Order) -> dict[str, str]:
    """Everything that, changed, makes the work another work, each by its name: not the attempt, not the place on this machine.
    The agent's definition and model are compared with the outcome's own, because a tool may choose its agent itself."""
    task, worker = order.task, order.worker
    judges = worker.tool == "check.py" or (order.agent and agents.load(order.agent).checks)
    told = [path.read_text(encoding="utf-8").replace(str(call.session.folder), "") for path in order.context]
    parts: dict[str, Any] = {
        "who does it": order.agent or worker.tool,
        "the code of its tool": "" if order.agent else files.sha256(calling.find_tool(worker.tool)),
        "the definition of its checks": files.sha256(Path(call.options.checks or checks.DEFAULT_FILE)) if judges else "",
        "its arguments": order.args,
        "its action": task.action,
        "its target": task.target,
        "its further words": task.extra,
        "its item": task.item,
        "its outputs": [o.document() | {"schema": schemas.load(o.schema) if o.schema else ""} for o in task.outputs],
        "why it was sent back": told,
        "its scope": task.scope,
        "its isolation": task.isolation,
        "what judges it": task.protect,
        **{f"the input {name}": _content(value, call) for name, value in task.inputs.items()},
        **{f"what the stage {name} did": did for name, did in order.made_from.items()},
    }
    return {name: files.digest(value)[:16] for name, value in parts.items() if value}


def sealed(call: Call, order: Order) -> Order:
    """The order with the fingerprint of what it is made of."""
    parts = made_of(call, order)
    return replace(order, task=replace(order.task, made_of=parts, fingerprint=files.digest(parts)))


def _content(value: Any, call: Call) -> Any:
    """An input counts by its content; a file of the workspace is in `consumed` instead: later writers may change it."""
    if isinstance(value, list):
        return [_content(v, call) for v in cast(list[Any], value)]
    if not isinstance(value, str) or "\n" in value or len(value) > 4000:
        return value
    path = Path(value)
    ours = path.is_relative_to(call.session.folder) or not path.is_relative_to(call.cwd)
    return files.fingerprint(path) if path.is_absolute() and ours and files.exists(path) else value
