"""Looking after a run: how it is begun and continued, where it stands and why, and how it is paused or ended from elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from lib.campaign import background, named
from lib.contract import HOUSE, ExitCode, Json, StrataError, command, usage
from lib.disk import files, locks, records
from lib.disk.clock import now
from lib.process.tools import call_tool
from lib.session import catalogue
from lib.session.owner import LOCK_NAME
from lib.tool.arguments import keyword
from lib.tool.call import Call
from msgspec.structs import replace

from packs.deep_research import advancing, by_hand, tools, watching
from packs.deep_research.at import HOME, Desk
from packs.deep_research.state import CANCELLED, COMPLETED, FAILED, NOT_RUN, PASS, PAUSED, RUNNING, Run

MODES = ("plan", "fixture", "live")
GOING_ON = ("tick", "resume")  # one tick further, or to the end
TICKS = {  # by the stage a run is in: the stage of the orchestrator whose end is one tick further
    "init": "init", "perspectives": "begin", "wave1": "ingest1", "pivot": "pivot", "wave2": "ingest2", "citations": "citations",
    "summaries": "pack", "synthesis": "write", "review": "decide", "finalize": "report",
}  # fmt: skip
APPROVE = "approve"  # the stage that asks
LIMITS = {
    "max-perspectives": "max_wave1_agents",
    "max-attempts": "max_attempts_per_perspective",
    "max-retries": "max_stage_retry_directives",
    "watchdog": "watchdog_seconds",
}
BY_HAND = (*tools.TOOLS, tools.FETCHES)
RECORDED = HOUSE / "tests/fixtures/deep-research"


def words(tool: str, given: list[str]) -> list[str]:
    """The command line: a tick and a resume are the command the run was begun with, and how far it is to go."""
    if given[:1] == ["fixture"] and "--fixtures" not in given:
        given = [*given, "--fixtures", str(RECORDED)]
    if given[:1] == ["fixture"] and "--driver" not in given:
        given = [*given, "--driver", "replay"]
    if len(given) < 2 or given[0] not in GOING_ON:
        return named.words(tool, given)
    run = find(given[1])
    manifest = run.manifest()
    if manifest.status in (FAILED, CANCELLED):
        hint = "begin another: live QUERY --run-id NAME"
        raise StrataError("INVALID_STATE", f"the run {manifest.run_id} is {manifest.status}", hint)
    if given[0] == "tick" and manifest.status == PAUSED:
        raise StrataError("PAUSED", f"the run {manifest.run_id} is paused", f"{command('deep_research')} resume {given[1]}")
    if manifest.status == PAUSED:
        run.write_manifest(now(), status=RUNNING)
    given = _with_limits(run, given)
    until = ["--until", TICKS[manifest.stage.current]] if given[0] == "tick" else []
    again = ["--resume", str(run.root.parent.parent), *until, *given[2:]]
    sys.argv[1:] = again  # the session keeps the command it was begun with
    said = named.words(tool, again)
    return ["live", *said[1:]] if said[0] == "plan" else said


def _with_limits(run: Run, given: list[str]) -> list[str]:
    """What a person says now about retries and the watchdog holds for the run; and that its sides are approved is an answer."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in LIMITS:
        parser.add_argument(f"--{flag}", type=int)
    parser.add_argument("--approve-plan", action="store_true")
    found, rest = parser.parse_known_args(given)
    said = {field: value for flag, field in LIMITS.items() if (value := getattr(found, flag.replace("-", "_"))) is not None}
    if said:
        run.write_manifest(now(), limits=replace(run.manifest().limits, **said))
    planned = run.manifest().stage.current in ("init", "perspectives")
    return [*rest, *(["--answer", f"{APPROVE}=yes"] if found.approve_plan and planned else [])]


def is_approved(options: argparse.Namespace) -> bool:
    """Whether nobody is asked if these are the sides: it was said beforehand, or a recording is replayed."""
    return bool(options.approve_plan or options.mode == "fixture")


def limits_of(options: argparse.Namespace) -> str:
    """What was said about them at the beginning, for the first tick: `max_attempts_per_perspective=3 …`."""
    said = {field: getattr(options, flag.replace("-", "_")) for flag, field in LIMITS.items()}
    return " ".join(f"{field}={value}" for field, value in said.items() if value is not None) or "usual"


def find(name: str) -> Run:
    """The run in a session: there is one, or it is named behind a colon."""
    session_name, _, run_id = name.partition(":")
    session = catalogue.find_session(session_name, HOUSE / "sessions")
    found = sorted(path.parent for path in session.glob(f"{HOME}/*/manifest.json"))
    chosen = [root for root in found if not run_id or root.name == run_id]
    if len(chosen) != 1:
        usage(f"{session} has the runs {', '.join(p.name for p in found) or 'none'}", "SESSION:RUN names one")
    return Run(chosen[0])


def carry_out(call: Call, run_id: str, go: Callable[[], Json]) -> Json:
    """Runs it, and says where it stands. One that was asked to go no further has done what it was asked for."""
    planned = call.options.mode == "plan" and not call.options.until
    if planned:
        call.options.until = "plan"
    bounded = bool(call.options.until)
    before = _stage(call, run_id)
    with watching.over(call, run_id):
        document = go()
    run = Run(call.session.folder / HOME / run_id) if not call.options.explain else None
    printed = standing(run) if run and run.manifest_path.exists() else {}
    if bounded and document["exit_code"] == ExitCode.PARTIAL_SUCCESS:
        kept = {name: value for name, value in document.items() if name != "error"}
        document = {**kept, "status": "success", "exit_code": 0}
    if bounded and printed:
        blocked = "blocked" if document["exit_code"] != ExitCode.SUCCESS else "no_op"
        printed["tick"] = "advanced" if printed["stage.current"] != before else blocked
    return {**document, **printed}


def _stage(call: Call, run_id: str) -> str:
    """Where the run stands, if it is there."""
    run = Run(Path(call.options.session_dir or "/nonexistent") / HOME / run_id)
    return run.manifest().stage.current if run.manifest_path.is_file() else ""


def standing(run: Run) -> Json:
    """What every mode prints at its end."""
    manifest = run.manifest()
    return {
        "run_id": manifest.run_id,
        "run_root": str(run.root),
        "manifest_path": str(run.manifest_path),
        "gates_path": str(run.gates_path),
        "stage.current": manifest.stage.current,
        "run_status": manifest.status,
    }


def status(run: Run) -> Json:
    gates = {name: gate.status for name, gate in run.gates().gates.items()}
    lines = [f"{name}: {value}" for name, value in {**standing(run), **{f"gate {n}": s for n, s in gates.items()}}.items()]
    return _said(**standing(run), gates=gates, text="\n".join(lines))


def triage(run: Run) -> Json:
    """In ten lines why a run stands where it stands, and what to do."""
    manifest, gates = run.manifest(), run.gates().gates
    lines = [f"{manifest.run_id}: {manifest.status} in {manifest.stage.current}, about: {manifest.query.text}"]
    last = manifest.stage.history[-1] if manifest.stage.history else None
    lines += [f"It came there from {last.frm} at {last.at}: {last.reason}."] if last else ["It has not left its first stage."]
    bad = [gate for gate in gates.values() if gate.status not in (PASS, NOT_RUN)]
    lines += [f"Gate {gate.id} ({gate.name}) fails: {'; '.join(gate.reasons)[:300]}" for gate in bad]
    for name in ("review/terminal-failure.json", "logs/blocked.json"):
        if (run.root / name).is_file():
            stop = files.read_json(run.root / name)
            if stop["at_stage"] != manifest.stage.current or manifest.status == COMPLETED:
                continue  # it has been resumed since
            lines.append(f"It was stopped: {stop['code']}: {stop['message'][:300]} ({name})")
            break
    session = run.root.parent.parent
    alive = catalogue.alive(session)
    do = f"{command('deep_research')} resume {session}"
    if alive:
        do = f"wait: it is at work (tail -f {session}/.live-report)"
    elif manifest.status == COMPLETED:
        do = f"read the report: {command('session')} outputs {session}"
    elif manifest.status in (FAILED, CANCELLED):
        do = "begin another run; this one's evidence stays"
    lines.append(f"What to do: {do}")
    return _said(**standing(run), text="\n".join(lines[:10]))


def pause(run: Run) -> Json:
    """Ends what works on it, wherever that runs; a resume goes on."""
    if run.manifest().status in (COMPLETED, FAILED, CANCELLED):
        raise StrataError(
            "INVALID_STATE", f"the run {run.manifest().run_id} is {run.manifest().status}", "there is nothing to pause"
        )
    _stop(run)
    run.write_manifest(now(), status=PAUSED)
    return status(run)


def cancel(run: Run) -> Json:
    """Ends it for good. What it has stays."""
    _stop(run)
    if run.manifest().status not in (COMPLETED, FAILED):
        run.write_manifest(now(), status=CANCELLED)
        run.log(now(), "run_halted", "", "CANCELLED: by a person")
    return status(run)


def hand(call: Call, run: Run, name: str, words: list[str]) -> Json:
    """One tool of the machine, for an operator; nobody else is at work meanwhile."""
    session = run.root.parent.parent
    if catalogue.alive(session):
        raise StrataError("ALREADY_RUNNING", f"the run in {session} is at work", f"{command('deep_research')} pause {session}")
    given = keyword(words, name)
    if name == tools.FETCHES:
        by_hand.require_stage(Desk(run.root), name)
        flags = ["--session-dir", str(session), "--output-format", "json"]
        reply = call_tool(2, "deep_research_fetch.py", [name, run.root.name, *flags], env=dict(os.environ))
        if reply.exit_code != ExitCode.SUCCESS:
            raise StrataError(reply.code or "FAILED", reply.message, "see the evidence in the session", reply.exit_code)
        return {**_said(), "called": name, "result": reply.document.get("note", "")}
    with locks.held(session / LOCK_NAME):
        found = by_hand.call(Desk(run.root), name, given)
    if isinstance(found, advancing.Allowed) and not found.allowed:
        raise StrataError(
            found.refusal, found.message, "deep_research.py triage says what is open", detail=records.document(found)
        )
    result = records.document(found)
    return {**_said(), "called": name, "result": result, **standing(run)}


def _stop(run: Run) -> None:
    session = run.root.parent.parent
    if catalogue.alive(session):
        background.stop(session, "deep_research")


def _said(**fields: object) -> Json:
    return {"tool": "deep_research", "status": "success", "exit_code": 0, **fields}


VERBS: dict[str, Callable[[Run], Json]] = {"status": status, "triage": triage, "pause": pause, "cancel": cancel}
