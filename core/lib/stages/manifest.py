"""The stage manifest: the result of every stage, as one document."""

from __future__ import annotations

import json
from pathlib import Path

from lib.contract import STATUS, ExitCode, Json, part
from lib.disk import files
from lib.session.folder import Session
from lib.stages.results import StageResult


def build(name: str, stages: list[str], results: dict[str, StageResult], stopped_by: StageResult | None, until: str = "") -> Json:
    """The seed's stage manifest of a run that has ended. 12 when it came to its end but something on the way did not succeed, or
    was left for later (`until`)."""
    not_run = {"status": "not-run", "exit_code": None, "artifact": None}
    listed = [results[s].document() if s in results else {"name": s, **not_run} for s in stages]
    waiting = [r for r in results.values() if r.exit_code == ExitCode.HUMAN_INPUT]  # not a failure
    failed = [r for r in results.values() if r.exit_code != ExitCode.SUCCESS and r not in waiting]
    later = [s for s in stages if s not in results] if until and not stopped_by else []
    code = stopped_by.exit_code if stopped_by else (ExitCode.PARTIAL_SUCCESS if failed or later else ExitCode.SUCCESS)
    warnings = [warning for s in stages if s in results for warning in results[s].warnings]
    manifest: Json = {
        "orchestrator": name,
        "status": STATUS[code],
        "exit_code": int(code),
        "stages": listed,
        "summary": {
            "total": len(listed),
            "passed": len(results) - len(failed) - len(waiting),
            "failed": len(failed),
            "waiting": len(waiting),
            "warnings": len(warnings),
            "exit_code": int(code),
        },
    }
    if warnings:
        manifest["warnings"] = warnings
    if stopped_by and stopped_by.question:
        manifest["waiting"] = stopped_by.question
        choices = ", ".join(stopped_by.question["choices"])
        hint = f"run the same tool with {stopped_by.question['answer_with']}" + (f" (one of {choices})" if choices else "")
        manifest["error"] = {"code": "HUMAN_INPUT", "message": stopped_by.question["question"], "hint": hint}
    elif stopped_by:
        error = stopped_by.error or {"code": "STAGE_FAILED", "message": stopped_by.note}
        manifest["error"] = {**error, "stage": stopped_by.stage}
    elif failed:
        names = "; ".join(f"{r.stage} ({why[:300]})" if (why := part(r.error, "message") or r.note) else r.stage for r in failed)
        hint = f"what was given up is not tried again; --resume SESSION --from {failed[0].stage} runs it again"
        manifest["error"] = {"code": "PARTIAL_SUCCESS", "message": f"not everything succeeded: {names}", "hint": hint}
    elif later:
        message = f"it stopped after {until}, as asked; not run: {', '.join(later)}"
        manifest["error"] = {"code": "PARTIAL_SUCCESS", "message": message, "hint": "--resume SESSION runs the rest"}
    return manifest


def while_running(manifest: Json) -> Json:
    """The same before the end: nothing in it can be taken for a result."""
    summary = manifest["summary"] | {"exit_code": None}
    return {k: v for k, v in manifest.items() if k != "error"} | {"status": "running", "exit_code": None, "summary": summary}


def write(manifest: Json, path: Path, session: Session) -> None:
    """On disk with paths relative to the session."""
    text = json.dumps(manifest, ensure_ascii=False)
    files.write_json(path, json.loads(text.replace(json.dumps(f"{session.folder}/", ensure_ascii=False)[1:-1], "")))
