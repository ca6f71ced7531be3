"""The roster of a stage: who was asked, for which item, how each ended and why, and what it left.

It says the same however often the run was cut off, and wherever the session lies: paths are seen from the roster's own folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import STATUS
from lib.disk import files, records
from lib.session.produced import Label
from lib.session.step import Step
from lib.stages.results import StageResult, StepResult
from lib.tool.call import Call

NAME = "roster.json"


class Entry(Struct, frozen=True):
    key: str  # as the item, or the member, is called
    status: str
    verdict: str
    exit_code: int
    item: Any = None
    code: str = ""
    message: str = ""
    note: str = ""
    warnings: tuple[str, ...] = ()
    dimensions: dict[str, str] = {}
    outputs: dict[str, str] = {}  # in the session: seen from the folder of this file
    workspace: dict[str, str] = {}  # in the working folder: seen from there


class Roster(Struct, frozen=True):
    stage: str
    round: int
    asked: int
    succeeded: int
    entries: tuple[Entry, ...]


def publish(call: Call, step: Step, stage: str, result: StageResult, labels: dict[tuple[str, str], Label]) -> Path:
    """Writes the roster where the outputs of the stage are, if it says anything new. Who only looks on finds it as it was."""
    path = call.session.folder / step.artifacts / NAME
    known = {one.key: labels[stage, one.key].dimensions if (stage, one.key) in labels else {} for one in result.steps}
    entries = tuple(_entry(call, path.parent, one, known[one.key]) for one in result.steps)
    good = sum(one.ok for one in result.steps)
    made = Roster(stage, step.round, len(entries), good, entries)
    if not call.looking:
        files.write_json(path, records.document(made))
    return path


def _entry(call: Call, folder: Path, one: StepResult, dimensions: dict[str, str]) -> Entry:
    session, cwd = call.session.folder, call.cwd
    inside = {n: p for n, p in one.outputs.items() if Path(p).is_relative_to(session) and not _in_workspace(p, cwd, session)}
    return Entry(
        key=one.key,
        status="blocked" if one.verdict == "blocked" else STATUS[one.exit_code],
        verdict=one.verdict,
        exit_code=int(one.exit_code),
        item=one.item,
        code=one.code,
        message=_placeless(one.message, session, cwd) if not one.ok else "",
        note=_placeless(one.note, session, cwd),
        warnings=tuple(_placeless(warning, session, cwd) for warning in one.warnings),
        dimensions=dimensions,
        outputs={name: os.path.relpath(path, folder) for name, path in inside.items()},
        workspace={name: os.path.relpath(path, cwd) for name, path in one.outputs.items() if name not in inside},
    )


def _in_workspace(path: str, cwd: Path, session: Path) -> bool:
    return cwd.is_relative_to(session) and Path(path).is_relative_to(cwd)


def _placeless(text: str, session: Path, cwd: Path) -> str:
    for place in sorted((str(session), str(cwd)), key=len, reverse=True):
        text = text.replace(f"{place}/", "").replace(place, ".")
    return text


def read(path: Path) -> Roster:
    """For tools: the roster they were given."""
    return records.read(path, Roster)
