"""Tier 2: a child asks with a refinement document, its parent answers with a resolution, or passes the question on."""

from __future__ import annotations

from pathlib import Path

from lib import files
from lib.cli import Call
from lib.contract import ExitCode, Json
from lib.process import ToolResult
from lib.session import Step

EVALUATOR = "refinement-evaluator"
SUMMARY_LIMIT = 4000  # what a parent reads of a request; the rest stays where it is


def request_of(call: Call, reply: ToolResult) -> Path | None:
    """The document a child asked with, if it wrote one."""
    name = (reply.error or {}).get("refinement")
    path = call.session.folder / str(name) if name else None
    return path if path and path.is_file() else None


def answer(call: Call, reply: ToolResult, step: Step, name: str) -> Path | None:
    """The resolution a child is called again with; None when a person has to decide. A request that says what it needs is
    judged by one executor; a child that only said what was wrong is told to mend that."""
    request = request_of(call, reply)
    path = call.session.folder / "resolutions" / f"{name}.md"
    if not request:
        return _write(path, str((reply.error or {}).get("message", "")))
    summary = request.read_text(encoding="utf-8")[:SUMMARY_LIMIT]
    asked = path.with_suffix(".request.md")
    files.write_atomic(asked, summary)
    flags = ["--input", f"request={asked}", "--step", str(step)]
    judged = call.call("agent.py", [*flags, EVALUATOR], judgement=True)
    outputs: list[Json] = judged.document.get("outputs") or []
    found = next((o for o in outputs if o.get("output") == "resolution"), None)
    if judged.exit_code != ExitCode.SUCCESS or not found:
        call.event(call.label, "not-evaluated", (judged.error or {}).get("message", "the evaluator gave no answer"))
        return None
    said = files.read_json(Path(found["path"]))
    if said["decision"] != "resolve" or not said["guidance"].strip():
        call.event(call.label, "escalated", said["question"] or "the evaluator could not answer it")
        return None
    return _write(path, f"{said['guidance'].strip()}\n\n## What was asked\n\n{summary}")


def _write(path: Path, text: str) -> Path:
    files.write_atomic(path, f"# Resolution\n\nResolve what is described below; nothing else is to change.\n\n{text}\n")
    return path
