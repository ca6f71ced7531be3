"""The engine in one process: the layers above the executors as they are, with tools called as functions instead of processes.

Thousands of generated campaigns can be run this way. A kill is an exception that no code catches, at a chosen durable write; from
then on nothing is written any more, as if the process were gone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from lib.attempt import checks, executor
from lib.contract import LAYER_NAMES, ExitCode, StrataError
from lib.disk import files
from lib.plan.task import Task
from lib.process import processes, tools
from lib.process.tools import ToolResult
from lib.session import events, ledger, signals
from lib.session import folder as session
from lib.session.documents import CheckResult
from lib.session.folder import Session
from lib.session.outcome import VERSION
from lib.tool import edge
from lib.tool.call import Call, Tool
from lib.tool.depth import Depth
from lib.workspace import history
from msgspec.structs import replace
from support import CORE

Work = Callable[[Task, Path, Call], Any]


class Killed(BaseException):
    """kill -9: nothing catches it, and nothing is written behind it."""


class Points:
    """Counts durable writes, and ends the world at one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.kill_at = 0
        self.dead = False
        self.beating: set[Path] = (
            set()
        )  # what works at the moment gives a sign of life at every point, instead of every half second
        self._lock = threading.Lock()

    def reach(self) -> None:
        with self._lock:
            self.count += 1
            for path in self.beating if not self.dead else ():
                os.utime(path)
            if self.count == self.kill_at:
                self.dead = True
            if self.dead:
                raise Killed

    def begin(self, kill_at: int = 0) -> None:
        self.count, self.kill_at, self.dead = 0, kill_at, False
        self.beating.clear()


class Beat:
    def __init__(self, path: Path) -> None:
        self.path = path
        points.beating.add(path)

    def stop(self) -> None:
        points.beating.discard(self.path)


points = Points()
_handed = threading.local()


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"oracle_{name}", CORE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOLS = {name: _module(name) for name in ("campaign", "coordinator", "orchestrator", "sentinel", "check")}
WORKER = Tool("worker", layer=1, summary="", example="")


def _options(tool: Tool, arguments: Callable[[Any], None], words: Sequence[str]) -> Any:
    return edge._parser(tool, arguments).parse_args(list(words))


def _worker_arguments(parser: Any) -> None:
    parser.add_argument("words", nargs="*")
    executor.arguments(parser)


def call_for(name: str, words: Sequence[str], cwd: Path) -> tuple[Call, Callable[[Call], Any]]:
    tool = WORKER if name == "worker" else TOOLS[name].TOOL
    arguments = _worker_arguments if name == "worker" else TOOLS[name].arguments
    options = _options(tool, arguments, words)
    made = Call(tool, options, Depth(0, 3), options.driver or "live", Path(options.cwd or cwd), tool.name, "0" * 16, None)
    return made, TOOLS[name].main if name in TOOLS else lambda call: None


class Engine:
    """One world: what the worker does, and which tool calls came."""

    def __init__(self, work: Work, script: Path, cwd: Path) -> None:
        self.work = work
        self.script = script
        self.cwd = cwd

    def run(self, name: str, *words: str, kill_at: int = 0) -> ToolResult | None:
        """None: it was killed."""
        points.begin(kill_at)
        with self._patched():
            try:
                done = self._call(0, f"{name}.py", words)
                assert "session_dir" in done.document, done.document
                Session(Path(done.document["session_dir"]), None).say_ended()
                return done
            except Killed:
                return None

    def _call(self, _layer: int, name: str, words: Sequence[str], **_: Any) -> ToolResult:
        stem = name.removesuffix(".py")
        handed: dict[str, str] = {}
        before = getattr(_handed, "table", None)
        _handed.table = handed
        try:
            call, main = call_for(stem, words, self.cwd)
            document = self._work(call) if stem == "worker" else main(call)
        except StrataError as error:
            document = edge.error_document(Tool(stem, 0, "", ""), error)
        finally:
            _handed.table = before
        document = json.loads(json.dumps(document))
        code = document.get("exit_code", document.get("summary", {}).get("exit_code"))
        return ToolResult(ExitCode(code), document, handed)

    def _work(self, call: Call) -> Any:
        task = executor.read_task(call, Task(action="TRY"))
        return executor.run_function(call, "worker", task, lambda task, out: self.work(task, out, call), clock=False)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        def write_atomic(path: Path, data: str | bytes, mode: int | None = None) -> None:
            points.reach()
            real_write(path, data, mode)

        def open_session(call: Call, topic: str, label: str) -> Session:
            call._session = Session(Path(call.options.session_dir), None)
            call._session.folder.mkdir(parents=True, exist_ok=True)
            (call._session.folder / session.FORMAT).write_text(f"{VERSION}\n")
            call.label = label
            signals.clear(call._session.folder, LAYER_NAMES[call.tool.layer], label)
            return call._session

        def next_number(this: Session) -> int:
            points.reach()
            with numbers:
                path = this.folder / session.NUMBERS
                count = path.stat().st_size + 1 if path.exists() else 1
                path.write_bytes(b"." * count)
                return count

        def run_check(check: Any, cwd: Path, evidence: Path) -> Any:
            points.reach()
            bad = sorted(p.name for p in cwd.iterdir() if p.is_file() and "BAD" in p.read_text())
            evidence.mkdir(parents=True, exist_ok=True)
            output = evidence / f"{check.name}.log"
            output.write_text(str(bad))
            found = CheckResult(check.name, "x", passed=not bad, errors=len(bad), output=output.name)
            return replace(found, output_sha256=files.sha256(output))

        real_write = files.write_atomic
        numbers = threading.Lock()
        quiet = {
            "show": lambda event: None,
            "hand_over": lambda attempt, sha256, path: _handed.table.update({attempt: sha256}),
        }
        find_tool, layer_of = tools.find_tool, tools.layer_of
        with (
            mock.patch.object(files, "write_atomic", write_atomic),
            mock.patch.object(files, "_sync_folder", lambda folder: None),
            mock.patch.object(files.os, "fsync", lambda descriptor: None),
            mock.patch.object(Session, "next_number", next_number),
            mock.patch.object(Call, "open_session", open_session),
            mock.patch.object(Call, "call", lambda call, tool, words, **o: self._call(0, tool, [*call.child_flags(), *words])),
            mock.patch.object(tools, "find_tool", lambda n: self.script if n == "worker.py" else find_tool(n)),
            mock.patch.object(tools, "layer_of", lambda p: 1 if p == self.script else layer_of(p)),
            mock.patch.object(history, "Beat", Beat),
            mock.patch.object(processes, "called_by_tool", True),
            mock.patch.object(checks, "run", run_check),
            mock.patch.object(checks, "git_state", lambda cwd: {}),
            mock.patch.object(events, "write_live_report", lambda *a, **k: None),
            mock.patch.multiple(events, **quiet),
            mock.patch.object(ledger.Ledger, "begin_run", lambda ledger, **_: None),
            mock.patch.object(processes, "stopping", threading.Event()),
        ):
            yield
