"""Checkpoints: what has ended and what is still to come, written after every transition. Resume reads the newest one for the
depth it was at; which work is finished is not taken from it but from the outcomes."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lib import names
from lib.contract import Json, StrataError
from lib.disk import files
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
    if last:
        with contextlib.suppress(ValueError):
            stamp = max(stamp, datetime.strptime(f"{last.stem}+0000", f"cp-{STAMP}%z") + timedelta(microseconds=1))
    return home / "checkpoints" / f"cp-{stamp.strftime(STAMP)}.json"


def newest(home: Path) -> Path | None:
    return max((home / "checkpoints").glob("cp-*.json"), default=None, key=lambda path: path.name)


def read(home: Path) -> Json | None:
    """The newest checkpoint. One that cannot be trusted stops the run: it is never silently replaced."""
    path = newest(home)
    if not path:
        return None
    document = files.read_json(path)
    if document.get("checkpoint_version") != VERSION:
        found = document.get("checkpoint_version")
        hint = "it was written by another version of Strata; move it aside to go on from the outcomes"
        raise StrataError("CORRUPT_STATE", f"{path} has checkpoint_version {found!r}, not {VERSION}", hint)
    depth = document.get("depth_used")
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
        raise StrataError("CORRUPT_STATE", f"{path} says depth_used is {depth!r}", "move it aside to go on from the outcomes")
    return document


def say_state(session: Path, state: str) -> None:
    """Moves `.session-state` on, where a campaign keeps one: its coordinator knows best when verification begins."""
    path = session / ".session-state"
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        files.write_atomic(path, "".join(f'state: "{state}"\n' if line.startswith("state: ") else line for line in lines))
