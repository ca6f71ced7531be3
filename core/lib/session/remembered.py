"""What a session was begun with: its settings, or the command itself, so that a resume need not be told again."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from lib.contract import HOUSE, Json, StrataError, command
from lib.disk import files
from lib.session.catalogue import EFFECTIVE, find_session

# Of a command line, what belongs to one run and not to the session.
_ONCE = ("--session-dir", "--session-base", "--resume", "--answer", "--from", "--driver", "--extra-context")
KEPT = ("model", "fixtures", "inherit_settings", "accept_drift", "max_wait", "approve_plan")  # flags a resume need not repeat


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
