"""The operational memory of a feature: four sections in `memory.md`, written by Python from what agents return as data.

What is remembered is the session's memory, which every agent reads first; this is its shape in the repository, for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from lib.disk import lenient
from lib.session.memory import Memory, Note
from msgspec import Struct

ARTIFACTS, DECISIONS, LESSONS, UPDATES = SECTIONS = ("Artifact Index", "Recent Decisions", "Lessons Learned", "Recent Updates")
FILE = "memory.md"
INVALID = "INVALIDATED — revision in progress"
MOST_LINES = 200
KEEPS_STEPS = 2  # older entries go at a step's end; lessons stay
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(])")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.S)


class Artifact(Struct, frozen=True):
    path: str = ""
    sections: tuple[str, ...] = ()


class Notes(Struct, frozen=True):
    """What a sequential agent returns for others to remember."""

    artifacts: tuple[Artifact, ...] = ()
    decisions: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()


def read(document: object) -> Notes:
    """Of an agent's data: its `notes`, or nothing."""
    return lenient.of(document, _Data).notes


class _Data(Struct, frozen=True):
    notes: Notes = Notes()


def short(text: str) -> str:
    """At most two sentences, without code: a pointer, not a copy."""
    plain = " ".join(_CODE.sub("", text).split())
    return " ".join(_SENTENCE.split(plain)[:2])[:400]


def remember(session: Path, notes: Notes, agent: str, step: int) -> None:
    """Adds what was returned, and takes the place of what was invalidated for the same agent."""
    memory, by = Memory(session), f"{agent}, step-{step}"
    memory.forget(lambda note: bool(note.invalid) and _agent(note) == agent)
    for artifact in notes.artifacts:
        memory.forget(lambda note, row=f"{artifact.path} |": note.kind == ARTIFACTS and note.text.startswith(row))
        memory.note(ARTIFACTS, short(f"{artifact.path} | {', '.join(artifact.sections[:8])}"), by)
    for kind, texts in ((DECISIONS, notes.decisions), (LESSONS, notes.lessons), (UPDATES, notes.updates)):
        for text in texts:
            if short(text):
                memory.note(kind, short(text), by)


def invalidate(session: Path, agents: tuple[str, ...], reason: str) -> int:
    """Before a revision: what these have said does not hold any more. Lessons do."""
    return Memory(session).invalidate(lambda note: _agent(note) in agents and note.kind != LESSONS, short(reason))


def prune(session: Path, step: int) -> int:
    """At the end of a step: what is more than two steps old goes, except lessons and the way to each artifact."""
    return Memory(session).forget(lambda note: note.kind not in (LESSONS, ARTIFACTS) and _step(note) < step - KEEPS_STEPS)


def render(session: Path) -> str:
    """Exactly four sections, and never more than 200 lines: the oldest give way, lessons last of all."""
    notes = Memory(session).notes()
    while (text := _text(notes)).count("\n") > MOST_LINES and notes:
        others = [n for n in notes if n.kind != LESSONS] or notes
        notes = [n for n in notes if n is not others[0]]
    return text


def damaged(folder: Path) -> list[str]:
    """A warning, where `memory.md` is not what it should be; what is remembered is elsewhere, and it is written anew."""
    path = folder / FILE
    if not path.exists():
        return []
    found = tuple(re.findall(r"^## (.+)$", path.read_text(encoding="utf-8", errors="replace"), re.M))
    return [] if found == SECTIONS else [f"{FILE} was damaged, and has been written anew"]


def _text(notes: list[Note]) -> str:
    def of(kind: str, line: Callable[[Note], str]) -> list[str]:
        return [line(note) for note in notes if note.kind == kind]

    def row(note: Note) -> str:
        path, _, sections = (part.strip() for part in note.text.partition("|"))
        mark = f"[{INVALID}: {note.invalid}] " if note.invalid else ""
        return f"| {mark}{path} | {sections} | {note.by} |"

    def entry(note: Note) -> str:
        mark = f"[{INVALID}: {note.invalid}] " if note.invalid else ""
        return f"- {mark}[{note.by}] {note.text}"

    lines = ["# Operational Memory", "", f"## {ARTIFACTS}", "", "| Artifact | Sections | Last Updated By |", "|---|---|---|"]
    lines += [*of(ARTIFACTS, row), ""]
    for kind in (DECISIONS, LESSONS, UPDATES):
        lines += [f"## {kind}", "", *of(kind, entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def _agent(note: Note) -> str:
    return note.by.partition(",")[0]


def _step(note: Note) -> int:
    found = re.search(r"step-(\d+)", note.by)
    return int(found[1]) if found else 0
