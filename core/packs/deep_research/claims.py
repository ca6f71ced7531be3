"""Claims and their passages: a claim names the exact words of its source, and Python finds them again in what was fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lib.disk import lenient
from lib.evidence import quotes
from msgspec import Struct
from msgspec.structs import replace

from packs.deep_research import citing

SHORTEST = 12  # letters of a quote: fewer prove nothing


class Claim(Struct, frozen=True):
    """As an agent of a wave returns it."""

    text: str = ""
    url: str = ""
    quote: str = ""
    against: str = ""  # what it speaks against, where it does


class Claims(Struct, frozen=True):
    claims: tuple[Claim, ...] = ()


class Looked(Struct, frozen=True):
    """A claim, and whether its words stand where it says."""

    id: str
    perspective: str
    text: str
    cid: str
    quote: str
    supported: bool
    why: str = ""
    before: str = ""
    after: str = ""
    against: str = ""


def read(document: object) -> list[Claim]:
    return list(lenient.of(document, Claims).claims)


def complaints(found: Sequence[Claim], sources: Iterable[str]) -> list[str]:
    """What is wrong with claims before anything is fetched."""
    known = {citing.normal(url) for url in sources if is_url(url)}
    wrong: list[str] = []
    for number, claim in enumerate(found, 1):
        if not claim.text.strip():
            wrong.append(f"claim {number} says nothing")
        if len(claim.quote.strip()) < SHORTEST:
            wrong.append(f"claim {number} needs the exact words of its source, at least {SHORTEST} letters of them")
        if not is_url(claim.url):
            wrong.append(f"claim {number} has no http address: {claim.url[:80]!r}")
        elif citing.normal(claim.url) not in known:
            wrong.append(f"claim {number}: {claim.url} is not under Sources")
    return wrong


def is_url(url: str) -> bool:
    try:
        return bool(citing.cid(url))
    except ValueError:
        return False


def look(claim: Claim, perspective: str, number: int, texts: Mapping[str, Path]) -> Looked:
    """`texts`: by citation, where the text that was read is kept."""
    cid = citing.cid(claim.url)
    made = Looked(f"{perspective}-{number}", perspective, claim.text, cid, claim.quote, False, against=claim.against)
    if cid not in texts:
        return replace(made, why="its source could not be read")
    found = quotes.find(claim.quote, texts[cid].read_text(encoding="utf-8").split("\f"), most=1)
    if not found:
        return replace(made, why="these words do not stand in its source")
    return replace(made, quote=found[0].text, supported=True, before=found[0].before, after=found[0].after)


def unsupported(text: str, looked: Iterable[Looked]) -> list[str]:
    """The numbers of a synthesis that stand in no passage which their own paragraph cites."""
    passages: dict[str, set[str]] = {}
    for claim in looked:
        if claim.supported:
            passages.setdefault(claim.cid, set()).update(map(_plain, citing.numbers(claim.quote)))
    wrong: list[str] = []
    for paragraph in citing.paragraphs(text):
        cited = citing.look(paragraph).cited
        known = {number for cid in cited for number in passages.get(cid, set())}
        wrong += [number for number in citing.numbers(paragraph) if cited and _plain(number) not in known]
    return wrong


def _plain(number: str) -> str:
    """One form of a number: without separators of thousands and without a sign for per cent set apart."""
    bare = re.sub(r"(?<=\d)[,\u00a0 ](?=\d{3}(?:\D|$))", "", number.lstrip("+"))
    return re.sub(r"\s+%", "%", bare)
