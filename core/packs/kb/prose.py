"""Reading prose: sections, summaries, keywords, and what of a text speaks of something."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9+-]{2,}")
_FRONT = re.compile(r"\A---\n(?:[A-Za-z_][\w-]*:.*\n|[ \t]+\S.*\n)+---\n")  # keys and values; a line across the page is none
_SUMMARY = re.compile(r"^(executive )?(summary|overview|at a glance)\b", re.I)
_STOP = """
a about above after again all also am an and any are as at be because been before being below between both but by can could
did do does doing done down during each either else every few for from further get give given gives go had has have having he
her here hers him his how i if in instead into is it its itself just kind let like long look lot make makes many me mean might
more most much must my need needs no nor not now of off often on once one only or other our ours ourselves out over own please
same say says see she should show so some still such take tell than that the their theirs them then there these they this
those through to too two under until up us use used usually very want was we were what when where whether which while who whom
whose why will with within without would you your yours
"""
STOP = frozenset(_STOP.split())


class Section(Struct, frozen=True):
    heading: str
    level: int
    text: str  # without its heading


def body(text: str) -> str:
    """Without what stands in front of it for programs."""
    return _FRONT.sub("", text, count=1).lstrip("\n")


def sections(text: str) -> list[Section]:
    """What stands before the first heading has none. A line in a block of code is no heading."""
    found: list[tuple[str, int, list[str]]] = [("", 1, [])]
    fence = ""
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        heading = None if fence else _HEADING.match(line)
        if heading:
            found.append((heading[2].rstrip().rstrip("#").rstrip() or heading[2], len(heading[1]), []))
        else:
            found[-1][2].append(line)
    made = [Section(heading, level, "\n".join(lines).strip()) for heading, level, lines in found]
    return made if made[0].text else made[1:]


def paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def summary(text: str, sentences: int = 3) -> str:
    """The first sentences of what calls itself a summary, or of the text."""
    parts = sections(text)
    chosen = next((s.text for s in parts if _SUMMARY.match(s.heading) and s.text), "")
    chosen = chosen or next((s.text for s in parts if s.text and not s.text.startswith(("|", "-", "*", "#"))), "")
    first = next((p for p in paragraphs(chosen) if not p.startswith(("|", "#"))), "")
    plain = re.sub(r"\s+", " ", first).strip()
    return " ".join(_SENTENCE.split(plain)[:sentences])


def split_sentences(text: str) -> list[str]:
    return _SENTENCE.split(text)


def words(text: str) -> list[str]:
    found = (part for word in _WORD.findall(text) for part in (word.lower().split("-") if "-" in word else [word.lower()]))
    return [word for word in found if len(word) > 2 and word not in STOP]


def keywords(text: str, most: int = 12) -> tuple[str, ...]:
    """Words of headings count three times."""
    counts = Counter(words(text))
    for section in sections(text):
        counts.update({word: 2 for word in words(section.heading)})
    return tuple(word for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most])


def speaks_of(text: str, names: tuple[str, ...]) -> bool:
    return any(re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text, re.I) for name in names)


def extract(text: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every paragraph that speaks of one of these, with the heading it stands under; all of a section whose heading does."""
    found: list[tuple[str, str]] = []
    for section in sections(text):
        whole = speaks_of(section.heading, names)
        found += [(section.heading, p) for p in paragraphs(section.text) if whole or speaks_of(p, names)]
    return found


def named(value: str) -> str:
    """A value of a dimension, for people."""
    small = {"cfo": "CFO", "cio": "CIO", "cto": "CTO", "vp": "VP", "it": "IT", "cx": "CX", "gtm": "GTM"}
    return " ".join(small.get(word, word) for word in value.split("_")).strip()


def tokens(text: str) -> int:
    """About as many as a model would count."""
    return (len(text) + 3) // 4
