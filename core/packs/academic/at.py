"""One step of an academic run that Python does: what it is given, where it leaves things, and the run folder it works on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.contract import AsksPerson, Json, StrataError
from lib.disk import files
from lib.plan.task import Task
from lib.stages import rosters
from lib.tool.call import Call
from msgspec import Struct

from packs.academic import settings
from packs.academic.folder import Folder
from packs.academic.state import Waiting


class At:
    def __init__(self, call: Call, task: Task, out: Path, run: str = ".") -> None:
        self.call, self.task, self.out = call, task, out
        self.folder = Folder((call.cwd / run).resolve())
        self.warnings: list[str] = []

    def given(self, name: str) -> Any:
        """What another step left under a name; None where it is optional and not there."""
        path = self.task.input_path(name) if self.task.inputs.get(name) else None
        return files.read_json(path) if path else None

    def roster(self, name: str) -> tuple[Path, rosters.Roster]:
        path = self.task.input_path(name)
        return path.parent, rosters.read(path)

    def leave(self, name: str, document: Any) -> None:
        files.write_json(self.task.output_path(name, self.out, self.call.cwd), document)

    def path(self, name: str) -> Path:
        return self.task.output_path(name, self.out, self.call.cwd)

    def give(self, name: str, document: Any) -> None:
        self.warnings += self.folder.give(name, document)

    def say(self, phase: int, text: str, level: str = "info") -> None:
        self.folder.log(phase, level, text)

    def warn(self, phase: int, text: str) -> None:
        if text:
            self.warnings.append(text)
            self.folder.log(phase, "warning", text)

    def ask(
        self, phase: int, stage: str, question: str, choices: tuple[str, ...], show: tuple[Path, ...] = (), schema: str = ""
    ) -> AsksPerson:
        """To be raised. The state says what is waited for, so that an answer finds its way."""
        seen = tuple(str(p.relative_to(self.folder.root)) if p.is_relative_to(self.folder.root) else str(p) for p in show)
        self.folder.state.waits(Waiting(stage, phase, question, choices, seen))
        self.folder.log(phase, "waiting", question)
        return AsksPerson(question, show=show, choices=choices, answer_schema=schema)

    def done(self, note: str = "", verdict: str = "done") -> Json:
        seen = [os.path.relpath(self.folder.root / file, self.call.cwd) for file in sorted(self.folder.read)]
        return {"verdict": verdict, "note": note, "warnings": self.warnings, "read": seen}

    def settings(self) -> settings.Settings:
        """The run's own come first, then the project's, then the house's."""
        self.folder.read.add(settings.OF_RUN)
        return settings.settings(self.folder.root / settings.OF_RUN)

    def text(self, name: str) -> str:
        """A text that a parameter or another step gives; empty where it says none."""
        value = str(self.task.inputs.get(name) or "")
        return "" if value == "none" else value


class Step(Struct, frozen=True):
    """What a tool does under a name, and whose fault it is when it goes wrong."""

    phase: int
    who: str
    work: Callable[[At], Json]
    item: str = ""  # the field of the item that names it


def arguments(parser: argparse.ArgumentParser, steps: dict[str, Step]) -> None:
    parser.add_argument("action", choices=tuple(steps))
    parser.add_argument("run", help="the folder of the run")
    executor.arguments(parser)


def run_step(call: Call, steps: dict[str, Step]) -> Json:
    """The whole of a tool that does one of these steps."""
    action, run = call.options.action, call.options.run

    def work(task: Task, out: Path) -> Json | Verdict:
        return carry_out(At(call, task, out, run), steps[action])

    return executor.run_function(
        call, f"academic-{action}", executor.read_task(call, Task(action=action.upper(), target=run)), work
    )


def carry_out(at: At, step: Step) -> Json | Verdict:
    """Does the work of one step, and writes what went wrong into the state of the run before it is told to anybody else."""
    try:
        return step.work(at)
    except AsksPerson:
        raise
    except StrataError as error:
        item = str(at.task.item[step.item]) if step.item and at.task.item else step.who
        if not step.item:
            at.folder.state.phase(step.phase, "failed")
        count = at.folder.state.failed(step.phase, step.who, item, f"{error.code}: {error.message}")
        at.folder.log(step.phase, "error", f"{step.who}, {item}: {error.code}: {error.message} (try {count + 1})")
        raise
    except OSError as error:
        raise full(error) from error


def full(error: OSError) -> Exception:
    """A full disk stops everything at once; other errors are what they are."""
    import errno

    from lib.contract import ExitCode

    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    return StrataError("DISK_FULL", f"the disk is full: {error}", "make room, and resume", ExitCode.NEEDS_ESCALATION, final=True)
