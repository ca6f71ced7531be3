"""Phase 5: what an agent says about a paper in its own words is used as far as the paper has its numbers and names."""

from __future__ import annotations

import re

from lib.evidence import quotes

from packs.academic.quoting import Paper

_DOI = re.compile(r"\b10\.\d{4,9}/[^\s\"'<>]+[^\s\"'<>.,;)]", re.I)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SHARE = re.compile(r"(\d+(?:[.,]\d+)*) ?(?:%|per ?cent)")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+[^\s\"'<>.,;)]", re.I)
_PLACES = re.compile(
    r"\b(?:sections?|figures?|figs?\.?|tables?|pages?|pp?\.|chapters?|appendix|equations?)\s+\d+(?:\.\d+)*", re.I
)  # of a paper
_UP_TO_NINETEEN = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_SMALL = {word: str(number) for number, word in enumerate(_UP_TO_NINETEEN, 1)}
_TENS = {
    "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
    "hundred": "00", "thousand": "000", "million": "000000",
}  # fmt: skip
_UPPER = "".join(c for n in range(0x41, 0x250) if (c := chr(n)).isupper())  # Latin, with all its marks
_NAME = re.compile(rf"(?<=[^\W\d_{_UPPER}] |[,;:(] )[{_UPPER}][\w'’-]+(?:\s+[{_UPPER}][\w'’-]+)*|(?<=[(\[])[{_UPPER}][\w'’-]+")
# A word that begins a sentence has a capital anyway: it is a name where it does something, or where somebody stands behind it.
_VERBS = (
    "agree|argue|claim|conclude|confirm|find|found|measure|observe|propose|replicate|report|say|said|show|studie|study|suggest|"
    "write|wrote|was|were|is|are|has|had|did|fund|fail|warn|cool"
)
_FIRST = re.compile(
    rf"(?:^|[.!?:;(\n\"]\s*(?:[-*]\s+)?|^[-*]\s+)([{_UPPER}][\w'’-]+)"
    rf"(?=['’]s\b|,? et al\b|,? (?:and|&) [{_UPPER}]| [{_UPPER}][^\W\d_{_UPPER}]|,? \(?(?:19|20)\d\d\b"
    rf"| (?:{_VERBS})(?:d|ed|s|es)?\b)"
)
_ANYBODY = frozenset(
    (
        "the", "a", "an", "it", "its", "this", "these", "those", "they", "we", "he", "she", "authors", "author",
        "researchers", "results", "result", "findings", "data", "both", "one", "two", "three", "participants", "residents",
        "people", "analysis", "analyses", "evidence", "methods", "method", "sample", "samples", "study", "studies", "paper",
        "papers", "work", "effects", "effect", "limits", "limitations", "figures", "models", "model", "readings", "values",
        "most", "some", "many", "few", "all", "none", "each", "there", "what", "that", "here", "however", "yet", "although",
        "though", "while", "but", "and", "so", "thus", "in", "on", "at", "for", "with", "from", "by", "as", "if", "where",
        "when", "which", "who", "no", "not", "only", "even", "also", "then", "after", "before", "section", "fig", "table",
        "eu", "english", "i", "their", "his", "her", "our", "every", "either", "neither", "overall", "taken", "together",
        "questions", "differences", "contrast", "reports", "report", "nobody", "everybody", "another", "such", "others",
        "simulations", "measurements",
    )
)  # fmt: skip


def invented(annotation: str, paper: Paper) -> list[str]:
    """Numbers, names, addresses and DOIs of an annotation that the paper does not have."""
    whole = " ".join((*paper.pages, paper.title, *paper.authors, str(paper.year or ""), paper.doi or "", paper.venue or ""))
    known = quotes.normalise(whole).text.replace(quotes.BREAK, "")
    plain = known.lower()
    rest = quotes.normalise(annotation).text
    found: list[str] = []
    for pattern in (_DOI, _ADDRESS):
        there = {one.lower() for one in pattern.findall(known)}
        found += [one for one in pattern.findall(rest) if one.lower() not in there]
        rest, known = pattern.sub(" ", rest), pattern.sub(" ", known)
    found += _numbers(_PLACES.sub(" ", rest), known, plain)
    words = set(re.findall(r"\w[\w'-]*", plain)) | set(re.findall(r"\w+", plain))
    names = {word for phrase in _NAME.findall(rest) for word in phrase.split()} | set(re.findall(r"\b[A-Z]{3,}\b", rest))
    names |= {word for word in _FIRST.findall(rest) if word.lower() not in _ANYBODY}
    names |= set(re.findall(r"\b(\w+) et al\b", rest))
    found += sorted(name for name in names if not _known(name.lower().removesuffix("'s").rstrip("'-"), words))
    return list(dict.fromkeys(found))


def _known(name: str, words: set[str]) -> bool:
    parts = name.split("-")
    return name in words or name in _ANYBODY or (len(parts) > 1 and all(part in words or part in _ANYBODY for part in parts))


def _numbers(said: str, known: str, plain: str) -> list[str]:
    """As they are written in either: 0.40 is 0.4, 4 is four; 64 % is not 64."""
    numbers = {_value(n) for n in _NUMBER.findall(known)}
    numbers |= {value for word, value in _SMALL.items() if re.search(rf"\b{word}\b", plain)}
    found = [n for n in _NUMBER.findall(said) if _value(n) not in numbers]
    shares = {_value(n) for n in _SHARE.findall(known)}
    found += [f"{n} per cent" for n in _SHARE.findall(said) if _value(n) not in shares]
    words = {word for word in (*_TENS, *_SMALL) if re.search(rf"\b{word}\b", said.lower())}
    for word in sorted(words - {"one", "two", "three"}):  # these are said of anything
        there = _SMALL[word] in numbers if word in _SMALL else any(n.endswith(_TENS[word]) for n in numbers)
        found += [] if re.search(rf"\b{word}\b", plain) or there else [word]
    return found


def _value(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number
