"""The name of a piece of work. Folders, signals, events and fixtures all follow it."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from lib.contract import usage
from lib.disk import files

_ROUND = re.compile(r"round-(\d+)")


class Step(Struct, frozen=True):
    """`phase/orchestrator/stage/round/item`."""

    phase: str = ""
    orchestrator: str = ""
    stage: str = ""
    round: int = 0  # 0: the stage is in no loop
    item: str = ""

    @staticmethod
    def parse(text: str) -> Step:
        parts = text.split("/")
        if len(parts) != 5 or not parts[3].isdigit() or any(p != "_" and not files.is_safe(p) for p in parts):
            usage(f"--step must look like phase/orchestrator/stage/round/item, not {text!r}")
        phase, orchestrator, stage, number, item = ("" if p == "_" else p for p in parts)
        return Step(phase, orchestrator, stage, int(number), item)

    def __str__(self) -> str:
        return "/".join((self.phase or "_", self.orchestrator or "_", self.stage or "_", str(self.round), self.item or "_"))

    @staticmethod
    def of_folder(folder: Path) -> Step:
        """The step whose folder this is, seen from the session."""
        parts = list(folder.parts)
        at = parts.index("stages")
        phase = parts[1] if parts[0] == "phases" else ""
        head = parts[2 if phase else 0 : at]
        stage, *rest = parts[at + 1 :]
        number = _ROUND.fullmatch(rest[0]) if rest else None
        rest = rest[1:] if number else rest
        return Step(phase, head[0] if head else "", stage, int(number[1]) if number else 0, rest[0] if rest else "")

    @property
    def place(self) -> int:
        """Where its stage stands among the others."""
        number = self.stage.partition("-")[0]
        return int(number) if number.isdigit() else 0

    @property
    def slug(self) -> str:
        """For a flat namespace. Two steps never share one: names hold no dots, no item is called round-n, and in
        an orchestrator only a stage starts with a digit."""
        parts = (self.phase, self.orchestrator, self.stage, f"round-{self.round}" if self.round else "", self.item)
        return ".".join(p for p in parts if p)

    @property
    def folder(self) -> Path:
        folder = self.home / "stages" / self.stage
        if self.round:
            folder /= f"round-{self.round}"
        return folder / self.item if self.item else folder

    @property
    def home(self) -> Path:
        """The folder of the orchestrator this step belongs to."""
        folder = Path("phases") / self.phase if self.phase else Path()
        return folder / self.orchestrator if self.orchestrator else folder

    @property
    def artifacts(self) -> Path:
        """Where finished outputs are published: the same place whichever attempt made them, another one per round."""
        folder = (Path("phases") / self.phase if self.phase else Path()) / "artifacts"
        parts = (self.orchestrator, self.stage, f"round-{self.round}" if self.round else "", self.item)
        return folder.joinpath(*(p for p in parts if p))


def bare_step(stage: str) -> Step:
    return Step(stage=files.safe_name(stage))


def in_runs(session: Path, name: str) -> list[Path]:
    """A file of that name in every run of the session itself. What agents write stands below `workspace`, and is no run's."""
    return sorted(path for path in session.glob(f"*/{name}") if path.parent.name != "workspace")
