# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: waits for, lists and writes signal files, for shells and agents. `uv run core/signals.py list --session-dir S`"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lib import cli, names
from lib.cli import Call, Tool
from lib.contract import STATUS, ExitCode, Json, StrataError, gravest, usage
from lib.disk import lenient
from lib.session import signals
from lib.session.documents import Manifest, Problem
from lib.tool.arguments import positive

TOOL = Tool(
    "signals",
    layer=0,
    summary="Wait for, list or write signal files of a session.",
    example="uv run core/signals.py wait --session-dir sessions/20260207-1000-login --expect orch-ospec --timeout 3600",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("verb", choices=("wait", "list", "write"))
    add("--expect", metavar="LAYER-NAME", action="append", nargs="+", default=[], help="wait: which signals, such as orch-ospec")
    add("--timeout", type=positive, metavar="SECONDS", default=600.0, help="wait: how long at most (default 600)")
    add("--layer", choices=signals.LAYERS, help="write: the layer")
    add("--signal-name", metavar="NAME", help="write: the name")
    add("--status", choices=tuple(signals.SUFFIX), default="success", help="write: how it went")
    add("--artifact", metavar="PATH", help="write: what was made")


def main(call: Call) -> Json:
    where = call.options.session_dir or os.getenv(names.SESSION)
    if not where:
        usage("which session?", "give --session-dir")
    folder = signals.require_session(where)
    if call.options.verb == "write":
        if not (call.options.layer and call.options.signal_name):
            usage("write needs --layer and --signal-name")
        path = signals.write(folder, call.options.layer, call.options.signal_name, call.options.status, call.options.artifact)
        return {"tool": "signals", "status": "success", "exit_code": 0, "signal": str(path)}
    if call.options.verb == "list":
        found, missing = signals.present(folder), list[str]()
    else:
        expected = [name for group in call.options.expect for name in group]
        if not expected:
            usage("wait needs --expect LAYER-NAME", "list shows the names that are there")
        found, missing = signals.wait(folder, expected, call.options.timeout)
    listed = [{"signal": f"{s.layer}-{s.name}", "status": s.status, "file": str(s.file)} for s in found]
    if missing:
        raise StrataError(
            "TIMEOUT",
            f"no signal of {', '.join(missing)} after {call.options.timeout:g} s",
            "look at .live-report, or wait longer",
            ExitCode.TIMEOUT,
            {"signals": listed},
        )
    if call.options.verb == "list":
        return {"tool": "signals", "status": "success", "exit_code": 0, "signals": listed}
    return ended(folder, found, listed)


def ended(folder: Path, found: list[signals.Signal], listed: list[Json]) -> Json:
    """What the runs that were waited for returned: the gravest of their codes, and what a person is asked, where one is."""
    code = gravest(ExitCode(s.exit_code) for s in found)
    document: Json = {"tool": "signals", "status": STATUS[code], "exit_code": int(code), "signals": listed}
    if code == ExitCode.SUCCESS:
        return document
    names = ", ".join(f"{s.layer}-{s.name}" for s in found if s.exit_code)
    error = {"code": "SIGNALLED_FAILURE", "message": f"{names} ended with {int(code)}", "hint": "see its outcome"}
    if code == ExitCode.HUMAN_INPUT:
        manifests = [lenient.read(folder / s.path, Manifest) for s in found if s.path.endswith(".json")]
        asked = next((m.error for m in manifests if m.exit_code == code and m.error), Problem())
        error = {"code": "HUMAN_INPUT", "message": asked.message or f"{names} waits for a person"}
        error["hint"] = asked.hint or f"see {folder / 'manifest.json'}"
    return document | {"error": error}


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
