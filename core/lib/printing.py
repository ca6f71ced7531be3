"""What a tool prints: one document on stdout, for a program or a person, and one last error line on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from lib.contract import Json


def document(said: Json, output_format: str) -> None:
    """The one document of a tool, on stdout."""
    if output_format == "json":
        text = json.dumps(said, ensure_ascii=False)
    elif sys.stdout.isatty():
        text = readable(said)
    else:
        text = "\n".join(f"{key.upper()}={_value(value)}" for key, value in said.items())
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; the exit code still counts


def _value(value: Any) -> str:
    """A value on one line: plain where it is plain, JSON where it is not."""
    if isinstance(value, str) and "\n" not in value and "\r" not in value and value[:1] not in ('"', "{", "["):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def readable(said: Json) -> str:
    """For a person: the answer or the stages first, then what it cost and where it is."""
    lines: list[str] = []
    if said.get("result"):
        lines += [str(said["result"]), ""]
    for stage in said.get("stages", []):
        mark = {"success": "✓", "skipped": "·"}.get(stage["status"], "✗")
        note = f"  {stage['error']}" if stage.get("error") else f"  {stage.get('artifact') or ''}"
        lines.append(f"{mark} {stage['name']}: {stage['status']}{note}")
    for key in (
        "status",
        "verdict",
        "cost_usd",
        "turns",
        "duration_seconds",
        "confinement",
        "session_dir",
        "attempt_dir",
        "next",
    ):
        if said.get(key) not in (None, ""):
            lines.append(f"{key.replace('_', ' ')}: {said[key]}")
    return "\n".join(lines)


def error(problem: Json) -> None:
    """The last line of stderr."""
    if sys.stderr.isatty():
        sys.stderr.write(f"error: {problem['message']}\n" + (f"  → {problem['hint']}\n" if problem.get("hint") else ""))
    else:
        sys.stderr.write(json.dumps({"status": "error", "error": problem}, ensure_ascii=False) + "\n")
    sys.stderr.flush()
