"""Tier 2: a child asks with a refinement document, its parent answers with a resolution, or passes the question on."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.attempt import verdicts
from lib.contract import ALWAYS_RAISED, ExitCode, Json, part
from lib.disk import files
from lib.process.tools import ToolResult
from lib.session.step import Step
from lib.tool.call import Call

EVALUATOR = "refinement-evaluator"
SUMMARY_LIMIT = 4000  # what a parent reads of a request; the rest stays where it is


def request_of(call: Call, reply: ToolResult) -> Path | None:
    """The document a child asked with, if it wrote one."""
    name = part(reply.error, "refinement")
    path = call.session.folder / name if name else None
    return path if path and path.is_file() else None


class Answer(Struct, frozen=True):
    """What comes of a request: a resolution to work by, or a question for a person, or an end that is not ours to absorb."""

    resolution: Path | None = None
    judged: bool = False  # somebody thought about it, so that it may be worth more than one more try
    question: str = ""
    stopped: ToolResult | None = None


def answer(call: Call, reply: ToolResult, step: Step, name: str) -> Answer:
    """A request that says what it needs is judged by one executor; a child that only said what was wrong is told to fix that."""
    request = request_of(call, reply)
    path = call.session.folder / "resolutions" / f"{name}.md"
    if not request:
        return Answer(_write(path, reply.message))
    summary = request.read_text(encoding="utf-8")[:SUMMARY_LIMIT]
    asked = path.with_suffix(".request.md")
    files.write_atomic(asked, summary)
    judged = call.call("agent.py", ["--input", f"request={asked}", "--step", str(step), EVALUATOR], judgement=True)
    if judged.exit_code in ALWAYS_RAISED:
        return Answer(stopped=judged)
    found = judged.output("resolution")
    if judged.exit_code != ExitCode.SUCCESS or not found:
        call.event(call.label, "not-evaluated", judged.message or "the evaluator gave no answer")
        return Answer(_write(path, summary))
    said = files.read_json(found)
    if not verdicts.resolves(said):
        call.event(call.label, "escalated", said["question"] or "the evaluator could not answer it")
        return Answer(question=said["question"])
    return Answer(_write(path, f"{said['guidance'].strip()}\n\n## What was asked\n\n{summary}"), judged=True)


def with_question(reply: ToolResult, question: str) -> ToolResult:
    error = {**(reply.error or {}), **({"question": question} if question else {})}
    return ToolResult(reply.exit_code, reply.document | {"error": error})


def ask(call: Call, layer: str, slug: str, error: Json, context: list[str]) -> Json:
    """Writes the request of a layer that has none from below, and returns the error that names it."""
    if part(error, "refinement"):
        return error
    path = call.session.folder / "refinements" / f"{layer}-{slug}.md"
    files.write_atomic(path, document(part(error, "message"), context, part(error, "message"), []))
    return error | {"refinement": call.session.relative(path)}


def document(summary: str, context: list[str], issue: str, diagnostics: list[str]) -> str:
    """The seed's form."""
    listed = "\n".join(f"- {line}" for line in diagnostics) or f"- {issue}"
    return f"""# Refinement Request

## Summary
{summary}

## Context
{chr(10).join(f"- {line}" for line in context)}

## Issue
{issue}

## Diagnostics
{listed}

## Suggested Resolution
Say how the issues above are to be resolved, or change what was asked for. The answer comes back as additional context; what
judges the work is not changed from here.
"""


def _write(path: Path, text: str) -> Path:
    files.write_atomic(path, f"# Resolution\n\nResolve what is described below; nothing else is to change.\n\n{text}\n")
    return path
