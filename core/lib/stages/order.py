"""A step to be done, and all that it is made of: once one of these parts changes, it is another work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lib.disk import files, records, schemas
from lib.plan import agents, checks_file
from lib.plan.orchestration import Worker
from lib.plan.task import Task
from lib.process import tools
from lib.session.step import Step
from lib.stages.loops import Taken
from lib.tool.call import Call


class Order(Struct, frozen=True):
    """A step to be done: who, what, and what it must be told besides."""

    step: Step
    key: str
    worker: Worker
    agent: str
    args: tuple[str, ...]
    task: Task
    context: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()  # folders the context speaks of
    waits_for: tuple[str, ...] = ()  # the members or items of the same stage that come first
    place: Callable[[], AbstractContextManager[Path]] | None = (
        None  # a folder of its own for each attempt, instead of the workspace
    )
    made_from: dict[str, str] = {}  # by stage it consumes: what that did to the workspace
    after: dict[str, str] = {}  # by member or item it waited for: what that came to
    waited: tuple[str, ...] = ()  # the steps of those, and of those they waited for


# The keys decide, and stay; what a person is told of them may be said better any day.
_WORDS = {
    "worker": "who does it",
    "tool": "the code of its tool",
    "checks": "the definition of its checks",
    "args": "its arguments",
    "action": "its action",
    "target": "its target",
    "extra": "its further words",
    "item": "its item",
    "outputs": "its outputs",
    "cause": "why it was sent back",
    "scope": "its scope",
    "isolation": "its isolation",
    "protect": "what judges it",
    "accept": "who accepts it",
    "answer": "what a person answered",
    "input": "the input {}",
    "did": "what the stage {} did",
    "after": "what {} came to, which it waits for,",
}


def words_for(key: str) -> str:
    """A part of what a step is made of, in words."""
    kind, _, name = key.partition(":")
    return _WORDS.get(kind, key).format(name)


def made_of(call: Call, order: Order) -> dict[str, str]:
    """Everything that, changed, makes the work another work, each by its key: not the attempt, not the place on this machine.
    The agent's definition and model are compared with the outcome's own, because a tool may choose its agent itself."""
    task, worker = order.task, order.worker
    judges = order.args if worker.tool == "check.py" else (agents.load(order.agent).checks if order.agent else ())
    parts: dict[str, Any] = {
        "worker": order.agent or worker.tool,
        "tool": "" if order.agent else _code(worker.tool),
        "checks": checks_file.known(_absolute(call.options.checks)).digest(judges) if judges else "",
        "args": [_placeless(call, word) for word in order.args],
        "action": task.action,
        "target": _content(task.target, call),
        "extra": task.extra,
        "item": task.item,
        "outputs": {o.name: records.document(o) | {"schema": schemas.load(o.schema) if o.schema else ""} for o in task.outputs},
        "cause": [_cause(call, path) for path in order.context],
        "scope": task.scope if task.scope else ("nothing" if task.scope == () else ""),
        "isolation": task.isolation,
        "protect": task.protect,
        "accept": [*task.accept, _code(task.accept[0])] if task.accept else "",
        "answer": task.answer,
        **{f"input:{name}": _content(value, call) for name, value in task.inputs.items()},
        **{f"did:{name}": did for name, did in order.made_from.items()},
        **{f"after:{name}": came_to for name, came_to in order.after.items()},
    }
    return {name: files.digest(value)[:16] for name, value in parts.items() if value}


def _code(tool: str) -> str:
    from lib.process import tool_code  # it reads Python, which most runs need not

    return tool_code.digest(tools.find_tool(tool))


def _absolute(path: str | None) -> str:
    return str(Path(path).absolute()) if path else ""


def sealed(call: Call, order: Order) -> Order:
    """The order with the fingerprint of what it is made of."""
    parts = made_of(call, order)
    return replace(order, task=replace(order.task, made_of=parts, fingerprint=files.digest(parts)))


def consumed(call: Call, task: Task) -> dict[str, str]:
    """Files of the workspace the task is told about, with their hashes as they are now, except those it is to write itself."""
    own = {o.path.replace("{target}", task.target) for o in task.outputs if o.place == "workspace"}
    found: dict[str, str] = {}
    listed = [v for value in task.inputs.values() for v in (cast(list[Any], value) if isinstance(value, list) else [value])]
    for value in (task.target, *listed):
        if isinstance(value, str) and value and "\n" not in value and len(value) < 1000 and value not in own:
            path = call.cwd / value
            session = call.session.folder
            ours = path.is_relative_to(session) and not call.cwd.is_relative_to(session)
            if path.is_relative_to(call.cwd) and not ours and files.is_file(path):
                found[str(path.relative_to(call.cwd))] = files.sha256(path)
    return found


def _content(value: Any, call: Call) -> Any:
    """An input counts by its content; a file of the workspace by its name: it is in `consumed`, because later writers may
    change it."""
    if isinstance(value, list):
        return [_content(v, call) for v in cast(list[Any], value)]
    if not isinstance(value, str) or "\n" in value or len(value) > 4000:
        return value
    path, cwd, session = Path(value), call.cwd, call.session.folder
    in_session = path.is_relative_to(session) and not (cwd.is_relative_to(session) and path.is_relative_to(cwd))
    if not path.is_absolute() or (path.is_relative_to(cwd) and not in_session) or not files.exists(path):
        return _placeless(call, value)
    return files.fingerprint(path)


def _cause(call: Call, path: Path) -> str:
    """What a loop says, wherever the session was when it said so."""
    text, record = path.read_text(encoding="utf-8"), path.with_suffix(".json")
    then = records.read(record, Taken).session if record.exists() else ""
    return _placeless(call, text.replace(then, str(call.session.folder)) if then else text)


def _placeless(call: Call, text: str) -> str:
    """The same words wherever the session and the workspace lie."""
    places = {str(call.session.folder): "{session}", str(call.cwd): "{workspace}"}
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    return text
