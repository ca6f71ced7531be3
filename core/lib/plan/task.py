"""What an executor is asked to do: the record that travels from an orchestrator to it, and the prompt made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lib.contract import Json, StrataError, usage
from lib.disk import files, records


class Output(Struct, frozen=True):
    """A file (or, with a trailing slash, a folder) that must be there afterwards."""

    name: str
    path: str
    schema: str = ""
    place: str = "session"  # session: in the attempt, published when verified; workspace: in the folder worked in
    optional: bool = False
    about: str = ""
    unchanged: bool = False  # of one in the workspace: it may be as it was before

    def locate(self, out: Path, cwd: Path, target: str) -> Path:
        relative = self.path.replace("{target}", target)
        return files.below(out if self.place == "session" else cwd, relative, f"the output {self.name}")


class Limits(Struct, frozen=True):
    """What bounds one attempt. A setting that is added here can be given in a stage, and travels to the executor by itself."""

    timeout_seconds: float = 600.0
    stall_timeout: float | None = None  # seconds without a word from the agent
    model: str = ""
    self_heal: bool = False
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_uses: dict[str, int] = {}  # by tool: how often it may be called
    needs: tuple[str, ...] = ()  # labels of the machine it runs on


NO_LIMITS = Limits()


class Task(Struct, frozen=True):
    action: str = ""
    target: str = ""
    extra: tuple[str, ...] = ()
    inputs: dict[str, Any] = {}  # name → path, list of paths, or text
    outputs: tuple[Output, ...] = ()
    item: Any = None
    fingerprint: str = ""
    made_of: dict[str, str] = {}  # the parts of the fingerprint, by name
    consumed: dict[str, str] = {}  # files of the workspace it reads, with their hashes
    kind: str = "first"  # first, retry or rerun
    told: str = ""  # a digest of what it is told besides, by a resolution
    scope: tuple[str, ...] | None = None  # globs of the working folder it may write; narrows the definition's own; None: as that
    isolation: str = ""  # worktree: the folder it works in is its own
    protect: tuple[str, ...] = ()  # globs of what judges this work: a change there is undone, and is not a success

    accept: tuple[str, ...] = ()  # a tool and its words: it looks at what was made, and says what is wrong with it
    answer: Any = None  # what a person answered to what this very task asked
    limits: Limits = NO_LIMITS
    context: tuple[str, ...] = ()  # files that are told besides
    reads: tuple[str, ...] = ()  # folders the context speaks of
    memory: str = ""  # what the run remembers, which is no part of what the work is made of
    checks: str = ""  # where named checks are defined

    def document(self) -> Json:
        return records.document(self)

    @staticmethod
    def read(path: Path) -> Task:
        return records.read(path, Task)

    def input_path(self, name: str) -> Path:
        value = self.inputs.get(name)
        if not isinstance(value, str):
            raise StrataError("MISSING_INPUT", f"this task needs one input called {name!r}", f"--input {name}=PATH")
        return Path(value)

    def input_paths(self, name: str) -> list[Path]:
        value = self.inputs.get(name, [])
        return [Path(p) for p in cast(list[str], [value] if isinstance(value, str) else value)]

    def output_path(self, name: str, out: Path, cwd: Path) -> Path:
        for output in self.outputs:
            if output.name == name:
                return output.locate(out, cwd, self.target)
        usage(f"this task declares no output called {name!r}", f"--output {name}=PATH")


def compose(agent: str, task: Task, out: Path, cwd: Path, completion: str, structured: str) -> str:
    """The prompt: what to do, with what, and what must be there afterwards. Who and how are the system prompt's."""
    words = [f"/{agent}", task.action, task.target, *task.extra]
    parts = [" ".join(w for w in words if w)]
    parts.append(f"Working folder: {cwd}")
    if task.memory:
        words = "What this run knows so far. Where you rely on it, look at the files it speaks of."
        parts.append(f"## Memory\n\n{words}\n\n{task.memory}")
    if task.item is not None:
        parts.append("## Item\n\n```json\n" + _pretty(task.item) + "\n```")
    if task.inputs:
        parts.append("## Inputs\n\n" + "\n".join(_input_lines(task.inputs)))
    written = [o for o in task.outputs if o.name != structured]
    if written:
        lines = [_output_line(o, o.locate(out, cwd, task.target)) for o in written]
        parts.append(
            "## Outputs\n\nWrite exactly these files, complete, and check each one before you finish:\n\n" + "\n".join(lines)
        )
    parts.append("## Finish\n\n" + _finish(task, completion, structured))
    return "\n\n".join(parts) + "\n"


def _pretty(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def _input_lines(inputs: Json) -> list[str]:
    lines: list[str] = []
    for name, value in inputs.items():
        if isinstance(value, list):
            lines.append(f"- {name}:" if value else f"- {name}: none")
            lines += [f"  - {entry}" for entry in cast(list[Any], value)]
        else:
            lines.append(f"- {name}: {value if value != '' else 'none'}")
    return lines


def _output_line(output: Output, path: Path) -> str:
    notes = [n for n in (output.about, f"JSON, schema `{output.schema}`" if output.schema else "") if n]
    if output.optional:
        notes.append("only if there is something to say")
    return f"- {output.name}: {path}" + (f" ({'; '.join(notes)})" if notes else "")


def _finish(task: Task, completion: str, structured: str) -> str:
    if structured:
        return "Return the structured result. Nothing outside it is read."
    if completion == "cluster":
        return (
            "End with one line, and nothing after it:\n\n"
            "- `DONE: <one sentence>` when the work is complete\n"
            "- `NEEDS_REVISION: <what has to change>` when what you were given must be revised first\n"
            "- `ERROR: <reason>` when you could not do it"
        )
    return (
        "End with one line, and nothing after it:\n\n"
        f"- `STAGE_{task.action or 'TASK'}_COMPLETE` when every output is in place\n"
        "- `STAGE_FAILED: <reason>` when it is not"
    )


def prepare_for_forks() -> None:
    records.prepare(Task)
