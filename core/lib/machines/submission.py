"""The outermost tool's part in work on other machines: it looks whether the folder is fit for that, and keeps the placer beside
itself, the process that brings the orders of the run to workers."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from lib import names
from lib.contract import CORE, Json, StrataError, part
from lib.disk import lenient, locks, records
from lib.machines import house, mounts, placed, placing
from lib.machines.address import LAYERS, Address, Mandate, Way
from lib.process import processes
from lib.process.backend import OnLine

PLACER = CORE / "lib/temporal/placer.py"
READY_SECONDS = 60.0  # until the placer has reached its server
END_SECONDS = 3.0
SKEW_SECONDS = 1.0  # what tells files of a killed attempt from those of others allows no more
_ANOTHER = "sessions on many machines need a file system with locks, such as NFS 4: give such a folder with --session-base"


class Placer:
    """The process that brings the orders of one run to workers, as long as the run goes on."""

    def __init__(self, address: Address, session: Path, on_line: OnLine) -> None:
        self._session = session
        self._folder = Path(tempfile.mkdtemp(prefix="strata-"))
        facts = house.facts()
        self.way = Way(str(self._folder / "placer"), LAYERS[address.place], facts.name)
        lease_read, self._lease = os.pipe()
        mandate = Mandate(str(address), str(session), self.way.socket, facts)
        with processes.starting:
            self._child = subprocess.Popen(
                [*_placer_argv(), json.dumps(records.document(mandate))],
                env={**os.environ, names.LEASE: str(lease_read)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(lease_read,),
                start_new_session=True,
            )
            processes.own_children.add(self._child.pid)
        os.close(lease_read)
        threading.Thread(target=self._relay, args=(on_line,), name="placer", daemon=True).start()

    def _relay(self, on_line: OnLine) -> None:
        assert self._child.stderr
        for line in self._child.stderr:
            on_line(line.decode("utf-8", "replace").rstrip())

    def ready(self) -> None:
        """Waits until it has reached its server."""
        assert self._child.stdout
        readable, _, _ = select.select([self._child.stdout], [], [], READY_SECONDS)
        said = lenient.parse(self._child.stdout.readline() if readable else b"", _Said)
        if not said.ready:
            message = part(said.error, "message") or "the program that places commands on workers did not start"
            hint = part(said.error, "hint") or "what it said stands above: can temporalio be installed here?"
            self.end()
            raise StrataError(part(said.error, "code") or "BACKEND_UNREACHABLE", message, hint, final=True)

    def end(self) -> None:
        """Nothing is placed any more. What is left in the session is a trace of nothing."""
        os.environ.pop(names.BACKEND, None)
        os.close(self._lease)
        self._child.terminate()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        placed.tidy(self._session / placed.PLACED)


class _Said(Struct, frozen=True):
    ready: bool = False
    error: Json | None = None


def _placer_argv() -> list[str]:
    """With this interpreter, where it has what the placer needs."""
    if importlib.util.find_spec("temporalio"):
        return [sys.executable, str(PLACER)]
    uv = os.getenv("UV") or shutil.which("uv")
    if not uv:
        raise StrataError("UV_MISSING", "uv is not on the PATH", "pip install uv")
    return [uv, "run", "--quiet", str(PLACER)]


def begin(text: str, session: Path, on_line: OnLine) -> Placer | None:
    """From here on the tools of some layer are placed by this address. In a run that is placed already, by that of the run."""
    address = Address.parse(text)
    if address is None or names.BACKEND in os.environ:
        return None
    require_place(session)
    placer = Placer(address, session, on_line)
    placer.ready()
    os.environ[names.BACKEND] = msgspec.json.encode(placer.way).decode()
    placing.join()
    return placer


def require_place(folder: Path) -> None:
    """A folder that several machines work in keeps locks, and its clock is the clock of each of them, more or less."""
    mount = mounts.of(folder)
    why, _, hint = mount.trouble.partition("; ") if mount else ("", "", "")
    if why:
        raise StrataError("BAD_FOLDER", f"{folder}: {why}", hint)
    probe = folder / f".probe-{secrets.token_hex(8)}"
    try:
        with locks.held(probe):
            free = not locks.is_held(probe)
        skew = probe.stat().st_mtime - time.time()
        probe.unlink()
    except OSError as error:
        raise StrataError("BAD_FOLDER", f"{folder} keeps no locks: {error.strerror}", _ANOTHER) from None
    if free:
        raise StrataError("BAD_FOLDER", f"{folder} keeps no locks: two could hold one at the same time", _ANOTHER)
    if abs(skew) > SKEW_SECONDS:
        message = f"the clock of this machine and that of {folder} are {abs(skew):.1f} s apart"
        raise StrataError("BAD_CLOCK", message, "set the clock of every machine by the same server (ntp), then start again")
