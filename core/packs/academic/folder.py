"""The run folder: what one phase hands over to the next, as files that people may read and edit in between.

`give` is the only way in: it goes through the gate, and is atomic. `take` is the only way out: no phase begins
with what is missing or broken, and it is said which phase owes it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lib.contract import Json, StrataError
from lib.disk import files, locks, records
from lib.disk.clock import now
from lib.disk.redact import redact
from msgspec import Struct

from packs.academic import gate
from packs.academic.state import PHASES, Keeper

LAYOUT = ("config", "metadata", "downloads", "outputs", "logs")
RELEASED = "config/released.json"  # digests of texts that a person lets out of quarantine
QUARANTINE = "logs/quarantine"
GIVEN = "logs/given.json"  # by file: the digest of what was given last; what differs from it a person has changed
CONFIG = "run_config"
CONTEXT = "_Config.md"  # behind the name of the project
CONTEXT_BEGINS = "## Context"
CONTEXT_ASKS = (
    "Write below what an agent should know besides the question: the chapter that it is for, what you know already, which words\n"
    "your field uses, what does not count. Agents read it before they choose search strings."
)


class Handover(Struct, frozen=True):
    file: str
    phase: int | None  # who owes it; None: setup

    @property
    def owner(self) -> str:
        return "setup" if self.phase is None else f"phase {self.phase} ({PHASES[self.phase]})"


HANDOVERS = {
    CONFIG: Handover("config/run_config.json", None),
    "databases": Handover("metadata/databases.json", 0),
    "search_strings": Handover("metadata/search_strings.json", 1),
    "candidates": Handover("metadata/candidates.json", 2),
    "ranked_candidates": Handover("metadata/ranked_candidates.json", 3),
    "downloads": Handover("downloads/downloads.json", 4),
    "quotes": Handover("outputs/quotes.json", 5),
    "rejected_quotes": Handover("outputs/rejected_quotes.json", 5),
    "quote_library": Handover("outputs/quote_library.json", 6),
}


def add_line(path: Path, line: str) -> None:
    """To a log that several write to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(path) as log:
        os.write(log, redact(line).encode())


class Folder:
    """Of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = Keeper(root)
        self.read: set[str] = set()  # what was looked at: an edit of it has the step done again

    def make(self) -> None:
        for name in LAYOUT:
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.root / HANDOVERS[name].file

    def take(self, name: str, for_phase: int) -> Json:
        """What a phase was handed, as it stands now."""
        handover = HANDOVERS[name]
        self.read.add(handover.file)
        path = self.root / handover.file
        what = f"phase {for_phase} ({PHASES[for_phase]}) needs {handover.file}"
        if not path.is_file():
            self.log(for_phase, "failed", f"{handover.file} is not there")
            raise StrataError("MISSING_HANDOVER", f"{what}, which does not exist", f"{handover.owner} owes it", final=True)
        try:
            document = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise StrataError(
                "BAD_HANDOVER", f"{what}, which is not JSON: {error}", f"{handover.owner} owes it", final=True
            ) from None
        edited = self._note_edit(handover.file)
        gated = gate.passed(document, name, self.released(), by_person=handover.phase is None)
        self._quarantine(handover.file, gated)
        if gated.problems:
            by = "it was edited since: correct it there" if edited else f"{handover.owner} owes it"
            listed = "; ".join(gated.problems[:5])
            self.log(for_phase, "failed", f"{handover.file}: {listed}")
            raise StrataError(
                "BAD_HANDOVER",
                f"{what}, which breaks its contract: {listed}",
                by,
                detail={"problems": list(gated.problems)},
                final=True,
            )
        return gated.document

    def give(self, name: str, document: Any) -> list[str]:
        """Hands a document over. Returns what there is to say about it."""
        handover = HANDOVERS[name]
        document = json.loads(files.as_written(document))  # as whoever takes it will read it
        gated = gate.passed(document, name, self.released(), by_person=handover.phase is None)
        (self.root / QUARANTINE / Path(handover.file).name).unlink(missing_ok=True)  # what it held was of another text
        self._quarantine(handover.file, gated)
        cleaned = gated.require(handover.file, handover.owner)
        if cleaned != document:  # the original, beside what is used
            files.write_json(self.root / "logs/originals" / Path(handover.file).name, document)
        return [*gated.warnings, *self.put(handover.file, files.as_written(cleaned))]

    def put(self, file: str, data: bytes) -> list[str]:
        """Writes a file. One that a person has edited is not lost: it stays if nothing else is new, else it is kept aside."""
        path, new = self.root / file, files.digest_bytes(data)
        given = self._given()
        there = files.digest_bytes(path.read_bytes()) if path.is_file() else ""
        said: list[str] = []
        if there and there not in (given.get(file), new):  # somebody else's: edited since, or there before
            if given.get(file) == new:
                return [f"{file} was edited by hand, and stays"]
            aside = self.keep_aside(path)
            self.state.edited(file, str(aside.relative_to(self.root)))
            said.append(f"{file} was edited by hand, and is made anew: the edited one is {aside.relative_to(self.root)}")
        if there != new:
            files.write_atomic(path, data)
        files.write_json(self.root / GIVEN, self._given() | {file: new})
        return said

    def write_context(self, project: str, said: str) -> Path:
        """A page for what agents should know besides the question. One that is there is a person's, and stays."""
        path = self.root / f"config/{files.safe_name('_'.join(project.split()))}{CONTEXT}"
        if not path.exists():
            files.write_atomic(path, f"# {project}\n\n{CONTEXT_ASKS}\n\n{CONTEXT_BEGINS}\n\n{said}\n".encode())
        return path

    def context(self) -> str:
        """What a person has written there."""
        said: list[str] = []
        for path in sorted((self.root / "config").glob(f"*{CONTEXT}")):
            self.read.add(f"config/{path.name}")
            written = path.read_text(encoding="utf-8", errors="replace")
            _, begun, rest = written.partition(CONTEXT_BEGINS)
            said.append(rest if begun else written)
        return "\n\n".join(text for one in said if (text := one.strip()))[:20_000]

    def released(self) -> frozenset[str]:
        self.read.add(RELEASED)
        path = self.root / RELEASED
        if not path.is_file():
            return frozenset()
        try:
            return frozenset(str(one) for one in json.loads(path.read_bytes())["released"])
        except (ValueError, KeyError, TypeError):
            hint = '{"released": ["the first 12 digits, or all of them"]}'
            raise StrataError("BAD_HANDOVER", f"{RELEASED} is not what it should be", hint, final=True) from None

    def held(self, name: str) -> list[str]:
        """What is to be said at a checkpoint about texts of a handover that nobody reads until a person has."""
        path = self.root / QUARANTINE / Path(HANDOVERS[name].file).name
        count = len(files.read_json(path)["quarantined"]) if path.is_file() else 0
        return [f"{count} text{'s are' if count > 1 else ' is'} in quarantine: {QUARANTINE}/{path.name}."] if count else []

    def is_edited(self, name: str) -> bool:
        """Whether a handover is another one than was given last."""
        file = HANDOVERS[name].file
        path = self.root / file
        return path.is_file() and self._given().get(file) != files.digest_bytes(path.read_bytes())

    def log(self, phase: int, level: str, text: str) -> None:
        """A line in the log of a phase."""
        line = f"{now()} {level:8} {' '.join(text.split())}\n"
        path = self.root / f"logs/phase_{phase}.log"
        add_line(path, line)

    def _note_edit(self, file: str) -> bool:
        """Whether a person has changed it since it was given; said once for each version."""
        given, path = self._given(), self.root / file
        now_ = files.digest_bytes(path.read_bytes())
        if file not in given or given[file] == now_:
            return False
        if given.get(f"{file} as edited") != now_:
            files.write_json(self.root / GIVEN, given | {f"{file} as edited": now_})
            self.state.edited(file)
        return True

    def _given(self) -> dict[str, str]:
        path = self.root / GIVEN
        return files.read_json(path) if path.is_file() else {}

    def keep_aside(self, path: Path) -> Path:
        """A copy of what a person wrote, before it is written anew."""
        number = 1
        while (aside := path.with_name(f"{path.stem}.edited-{number}{path.suffix}")).exists():
            number += 1
        files.write_atomic(aside, path.read_bytes())
        return aside

    def _quarantine(self, file: str, gated: gate.Gated) -> None:
        if gated.quarantined:
            held = [records.document(q) for q in gated.quarantined]
            files.write_json(self.root / QUARANTINE / Path(file).name, {"file": file, "at": now(), "quarantined": held})
