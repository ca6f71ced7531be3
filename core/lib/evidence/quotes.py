"""Quotes: whether the very words stand in a text, and where. Never by likeness: what is not found exactly is not found.

Two texts that a reader takes for the same may differ in their letters: ligatures, soft hyphens, words broken at a line's end,
white space. Both are normalised in the same way, and each letter remembers where it came from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

AROUND = 80  # letters of the surrounding words
BREAK = "\ue000"  # in a normalised text: a hyphen at a line's end, which may be the word's own or only the line's
_HYPHENS = "-\u2010\u2011\u00ad\u0002\ufffe"  # a hyphen, a soft one, and what PDF readers give in its place
_INVISIBLE = (
    "\u00ad\u0002\ufffe\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ue000"
)
# A word that goes on in the next line; and beside a digit, or before one, a hyphen that is more than a line's.
_BROKEN = re.compile(
    rf"(?<=[^\W_])(?:[{_HYPHENS}][ \t]*\r?\n\s*|[\u0002\ufffe]|\u00ad(?=\d))(?=[^\W_])|(?<![^\W_])[\u00ad\u0002\ufffe](?=\d)"
    rf"|(?<=[ \t])[{_HYPHENS}][ \t]*\r?\n\s*(?=\d)"
)
_MARKS = str.maketrans("\u2018\u2019\u201b\u201c\u201d\u201e\u201f", '\'\'\'""""')  # as they are typed
_DASHES = "-\u2010\u2011\u2012\u2013"  # inside a compound or a range
_SIGNS = "\u00b1\u2212+<>\u2264\u2265~\u2248\u223c\u00ac" + _DASHES  # before a number
_INSIDE = ".,'\u00b7\u066b/:^"  # between the digits of one number
_KEPT = ("<super>", "<sub>", "<fraction>")  # 10\u2075 is not 105, whatever NFKC makes of it


class Found(Struct, frozen=True):
    page: int  # from 1
    offset: int  # in that page, as it is
    end: int  # behind its last letter; of a quote that goes on in the next page, the end of this one
    text: str  # as it stands there
    before: str
    after: str


_ASCII = frozenset(map(chr, (*range(32, 127), 9, 10, 13)))


class Normalised(Struct, frozen=True):
    text: str
    places: tuple[int, ...]  # by letter: where it came from


@lru_cache(maxsize=4)  # several quotes of one text are looked for, one after the other
def normalise(text: str) -> Normalised:
    """NFKC, without what nobody sees, with single spaces, and with a sign for every hyphen that may only break a line. What
    stands above or below the line, and fractions, stay as they are: as plain digits they would be another number."""
    ends = {broken.start(): broken for broken in _BROKEN.finditer(text)}
    letters: list[str] = []
    places: list[int] = []
    at = 0
    while at < len(text):
        broken = ends.get(at)
        if broken:
            end, made = broken.end(), BREAK if text[at - 1].isalpha() and text[broken.end()].isalpha() else "-"
        elif text[at] in _ASCII and text[at + 1 : at + 2] < "\u0300":  # most of any text: nothing can join it
            end, made = at + 1, text[at]
        else:
            end = at + 1
            while end < len(text) and _joins(text[end]):
                end += 1
            made = "" if text[at] in _INVISIBLE else _plain(text[at:end])
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


def _joins(letter: str) -> bool:
    """Whether it is a part of the letter before it: an accent, a vowel sign, the rest of a Korean syllable."""
    return unicodedata.category(letter) in ("Mn", "Mc", "Me") or "\u1160" <= letter <= "\u11ff"


def _plain(cluster: str) -> str:
    kept = unicodedata.decomposition(cluster[0]).startswith(_KEPT)
    return cluster if kept else unicodedata.normalize("NFKC", cluster).translate(_MARKS)


def find(quote: str, pages: str | Sequence[str], most: int | None = None) -> list[Found]:
    """Every place where these words stand, whole words and whole numbers only; or the first so many."""
    listed = [pages] if isinstance(pages, str) else list(pages)
    whole = "\n".join(listed)
    starts = [0]
    for page in listed[:-1]:
        starts.append(starts[-1] + len(page) + 1)
    source, wanted = normalise(whole), normalise(quote).text
    if not wanted.strip(BREAK):
        return []
    spans = {source.places[start]: source.places[end - 1] + 1 for start, end in _occurrences(wanted, source.text)}
    spans = {start: end for start, end in spans.items() if not _joins_numbers(whole, starts, start, end)}
    return [_found(listed, starts, whole, start, spans[start]) for start in sorted(spans)[:most]]


def _occurrences(wanted: str, text: str) -> list[tuple[int, int]]:
    hyphen = f"(?:[-\u2010\u2011]|{BREAK})"
    parts = [hyphen if letter in f"{BREAK}-\u2010\u2011" else re.escape(letter) for letter in wanted]
    pattern = re.compile(f"{BREAK}?".join(parts))
    found: list[tuple[int, int]] = []
    match = pattern.search(text)
    while match:
        start, end = match.span()
        if not _cuts(text, start, end):
            found.append((start, end))
        match = pattern.search(text, start + 1)
    return found


def _cuts(text: str, start: int, end: int) -> bool:
    """Whether it begins or ends in the middle of a word, of a compound, or of a number: what is left would say something else."""
    before, after = text[max(0, start - 4) : start][::-1], text[end : end + 5]  # from the edge outwards
    first, last = text[start], text[end - 1]
    if BREAK in (before[:1], after[:1]):  # the rest of a word that a line's end broke
        return True
    if _word(first) and (_word(before[:1]) or _compound(before) or before[:1] == "\u00ac"):
        return True
    if _word(last) and (_word(after[:1]) or _compound(after) or (after[:1] == "'" and _word(after[1:2]))):
        return True
    return (first.isdigit() and _of_a_number_before(before, text[start : start + 4])) or (
        last.isdigit() and _of_a_number_behind(after, text[max(0, end - 4) : end])
    )


def _compound(beside: str) -> bool:
    return bool(beside[:1]) and beside[0] in _DASHES and _word(beside[1:2])


def _of_a_number_before(before: str, digits: str) -> bool:
    """`before` is read backwards. A sign, a point, another group of the same number: 0.5, ±5, - 5, 10 000."""
    if not before:
        return False
    apart = before[0] == " " and before[1:2] and before[1] in _SIGNS and before[1] not in _DASHES  # these begin lists, too
    if before[0] in _SIGNS or apart:
        return True
    if before[0] in _INSIDE and (before[1:2].isdigit() or (before[0] == "." and not _word(before[1:2]))):
        return True
    return (
        before[0] == " " and before[1:2].isdigit() and digits[:3].isdigit() and len(digits[:3]) == 3 and not digits[3:].isdigit()
    )


def _of_a_number_behind(after: str, digits: str) -> bool:
    if not after:
        return False
    if after[0] in "%\u2030\u00d7^" or (after[0] in _INSIDE and after[1:2].isdigit()):
        return True
    if after[0] != " ":
        return False
    group = len(after) >= 4 and after[1:4].isdigit() and not after[4:5].isdigit() and not digits.isdigit()
    return after[1:2] in ("%", "\u2030", "\u00d7") or group


def _joins_numbers(whole: str, starts: list[int], start: int, end: int) -> bool:
    """Whether it takes the last number of one page and the first of the next for one."""
    return any(
        start < at < end and whole[: at - 1].rstrip()[-1:].isdigit() and whole[at:].lstrip()[:1].isdigit() for at in starts[1:]
    )


def _word(letter: str) -> bool:
    return bool(letter) and (letter.isalnum() or unicodedata.category(letter) in ("Mn", "Mc"))


def _found(pages: list[str], starts: list[int], whole: str, start: int, end: int) -> Found:
    while end < len(whole) and _joins(whole[end]):
        end += 1
    page = max(n for n, first in enumerate(starts) if first <= start)
    before = normalise(whole[max(0, start - 2 * AROUND) : start]).text.replace(BREAK, "")[-AROUND:]
    after = normalise(whole[end : end + 2 * AROUND]).text.replace(BREAK, "")[:AROUND]
    first = starts[page]
    return Found(page + 1, start - first, min(end - first, len(pages[page])), whole[start:end], before, after)


def rejoined(text: str) -> str:
    """For reading: words that a line's end broke in one piece, and nothing in it that nobody sees."""
    marks = re.compile(r"[\u00ad\u0002\ufffe][ \t]*\r?\n\s*(?=\w)")
    return marks.sub("", text).translate(dict.fromkeys(map(ord, _INVISIBLE)))
