"""Members and items that run beside each other: whom each waits for, and who may write the working folder at the same time."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any

from lib.contract import nearest
from lib.disk.config import Document
from lib.plan import agents
from lib.plan.orchestration import FanOut, Stage, Worker
from lib.process import fanout


def check_members(document: Document, at: list[Any], members: dict[str, Worker]) -> None:
    """Each waits for members that are there, and none for itself."""
    for name, worker in members.items():
        for other in worker.after:
            if other not in members:
                message = f"there is no member {other!r}"
                raise document.error([*at, "members", name, "after"], message, nearest(other, list(members)))
    try:
        TopologicalSorter({n: w.after for n, w in members.items()}).prepare()
    except CycleError as error:
        message = f"members wait for each other in a circle: {' → '.join(error.args[1])}"
        raise document.error([*at, "members"], message, "take one `after` away") from None


def check_writers(document: Document, at: list[Any], stage: Stage) -> None:
    """Agents that run at the same time must not write the same folder: nobody could tell who changed what."""
    if stage.isolation == "copy":
        lost = [o.name for _, worker, _ in stage.announced() for o in worker.outputs if o.place == "workspace"]
        if lost:
            message = f"{stage.name!r} works in a copy that is thrown away, and with it its output {lost[0]!r}"
            raise document.error([*at, "isolation"], message, "leave out `in: workspace`, or isolation: worktree")
        if any(worker.tool == "check.py" for _, worker, _ in stage.announced()):
            raise document.error([*at, "isolation"], "a check judges the folder itself, not a copy", "leave out isolation")
    if stage.cap == 1 or not stage.fans_out or stage.isolation:
        return
    writers = [key for key, worker, _ in stage.announced() if _writes_workspace(worker)]
    if writers and isinstance(stage, FanOut):
        message = f"the items of {stage.name!r} write the working folder at the same time"
        hint = "isolation: worktree (or copy, to change nothing), foreach.cap: 1, or an agent that writes only its outputs"
        raise document.error(at, message, hint)
    after = stage.order_of(list)
    for place, one in enumerate(writers):
        for other in writers[place + 1 :]:
            if other not in fanout.all_before(after, one) and one not in fanout.all_before(after, other):
                message = f"{one!r} and {other!r} write the working folder at the same time"
                hint = "let one wait for the other (after:), set parallel.cap: 1, or isolation: worktree or copy"
                raise document.error([*at, "members"], message, hint)


def _writes_workspace(worker: Worker) -> bool:
    by_output = any(o.place == "workspace" for o in worker.outputs)
    return by_output or any(agents.can_write_workspace(agents.load(name)) for name in worker.agents)
