"""Phase 2: what several databases found becomes one list. One DOI is one paper; so is one title, unless two DOIs disagree.

Titles that are only nearly the same are proposed to a person, and not merged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from lib.contract import Json
from msgspec import Struct
from msgspec.structs import replace

from packs.academic import sanitising
from packs.academic.records import Candidate

NEAR = 90.0  # of 100: titles that look as if they were one
_DOI = re.compile(r"10\.\d{4,9}/\S+")


class Merged(Struct, frozen=True):
    candidates: tuple[Candidate, ...]
    new: int
    duplicates: int


def doi(text: Any) -> str | None:
    """As it is compared: without a resolver, in small letters; None where it is none."""
    said = unquote(str(text or "").strip()).lower()
    if re.match(r"https?://", said):  # of an address only a resolver's path is one, and nothing that stands behind it
        parts = urlsplit(said)
        said = parts.path if (parts.hostname or "").removeprefix("dx.") == "doi.org" else ""
    found = _DOI.search(said)
    return found[0].rstrip(".,;)") if found else None


def folded(title: str) -> str:
    """As titles are compared: letters and digits alone."""
    plain = unicodedata.normalize("NFKD", sanitising.clean(title).text.casefold())
    return " ".join(re.findall(r"\w+", "".join(c for c in plain if not unicodedata.combining(c))))


def candidate(record: Json, database: str, query: str) -> Candidate | None:
    """What a database has, as a candidate without a number. What it does not say is unknown; without a title it is nothing."""
    title = _text(record.get("title"), 1000)
    if not title:
        return None
    year, citations = record.get("year"), record.get("citations")
    return Candidate(
        id="",
        title=title,
        authors=tuple(name for a in record.get("authors") or () if (name := _text(a, 200))),
        year=year if isinstance(year, int) and 1900 <= year <= 2100 else None,
        doi=doi(record.get("doi")),
        abstract=_text(record.get("abstract"), 20_000),
        database=database,
        search_string=query,
        citations=citations if isinstance(citations, int) and citations >= 0 else None,
        pdf_url=_url(record.get("pdf_url")),
        url=_url(record.get("url")),
        venue=_text(record.get("venue"), 500),
        kind=_text(record.get("kind"), 100),
        open_access=_flag(record.get("open_access")),
        retracted=_flag(record.get("retracted")),
        volume=_text(record.get("volume"), 40),
        issue=_text(record.get("issue"), 40),
        pages=_text(record.get("pages"), 40),
    )


def merge(known: Sequence[Candidate], found: Iterable[Candidate]) -> Merged:
    """Adds what is not known yet, with the next number; of what is known, it completes what was missing."""
    listed = list(known)
    by_doi = {one.doi: n for n, one in enumerate(listed) if one.doi}
    by_title: dict[str, list[int]] = {}
    for n, one in enumerate(listed):
        by_title.setdefault(folded(one.title), []).append(n)
    new = duplicates = 0
    for one in found:
        title = folded(one.title)
        place = by_doi.get(one.doi) if one.doi else None
        if place is None and title:
            place = next((n for n in by_title.get(title, ()) if not (one.doi and listed[n].doi)), None)
        if place is None:
            listed.append(replace(one, id=f"C{len(listed) + 1:04d}"))
            by_title.setdefault(title, []).append(len(listed) - 1)
            new += 1
            place = len(listed) - 1
        else:
            listed[place] = _completed(listed[place], one)
            duplicates += 1
        if doi_ := listed[place].doi:
            by_doi[doi_] = place
    return Merged(tuple(listed), new, duplicates)


def near(candidates: Sequence[Candidate]) -> list[Json]:
    """Pairs whose titles are nearly the same, for a person to look at."""
    from rapidfuzz import fuzz, process

    titles = [folded(one.title) for one in candidates]
    found: list[Json] = []
    for n, title in enumerate(titles):
        for _, score, place in process.extract(title, titles[n + 1 :], scorer=fuzz.ratio, score_cutoff=NEAR, limit=20):
            pair = [candidates[n].id, candidates[n + 1 + place].id]
            found.append({"ids": pair, "similarity": round(float(score), 1)})
    return found


def _completed(one: Candidate, other: Candidate) -> Candidate:
    """What the first does not say, the second may; a retraction that anybody knows of counts."""
    names = ("year", "doi", "abstract", "citations", "pdf_url", "url", "venue", "kind", "open_access", "volume", "issue", "pages")
    missing = {name: getattr(other, name) for name in names if getattr(one, name) is None}
    also = one.also_in if other.database in (one.database, *one.also_in) else (*one.also_in, other.database)
    retracted = True if one.retracted or other.retracted else one.retracted if one.retracted is not None else other.retracted
    return replace(one, **missing, also_in=also, retracted=retracted, authors=one.authors or other.authors)


def _text(value: Any, most: int) -> str | None:
    cleaned = " ".join(sanitising.clean(str(value)).text.split())[:most] if value is not None else ""
    return cleaned or None


def _url(value: Any) -> str | None:
    text = str(value or "").strip()
    return text if re.match(r"https?://[^\s]+$", text) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
