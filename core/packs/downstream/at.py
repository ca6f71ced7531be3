"""One step of a downstream run, or of the research before it, that Python does: what it is given, and where it leaves things."""

from __future__ import annotations

from pathlib import Path

from lib.cli import Call
from lib.disk import files
from lib.plan.task import Task
from msgspec import Struct


class At(Struct, frozen=True):
    call: Call
    task: Task
    out: Path
    words: tuple[str, ...]

    @property
    def session(self) -> Path:
        return self.call.session.folder

    def text(self, name: str) -> str:
        return str(self.task.inputs[name])

    def leave(self, name: str, document: object) -> None:
        files.write_json(self.task.output_path(name, self.out, self.call.cwd), document)
