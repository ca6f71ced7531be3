"""What a tool prints: one document on stdout, for a program or a person, and one last error line on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from msgspec import Struct

from lib.contract import MEANING, ExitCode, Json
from lib.disk import lenient
from lib.disk.redact import redact
from lib.process import streams
from lib.session.documents import Problem

SHOWN = (
    *("agent_sessions", "agent_sessions_at_most", "usd_expected", "usd_at_most", "cost_note"),
    *("status", "verdict", "grade", "cost_usd", "turns", "duration_seconds", "confinement"),
    *("spent", "session_dir", "attempt_dir", "report", "page", "next"),
)


def document(said: Json, output_format: str, outermost: bool) -> None:
    """The one document of a tool, on stdout. To a tool above it goes as it is: a secret may look like a part of a path."""
    if output_format == "json":
        text = json.dumps(said, ensure_ascii=False)
    elif "text" in said:
        text = str(said["text"])
    elif "explained" in said:
        text = table(said)
    elif sys.stdout.isatty():
        text = readable(said)
    else:
        text = "\n".join(
            f"{key.upper()}={_value(value)}" for key, value in said.items() if not (key == "outputs" and _runs(said))
        )
    text = text if output_format == "json" else streams.harmless(text)
    streams.write(sys.stdout, (redact(text) if outermost else text) + "\n")


def _runs(said: Json) -> bool:
    """Whether it is the document of a whole run: what that produced is listed in outputs.json, too."""
    return "campaign" in said or "orchestrator" in said


def _value(value: Any) -> str:
    """A value on one line: plain where it is plain, JSON where it is not."""
    if isinstance(value, str) and "\n" not in value and "\r" not in value and value[:1] not in ('"', "{", "["):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


class _Line(Struct, frozen=True):
    """A stage, a session or a phase, as far as a line says it."""

    name: str = ""
    session: str = ""
    status: str = ""
    grade: str = ""
    sentinel_grade: str = ""
    exit_code: int | None = None
    error: str = ""
    artifact: str = ""
    verified: str = ""
    by: str = ""
    checks: tuple[str, ...] = ()
    runs: tuple[_Line, ...] = ()
    stages: tuple[_Line, ...] = ()


class _Shown(Struct, frozen=True):
    result: str = ""
    stages: tuple[_Line, ...] = ()
    sessions: tuple[_Line, ...] = ()
    phases: tuple[_Line, ...] = ()
    warnings: tuple[str, ...] = ()


def readable(said: Json) -> str:
    """For a person: the answer or the stages first, then what it cost and where it is."""
    shown = lenient.of(said, _Shown)
    lines = [shown.result, ""] if shown.result else []
    for stage in shown.stages:
        mark = {"success": "✓", "skipped": "·", "not-run": "·", "blocked": "·", "human-input": "?"}.get(stage.status, "✗")
        lines.append(f"{mark} {stage.name}: {stage.status}  {stage.error or stage.artifact}")
    lines += [f"{known.session}: {known.status}" + (f", {known.grade}" if known.grade else "") for known in shown.sessions]
    for phase in shown.phases:
        mark = "·" if phase.exit_code is None else MEANING[ExitCode(phase.exit_code)].mark
        grade = f", {phase.sentinel_grade}" if phase.sentinel_grade else ""
        lines.append(f"{mark} {phase.name}: {phase.status or 'would run'}{grade}")
        lines += [f"    verified: {phase.verified}"] if phase.verified else []
        lines += [f"    {run.name}/{stage.name}: {stage.by}" for run in phase.runs for stage in run.stages]
        lines += [f"    checks: {', '.join(phase.checks)}"] if phase.checks else []
    lines += [f"! {warning}" for warning in shown.warnings]
    lines += [f"{key.replace('_', ' ')}: {said[key]}" for key in SHOWN if key in said and said[key] not in (None, "")]
    return "\n".join(lines)


def table(said: Json) -> str:
    """What would become of every step, a line each."""
    steps: list[Json] = said["explained"]
    width = max([len(s["step"]) for s in steps], default=0)
    lines: list[str] = []
    for step in steps:
        cost = "" if "agent_sessions" not in step else ("?" if step["usd_expected"] is None else f"{step['usd_expected']:.4f}")
        lines.append(f"{step['does']:4}  {step['step']:{width}}  {cost:>8}  {step['why']}".rstrip())
    found: dict[str, str] = said["found"]
    lines += ["", *(f"{name}: {path}" for name, path in found.items()), ""] if found else []
    total = "unknown" if said["usd_expected"] is None else f"{said['usd_expected']:.4f}"
    return "\n".join(
        [*lines, f"{said['skip']} to skip, {said['run']} to run, {said['halt']} halted; expected spend in USD: {total}"]
    )


def error(problem: Json) -> None:
    """The last line of stderr."""
    if sys.stderr.isatty():
        known = lenient.of(problem, Problem)
        word = "waiting for you" if known.code == "HUMAN_INPUT" else "error"
        text = f"{word}: {known.message}\n"
        text += f"  evidence: {known.evidence}\n" if known.evidence else ""
        text += f"  → {known.hint}\n" if known.hint else ""
        text = streams.harmless(text)
    else:
        text = json.dumps({"status": "error", "error": problem}, ensure_ascii=False) + "\n"
    streams.write(sys.stderr, redact(text))
