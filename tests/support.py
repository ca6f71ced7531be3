"""What the tests share: a clean environment, running a tool as a real process, and a house of one's own to run it in."""

from __future__ import annotations

import atexit
import compileall
import copy
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import staff

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core"


def clean_environment(**extra: str) -> dict[str, str]:
    """No login of this machine, no session of this machine: nothing a test does may depend on either."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "ANTHROPIC", "AGENTIC"))}
    return kept | extra


def some(cases: Iterable[Any], one_of: int) -> list[Any]:
    """One of so many of these cases; the others are more of the same, and behind `-m long`."""
    return [case if not n % one_of else pytest.param(case, marks=pytest.mark.long) for n, case in enumerate(cases)]


@dataclass
class Ran:
    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        last = json.loads(self.stderr.strip().splitlines()[-1])
        assert last["status"] == "error", self.stderr
        return last["error"]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class Template:
    """What every house is made of, compiled once: its folders, and its files as they are."""

    folder: Path
    folders: tuple[str, ...]
    files: dict[str, tuple[int, int, int]]

    def state(self, file: str) -> tuple[int, int, int]:
        info = os.stat(f"{self.folder}/{file}")
        return info.st_mtime_ns, info.st_size, info.st_mode

    def changed(self) -> list[str]:
        return [file for file, state in self.files.items() if self.state(file) != state]


@cache
def template() -> Template:
    folder = Path(tempfile.mkdtemp(prefix="strata-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("core", "config", "prompts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "pictures"))
    compileall.compile_dir(folder / "core", quiet=2)
    every = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    made = Template(folder, tuple(p for p in every if (folder / p).is_dir()), {})
    made.files.update({p: made.state(p) for p in every if p not in set(made.folders)})
    return made


class House:
    """Core, config and prompts that a test may add to, with a sessions folder and a workspace of its own."""

    made = 0

    def __init__(self, folder: Path, rehearsed: bool = False) -> None:
        """`rehearsed`: agents are those of `scripted_model/rehearsal.py`, for claims above layer 0."""
        House.made += 1
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for inner in template().folders:
            os.mkdir(f"{folder}/{inner}")
        for file in template().files:  # linked, not copied: a thousand files for each of a thousand tests. `put` changes one
            os.link(f"{template().folder}/{file}", f"{folder}/{file}")
        self.sessions = folder / "sessions"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.env = clean_environment(CLAUDE_CONFIG_DIR=str(folder / "claude"), TMPDIR=str(folder / "tmp"))
        # A home of its own: what the user's shell does when it starts is neither slow nor cut short here.
        self.env |= {"HOME": str(folder / "home"), "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))}
        self.env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # pytest as a check: the plugins of these tests are not its own
        (folder / "home").mkdir()
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # it is our own copy, and compiling it in every process takes longest
        (folder / "tmp").mkdir()
        if rehearsed and not os.environ.get("STRATA_REAL_CLI"):
            self._rehearse()

    def _rehearse(self) -> None:
        spawn = self.folder / "core/spawn.py"
        text = spawn.read_text()
        loads = text.index("def load_sdk()")
        ends = text.index('if __name__ == "__main__"')
        tests = str(Path(__file__).parent)
        body = f"import sys\n    sys.path.insert(0, {tests!r})\n    from scripted_model import rehearsal\n    return rehearsal"
        self.put(spawn, f"{text[:loads]}def load_sdk():\n    {body}\n\n\n{text[ends:]}")

    def lock_as_nfs(self) -> None:
        """From here on every process of this house locks as flock(2) says of NFS: alone only who may write, together who may
        read."""
        site = self.folder / "home/site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "import errno, fcntl, os\n"
            "_flock = fcntl.flock\n"
            "def flock(file, how):\n"
            "    mode = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE\n"
            "    need = {fcntl.LOCK_EX: (os.O_WRONLY, os.O_RDWR), fcntl.LOCK_SH: (os.O_RDONLY, os.O_RDWR)}.get(how & 3)\n"
            "    if need and mode not in need:\n"
            "        raise OSError(errno.EBADF, os.strerror(errno.EBADF))\n"
            "    _flock(file, how)\n"
            "fcntl.flock = flock\n"
        )
        self.env["PYTHONPATH"] = str(site)

    @staticmethod
    def at(house: House, workspace: Path) -> House:
        """The same house, standing elsewhere."""
        other = copy.copy(house)
        other.workspace = workspace
        return other

    def rewrite(self, module: str, *changes: tuple[str, str], more: str = "") -> str:
        """Changes this house's own copy of a library module: each text must be there. Returns it as it was."""
        (path,) = (self.folder / "core/lib").rglob(f"{module}.py")
        before = text = path.read_text()
        for old, new in changes:
            assert old in text, f"{path.name} no longer holds {old!r}"
            text = text.replace(old, new)
        self.put(path, text + more)
        return before

    def put(self, path: Path, text: str) -> None:
        path.unlink(missing_ok=True)  # it may be a link to what all houses share
        path.write_text(text)

    def argv(self, tool: str, *args: str) -> list[str]:
        return [sys.executable, str(self.folder / "core" / f"{tool}.py"), *args]

    def run(self, tool: str, *args: str, stdin: bytes | None = None, timeout: float = 120, **env: str) -> Ran:
        """Runs a tool to its end, standing in the workspace."""
        done = subprocess.run(
            self.argv(tool, *args),
            env=self.env | env | staff.places(self, tool, self.env | env),
            cwd=self.workspace,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def json(self, tool: str, *args: str, stdin: bytes | None = None, timeout: float = 120, **env: str) -> Ran:
        return self.run(tool, *args, "--output-format", "json", stdin=stdin, timeout=timeout, **env)

    @contextmanager
    def start(self, tool: str, *args: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        child = subprocess.Popen(
            self.argv(tool, *args),
            env=self.env | env | staff.places(self, tool, self.env | env),
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()

    @property
    def session(self) -> Path:
        """The only session there is."""
        (session,) = [p for p in self.sessions.iterdir() if p.is_dir()]
        return session

    def agent(self, name: str, body: str = "You do the task.", **front: Any) -> None:
        import yaml

        text = yaml.safe_dump({"name": name, "description": f"The {name}.", **front}, sort_keys=False)
        self.put(self.folder / "prompts" / "executors" / f"{name}.md", f"---\n{text}---\n{body}\n")

    def orchestrator(self, text: str, name: str = "trial") -> Path:
        path = self.folder / "config" / "orchestrators" / f"{name}.yaml"
        self.put(path, text)
        return path

    def tool(self, name: str, body: str) -> None:
        """A layer-1 tool without a model: `body` is the function `work(task, out, call)`."""
        block = (CORE / "check.py").read_text().split('"""')[0]
        text = f'''{block}"""Layer 1: a tool of a test."""
import json
import time
from pathlib import Path
from lib import cli
from lib.attempt import executor
from lib.cli import Tool
from lib.contract import ExitCode, StrataError
from lib.plan.task import Task
from lib.attempt.verdicts import Verdict

TOOL = Tool("{name}", layer=1, summary="A tool of a test.", example="uv run core/{name}.py")

def arguments(parser):
    parser.add_argument("words", nargs="*")
    executor.arguments(parser)

{body}

def main(call):
    task = executor.read_task(call, Task(action="TRY"))
    return executor.run_function(call, "{name}", task, lambda task, out: work(task, out, call))

if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
'''
        self.put(self.folder / "core" / f"{name}.py", text)


# A worker whose behaviour a test sets in a file: one line per attempt, the last one repeats.
WORKER = """
def work(task, out, call):
    name = call.options.words[0] if call.options.words else str(task.item)
    plan = Path(call.cwd) / f"{name[-40:]}.plan"
    lines = plan.read_text().split() if plan.exists() else ["ok"]
    log = Path(call.cwd) / "log"
    ran = log.read_text().split().count(name) if log.exists() else 0
    with log.open("a") as file:
        file.write(name + "\\n")
    word = lines[min(ran, len(lines) - 1)]
    for output in task.outputs:
        told = [Path(p).read_text() for p in task.context]
        (out / output.path).write_text(json.dumps({"name": name, "inputs": task.inputs, "told": told}))
    if word == "ok":
        return Verdict("done")
    if word == "revise":
        return Verdict("needs_revision", f"{name} wants a revision")
    if word == "sleep":
        time.sleep(600)
    if word == "crash":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    codes = {"fail": 1, "depth": 2, "human": 3, "refine": 10, "escalate": 11, "timeout": 21}
    raise StrataError("TRIAL", f"{name} says {word}", exit_code=ExitCode(codes[word]))
"""


def at_a_terminal(
    house: House, tool: str, typed: list[tuple[str, str]], *flags: str, size: tuple[int, int] = (30, 100), **env: str
) -> tuple[int, str]:
    """Runs a tool in a terminal and types each answer when its question has come. Returns its code and all it showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(house.workspace)
        os.execve(sys.executable, house.argv(tool, *flags), house.env | env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    shown, read = b"", 0  # what was shown, and how much of it was answered
    try:
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break  # it has ended
            if not data:
                break
            shown += data
            if typed and typed[0][0].encode() in shown[read:]:
                read = len(shown)
                os.write(terminal, typed.pop(0)[1].encode())
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def plan(house: House, **words: str) -> None:
    """What the worker shall do: one word per attempt."""
    for name, text in words.items():
        (house.workspace / f"{name}.plan").write_text(text)


def log(house: House) -> list[str]:
    """Which workers ran, in order."""
    path = house.workspace / "log"
    return path.read_text().split() if path.exists() else []


def wait_for(condition: Any, seconds: float = 30, what: str = "the condition") -> Any:
    """Waits for something to come true; generous, because a test never depends on speed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true in {seconds} s")


def alive(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def with_marker(marker: str) -> list[int]:
    """Processes whose command line holds a text only this test uses."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if marker in line and alive(int(entry.name)) and not staff.is_staff(int(entry.name), line):
                found.append(int(entry.name))
    return found


def kill_marked(marker: str) -> None:
    for pid in with_marker(marker):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
