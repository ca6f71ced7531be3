"""Checkpoints: what has ended and what is still to come, written after every transition. Resume reads the newest one for the
depth it was at; which work is finished is not taken from it but from the outcomes."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from lib import names
from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.tool.call import Call

VERSION = 1
STAMP = "%Y%m%dT%H%M%S%f"


def write(call: Call, home: Path, what: str, completed: list[Json], pending: list[str]) -> Path:
    """`what` is what is counted: phases of a campaign, runs of a phase."""
    path = _next_path(home)
    document: Json = {
        "checkpoint_version": VERSION,
        "created_at": now(),
        "session_dir": call.session.folder.name,
        "trace_id": call.trace_id,
        f"completed_{what}": completed,
        f"pending_{what}": pending,
        "depth_used": call.depth.current,
        "depth_max": call.depth.maximum,
        "environment": {names.DEPTH: str(call.depth.current)},
    }
    files.write_json(path, document)
    return path


def _next_path(home: Path) -> Path:
    """Named by the time; where the clock was set back, by a moment after the newest there is."""
    stamp = datetime.now(UTC)
    last = newest(home)
    if last and last.stem >= f"cp-{stamp.strftime(STAMP)}":
        with contextlib.suppress(ValueError):
            stamp = datetime.strptime(f"{last.stem}+0000", f"cp-{STAMP}%z") + timedelta(microseconds=1)
    return home / "checkpoints" / f"cp-{stamp.strftime(STAMP)}.json"


def newest(home: Path) -> Path | None:
    return max((home / "checkpoints").glob("cp-*.json"), default=None, key=lambda path: path.name)


class _Reached(Struct, frozen=True):
    """Of a checkpoint, what a resume goes by."""

    checkpoint_version: int
    depth_used: Annotated[int, Meta(ge=0)]


def depth_used(home: Path) -> int:
    """Of the newest checkpoint. One that cannot be trusted stops the run: it is never silently replaced."""
    path = newest(home)
    if not path:
        return 0
    try:
        reached = records.of(files.read_json(path), _Reached)
    except ValueError as error:
        raise StrataError("CORRUPT_STATE", f"{path}: {error}", "move it aside to go on from the outcomes") from None
    if reached.checkpoint_version != VERSION:
        hint = "it was written by another version of Strata; move it aside to go on from the outcomes"
        message = f"{path} has checkpoint_version {reached.checkpoint_version}, not {VERSION}"
        raise StrataError("CORRUPT_STATE", message, hint)
    return reached.depth_used


def say_state(session: Path, state: str) -> None:
    """Moves `.session-state` on, where a campaign keeps one: its coordinator knows best when verification begins."""
    path = session / ".session-state"
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        files.write_atomic(path, "".join(f'state: "{state}"\n' if line.startswith("state: ") else line for line in lines))
