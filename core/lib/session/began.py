"""Where a run works, and the commit it began at: what was done to the folder is shown against that."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.disk import files, lenient, records
from lib.disk.clock import now
from lib.process import processes

FILE = "workspace.json"


class Began(Struct, frozen=True):
    cwd: str = ""
    commit: str = ""  # none where it is no repository, or one without a commit
    at: str = ""


def keep(session: Path, cwd: Path) -> None:
    """Of the first run in a session; those that resume it began there."""
    path = session / FILE
    if not path.exists():
        done = processes.ask(["git", "-C", str(cwd), "rev-parse", "--verify", "--quiet", "HEAD"])
        commit = done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""
        files.write_json(path, records.document(Began(str(cwd), commit, now())))


def read(session: Path) -> Began:
    return lenient.read(session / FILE, Began)
