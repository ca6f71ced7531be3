"""Doing finished work again on purpose: which steps `--from` and `--only` mean, and how they are made to count no more.

Nothing is deleted. Up to which attempt a step's past does not count is written down before anything runs, so that a re-run
that is cut short is continued by an ordinary resume.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.contract import nearest, usage
from lib.disk import files, records
from lib.plan.orchestration import Orchestration
from lib.plan.task import Task
from lib.process import fanout
from lib.session.attempts import AGAIN, every_attempt
from lib.session.step import Step
from lib.stages import loops

Chosen = Callable[[Step], bool]


def from_stage(orchestration: Orchestration, base: Step, text: str, session: Path | None) -> Chosen:
    """`STAGE` or `STAGE/ITEM` of one orchestrator: that, what waits for it, and every stage behind it."""
    name, _, item = text.partition("/")
    stages = [s.name for s in orchestration.stages]
    if name not in stages:
        usage(f"--from {text}: {orchestration.name} has no stage {name!r}", nearest(name, stages))
    stage = orchestration.stages[stages.index(name)]
    place = Step(stage=stage.folder).place
    after = stage.order_of(lambda: _items(session / base.home / "stages" / stage.folder if session else None))
    waiting = {key for key in after if item in fanout.all_before(after, key)} if item in after else set[str]()
    wanted = {files.safe_name(key) for key in {item, *waiting}} if item else set[str]()

    def chosen(step: Step) -> bool:
        if (step.phase, step.orchestrator) != (base.phase, base.orchestrator):
            return False
        return step.place > place or (step.place == place and (not wanted or step.item in wanted))

    return chosen


def _items(folder: Path | None) -> list[Any]:
    """The items of a stage as they were when they ran."""
    return [records.read(path, Task).item for path in sorted(folder.rglob("task-*.json"))] if folder and folder.is_dir() else []


def voided(session: Path, chosen: Chosen) -> dict[str, int]:
    """The chosen steps that have been tried, each with its last attempt."""
    found: dict[str, int] = {}
    for attempt in every_attempt(session):
        if chosen(attempt.step):
            found[str(attempt.step)] = max(found.get(str(attempt.step), 0), attempt.number)
    return found


def mark(session: Path, chosen: Chosen) -> int:
    """Makes the past of the chosen steps count no more. Loops that led over them are set aside with it."""
    found = voided(session, chosen)
    path = session / AGAIN
    known: dict[str, int] = files.read_json(path) if path.exists() else {}
    files.write_json(path, known | found)
    homes = {str(attempt.step.home): attempt.step for attempt in every_attempt(session)}
    for home, step in homes.items():
        for record, taken in loops.every(session / home):
            if loops.led_over(taken.rounds, found, step):
                loops.set_aside(record)
    return len(found)
