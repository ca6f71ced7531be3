"""A run that outlives the terminal, and how to end it from another one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from lib import names
from lib.contract import CORE, Json, StrataError, command
from lib.disk import locks
from lib.process import keeper
from lib.session import remembered
from lib.session.owner import LOCK_NAME, Owner

STOP_SECONDS = 120.0
# Ours end with us; this one is started by a process that ends at once, so that it is nobody's of ours.
_APART = (
    "import subprocess, sys\n"
    "with open(sys.argv[1], 'ab') as out, open(sys.argv[2], 'ab') as err:\n"
    "    child = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)\n"
    "print(child.pid)\n"
)


def detach(tool: str, arguments: list[str], folder: Path) -> Json:
    """Starts the same command again, apart from this process, in a session folder that is known from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [w for w in arguments if w != "--detach"]
    if "--session-dir" not in words and "--resume" not in words:
        words += ["--session-dir", str(folder)]
    argv = [sys.executable, str(CORE / f"{tool}.py"), *words]
    out, err = folder / "detached.out", folder / "detached.log"
    keeper.stop_being_subreaper()
    env = {k: v for k, v in os.environ.items() if k not in (names.LEASE, names.LOCK)}
    done = subprocess.run(
        [sys.executable, "-c", _APART, str(out), str(err), *argv], env=env, capture_output=True, text=True, check=True
    )
    pid = int(done.stdout)
    name = shlex.quote(str(folder))
    return {
        "tool": tool,
        "status": "success",
        "exit_code": 0,
        "detached": True,
        "pid": pid,
        "session_dir": str(folder),
        "watch": f"{command('session')} watch {name}",
        "stop": f"{command(tool)} --stop {name}",
        "next": f"{command('session')} watch {name}",
    }


def stop(folder: Path, tool: str = "campaign") -> Json:
    """Asks the run that works in a session to end, and waits until it has. What it did stays; it can be resumed."""
    begun_by = remembered.begun_by(folder)
    again = f"{command(begun_by)} --resume {shlex.quote(str(folder))}" if begun_by else ""
    if not locks.is_held(folder / LOCK_NAME):
        raise StrataError("NOT_RUNNING", f"nothing is running in {folder}", again)
    owner = Owner.read(folder)
    if owner is None or owner.elsewhere:
        where = owner.host if owner else "a machine its lock does not name"
        raise StrataError("RUNS_ELSEWHERE", f"the run in {folder} is on {where}", "stop it there")
    if owner.alive:
        keeper.send(owner.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while locks.is_held(folder / LOCK_NAME):
        if time.monotonic() > deadline:
            raise StrataError("NOT_STOPPED", f"the run ({owner}) has not ended after {STOP_SECONDS:g} s", f"kill -9 {owner.pid}")
        time.sleep(0.1)
    return {
        "tool": tool,
        "status": "success",
        "exit_code": 0,
        "stopped": owner.pid,
        "session_dir": str(folder),
        "next": again,
    }
