"""Citations: addresses in one form and by one id, what became of fetching each, and what a synthesis cites with which numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

SECTIONS = ("Summary", "Key Findings", "Evidence", "Caveats")
VALID, PAYWALLED, INVALID, BLOCKED, MISMATCH = KINDS = ("valid", "paywalled", "invalid", "blocked", "mismatch")
USABLE = (VALID, PAYWALLED)
_TRACKERS = ("gclid", "fbclid")
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"https?://[^\s<>\"'`\]}|\\^]+", re.I)


def extract(text: str) -> list[str]:
    """The addresses in a text, as they stand there, each once. What only ends the sentence is not part of one."""
    found: dict[str, None] = {}
    for match in _URL.finditer(text):
        url = match[0]
        while url and (url[-1] in ".,;:!?*_" or (url[-1] == ")" and url.count(")") > url.count("("))):
            url = url[:-1]
        found.setdefault(url)
    return list(found)


def normal(url: str) -> str:
    """Lower-case scheme and host; without fragment, trackers and default port; sorted query; one trailing slash less."""
    parts = urlsplit(url.strip())
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _PORTS or not host:
        raise ValueError(f"no http address: {url[:200]!r}")
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port and parts.port != _PORTS[scheme] else ""
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    kept = [(k, v) for k, v in parse_qsl(parts.query, keep_blank_values=True) if not _tracks(k)]
    path = parts.path.removesuffix("/")
    return urlunsplit((scheme, f"{login}{host}{port}", path or "/", urlencode(sorted(kept)), ""))


def _tracks(name: str) -> bool:
    return name.lower().startswith("utm_") or name.lower() in _TRACKERS


def cid(url: str) -> str:
    return f"cid_{hashlib.sha256(normal(url).encode()).hexdigest()}"


def kind(status: int) -> str:
    """What an answer of a server means for a citation."""
    if 200 <= status < 300:
        return VALID
    if status in (401, 402, 403, 451):
        return PAYWALLED
    return INVALID if status in (404, 410) else BLOCKED


_SORTS = (  # of sources, by their address; the first that fits
    ("a document of the corpus", r"^http://corpus\.invalid/"),
    ("paper", r"^https?://([^/]+\.)?(arxiv\.org|doi\.org|pubmed\.ncbi\.nlm\.nih\.gov|openreview\.net|aclanthology\.org)/"),
    ("encyclopedia", r"^https?://([^/]+\.)?(wikipedia|britannica)\.(org|com)/"),
    ("source code", r"^https?://([^/]+\.)?(github|gitlab|codeberg|sr\.ht)\.?(com|org)?/"),
    ("forum", r"^https?://([^/]+\.)?(stackoverflow|stackexchange|reddit|ycombinator)\.com/"),
    ("authority", r"^https?://[^/]+\.(gov|mil|int)(\.[a-z]{2})?/|^https?://([^/]+\.)?europa\.eu/"),
    ("university", r"^https?://[^/]+\.(edu|ac\.[a-z]{2})/"),
    ("documentation", r"^https?://(docs?|manual|wiki|developer)\.|/(docs?|documentation|manual)/"),
)


def sort(url: str, content_type: str = "") -> str:
    """The kind of a source, as far as its address and its form tell."""
    found = next((name for name, pattern in _SORTS if re.search(pattern, url, re.I)), "web page")
    return f"{found}, PDF" if "pdf" in content_type.lower() or url.lower().endswith(".pdf") else found


class Citation(Struct, frozen=True):
    cid: str
    url: str  # in its normal form
    status: str  # one of KINDS
    found_in: tuple[str, ...] = ()  # the perspectives that named it
    http_status: int = 0
    final_url: str = ""
    title: str = ""
    date: str = ""
    body: str = ""  # where the text that was read is kept, seen from the run
    note: str = ""
    sort: str = ""  # the kind of source

    @property
    def usable(self) -> bool:
        return self.status in USABLE


CITED = re.compile(r"\[@(cid_[0-9a-f]{64})\]")
_ALMOST = re.compile(r"\[[^\]]*(?:@|cid_)[^\]]*\]", re.I)  # what a reader would take for a citation
_NUMBER = re.compile(  # H2O and utf-8 are names, 3x is a number; a space only between thousands
    r"(?<![\w@])(?<![A-Za-z][-.])[-+]?(?:\d{1,3}(?:[ \u00a0]\d{3})+(?!\d)|\d+|(?<!\d)\.\d+)(?:[.,]\d+)*\s?%?"
)


class Text(Struct, frozen=True):
    """What a synthesis consists of, as far as its gate asks."""

    sections: tuple[str, ...]
    cited: tuple[str, ...]  # every mention, in order
    numeric: tuple[str, ...]  # paragraphs with a number and without a citation
    malformed: tuple[str, ...] = ()  # what looks like a citation and is none

    @property
    def missing(self) -> list[str]:
        return [name for name in SECTIONS if name not in self.sections]


def look(text: str) -> Text:
    """The one checker: the review and the gate use the same."""
    heads = tuple(match[1].strip() for line in _prose(text) if (match := re.match(r"#{1,6}\s+(.+?)\s*$", line)))
    bare = tuple(p for p in paragraphs(text) if numbers(p) and not CITED.search(p))
    odd = tuple(found for found in _ALMOST.findall(text) if not CITED.fullmatch(found))
    return Text(heads, tuple(CITED.findall(text)), bare, odd)


def paragraphs(text: str) -> list[str]:
    """Without code, headings of sections and numbers of ordered lists; an item of a list is a paragraph of its own."""
    found: list[list[str]] = [[]]
    for line in _prose(text):
        item = re.match(r"\s*(?:[-*+]|\d+[.)])\s+(.*)$", line)
        head = re.match(r"\s*#{1,6}\s+(.+?)\s*$", line)
        if not line.strip() or head:
            found.append([head[1]] if head and head[1] not in SECTIONS else [])
            found.append([])
        elif item:
            found.append([item[1]])
        else:
            found[-1].append(line.strip())
    return [" ".join(lines) for lines in found if lines]


def numbers(text: str) -> list[str]:
    """The numbers a paragraph claims, with their separators; those inside citations and addresses are none."""
    plain = _URL.sub(" ", CITED.sub(" ", text))
    return [match[0].strip(" ,\u00a0") for match in _NUMBER.finditer(plain)]


def _prose(text: str) -> list[str]:
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            lines.append(line)
    return text.splitlines() if fenced else lines  # a fence that nobody closed hides nothing


def utilisation(cited: Iterable[str], usable: Iterable[str]) -> float:
    """How many of those that could be cited are."""
    known = set(usable)
    return len(set(cited) & known) / len(known) if known else 0.0


def duplicates(cited: Iterable[str]) -> float:
    """How many mentions repeat an earlier one."""
    mentions = list(cited)
    return 1 - len(set(mentions)) / len(mentions) if mentions else 0.0
