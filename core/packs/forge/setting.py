"""Before anything is spent: whether this is a repository Forge can work in, and what was there before it began."""

from __future__ import annotations

from pathlib import Path

from lib.contract import StrataError
from lib.disk import files
from lib.plan import checks_file
from lib.process import processes
from lib.workspace import trees

_DIRTY = "forge-dirty.json"  # in the session


def require(cwd: Path, session: Path, tests: str, checks: str) -> tuple[str, ...]:
    """Raises where it cannot be done. Returns warnings."""
    trees.require_repository(cwd, "Forge")
    if processes.ask(["git", "-C", str(cwd), "rev-parse", "--verify", "--quiet", "HEAD"]).returncode:
        raise StrataError(
            "NO_COMMIT", f"{cwd} has no commit yet", "commit what is there: Forge shows its work against that", final=True
        )
    checks_file.known(checks).choose([tests])
    status = processes.ask(
        ["git", "-C", str(cwd), "-c", "core.quotePath=false", "status", "--porcelain", "-z", "--no-renames", "."]
    )
    names = [entry[3:].decode("utf-8", "replace") for entry in status.stdout.split(b"\0") if entry]
    mine = [name for name in names if not name.startswith("docs/feature/")]
    if not (session / _DIRTY).exists():
        files.write_json(session / _DIRTY, {"files": mine})
    return (f"Forge builds on changes that are not committed: {', '.join(mine[:10])}",) if mine else ()


def dirty(session: Path) -> list[str]:
    return files.read_json(session / _DIRTY)["files"] if (session / _DIRTY).exists() else []
