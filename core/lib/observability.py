"""Functions that a user's own program may call to take part in a session, under the seed's names P1 to P7.

The library itself does not import this module; each function is defined where it belongs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lib.contract import ExitCode
from lib.process import running
from lib.session import signals
from lib.session.events import Timer, emit_event, relay, write_live_report
from lib.session.trace import build_child_env_with_trace, get_trace_id, propagate_trace_id
from lib.view import report

__all__ = [
    "Timer",  # P4
    "build_child_env_with_trace",  # P3
    "emit_event",  # P5
    "get_trace_id",  # P3
    "propagate_trace_id",  # P3
    "run_streaming",
    "signal_completion",
    "write_consolidated_report",
    "write_live_report",  # P6
]


def run_streaming(
    cmd: Sequence[str], *, timeout: float | None, label: str, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """P1. Runs a child: its stderr is passed on line by line as it comes, its stdout comes back whole."""
    finished = running.run(cmd, env=dict(os.environ if env is None else env), timeout_seconds=timeout, on_line=relay)
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
    return signals.write(Path(session_dir), layer, name, status, artifact_path, trace_id, elapsed_seconds, exit_code)


def write_consolidated_report(session_dir: Path | str) -> Path:
    """P7. `execution-report.md`, made from what the session folder holds."""
    return report.write(Path(session_dir))
