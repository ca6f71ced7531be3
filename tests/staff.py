"""With STRATA_TEST_WORKERS=1 the executors of every run of every house are placed on a worker by a real Temporal server: what
the tests claim of one machine is then claimed of many. `STRATA_TEST_WORKERS=1 uv run pytest tests/tools tests/oracle`"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farm import Server
    from support import House

ASKED = bool(os.environ.get("STRATA_TEST_WORKERS"))
_PLACING = ("campaign", "coordinator", "orchestrator", "ospec", "oresearch", "sentinel", "forge", "deep_research", "downstream")
OURS = Path(__file__).resolve().parent.parent / "core/worker.py"
_hired: dict[Path, Worker] = {}


class Worker:
    """Of one house, as that was when it was started, with the environment in which its tools shall run."""

    def __init__(self, house: House, env: dict[str, str]) -> None:
        tool = "worker"
        if (house.folder / "core/worker.py").read_bytes() != OURS.read_bytes():  # many a test has a tool of that name
            tool = "hired"
            (house.folder / "core/hired.py").write_bytes(OURS.read_bytes())
        self.terms = _terms(house, env)
        words = ["--backend", address(), "--root", "/", "--slots", "16", "--name", "staff"]
        self.log = house.folder / "tmp/staff.log"
        with self.log.open("wb") as file:
            self.child = subprocess.Popen(
                house.argv(tool, *words),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        from support import wait_for

        wait_for(lambda: '"working"' in self.log.read_text() or self.child.poll() is not None, 60, "a worker")
        assert self.child.poll() is None, self.log.read_text()

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


def _terms(house: House, env: dict[str, str]) -> tuple[str, dict[str, str]]:
    from lib.machines import house as facts

    return facts.stamp(house.folder), env


def places(house: House, tool: str, env: dict[str, str]) -> dict[str, str]:
    """What a tool of this house needs in its environment, to run what it calls on a worker."""
    if not ASKED or tool not in _PLACING or "STRATA_BACKEND" in env:
        return {}
    hired = _hired.get(house.folder)
    if hired and (hired.terms != _terms(house, env) or hired.child.poll() is not None):
        hired.end()
        hired = None
    _hired[house.folder] = hired or Worker(house, env)
    return {"STRATA_BACKEND": address()}


def is_staff(pid: int, line: str) -> bool:
    """Whether a process is a worker that was hired here, or the nursery beside it: none of what a test has started."""
    return any(pid == worker.child.pid or line.rstrip().endswith(f"--of {worker.child.pid}") for worker in _hired.values())


def dismiss() -> None:
    while _hired:
        _hired.popitem()[1].end()


@cache
def _server() -> Server:
    from farm import Server

    folder = Path(tempfile.mkdtemp(prefix="strata-server-"))
    server = Server(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.kill)
    return server


def address() -> str:
    if not _server().answers():  # not yet, or no more
        _server().kill()
        _server().serve()
    return f"temporal://127.0.0.1:{_server().port}"
