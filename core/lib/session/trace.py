"""The id that ties all processes of one session together, in the environment and in `.trace`."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from lib import names
from lib.contract import StrataError
from lib.disk import files
from lib.process import environment

_ID = re.compile(r"[0-9a-f]{16}")


def get_trace_id() -> str | None:
    """The trace this process belongs to, if it was started in one."""
    value = os.getenv(names.TRACE)
    if value is not None and not _ID.fullmatch(value):
        raise StrataError("BAD_ENVIRONMENT", f"{names.TRACE} must be 16 hex digits, not {value!r}", "unset it")
    return value


def propagate_trace_id(session_dir: Path | str | None = None) -> str:
    """The trace id for this process and all below it: the session's, the inherited one, or a new one."""
    stored = Path(session_dir) / ".trace" if session_dir else None
    trace = stored.read_text(encoding="utf-8", errors="replace").strip() if stored and stored.exists() else ""
    if stored and trace and not _ID.fullmatch(trace):
        raise files.corrupt(stored, f"{stored} holds no trace id: 16 hex digits")
    trace = trace or get_trace_id() or secrets.token_hex(8)
    os.environ[names.TRACE] = trace
    return trace


def build_child_env_with_trace(current_depth: int, trace_id: str | None = None) -> dict[str, str]:
    """This process's environment with the trace and the depth a child must see."""
    return {**environment.for_tool(os.environ), names.DEPTH: str(current_depth), names.TRACE: trace_id or propagate_trace_id()}
