"""Commands an agent names instead of filling in, above the executors: what it asks for is worked out from the session."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lib import names
from lib.campaign import phases
from lib.contract import DONE, HOUSE, StrataError, usage
from lib.disk import files
from lib.plan import plan as plan_records
from lib.session import catalogue, remembered
from lib.stages.agent_mode import PHASE_FILE, call_from


def words(tool: str, given: list[str]) -> list[str]:
    """The command line of a tool above the executors: `--of` names what an agent wants run, `--resume` a session."""
    return recall(tool, expand(tool, given) if "--of" in given else given)


def recall(tool: str, words: list[str]) -> list[str]:
    """The command line of a resume: what the session was begun with, and what is said now, standing where it was begun."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--resume")
    parser.add_argument("--session-base")
    known, now = parser.parse_known_args(words)
    if not known.resume:
        return words
    session = catalogue.find_session(known.resume, Path(known.session_base or HOUSE / "sessions"))
    effective = files.read_json(session / remembered.EFFECTIVE)
    remembered.require_tool(session, tool)
    now = [
        str(Path(w).absolute()) if before in ("--extra-context", "--fixtures", "--cwd") else w
        for before, w in remembered.pairs(now)
    ]
    try:
        os.chdir(effective["folder"])
    except OSError as error:
        hint = "bring it back, or start anew in another session"
        raise StrataError("NO_WORKSPACE", f"{effective['folder']}, where it was begun: {error.strerror}", hint) from None
    return [*effective["command"], *now, "--session-dir", str(session)]


def expand(tool: str, words: list[str]) -> list[str]:
    """`--of PHASE/RUN` for an orchestrator, `--of PHASE` for the sentinel and a coordinator."""
    if len(words) not in (2, 4) or words[0] != "--of" or (words[2:] and words[2] != "--output-format"):
        usage("--of must come first, without other options", "the rest comes from the session")
    folder, _, name = words[1].partition("/")
    session = Path(os.getenv(names.SESSION) or "/nonexistent")
    if tool == "coordinator":
        return _coordinator_command(session, folder)
    path = files.inside(session, f"phases/{folder}", "--of") / PHASE_FILE
    if not path.is_file():
        raise StrataError("NO_RUN", f"--of {words[1]}: no agent coordinates that phase", "start coordinator.py --mode agent")
    known = files.read_json(path)
    whole = plan_records.read(known["plan"])
    phase = whole.phase(known["phase"])
    call = call_from(known, 3, "coordinator", phase.folder)
    coordinator = phases.Coordinator(call, whole, phase)
    done = {r.name for r in phase.runs if _ended_well(session / "phases" / phase.folder / r.name / "manifest.json")}
    if tool == "sentinel":
        _require_order(tuple(r.name for r in phase.runs), done, "verification")
        return [*call.child_flags(), *coordinator.sentinel_command()]
    run = next((r for r in phase.runs if r.name == name), None)
    if not run or tool != "orchestrator":
        usage(f"--of {words[1]}: the phase has {', '.join(r.name for r in phase.runs)}", "orchestrator.py --of PHASE/RUN")
    _require_order(run.depends_on, done, run.name)
    return [*call.child_flags(), *coordinator.command(run, [])]


def _coordinator_command(session: Path, folder: str) -> list[str]:
    path = session / "effective-config.json"
    known = files.read_json(path) if path.is_file() else {}
    planned = {p["folder"]: p for p in known.get("plan", {}).get("phases", [])}
    if folder not in planned:
        raise StrataError("NO_RUN", f"--of {folder}: no agent runs a campaign with that phase", f"phases: {', '.join(planned)}")
    phase = planned[folder]
    names = {p["name"]: p["folder"] for p in planned.values()}
    done = {n for n, f in names.items() if _ended_well(session / "phases" / f / "report.json")}
    _require_order(tuple(phase["depends_on"]), done, phase["name"])
    call = call_from(known["settings"] | {"extra_context": []}, 4, "campaign", known["plan"]["name"])
    keep = ["--keep-failed"] if phase["rollback"] else []
    return [*call.child_flags(), "--phase", phase["name"], "--mode", phase["mode"], *keep, str(path)]


def _ended_well(path: Path) -> bool:
    return path.is_file() and files.read_json(path).get("exit_code") in DONE


def _require_order(before: tuple[str, ...], done: set[str], what: str) -> None:
    missing = [name for name in before if name not in done]
    if missing:
        raise StrataError("OUT_OF_ORDER", f"{what} cannot run yet: {', '.join(missing)} comes first", "do that first")
