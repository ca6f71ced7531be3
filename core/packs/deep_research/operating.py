"""Looking after a run: how it is begun and continued, where it stands and why, and how it is paused or ended from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lib.campaign import background, named
from lib.contract import HOUSE, ExitCode, Json, StrataError, command, usage
from lib.disk import files
from lib.disk.clock import now
from lib.session import catalogue
from lib.tool.call import Call

from packs.deep_research.at import HOME
from packs.deep_research.state import CANCELLED, COMPLETED, FAILED, NOT_RUN, PASS, PAUSED, RUNNING, Run

MODES = ("plan", "fixture", "live")
GOING_ON = ("tick", "resume")  # one tick further, or to the end
TICKS = {  # by the stage a run is in: the stage of the orchestrator whose end is one tick further
    "init": "init", "perspectives": "plan", "wave1": "ingest1", "pivot": "pivot", "wave2": "ingest2", "citations": "citations",
    "summaries": "pack", "synthesis": "write", "review": "decide", "finalize": "report",
}  # fmt: skip
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
    until = ["--until", TICKS[manifest.stage.current]] if given[0] == "tick" else []
    again = ["--resume", str(run.root.parent.parent), *until, *given[2:]]
    sys.argv[1:] = again  # the session keeps the command it was begun with
    said = named.words(tool, again)
    return ["live", *said[1:]] if said[0] == "plan" else said


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
    document = go()
    run = Run(call.session.folder / HOME / run_id) if not call.options.explain else None
    printed = standing(run) if run and run.manifest_path.exists() else {}
    if bounded and document["exit_code"] == ExitCode.PARTIAL_SUCCESS:
        kept = {name: value for name, value in document.items() if name != "error"}
        document = {**kept, "status": "success", "exit_code": 0}
    return {**document, **printed}


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


def _stop(run: Run) -> None:
    session = run.root.parent.parent
    if catalogue.alive(session):
        background.stop(session, "deep_research")


def _said(**fields: object) -> Json:
    return {"tool": "deep_research", "status": "success", "exit_code": 0, **fields}


VERBS: dict[str, Callable[[Run], Json]] = {"status": status, "triage": triage, "pause": pause, "cancel": cancel}
