"""A phase whose runs an agent calls: what counts is what it called, as recorded on disk, not what it says."""

from __future__ import annotations

from pathlib import Path

from lib.campaign import outlook
from lib.contract import CORE, DONE, ExitCode, Json
from lib.disk import files
from lib.plan.plan import Phase, Plan, Run
from lib.process.tools import ToolResult
from lib.session.step import Step
from lib.stages import agent_mode, sentinel, terms
from lib.tool.call import Call


def coordinate(call: Call, plan: Plan, phase: Phase) -> dict[str, ToolResult]:
    """Has an agent call the runs of a phase. The status of each is read from the files."""
    agent_mode.keep_phase(call, _folder(call, phase), plan, phase)
    listed: Json = {}
    for run in phase.runs:
        after = f" (after {', '.join(run.depends_on)})" if run.depends_on else ""
        listed[run.name] = f"uv run {CORE}/orchestrator.py --of {phase.folder}/{run.name}{after}"
    if phase.checks:
        listed["verification"] = f"uv run {CORE}/sentinel.py --of {phase.folder} (when all of them have ended well)"
    base = Step(phase.folder, "coordinator")
    done = outlook.all_done(call, plan, (phase,))
    reply = agent_mode.NOTHING_TO_DO if done else agent_mode.ask(call, "phase-coordinator", base, phase.name, listed)
    return {run.name: _from_files(call, plan, phase, run, reply) for run in phase.runs}


def _from_files(call: Call, plan: Plan, phase: Phase, run: Run, reply: ToolResult) -> ToolResult:
    """The status of a run, whatever the agent says of it."""
    path = _folder(call, phase) / run.name / "manifest.json"
    known = files.read_json(path) if path.exists() else {"exit_code": None}
    left = outlook.unfinished(call, plan, phase, run)
    code = known["exit_code"]
    if code is not None and (code not in DONE or not left):
        return ToolResult(ExitCode(code), _absolute(known, call.session.folder))
    return agent_mode.not_done(reply, "RUN_NOT_DONE", f"the run {run.name}", left)


def verified(call: Call, plan: Plan, phase: Phase) -> tuple[ExitCode, str, Json]:
    """What the sentinel left: the agent had to call it, and nothing but its own evidence counts."""
    chosen = terms.Terms.of_phase(plan, phase, call.cwd)
    look = sentinel.Verification(call, chosen, Step(phase.folder, "sentinel"))
    why, state = look.stale(), look.cycles.state()
    if not why:
        return ExitCode.SUCCESS, state.grade, {}
    if state.ended and state.grade == "FAIL":
        said = {"error": {"code": "NOT_VERIFIED", "message": "verification did not pass", "hint": str(look.home)}}
        return ExitCode.NEEDS_REFINEMENT, "FAIL", said
    message = f"the agent ended without verification: {why}"
    said = {"error": {"code": "VERIFICATION_NOT_RUN", "message": message, "hint": "run it again, or in tool mode"}}
    return ExitCode.FAILURE, "FAIL", said


def _folder(call: Call, phase: Phase) -> Path:
    return call.session.folder / "phases" / phase.folder


def _absolute(manifest: Json, session: Path) -> Json:
    """A manifest as a tool prints it: on disk its paths are relative to the session."""
    stages = [_placed(stage, session) for stage in manifest["stages"]]
    placed = [s | ({"items": [_placed(i, session) for i in s["items"]]} if "items" in s else {}) for s in stages]
    return manifest | {"stages": placed}


def _placed(entry: Json, session: Path) -> Json:
    return entry | ({"artifact": str(session / entry["artifact"])} if entry["artifact"] else {})
