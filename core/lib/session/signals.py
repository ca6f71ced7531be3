"""Signal files: one small YAML document per finished piece of work, for shells, agents and other programs to wait on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path

from msgspec import Struct

from lib.contract import STATUS, StrataError, usage
from lib.disk import files
from lib.disk.clock import now
from lib.session import trace

LAYERS = ("spawn", "exec", "orch", "coord", "campaign", "sentinel", "monitor")
SUFFIX = {"success": "done", "fail": "fail", "needs-refinement": "refine"}
PARKED = "parked"  # not an end: it waits for a rate limit, and the file is gone when it goes on
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")


class Signal(Struct, frozen=True):
    file: Path
    layer: str
    name: str
    status: str  # done, fail, refine or parked

    @property
    def path(self) -> str:
        """What it points at, relative to the session."""
        return str(self._field("path") or "")

    @property
    def exit_code(self) -> int:
        """How the tool that wrote it ended; where it does not say, by its status."""
        said = self._field("exit_code")
        return said if isinstance(said, int) and said in STATUS else int(self.status != "done")

    def _field(self, name: str) -> object:
        for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(": ")
            if key == name:
                with contextlib.suppress(ValueError, RecursionError):  # anybody may have put it there
                    return json.loads(value)
        return None


def write(
    session_dir: Path,
    layer: str,
    name: str,
    status: str,
    artifact_path: str | Path | None = None,
    trace_id: str | None = None,
    elapsed_seconds: float | None = None,
    exit_code: int | None = None,
) -> Path:
    """Says that a piece of work ended: `success`, `fail` or `needs-refinement`."""
    if layer not in LAYERS:
        usage(f"a signal's layer is one of {', '.join(LAYERS)}, not {layer!r}")
    if status not in SUFFIX:
        usage(f"a signal's status is one of {', '.join(SUFFIX)}, not {status!r}")
    if not _NAME.match(name):
        usage(f"a signal's name holds letters, digits, dot, dash and underscore, not {name!r}")
    folder = session_dir / ".signals"
    artifact = Path(artifact_path) if artifact_path else None
    shown = str(artifact or "")
    if artifact and artifact.is_absolute():
        real, root = artifact.resolve(), session_dir.resolve()
        shown = str(real.relative_to(root)) if real.is_relative_to(root) else shown
    there = (session_dir / shown) if shown else None
    completed = now()
    fields = {
        "path": shown,
        "size": there.stat().st_size if there and there.is_file() else 0,
        "status": status,
        "created_at": completed,
        "completed_at": completed,
        "trace_id": trace_id or trace.get_trace_id() or "",
        "layer": layer,
        "name": name,
        "elapsed_seconds": round(elapsed_seconds or 0.0, 3),
        **({"exit_code": exit_code} if exit_code is not None else {}),
        "version": 1,
    }
    # JSON scalars are YAML scalars: no YAML library is needed to write one.
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())
    target = folder / f"{layer}-{name}.{SUFFIX[status]}"
    files.write_atomic(target, text)
    for suffix in set(SUFFIX.values()) - {SUFFIX[status]}:
        target.with_name(f"{layer}-{name}.{suffix}").unlink(missing_ok=True)  # a stale one would tell the opposite
    return target


def clear(session_dir: Path, layer: str, name: str) -> None:
    for suffix in (*SUFFIX.values(), PARKED):
        (session_dir / ".signals" / f"{layer}-{name}.{suffix}").unlink(missing_ok=True)


def park(session_dir: Path, layer: str, name: str, trace_id: str, until: str) -> None:
    fields = {
        "status": PARKED,
        "created_at": now(),
        "until": until,
        "trace_id": trace_id,
        "layer": layer,
        "name": name,
        "version": 1,
    }
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())
    files.write_atomic(session_dir / ".signals" / f"{layer}-{name}.{PARKED}", text)


def unpark(session_dir: Path, layer: str, name: str) -> None:
    (session_dir / ".signals" / f"{layer}-{name}.{PARKED}").unlink(missing_ok=True)


def stands(session_dir: Path, layer: str, name: str) -> bool:
    return any((session_dir / ".signals" / f"{layer}-{name}.{suffix}").exists() for suffix in SUFFIX.values())


def present(session_dir: Path) -> list[Signal]:
    folder = session_dir / ".signals"
    if not folder.is_dir():
        return []
    found: list[Signal] = []
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        stem, _, status = entry.name.rpartition(".")
        layer, _, name = stem.partition("-")
        if status in (*SUFFIX.values(), PARKED) and layer in LAYERS and not entry.name.startswith("."):
            found.append(Signal(Path(entry.path), layer, name, status))
    return found


def wait(session_dir: Path, expected: list[str], timeout_seconds: float) -> tuple[list[Signal], list[str]]:
    """Waits until each expected `layer-name` has some signal; returns those that came and the names that did not."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        there = {f"{s.layer}-{s.name}": s for s in present(session_dir) if s.status != PARKED}
        missing = [name for name in expected if name not in there]
        if not missing or time.monotonic() >= deadline:
            return [there[name] for name in expected if name in there], missing
        time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))


def require_session(path: str) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise StrataError("NO_SESSION", f"{path} is not a folder", "give the session folder with --session-dir")
    return folder
