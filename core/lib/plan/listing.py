"""What there is to be named: agents, orchestrators and checks, each with where it was found and what it is for."""

from __future__ import annotations

from collections.abc import Callable

from lib.contract import Json, StrataError
from lib.disk import places
from lib.plan import agents, checks_file, orchestrator_file


def of(tool: str, kind: str) -> Json:
    """The document of a tool that lists what it can be asked for."""
    rows = _checks() if kind == "check" else [_row(found, _ABOUT[kind]) for found in places.every(kind)]
    width = max((len(row["name"]) for row in rows), default=0)
    wide = max((len(row["where"]) for row in rows), default=0)
    lines = [f"{row['name']:{width}}  {row['where']:{wide}}  {row['about']}".rstrip() for row in rows]
    text = "\n".join(lines) or "there are none"
    return {"tool": tool, "status": "success", "exit_code": 0, "listed": rows, "text": text}


def _row(found: places.Found, about: Callable[[str], str]) -> Json:
    try:
        words = about(found.name)
    except StrataError as error:
        words = f"cannot be used: {error.message}"
    return {"name": found.name, "where": found.where, "file": str(found.file), "about": " ".join(words.split())[:160]}


def _checks() -> list[Json]:
    known = checks_file.known()
    rows: list[Json] = [
        {
            "name": name,
            "where": "the house" if places.is_ours(known.files[name]) else str(known.files[name].parent),
            "file": str(known.files[name]),
            "about": " ".join(check.command) + ("" if check.blocking else "  (does not block)"),
        }
        for name, check in known.table.items()
    ]
    about = "what a phase says it made is there, as it was made"
    return [*rows, {"name": checks_file.ARTIFACTS, "where": "the house", "file": "", "about": about}]


def _orchestrator(name: str) -> str:
    found = orchestrator_file.load(name)
    needed = [n for n, p in found.params.items() if p.default is None and not p.optional]
    return found.description + (f" (needs {', '.join(needed)})" if needed else "")


_ABOUT: dict[str, Callable[[str], str]] = {
    "agent": lambda name: agents.load(name).description,
    "orchestrator": _orchestrator,
}
