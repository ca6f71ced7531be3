"""The beginning of a campaign: what was asked and what it resolved to, on disk before anything runs; or why there is no plan."""

from __future__ import annotations

import shlex
from pathlib import Path

from lib.campaign import goals, preparing
from lib.contract import STATUS, ExitCode, Json, StrataError, command
from lib.disk import files
from lib.disk.clock import now
from lib.plan.plan import Plan
from lib.session import began, budget, ledger, remembered, watchers
from lib.tool.call import Call


def prepare(call: Call, plan: Plan, plan_path: Path, plan_text: str) -> Path:
    """What was asked and what it resolved to, on disk before anything runs. Returns what is handed down."""
    folder = call.session.folder
    if not (folder / "plan.yaml").exists() or (folder / "plan.yaml").read_text(encoding="utf-8") != plan_text:
        files.write_atomic(folder / "plan.yaml", plan_text)
    call.keep_places()
    preparing.make_workspace(call, plan)
    began.keep(folder, call.cwd)
    given = budget.given(call.options.budget) if call.options.budget else {}
    known: Json = files.read_json(folder / "budget.json") if (folder / "budget.json").exists() else {}
    limits = {p.folder: p.budget for p in plan.phases if p.budget}
    whole = plan.budget | known.get(budget.RAISED, {}) | given
    raised = known.get(budget.RAISED, {}) | given
    if whole or limits:
        files.write_json(folder / "budget.json", {**limits, budget.WHOLE: whole, budget.RAISED: raised})
    ledger.Ledger(folder).begin_run(params=plan.params)
    effective = folder / "effective-config.json"
    settings: Json = {
        "driver": call.driver,
        "cwd": str(call.cwd),
        "max_depth": call.depth.maximum,
        "plan_file": str(plan_path),
        **{name: getattr(call.options, name) for name in remembered.KEPT},
    }
    if settings["fixtures"]:
        settings["fixtures"] = str(Path(settings["fixtures"]).absolute())
    files.write_json(effective, {"plan": plan.document(), "settings": settings})
    return effective


def unplanned(call: Call, error: StrataError) -> Json:
    """No plan, no campaign: an ordinary error. Where a goal had opened a session, that keeps what was tried and why it ended."""
    if not call.session_dir:
        raise error
    folder = call.session.folder
    known = error.document()
    if error.exit_code != ExitCode.FAILURE:
        known |= {"hint": f"{command('campaign')} --resume {shlex.quote(str(folder))}"}
    manifest: Json = {
        "campaign": "goal",
        "status": STATUS[error.exit_code],
        "exit_code": int(error.exit_code),
        "grade": "FAIL",
        "phases": [],
        "goal": goals.read(folder).get("goal", ""),
        "trace_id": call.trace_id,
        "finished_at": now(),
        "error": known,
    }
    files.write_json(folder / "manifest.json", manifest)
    call.artifact = folder / "manifest.json"
    return manifest | {"session_dir": str(folder), "report": str(watchers.place(folder))}
