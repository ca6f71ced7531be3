"""Calling a tool of the layer below: finding it, starting it the cheapest way there is, and believing it only as far as it
agrees with itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from lib import names
from lib.contract import CORE, HANDING_OVER, STATUS, ExitCode, Json, StrataError, nearest, part
from lib.disk import lenient, places
from lib.process import processes, running
from lib.process.backend import Finished, Status, ToolCall

_LAYER = re.compile(r"^TOOL = Tool\(.*?\blayer=(\d)", re.M | re.S)
SILENT_SECONDS = 900.0  # a tool says something every half minute; one that is silent for so long is stopped or stuck


class Summary(Struct, frozen=True):
    exit_code: int | None = None


class Made(Struct, frozen=True):
    """An output that an executor lists."""

    output: str = ""
    path: str = ""


RESUMES = 3  # from this layer up, calling a tool again resumes what it was doing
BROKE = tuple(-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))


class Said(Struct, frozen=True):
    """What of a tool's document other layers read."""

    exit_code: int | None = None
    status: str = ""
    grade: str = ""
    sentinel_grade: str = ""
    note: str = ""
    warnings: tuple[str, ...] = ()
    waiting: Json = {}
    rejected: Json = {}
    outputs: tuple[Made, ...] = ()
    summary: Summary = Summary()


class ToolResult(Struct, frozen=True):
    """What a child tool said: its code, and the document that agrees with it."""

    exit_code: ExitCode
    document: Json
    handed: dict[str, str] = {}  # by attempt: the hash of the outcome it was about to write

    @property
    def error(self) -> Json | None:
        return self.document.get("error")

    @property
    def code(self) -> str:
        return part(self.error, "code")

    @property
    def message(self) -> str:
        return part(self.error, "message")

    @property
    def said(self) -> Said:
        """What of the document other layers read."""
        return lenient.of(self.document, Said)

    @property
    def status(self) -> str:
        return self.said.status

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.said.warnings

    @property
    def waiting(self) -> Json:
        """What a person is asked; nothing where nobody is."""
        return self.said.waiting

    @property
    def grade(self) -> str:
        return self.said.sentinel_grade or self.said.grade

    def output(self, name: str) -> Path | None:
        """Of an executor: where the output of this name is."""
        return next((Path(entry.path) for entry in self.said.outputs if entry.output == name), None)


@cache
def inline_block(script: Path) -> str | None:
    lines = script.read_text(encoding="utf-8").splitlines()
    if "# /// script" not in lines:
        return None
    start = lines.index("# /// script")
    return "\n".join(lines[start : lines.index("# ///", start + 1) + 1])


@cache
def layer_of(script: Path) -> int | None:
    """The layer a tool declares, read from its source so that calling a tool never imports it."""
    found = _LAYER.search(script.read_text(encoding="utf-8"))
    return int(found[1]) if found else None


def find_tool(name: str) -> Path:
    """Ours, or one that the user brings. None of theirs stands in the place of one of ours."""
    found = places.find("tool", name.removesuffix(".py")) if name.endswith(".py") else None
    if not found:
        known = sorted(f"{f.name.rpartition('/')[2]}.py" for f in places.every("tool"))
        raise StrataError("UNKNOWN_TOOL", f"there is no tool {name!r}", nearest(name, known, "the tools are"))
    return found.file


def check_layer(caller: int, script: Path, judgement: bool) -> None:
    layer = layer_of(script)
    allowed = layer is not None and (layer == caller - 1 or (judgement and caller >= 2 and layer == 1))
    if not allowed:
        raise StrataError(
            "LAYER_VIOLATION",
            f"a tool of layer {caller} may not call {script.name} (layer {layer})",
            "a tool calls only the layer directly below; from layer 2 up also one executor for a single judgement",
        )


def tool_argv(script: Path) -> list[str]:
    """With our own interpreter where it was made for the same inline block, otherwise through uv."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    block = inline_block(script)
    if main and block and inline_block(Path(main).resolve()) == block:
        return [sys.executable, str(script)]
    uv = os.getenv("UV") or shutil.which("uv")
    if not uv:
        raise StrataError("UV_MISSING", "uv is not on the PATH", "pip install uv")
    return [uv, "run", "--quiet", str(script)]


def call_tool(
    caller_layer: int,
    name: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    timeout_seconds: float | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    judgement: bool = False,
    needs: tuple[str, ...] = (),
) -> ToolResult:
    """Calls a tool of the layer below and returns what it said, if that can be believed. `needs`: labels of the machine it runs
    on, where that may be another one."""
    script = find_tool(name)
    check_layer(caller_layer, script, judgement)
    ours = ToolCall(script.name, layer_of(script) or 0, tuple(arguments), needs) if script.parent == CORE else None
    handed: dict[str, str] = {}

    def hear(line: str) -> None:
        told = hand_over(line)
        if told:
            handed.update(told)
        else:
            on_line(line)

    def once() -> Finished:
        return running.run(
            [*tool_argv(script), *arguments],
            env={**env, names.CALLER: "tool", **path_of(script)},
            stdin=stdin,
            timeout_seconds=timeout_seconds,
            grace=processes.grace_seconds(caller_layer),
            on_line=hear,
            silence_seconds=SILENT_SECONDS,
            tool=ours,
        )

    finished = once()
    if caller_layer >= RESUMES and finished.exit_code in BROKE and not processes.stopping.is_set():
        on_line(json.dumps({"event": "crashed", "tool": name, "signal": -finished.exit_code, "does": "it is called once more"}))
        finished = once()  # the interpreter broke: what it had finished is not done again, and costs nothing
    if finished.status is Status.LOST:
        error = {
            "code": "LOST",
            "message": f"nobody knows what became of {name}{f': {finished.tail}' if finished.tail else ''}",
            "hint": "resume: what it finished is not done again",
        }
        return ToolResult(ExitCode.FAILURE, {"status": "failure", "exit_code": 1, "error": error}, handed)
    if finished.timed_out:
        long = (
            f"nothing was heard of {name} for {SILENT_SECONDS:g} s"
            if finished.silent
            else f"{name} still ran after {timeout_seconds or 0:g} s"
        )
        error = {
            "code": "SILENT" if finished.silent else "TIMEOUT",
            "message": f"{long}, and it was stopped",
            "hint": "look at what it was doing in its attempt folder",
        }
        return ToolResult(ExitCode.TIMEOUT, {"status": STATUS[ExitCode.TIMEOUT], "exit_code": 21, "error": error}, handed)
    return replace(believe(name, finished), handed=handed)


def path_of(script: Path) -> dict[str, str]:
    """A tool that the user brings stands elsewhere than the library."""
    return {} if script.parent == CORE else {"PYTHONPATH": str(CORE)}


def hand_over(line: str) -> dict[str, str]:
    """Of such a line: which attempt, and the hash of its outcome."""
    if not line.startswith(HANDING_OVER):
        return {}
    try:
        told = json.loads(line)
        return {str(told["attempt"]): str(told["sha256"])}
    except (ValueError, KeyError):
        return {}


def prepare_for_forks() -> None:
    lenient.prepare(Said)


def believe(name: str, finished: Finished) -> ToolResult:
    """A child's code counts only when its document says the same."""
    try:
        document = json.loads(finished.stdout)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        said = cast(Json, document)
        known = lenient.of(said, Said)
        claimed = known.exit_code if "exit_code" in said else known.summary.exit_code
        if claimed == finished.exit_code and claimed in STATUS:
            return ToolResult(ExitCode(claimed), said)
        claimed = said.get("exit_code", claimed)  # whatever that may be
        reason = f"{name} exited with {finished.exit_code} but its document says {claimed!r}"
    elif finished.exit_code < 0:
        known = {s.value: s.name for s in signal.Signals}
        reason = f"{name} was killed by {known.get(-finished.exit_code, f'signal {-finished.exit_code}')}"
    else:
        reason = f"{name} exited with {finished.exit_code} and printed no document"
    error = {
        "code": "CHILD_CRASHED",
        "message": reason,
        "hint": "the end of its stderr is in `stderr`; run it by hand to see more",
        "stderr": finished.tail,
    }
    return ToolResult(ExitCode.FAILURE, {"status": "failure", "exit_code": 1, "error": error})
