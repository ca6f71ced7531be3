"""Quotes: whether the very words stand in a text, and where. Never by likeness: what is not found exactly is not found.

Two texts that a reader takes for the same may differ in their letters: ligatures, soft hyphens, words broken at a line's end,
white space. Both are normalised in the same way, and each letter remembers where it came from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from msgspec import Struct

AROUND = 80  # letters of the surrounding words
_HYPHENS = "-\u2010\u2011\u00ad\u0002\ufffe"  # a hyphen, a soft one, and what PDF readers give in its place
_INVISIBLE = "\u00ad\u0002\ufffe\u200b\u200c\u200d\u2060\ufeff"
_BROKEN = re.compile(rf"[{_HYPHENS}][ \t]*\r?\n\s*(?=\w)")  # a word that goes on in the next line


class Found(Struct, frozen=True):
    page: int  # from 1
    offset: int  # in that page, as it is
    end: int  # behind its last letter; of a quote that goes on in the next page, the end of this one
    text: str  # as it stands there
    before: str
    after: str


class Normalised(Struct, frozen=True):
    text: str
    places: tuple[int, ...]  # by letter: where it came from


def normalise(text: str, joined: bool = True) -> Normalised:
    """NFKC, without what nobody sees, with words in one piece and single spaces. `joined`: a hyphen at the end of a line is one
    that only breaks the line; otherwise it is one of the word's own."""
    skipped = dict[int, str]()  # from here to there stands this instead
    ends = dict[int, int]()
    for broken in _BROKEN.finditer(text):
        own = text[broken.start()] in "-\u2010\u2011"
        skipped[broken.start()] = "" if joined or not own else "-"
        ends[broken.start()] = broken.end()
    letters: list[str] = []
    places: list[int] = []
    at = 0
    while at < len(text):
        end = ends.get(at, 0)
        if end:
            made = skipped[at]
        else:
            end = at + 1
            while end < len(text) and unicodedata.combining(text[end]):
                end += 1
            made = "" if text[at] in _INVISIBLE else unicodedata.normalize("NFKC", text[at:end])
        for letter in made:
            space = letter.isspace()
            if space and (not letters or letters[-1] == " "):
                continue
            letters.append(" " if space else letter)
            places.append(at)
        at = end
    if letters and letters[-1] == " ":
        letters.pop()
        places.pop()
    return Normalised("".join(letters), tuple(places))


def find(quote: str, pages: str | Sequence[str]) -> list[Found]:
    """Every place where these words stand, whole words only."""
    listed = [pages] if isinstance(pages, str) else list(pages)
    whole = "\n".join(listed)
    starts = [0]
    for page in listed[:-1]:
        starts.append(starts[-1] + len(page) + 1)
    spans: dict[int, int] = {}
    for joined in (True, False):
        source = normalise(whole, joined)
        for wanted in {normalise(quote, True).text, normalise(quote, False).text} - {""}:
            for start, end in _occurrences(wanted, source.text):
                spans.setdefault(source.places[start], source.places[end - 1] + 1)
    return [_found(listed, starts, whole, start, spans[start]) for start in sorted(spans)]


def _occurrences(wanted: str, text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        inside = (start > 0 and _word(text[start - 1]) and _word(wanted[0])) or (
            end < len(text) and _word(text[end]) and _word(wanted[-1])
        )
        if not inside:
            found.append((start, end))
        start = text.find(wanted, start + 1)
    return found


def _word(letter: str) -> bool:
    return letter.isalnum()


def _found(pages: list[str], starts: list[int], whole: str, start: int, end: int) -> Found:
    while end < len(whole) and unicodedata.combining(whole[end]):
        end += 1
    page = max(n for n, first in enumerate(starts) if first <= start)
    before = normalise(whole[max(0, start - 2 * AROUND) : start]).text[-AROUND:]
    after = normalise(whole[end : end + 2 * AROUND]).text[:AROUND]
    first = starts[page]
    return Found(page + 1, start - first, min(end - first, len(pages[page])), whole[start:end], before, after)


def rejoined(text: str) -> str:
    """For reading: words that a line's end broke in one piece, and nothing in it that nobody sees."""
    marks = re.compile(r"[\u00ad\u0002\ufffe][ \t]*\r?\n\s*(?=\w)")
    return marks.sub("", text).translate(dict.fromkeys(map(ord, _INVISIBLE)))
