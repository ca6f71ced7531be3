"""What a run remembers, for agents to read first: short notes, written by Python only, under a lock, and never more than fits.

It is context, not input: a note that is added does not make finished work another work. What no longer holds is invalidated, not
deleted; what is rendered is what holds, the newest last, with the oldest left out where there is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import usage
from lib.disk import files, locks, records
from lib.disk.clock import now

FILE = "memory.json"  # in the session
MOST_NOTES = 500
MOST_LETTERS = 2000  # of one note
MOST_KIND = 60
MOST_RENDERED = 20_000  # letters


class Note(Struct, frozen=True):
    id: int
    kind: str  # decision, artifact, lesson, … : under which it is shown
    text: str
    by: str = ""  # the stage, or whoever else said so
    at: str = ""
    invalid: str = ""  # why it does not hold any more


class Memory(Struct, frozen=True):
    session: Path

    @property
    def file(self) -> Path:
        return self.session / FILE

    def notes(self) -> list[Note]:
        return records.read(self.file, list[Note]) if self.file.is_file() else []

    def note(self, kind: str, text: str, by: str = "") -> Note:
        """Adds one. The same words from the same source are one note, however often a run is cut off and resumed."""
        words = text.strip()
        if not words or not kind.strip():
            usage("a note needs a kind and a text", "note decision 'Sessions are kept in SQLite'")
        if len(kind) > MOST_KIND:
            usage(f"a kind of {len(kind)} letters: at most {MOST_KIND}", "a kind is a word or two: decision, lesson")
        if len(words) > MOST_LETTERS:
            usage(f"a note of {len(words)} letters: at most {MOST_LETTERS}", "write a file, and note where it is")
        with self._changing() as notes:
            same = next((n for n in notes if (n.kind, n.text, n.by) == (kind, words, by) and not n.invalid), None)
            if same:
                return same
            made = Note(max((n.id for n in notes), default=0) + 1, kind, words, by, now())
            notes.append(made)
            notes[:] = _bounded(notes, MOST_NOTES)
            return made

    def invalidate(self, which: Callable[[Note], bool], why: str) -> int:
        """Says of notes that they do not hold any more. Returns of how many."""
        if not why.strip():
            usage("why do they not hold any more?", "say it in a few words")
        with self._changing() as notes:
            found = [place for place, note in enumerate(notes) if which(note) and not note.invalid]
            for place in found:
                notes[place] = replace(notes[place], invalid=why.strip())
            return len(found)

    def forget(self, which: Callable[[Note], bool]) -> int:
        """Takes notes away for good. Returns how many."""
        with self._changing() as notes:
            before = len(notes)
            notes[:] = [note for note in notes if not which(note)]
            return before - len(notes)

    def prune(self, most: int) -> int:
        """Keeps at most so many: those that do not hold go first, then the oldest. Returns how many went."""
        with self._changing() as notes:
            before = len(notes)
            notes[:] = _bounded([n for n in notes if not n.invalid] if before > most else notes, most)
            return before - len(notes)

    def render(self, most: int = MOST_RENDERED) -> str:
        """What holds, by kind, for an agent to read. Empty where there is nothing."""
        holds = [n for n in self.notes() if not n.invalid]
        shown: list[Note] = []
        left = most
        for note in reversed(holds):
            left -= len(note.text) + len(note.by) + len(note.kind) + 16
            if left < 0:
                break
            shown.insert(0, note)
        lines: list[str] = []
        for kind in dict.fromkeys(n.kind for n in shown):
            lines += [f"### {kind}", "", *(_line(n) for n in shown if n.kind == kind), ""]
        if len(shown) < len(holds):
            lines += [f"({len(holds) - len(shown)} older notes are left out.)", ""]
        return "\n".join(lines).strip()

    @contextmanager
    def _changing(self) -> Generator[list[Note]]:
        with locks.held(self.file.with_suffix(".lock")):
            notes = self.notes()
            before = list(notes)
            yield notes
            if notes != before:
                files.write_json(self.file, records.document(notes))


def _bounded(notes: list[Note], most: int) -> list[Note]:
    """The newest, with what does not hold given up first."""
    over = len(notes) - most
    if over <= 0:
        return notes
    gone = {n.id for n in sorted(notes, key=lambda n: (not n.invalid, n.id))[:over]}
    return [n for n in notes if n.id not in gone]


def _line(note: Note) -> str:
    text = " ".join(note.text.split())
    return f"- {text}" + (f" ({note.by})" if note.by else "")
