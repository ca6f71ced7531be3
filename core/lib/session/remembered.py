"""What a session was begun with: its settings, or the command itself, so that a resume need not be told again."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.contract import Json, StrataError, command
from lib.disk import files, records

EFFECTIVE = "effective-config.json"
# Of a command line, what belongs to one run and not to the session.
_ONCE = ("--session-dir", "--session-base", "--resume", "--answer", "--from", "--until", "--driver", "--extra-context")
KEPT = (
    "model",
    "fixtures",
    "inherit_settings",
    "accept_drift",
    "max_wait",
    "approve_plan",
    "backend",
)  # flags a resume need not repeat


class _Settings(Struct, frozen=True):
    driver: str
    cwd: str
    max_depth: int
    plan_file: str


class _Plan(Struct, frozen=True):
    phases: tuple[Json, ...]


class _Tool(Struct, frozen=True):
    tool: str = "campaign"


class _Begun(Struct, frozen=True):
    """What a campaign cannot go on without."""

    settings: _Settings
    plan: _Plan


def read_effective(session: Path) -> Json:
    effective = files.read_json(session / EFFECTIVE)
    require_tool(session, "campaign")
    try:
        records.of(effective, _Begun)
    except ValueError as error:
        raise files.corrupt(session / EFFECTIVE, f"{session / EFFECTIVE}: {error}") from None
    return effective


def begun_by(session: Path) -> str:
    """The tool that resumes it; none where it cannot be resumed."""
    path = session / EFFECTIVE
    return records.of(files.read_json(path), _Tool).tool if path.is_file() else ""


def require_tool(session: Path, tool: str) -> None:
    """A session is resumed by the tool that began it."""
    began = begun_by(session)
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


def pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(["", *words], words, strict=False))


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """The words without these flags and their values."""
    kept = [w for before, w in pairs(words) if before not in flags and w not in flags]
    return [w for w in kept if w.partition("=")[0] not in flags and w != "--explain"]
