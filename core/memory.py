# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: what a run remembers, and agents read first. `uv run core/memory.py render --session-dir DIR`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files
from lib.plan.task import Task
from lib.session.memory import MOST_NOTES, Memory, Note
from lib.session.step import Step

TOOL = Tool(
    "memory",
    layer=1,
    summary="Note, invalidate, prune or render what a run remembers.",
    example='uv run core/memory.py note decision "Sessions are kept in SQLite" --session-dir sessions/mine',
)
VERBS = ("note", "invalidate", "prune", "render")


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("verb", choices=VERBS, help="note KIND TEXT; invalidate WHICH WHY (an id, a kind, or who noted it); prune [N]; render")
    add("words", nargs="*", metavar="WORD")
    executor.arguments(parser)


def main(call: Call) -> Json:
    verb, words = call.options.verb, call.options.words
    if verb in ("note", "invalidate") and len(words) != 2:
        usage(f"memory.py {verb} takes two words, not {len(words)}", f"{verb} {'KIND TEXT' if verb == 'note' else 'WHICH WHY'}")
    if verb == "prune" and words and not words[0].isdecimal():
        usage(f"prune to how many? {words[0]!r} is no number", "prune 100")

    if not call.options.task and call.options.session_dir:  # by hand: a look at a run is no step of it
        folder = Path(call.options.session_dir).resolve()
        if not folder.is_dir():
            usage(f"--session-dir {call.options.session_dir}: there is no such session", "session.py list shows those there are")
        said = done(Memory(folder), verb, words, "by hand")
        return {"tool": "memory", "status": "success", "exit_code": 0, **said, "text": said["memory"] or "nothing is noted"}

    def work(task: Task, out: Path) -> Json:
        by = Step.parse(call.options.step).stage.partition("-")[2] if call.options.step else ""
        said = done(Memory(call.session.folder), verb, words, by)
        for output in task.outputs:
            files.write_atomic(output.locate(out, call.cwd, task.target), f"{said['memory'] or 'Nothing is noted.'}\n")
        return {"verdict": "done", **said}

    return executor.run_function(call, "memory", executor.read_task(call, Task(action=verb.upper())), work)


def done(memory: Memory, verb: str, words: list[str], by: str) -> Json:
    said: Json = {}
    if verb == "note":
        said["noted"] = memory.note(words[0], words[1], by).id
    elif verb == "invalidate":
        said["invalidated"] = memory.invalidate(lambda note: _is(note, words[0]), words[1])
    elif verb == "prune":
        said["pruned"] = memory.prune(int(words[0]) if words else MOST_NOTES)
    return said | {"memory": memory.render()}


def _is(note: Note, which: str) -> bool:
    return which in (str(note.id), note.kind, note.by)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
