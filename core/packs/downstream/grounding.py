"""Whether a text rests on what it was given: every passage it names stands in that input, word for word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from lib.disk import records
from lib.evidence import quotes
from msgspec import Struct

LEAST_WORDS = 4  # fewer could stand anywhere
_MARK = re.compile(r"\[(P\d+)\]")


class Passage(Struct, frozen=True):
    id: str
    source: str
    quote: str


class Passages(Struct, frozen=True):
    passages: tuple[Passage, ...]


def complaints(text: str, passages: Passages, sources: Mapping[str, Path]) -> list[str]:
    """`sources`: every input by the path it was given under."""
    found: list[str] = []
    listed = [one.id for one in passages.passages]
    marked = list(dict.fromkeys(_MARK.findall(text)))
    if not marked:
        found.append("the text names no passage: mark what rests on one with its id, such as [P1]")
    found += [f"[{mark}] stands in the text, and no passage is called so" for mark in marked if mark not in listed]
    found += [f"{one} is listed twice" for one in sorted({i for i in listed if listed.count(i) > 1})]
    found += [f"{one} is listed, and the text does not use it" for one in listed if one not in marked]
    for one in passages.passages:
        source = _source(one.source, sources)
        if not source:
            found.append(f"{one.id}: {one.source!r} is no input; name it by the path you were given")
        elif len(one.quote.split()) < LEAST_WORDS:
            found.append(f"{one.id}: quote at least {LEAST_WORDS} words")
        elif not quotes.find(one.quote, source.read_text(encoding="utf-8", errors="replace"), most=1):
            found.append(f"{one.id}: these words do not stand in {source.name}: {one.quote[:160]!r}")
    return found


def _source(named: str, sources: Mapping[str, Path]) -> Path | None:
    """By its path, or by its file's name where only one has it."""
    if named in sources:
        return sources[named]
    same = [path for path in sources.values() if path.name == named]
    return same[0] if len(same) == 1 else None


def read(path: Path) -> Passages:
    return records.read(path, Passages)
