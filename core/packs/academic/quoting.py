"""Phase 5: a proposed quote stands on the page that was named, word by word, or it is not used.

Never by likeness: one word changed is another sentence. Likeness only says, for a person, which passage was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from lib.contract import Json
from lib.evidence import quotes
from msgspec import Struct

from packs.academic import sanitising

MOST_WORDS = 35
FEWEST_WORDS = 4  # fewer say nothing that could be looked up
_CLOSE = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0002ffff]")  # scripts without spaces
LONG_WORD = 40  # letters: what is longer is several, of ten each


class Paper(Struct, frozen=True):
    """A paper as it was read."""

    source_id: str
    pages: tuple[str, ...]
    title: str = ""
    authors: tuple[str, ...] = ()
    year: int | None = None
    doi: str | None = None
    venue: str | None = None
    ocr: bool = False


class Rejected(Struct, frozen=True):
    source_id: str
    page: int
    quote: str
    reason: str
    nearest: str | None = None
    nearest_page: int | None = None


def sort_out(proposed: Sequence[Json], paper: Paper | None, source_id: str) -> tuple[list[Json], list[Rejected]]:
    """What stands where it is said to stand, and the rest with the reason. A quote is taken once."""
    kept: list[Json] = []
    rejected: list[Rejected] = []
    seen: set[tuple[int, str]] = set()
    for one in proposed:
        text, page = str(one.get("quote", "")), _page(one.get("page"))
        why = wrong(text, page, paper, source_id) or ("it was proposed before" if (page, _folded(text)) in seen else "")
        if why:
            nearest, where = _nearest(text, paper) if paper else (None, None)
            rejected.append(Rejected(source_id, page, text, why, nearest, where))
        else:
            seen.add((page, _folded(text)))
            kept.append({**one, "source_id": source_id, "page": page})
    return kept, rejected


def wrong(text: str, page: int, paper: Paper | None, source_id: str) -> str:
    """Why a quote is not used; empty where it is."""
    if not paper:
        return f"nobody has read a paper {source_id}"
    words = words_of(text)
    if words > MOST_WORDS:
        return f"it has {words} words, and at most {MOST_WORDS} are quoted"
    if words < FEWEST_WORDS:
        return f"it has {words} words: too few to be looked up"
    if not 1 <= page <= len(paper.pages):
        return f"{source_id} has {len(paper.pages)} pages, and no page {page}"
    if reason := sanitising.instruction(text):
        return f"it {reason}"
    if quotes.find(text, paper.pages[page - 1], 1):
        return ""
    if any(found.page == 1 for found in quotes.find(text, paper.pages[page - 1 : page + 1])):
        return ""  # it begins on this page, and goes on in the next
    elsewhere = [n for n, other in enumerate(paper.pages, 1) if quotes.find(text, other, 1)]
    where = f", but on page {elsewhere[0]}" if elsewhere else ""
    return f"it is not on page {page} of {source_id}{where}"


def words_of(text: str) -> int:
    """How many: where a script puts no spaces between words, two signs are one; and what is longer than any word is several."""
    words = [w for w in _CLOSE.sub(" ", text).split() if any(c.isalnum() for c in w)]
    return sum(len(w) // 10 if len(w) > LONG_WORD else 1 for w in words) + (len(_CLOSE.findall(text)) + 1) // 2


def number(kept: Sequence[Json], first: int = 1) -> list[Json]:
    """With an id, and marked as found."""
    fields = ("source_id", "page", "quote", "context", "relevance")
    return [
        {"quote_id": f"Q{n:04d}", **{name: one[name] for name in fields}, "note": one.get("note"), "verified": True}
        for n, one in enumerate(kept, first)
    ]


def _page(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _folded(text: str) -> str:
    return quotes.normalise(text).text.replace(quotes.BREAK, "").lower()


def _nearest(text: str, paper: Paper) -> tuple[str | None, int | None]:
    """The passage that looks most like it, for a person to see what was probably meant."""
    wanted = _folded(text).split()
    best: tuple[float, str, int] | None = None
    for page, content in enumerate(paper.pages, 1):
        words = quotes.normalise(content).text.replace(quotes.BREAK, "").split()
        lowered = [w.lower() for w in words]
        match = SequenceMatcher(None, lowered, wanted, autojunk=False).find_longest_match()
        if not match.size:
            continue
        start = max(0, match.a - match.b)
        share = match.size / max(1, len(wanted))
        if best is None or share > best[0]:
            best = (share, " ".join(words[start : start + len(wanted)]), page)
    return (best[1][:600], best[2]) if best and best[0] >= 0.2 else (None, None)
