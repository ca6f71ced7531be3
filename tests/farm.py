"""A Temporal server and workers, for tests: real ones, each a process that can be killed, frozen and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from lib.process import keeper
from support import House, alive, wait_for, with_marker

# The server is carried by a package for tests; a user's own is preferred, by address.
PROGRAM = shutil.which("temporal", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

# A step that says when it begins, that it goes on, and when it ends, in a file that is none of Strata's records. What it is to do
# stands in a file of its name: how many seconds it takes, on its first, second, … time; the last repeats.
PROBE = """
def work(task, out, call):
    import os, secrets
    name, me, log = str(task.item or call.options.words[0]), secrets.token_hex(4), Path(call.cwd) / "log"

    def say(word):
        where = os.environ.get("AGENTIC_WORKER", "here")
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{word} {name} {me} {where}\\n".encode())
        os.close(descriptor)

    before = [l for l in log.read_text().splitlines() if l.startswith(f"begin {name} ")] if log.exists() else []
    say("begin")
    plan = Path(call.cwd) / f"{name}.plan"
    takes = plan.read_text().split() if plan.exists() else ["0"]
    until = time.monotonic() + float(takes[min(len(before), len(takes) - 1)])
    while time.monotonic() < until:
        say("beat")
        time.sleep(0.05)
    for output in task.outputs:
        (out / output.path).write_text(name)
    say("end")
    return Verdict("done")
"""
STAGES = """version: 1
name: trial
params: {names: {type: list, default: "a,b"}}
stages:
  - {name: each, tool: probe.py, foreach: {items: param.names, cap: CAP, max_items: 500},
     retry: {max: 0}, outputs: {made: {path: made.txt}}}
"""
PLAN = """version: 1
name: farm
phases:
  - {name: one, run: [{orchestrator: trial, params: {names: NAMES}}], verify: {checks: [artifacts], fix: false}}
"""


class Server:
    """Temporal on loopback, with its database in a file, so that it can be killed and started again."""

    def __init__(self, folder: Path, listen: str = "127.0.0.1") -> None:
        self._folder, self._listen = folder, listen
        self.port = _free_port()
        self._child: subprocess.Popen[bytes] | None = None

    def serve(self, *flags: str) -> None:
        assert PROGRAM
        words = ["server", "start-dev", "--headless", "--ip", self._listen, "--port", str(self.port), "--log-level", "error"]
        words += ["--db-filename", str(self._folder / "temporal.db"), *flags]
        with (self._folder / "server.log").open("ab") as log:
            self._child = subprocess.Popen([PROGRAM, *words], stdout=log, stderr=log, start_new_session=True)
        wait_for(self.answers, 60, "the server")

    def answers(self) -> bool:
        with socket.socket() as channel:
            channel.settimeout(1)
            return channel.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._child:
            self._child.kill()
            self._child.wait()
            self._child = None

    def send(self, number: signal.Signals) -> None:
        if self._child:
            keeper.send(self._child.pid, number)


class Farm:
    def __init__(self, house: House, listen: str = "127.0.0.1") -> None:
        self.house = house
        self.server = Server(house.folder / "tmp", listen)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.host = "127.0.0.1"
        house.tool("probe", PROBE)

    @property
    def address(self) -> str:
        return f"temporal://{self.host}:{self.server.port}"

    def __enter__(self) -> Self:
        self.server.serve()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.workers):
            self.kill(name)
        self.server.kill()
        wait_for(lambda: not with_marker(str(self.house.folder / "core")), 60, "the end of every process")

    def worker(self, name: str, *flags: str, prefix: tuple[str, ...] = (), house: House | None = None, **env: str) -> None:
        """Starts one, and waits until it takes work."""
        made = house or self.house
        words = ["--backend", self.address, "--root", str(self.house.folder), "--name", name, *flags]
        log = self.house.folder / "tmp" / f"{name}.log"
        with log.open("ab") as file:
            self.workers[name] = subprocess.Popen(
                [*prefix, *made.argv("worker", *words)],
                env=made.env | env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        wait_for(lambda: '"working"' in log.read_text() or self.workers[name].poll() is not None, 60, "a worker")

    def said(self, name: str) -> str:
        return (self.house.folder / "tmp" / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def drain(self, name: str, seconds: float = 60) -> int:
        worker = self.workers.pop(name)
        worker.terminate()
        return worker.wait(seconds)

    def tree(self, name: str) -> list[int]:
        """A worker and everything that runs below it, wherever it went."""
        pid = self.workers[name].pid
        return [pid, *keeper.descendants(pid)]

    def freeze(self, name: str) -> list[int]:
        pids = self.tree(name)
        for pid in pids:
            keeper.send(pid, signal.SIGSTOP)
        return pids

    def thaw(self, pids: list[int]) -> None:
        for pid in [p for p in pids if alive(p)]:
            keeper.send(pid, signal.SIGCONT)

    @contextmanager
    def running(self, tool: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run that may say much: into a file, not a pipe that nobody reads."""
        with (self.house.folder / "tmp" / "run.log").open("ab") as log:
            child = subprocess.Popen(
                self.house.argv(tool, *words),
                env=self.house.env,
                cwd=self.house.workspace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()

    # What a campaign of probes does

    def furnish(self, names: list[str], cap: int = 4, **takes: str) -> None:
        self.house.orchestrator(STAGES.replace("CAP", str(cap)))
        (self.house.workspace / "plan.yaml").write_text(PLAN.replace("NAMES", f'"{",".join(names)}"'))
        for name, text in takes.items():
            (self.house.workspace / f"{name}.plan").write_text(text)

    @property
    def session(self) -> Path:
        return self.house.folder / "s"

    def words(self, *more: str) -> list[str]:
        return ["plan.yaml", "--session-dir", str(self.session), "--backend", self.address, *more]

    def log(self, word: str = "") -> list[list[str]]:
        path = self.house.workspace / "log"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if word in ("", line[0])]

    def began(self, name: str) -> list[str]:
        """On which worker a step was begun, in order."""
        return [line[3] for line in self.log("begin") if line[1] == name]

    def require_once(self, names: list[str]) -> None:
        """By what the commands themselves wrote: each step came to its end once, and was never at work twice at a time."""
        ended = [line[1] for line in self.log("end")]
        assert sorted(ended) == sorted(names), "each step has ended, and only once"
        newest: dict[str, str] = {}
        for word, name, who, _ in self.log():
            if word == "begin":
                newest[name] = who
            assert newest[name] == who, f"two of {name} were at work at the same time"


def _free_port() -> int:
    with socket.socket() as channel:
        channel.bind(("127.0.0.1", 0))
        return int(channel.getsockname()[1])
