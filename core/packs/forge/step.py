"""One step of Forge that Python does: what it is given, what it leaves, and the memory it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lib.contract import Json
from lib.disk import files, records
from lib.plan.task import Task
from lib.session.documents import Section
from lib.tool.call import Call
from msgspec import Struct

from packs.forge import memory
from packs.forge.artifacts import Artifacts

RESEARCH, SPEC, DESIGN, PLAN, _, VERIFY, REVIEW = range(1, 8)  # as entries in the memory name them; 5 is the building


class Step(Struct, frozen=True):
    call: Call
    task: Task
    out: Path
    words: tuple[str, ...]  # behind the verb
    said: list[str]  # warnings, as they come up

    @property
    def session(self) -> Path:
        return self.call.session.folder

    @property
    def folder(self) -> Path:
        """Where the artifacts of the feature stand in the repository."""
        return self.call.cwd / "docs/feature" / self.task.target

    @property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.session, self.folder)

    def text(self, name: str) -> str:
        return self.task.input_path(name).read_text(encoding="utf-8")

    def data(self, name: str) -> Any:
        return json.loads(self.text(name))

    def given(self, name: str) -> bool:
        return name in self.task.inputs

    def write(self, path: str, text: str) -> None:
        self.said.extend(self.artifacts.write(path, text if text.endswith("\n") else f"{text}\n"))

    def leave(self, name: str, document: Json) -> None:
        """Typed data, for the stages behind."""
        files.write_json(self.out / name, document)

    def tell(self, section: Section) -> None:
        """For whoever reads the report of the run."""
        self.leave("section.json", records.document(section))

    def end(self, step: int, agent: str = "", notes: memory.Notes | None = None) -> tuple[str, ...]:
        """Remembers, prunes, and writes memory.md. Returns all there is to warn of."""
        if notes:
            memory.remember(self.session, notes, agent, step)
        memory.prune(self.session, step)
        self.said.extend(memory.damaged(self.folder))
        self.write(memory.FILE, memory.render(self.session))
        self.said.extend(self.artifacts.foreign())
        return tuple(dict.fromkeys(self.said))
