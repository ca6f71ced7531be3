"""Acceptance in Python: a tool that a stage names looks at what one step made, and says what is wrong with it.

The executor hands it a file, `made.json`, and reads its complaints; none is what makes the work accepted. A tool that cannot say
is not taken for one that found nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import ExitCode, Json, StrataError, is_final
from lib.disk import files, records
from lib.plan.task import Task
from lib.process import running, tools
from lib.session.documents import CheckResult
from lib.tool.call import Call

MADE = "made.json"  # in the attempt's folder
SECONDS = 600.0


class Made(Struct, frozen=True):
    """What one step made, for who accepts it."""

    task: Task
    outputs: dict[str, str]  # by name: where it is now
    cwd: str
    out: str
    result: str = ""  # the last words of the agent
    data: Any = None  # what it returned as data

    def path(self, name: str) -> Path:
        return Path(self.outputs[name])

    def text(self, name: str) -> str:
        return self.path(name).read_text(encoding="utf-8", errors="replace")

    def json(self, name: str) -> Any:
        return files.read_json(self.path(name))


def ask(call: Call, task: Task, folder: Path, out: Path, result: str, data: Any) -> tuple[CheckResult, list[str]]:
    """Has the tool look. Returns what it found as the result of a check, and its complaints."""
    words, path = task.accept, folder / MADE
    placed = {o.name: str(place) for o in task.outputs if (place := o.locate(out, call.cwd, task.target)).exists()}
    files.write_json(path, records.document(Made(task, placed, str(call.cwd), str(out), result, data)))
    script = tools.find_tool(words[0])
    argv = [*tools.tool_argv(script), *words[1:], "--made", str(path), "--output-format", "json", "--cwd", str(call.cwd)]
    env = {**call.child_env(), **tools.path_of(script)}
    reply = tools.believe(words[0], running.run(argv, env=env, timeout_seconds=SECONDS))
    complaints = reply.document.get("complaints")
    if reply.exit_code != ExitCode.SUCCESS or not isinstance(complaints, list):
        if is_final(reply.error):  # it has said so on purpose: nobody is asked again
            raise StrataError(reply.code, reply.message, "no retry helps", final=True)
        why = reply.message or "it printed no list of complaints, not even an empty one"
        raise StrataError("NOT_JUDGED", f"{' '.join(words)} could not judge the work: {why}", "look at made.json")
    found = [str(c) for c in complaints]  # type: ignore[reportUnknownVariableType]
    note = "; ".join(found)[:300] or "accepted"
    return CheckResult("accept", " ".join(words), passed=not found, errors=len(found), note=note, tail="\n".join(found)), found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Of a tool that accepts."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="what the stage says behind its name")
    parser.add_argument("--made", metavar="FILE", required=True, help="what one step made: made.json in its attempt's folder")


def answer(tool: str, made: str, look: Callable[[Made], list[str]]) -> Json:
    """For the tool: reads what was made, and returns its document."""
    found = look(records.read(Path(made), Made))
    return {"tool": tool, "status": "success", "exit_code": 0, "complaints": found}
