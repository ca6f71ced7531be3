"""Finding a session again, and going on with it as it was started."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lib import files
from lib.contract import HOUSE, Json, StrataError, command
from lib.plan import Phase, Plan

if TYPE_CHECKING:
    from lib.cli import Call

EFFECTIVE = "effective-config.json"
# Of a command line, what belongs to one run and not to the session.
_ONCE = ("--session-dir", "--session-base", "--resume", "--answer", "--from", "--driver", "--extra-context")
KEPT = ("model", "fixtures", "inherit_settings", "accept_drift", "max_wait", "approve_plan")  # flags a resume need not repeat


def restore(call: Call, effective: Json) -> None:
    """A resumed session goes on as it was started; the command line may say otherwise, an edited plan may not."""
    options, settings = call.options, effective["settings"]
    for name in KEPT:
        setattr(options, name, settings.get(name) if getattr(options, name) in (None, False) else getattr(options, name))
    if options.max_depth is None:
        options.max_depth = settings["max_depth"]
    call.driver = options.driver or settings["driver"]
    if effective["plan"]["workspace"] == "session":
        return  # it lies in the session, wherever that is now
    call.cwd = Path(options.cwd).resolve() if options.cwd else Path(settings["cwd"])
    if not call.cwd.is_dir():
        raise StrataError("NO_WORKSPACE", f"the workspace {call.cwd} is gone", "bring it back, or say with --cwd where it is now")


def keep_folders(plan: Plan, session: Path) -> Plan:
    """A plan that was edited keeps the folders its phases have; new phases get numbers of their own."""
    known = {p.name.split("-", 2)[2]: p.name for p in (session / "phases").glob("phase-*-*")}
    number = max((int(name.split("-")[1]) for name in known.values()), default=0)
    kept: list[Phase] = []
    for phase in plan.phases:
        if phase.name not in known and number:
            number += 1
            kept.append(replace(phase, folder=f"phase-{number:02d}-{phase.name}"))
        else:
            kept.append(replace(phase, folder=known.get(phase.name, phase.folder)))
    return replace(plan, phases=tuple(kept))


def read_effective(session: Path) -> Json:
    effective = files.read_json(session / EFFECTIVE)
    require_tool(effective, session, "campaign")
    settings, plan = effective.get("settings"), effective.get("plan")
    wanted = {"driver": str, "cwd": str, "max_depth": int, "plan_file": str}
    for name, kind in wanted.items():
        if not isinstance(settings, dict) or not isinstance(settings.get(name), kind):  # type: ignore[reportUnknownMemberType]
            raise files.corrupt(session / EFFECTIVE, f"{session / EFFECTIVE}: settings.{name} is no {kind.__name__}")
    if not isinstance(plan, dict) or not isinstance(plan.get("phases"), list):  # type: ignore[reportUnknownMemberType]
        raise files.corrupt(session / EFFECTIVE, f"{session / EFFECTIVE} holds no plan")
    return effective


def require_tool(effective: Json, session: Path, tool: str) -> None:
    """A session is gone on with by the tool that began it."""
    began = effective.get("tool", "campaign")
    if began != tool:
        raise StrataError(
            "NO_SESSION", f"{session} is a session of {began}, not of {tool}", f"{command(began)} --resume {session}"
        )


# Below a campaign: a session remembers the command it was begun with


def keep(session: Path, tool: str, driver: str, words: list[str]) -> None:
    """What was asked last, so that --resume need not be told again. A session of another tool keeps its own."""
    path = session / EFFECTIVE
    resumed = any(w.partition("=")[0] == "--resume" for w in words)
    if not path.exists() or (not resumed and files.read_json(path).get("tool") == tool):
        kept = [*_without(words, _ONCE), "--driver", driver]
        files.write_json(path, {"tool": tool, "command": kept, "folder": str(Path.cwd())})


def recall(tool: str, words: list[str]) -> list[str]:
    """The command line of a resume: what the session was begun with, and what is said now, standing where it was begun."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--resume")
    parser.add_argument("--session-base")
    known, now = parser.parse_known_args(words)
    if not known.resume:
        return words
    session = find_session(known.resume, Path(known.session_base or HOUSE / "sessions"))
    effective = files.read_json(session / EFFECTIVE)
    require_tool(effective, session, tool)
    now = [str(Path(w).absolute()) if before in ("--extra-context", "--fixtures", "--cwd") else w for before, w in _pairs(now)]
    try:
        os.chdir(effective["folder"])
    except OSError as error:
        hint = "bring it back, or start anew in another session"
        raise StrataError("NO_WORKSPACE", f"{effective['folder']}, where it was begun: {error.strerror}", hint) from None
    return [*effective["command"], *now, "--session-dir", str(session)]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """The words without these flags and their values."""
    kept = [w for before, w in _pairs(words) if before not in flags and w not in flags]
    return [w for w in kept if w.partition("=")[0] not in flags and w != "--explain"]


def escalated(session: Path) -> bool:
    """Whether the last run ended by asking a person about something that failed."""
    path = session / "manifest.json"
    error: Json = (files.read_json(path).get("error") if path.is_file() else None) or {}
    given_up = error.get("code") == "REJECTED" and (session / "escalations" / "rejected.json").exists()
    return error.get("code") == "ESCALATED" or given_up


def waited(session: Path) -> list[Json]:
    """What was waiting for a person when the last run ended."""
    path = session / "manifest.json"
    return files.read_json(path).get("waiting", []) if path.is_file() else []


def find_session(name: str, base: Path) -> Path:
    """A path, or the name (or its beginning) of a session under `base`."""
    for path in (Path(name), base / name):
        if (path / EFFECTIVE).is_file():
            return path.resolve()
    there = [p for p in sorted(base.iterdir()) if (p / EFFECTIVE).is_file()] if base.is_dir() else []
    found = [p for p in there if p.name.startswith(name)] or [p for p in there if named(p).startswith(name)]
    if len(found) != 1:
        what = f"there is no session {name!r}" if not found else f"{len(found)} sessions begin with {name!r}"
        raise StrataError("NO_SESSION", f"{what} under {base}", f"{command('campaign')} --list shows those there are")
    return found[0]


def named(session: Path) -> str:
    """Its name without the minute it was begun in."""
    return re.sub(r"^\d{8}-\d{4}-", "", session.name)


def listing(base: Path) -> list[Json]:
    """The campaigns under `base`, newest first."""
    found: list[Json] = []
    for path in sorted(base.iterdir() if base.is_dir() else [], reverse=True):
        manifest = path / "manifest.json"
        if (path / EFFECTIVE).is_file():
            known: Json = files.read_json(manifest) if manifest.is_file() else {"status": "not ended", "grade": ""}
            found.append({"session": path.name, "status": known.get("status"), "grade": known.get("grade")})
    return found
