"""What a run shows of itself while it goes: child output, signals, the trace, timers, events and the live report."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

from lib import calling, files, live, names, printing, process, report, signals
from lib.contract import ExitCode, Json, StrataError
from lib.redact import redact
from lib.session import now

HEARTBEAT_SECONDS = 30.0
_stderr_lock = threading.Lock()


def run_streaming(
    cmd: Sequence[str], *, timeout: float | None, label: str, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """P1. Runs a child: its stderr is passed on line by line as it comes, its stdout comes back whole."""
    finished = process.run(cmd, env=dict(os.environ if env is None else env), timeout_seconds=timeout, on_line=relay)
    if finished.timed_out:
        emit_event("monitor", label, "timeout", detail={"timeout_seconds": timeout})
        return int(ExitCode.TIMEOUT), finished.stdout.decode("utf-8", "replace")
    return finished.exit_code, finished.stdout.decode("utf-8", "replace")


def signal_completion(
    session_dir: Path | str | None,
    layer: str,
    name: str,
    status: str,
    artifact_path: Path | str | None = None,
    trace_id: str | None = None,
    elapsed_seconds: float | None = None,
    exit_code: int | None = None,
) -> Path | None:
    """P2. Says that a piece of work ended: `success`, `fail` or `needs-refinement`. Nothing to say without a session."""
    if session_dir is None:
        return None
    trace = trace_id or get_trace_id()
    return signals.write(Path(session_dir), layer, name, status, artifact_path, trace, elapsed_seconds, exit_code)


def get_trace_id() -> str | None:
    """P3. The trace this process belongs to, if it was started in one."""
    value = os.environ.get(names.TRACE)
    if value is not None and not re.fullmatch(r"[0-9a-f]{16}", value):
        raise StrataError("BAD_ENVIRONMENT", f"{names.TRACE} must be 16 hex digits, not {value!r}", "unset it")
    return value


def propagate_trace_id(session_dir: Path | str | None = None) -> str:
    """P3. The trace id for this process and all below it: the session's, the inherited one, or a new one."""
    stored = Path(session_dir) / ".trace" if session_dir else None
    trace = stored.read_text(encoding="ascii", errors="replace").strip() if stored and stored.exists() else ""
    if stored and trace and not re.fullmatch(r"[0-9a-f]{16}", trace):
        raise files.corrupt(stored, f"{stored} holds no trace id: 16 hex digits")
    trace = trace or get_trace_id() or secrets.token_hex(8)
    os.environ[names.TRACE] = trace
    return trace


def build_child_env_with_trace(current_depth: int, trace_id: str | None = None) -> dict[str, str]:
    """P3. This process's environment with the trace and the depth a child must see."""
    return {**os.environ, names.DEPTH: str(current_depth), names.TRACE: trace_id or propagate_trace_id()}


class Timer:
    """P4. `with Timer() as timer:`; the elapsed figures stand still once the block has ended."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._end: float | None = None

    def __enter__(self) -> Self:
        self._start, self._end = time.monotonic(), None
        return self

    def __exit__(self, *_: object) -> None:
        self._end = time.monotonic()

    def elapsed_seconds(self) -> float:
        return (self._end if self._end is not None else time.monotonic()) - self._start

    def elapsed_ms(self) -> int:
        return int(self.elapsed_seconds() * 1000)

    def running_elapsed_ms(self) -> int:
        return int((time.monotonic() - self._start) * 1000)


def emit_event(layer: str, stage: str, status: str, *, elapsed_ms: int | None = None, detail: Json | str | None = None) -> None:
    """P5. One JSON line on stderr; at a terminal, one line for a person."""
    event: Json = {
        "event": "progress",
        "timestamp": now(),
        "trace_id": os.environ.get(names.TRACE, ""),
        "layer": layer,
        "depth": int(os.environ.get(names.DEPTH, "0") or 0),
        "stage": stage,
        "status": status,
    }
    if elapsed_ms is not None:
        event["elapsed_ms"] = elapsed_ms
    if detail:
        event["detail"] = detail
    show(event)


def hand_over(attempt: str, sha256: str) -> None:
    """For the parent alone: what this executor is about to write down as its outcome."""
    with _stderr_lock:
        printing.write(sys.stderr, json.dumps({"event": calling.HANDED, "attempt": attempt, "sha256": sha256}) + "\n")


def start_heart(layer: str, label: Callable[[], str]) -> None:
    """A line now and then, whatever the tool is doing: a parent that hears nothing at all knows that something is wrong."""

    def beat() -> None:
        while not process.stopping.wait(HEARTBEAT_SECONDS):
            show({"event": "heartbeat", "timestamp": now(), "layer": layer, "stage": label()})

    threading.Thread(target=beat, daemon=True, name="heart").start()


def write_live_report(
    session_dir: Path | str | None,
    layer: str,
    stage: str,
    status: str,
    *,
    elapsed_seconds: float | None = None,
    detail: Json | str | None = None,
) -> None:
    """P6. Appends a line to `.live-report`, for `tail -f`."""
    if session_dir is None:
        return
    line: Json = {"timestamp": now(), "layer": layer, "stage": stage, "status": status}
    if elapsed_seconds is not None:
        line["elapsed_seconds"] = round(elapsed_seconds, 3)
    if detail:
        line["detail"] = detail
    files.append_line(Path(session_dir) / ".live-report", line)


def write_consolidated_report(session_dir: Path | str) -> Path:
    """P7. `execution-report.md`, made from what the session folder holds."""
    return report.write(Path(session_dir))


# How lines reach a person or a parent


def relay(line: str) -> None:
    """Passes on a line of a child's stderr. A child's last error line is progress here: only the top tool's is the last."""
    event = parse(line) if line.startswith("{") else {}
    if not event:
        if line.strip():
            _write(line)
        return
    if event.get("event") == "heartbeat":
        return  # it has been heard; ours is heard further up
    if event.get("status") == "error":
        event = {"event": "child-error", **event, "status": "failed"}
    show(event)


def show(event: Json) -> None:
    if live.current or (event.get("event") == "heartbeat" and sys.stderr.isatty()):
        return  # whoever looks on sees it in the tree
    _write(printing.harmless(for_person(event)) if sys.stderr.isatty() else json.dumps(event, ensure_ascii=False))


def parse(line: str) -> Json:
    """A line of an event stream, or nothing."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(Json, found) if isinstance(found, dict) else {}


def for_person(event: Json) -> str:
    error = event.get("error")
    if error:
        return f"    {error.get('code')}: {error.get('message')}"
    seconds = event["elapsed_ms"] / 1000 if "elapsed_ms" in event else event.get("elapsed_seconds")
    took = f"  {seconds:.1f}s" if seconds is not None else ""
    detail = event.get("detail") or ""
    if isinstance(detail, dict):
        detail = "  ".join(f"{k}={v}" for k, v in cast(Json, detail).items())
    return f"{event.get('layer', ''):>8} {event.get('stage', '')}: {event.get('status', '')}{took}  {detail}".rstrip()


def _write(line: str) -> None:
    if live.current:
        live.current.say(redact(line))
        return
    with _stderr_lock:
        printing.write(sys.stderr, redact(line) + "\n")  # the session folder has everything, whoever listens
