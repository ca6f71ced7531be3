"""Four services with an API, each asked by its well-kept client. All they send goes through the one door to the web.

The clients speak HTTP to a gateway on loopback, in this process, which asks the real service through the door: so their
requests have evidence on disk, keep to the rules and manners of the house, and are replayed like any other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, urlencode

from lib.contract import Json, StrataError
from lib.web import manners, proxy
from lib.web.door import FINAL, Door
from msgspec import Struct
from msgspec.structs import replace

from packs.academic.settings import Service

BUSY, NOT_FOUND = 429, 404
WITHDRAWN = ("retraction", "withdrawal", "removal")


class Asked(Struct, frozen=True):
    """One query to one service."""

    query: str
    page: int = 1
    size: int = 25
    first_year: int | None = None
    last_year: int | None = None
    mail: str = ""


class Answer(Struct, frozen=True):
    hits: int | None  # as the service counts; None where it does not say
    records: tuple[Json, ...]  # as the service has them, under our names
    at: str = ""  # when it was asked: of a run that is replayed, when it was recorded


class Gateway:
    """Stands on loopback between a client and a service, and remembers why it could not answer."""

    def __init__(self, door: Door, service: Service, reason: str, params: dict[str, str], headers: dict[str, str]) -> None:
        self.door, self.base, self.reason = door, service.url.rstrip("/"), reason
        self.params, self.headers = params, headers
        self.error: StrataError | None = None
        self.status = 0
        self.at = ""
        self.content = b""
        self.wait = 0.0  # how long the service wants to be left alone

    def ask(self, path: str) -> tuple[int, str, bytes]:
        target = self.base + (path[1:] if path.startswith("/?") else path)
        if self.params:
            target += ("&" if "?" in target else "?") + urlencode(self.params)
        try:
            page = self.door.get(target, self.reason, self.headers)
        except StrataError as error:
            self.error = error
            return 502, "text/plain", error.message.encode()
        self.status, self.at, self.content = page.evidence.status, page.evidence.at, page.content
        self.wait = manners.retry_after(page.evidence.headers.get("retry-after", "")) or 0.0
        return self.status, page.evidence.headers.get("content-type", "application/json"), page.content

    def failure(self, what: str, error: Exception) -> StrataError:
        """What to tell, when the client has given up: the reason that the gateway knows, not the client's words for it."""
        if self.error:
            return self.error
        if self.status and not 200 <= self.status < 300:
            hint = "wait, and resume" if self.status == BUSY else "see the evidence in the attempt's web/"
            return StrataError(
                f"HTTP_{self.status}",
                f"{what} answered {self.status}",
                hint,
                final=self.status in FINAL,
                detail={"wait": self.wait},
            )
        return StrataError("UNREADABLE", f"{what} answered what its client does not understand: {error!r}"[:300], "", final=True)


@contextmanager
def _served(gateway: Gateway) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = gateway.ask(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The evidence says it."""

    with proxy.running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


def search(door: Door, name: str, service: Service, asked: Asked) -> Answer:
    """What a service has for a query. Raises with the reason, and whether a retry may help."""
    gateway = _gateway(door, name, service, f"a search for {asked.query}"[:200], asked.mail)
    with _served(gateway) as url, _direct():
        try:
            answer = _CLIENTS[name](url, asked)
        except StrataError:
            raise
        except Exception as error:  # noqa: BLE001 - each client has errors of its own, and several of their libraries'
            raise gateway.failure(name, error) from None
    if gateway.error or not 200 <= gateway.status < 300:
        raise gateway.failure(name, ValueError("nothing"))
    total = re.search(rb"totalResults[^>]*>(\d+)<", gateway.content) if name == "arxiv" else None  # its client keeps it to itself
    return replace(answer, at=gateway.at, hits=int(total[1]) if total else answer.hits)


def _gateway(door: Door, name: str, service: Service, reason: str, mail: str) -> Gateway:
    """With the key of the service, and the mail address that makes it faster."""
    key = os.environ.get(service.key_env, "") if service.key_env else ""
    params = {"mailto": mail} if mail and name in ("openalex", "crossref") else {}
    headers = {"x-api-key": key} if key and name == "semantic_scholar" else {}
    headers |= {"Authorization": f"Bearer {key}"} if key and name == "openalex" else {}
    return Gateway(door, service, reason, params, headers)


def withdrawn(door: Door, name: str, service: Service, doi: str, mail: str = "") -> bool | None:
    """Whether a service says that a paper was retracted; None where it does not know the paper."""
    asks = {"openalex": f"/works?{urlencode({'filter': f'doi:{doi}'})}", "crossref": f"/works/{quote(doi, safe='')}"}
    gateway = _gateway(door, name, service, f"whether {doi} was withdrawn", mail)
    status, _, body = gateway.ask(asks[name])
    if status == NOT_FOUND:
        return None
    if gateway.error or not 200 <= status < 300:
        raise gateway.failure(name, ValueError("nothing"))
    try:
        answer: Json = json.loads(body)
        if name == "crossref":
            return _withdrawn(answer["message"])
        found: list[Json] = answer["results"]
        return bool(found[0]["is_retracted"]) if found else None
    except (ValueError, KeyError, TypeError) as error:
        raise gateway.failure(name, error) from None


@contextmanager
def _direct() -> Generator[None]:
    """The clients reach loopback without a proxy; the door has its own rules for what is behind."""
    before = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NO_PROXY"]
        else:
            os.environ["NO_PROXY"] = before


def _openalex(url: str, asked: Asked) -> Answer:
    import pyalex

    pyalex.config.max_retries = 0
    works: Any = _works(url).search(asked.query)
    if asked.first_year:
        works = works.filter(from_publication_date=f"{asked.first_year}-01-01")
    if asked.last_year:
        works = works.filter(to_publication_date=f"{asked.last_year}-12-31")
    found: Any = works.get(page=asked.page, per_page=asked.size)
    return Answer(_count(found.meta.get("count")), tuple(_work(dict(one), one["abstract"]) for one in found))


def _works(base: str) -> Any:
    """pyalex takes another address from its configuration for some calls alone; this one takes it for searches."""
    import pyalex

    class Works(pyalex.Works):
        @property
        def url(self) -> str:
            return str(super().url).replace("https://api.openalex.org", base)  # type: ignore[reportUnknownMemberType]

    return Works()


def _work(one: Json, abstract: str | None) -> Json:
    venue = _part(_part(one, "primary_location"), "source").get("display_name")
    printed = _part(one, "biblio")
    return {
        "title": one.get("title") or one.get("display_name"),
        "authors": [a["author"].get("display_name") for a in one.get("authorships") or ()],
        "year": one.get("publication_year"),
        "doi": one.get("doi"),
        "abstract": abstract,
        "citations": one.get("cited_by_count"),
        "pdf_url": _part(one, "best_oa_location").get("pdf_url"),
        "url": one.get("id"),
        "venue": venue,
        "kind": one.get("type"),
        "open_access": _part(one, "open_access").get("is_oa"),
        "retracted": one.get("is_retracted"),
        "volume": printed.get("volume"),
        "issue": printed.get("issue"),
        "pages": "–".join(dict.fromkeys(str(page) for page in (printed.get("first_page"), printed.get("last_page")) if page))
        or None,
    }


def _crossref(url: str, asked: Asked) -> Answer:
    import habanero

    years: dict[str, Any] = {}
    years |= {"from_pub_date": f"{asked.first_year}-01-01"} if asked.first_year else {}
    years |= {"until_pub_date": f"{asked.last_year}-12-31"} if asked.last_year else {}
    client: Any = habanero.Crossref(base_url=url, timeout=60)
    offset = (asked.page - 1) * asked.size
    found: Any = client.works(query=asked.query, limit=asked.size, offset=offset, filter=years or None)
    message: Json = found["message"]
    return Answer(_count(message.get("total-results")), tuple(_item(one) for one in message["items"]))


def _item(one: Json) -> Json:
    issued: Any = (_part(one, "issued").get("date-parts") or [[None]])[0]
    free = any("creativecommons.org" in str(known.get("URL")) for known in one.get("license") or ())  # else it leads to a shop
    links = [link["URL"] for link in one.get("link") or () if free and link.get("content-type") == "application/pdf"]
    people = [
        " ".join(part for part in (a.get("given"), a.get("family") or a.get("name")) if part) for a in one.get("author") or ()
    ]
    return {
        "title": next(iter(one.get("title") or ()), None),
        "authors": people,
        "year": issued[0] if issued else None,
        "doi": one.get("DOI"),
        "abstract": one.get("abstract"),
        "citations": one.get("is-referenced-by-count"),
        "pdf_url": links[0] if links else None,
        "url": one.get("URL"),
        "venue": next(iter(one.get("container-title") or ()), None),
        "kind": one.get("type"),
        "open_access": None,
        "retracted": True if _withdrawn(one) else None,
        "volume": one.get("volume"),
        "issue": one.get("issue"),
        "pages": str(one["page"]).replace("-", "–") if one.get("page") else None,
    }


_S2_FIELDS = [
    "title",
    "authors",
    "year",
    "abstract",
    "externalIds",
    "citationCount",
    "openAccessPdf",
    "isOpenAccess",
    "url",
    "venue",
]


def _semantic_scholar(url: str, asked: Asked) -> Answer:
    import semanticscholar

    client: Any = semanticscholar.SemanticScholar(api_url=url, retry=False, timeout=60)
    years = f"{asked.first_year or ''}-{asked.last_year or ''}" if asked.first_year or asked.last_year else None
    found: Any = client.search_paper(asked.query, year=years, fields=_S2_FIELDS, bulk=True)
    raw: list[Json] = [dict(one.raw_data) for one in found.items]
    first = (asked.page - 1) * asked.size
    return Answer(_count(found.total), tuple(_paper(one) for one in raw[first : first + asked.size]))


def _paper(one: Json) -> Json:
    return {
        "title": one.get("title"),
        "authors": [a.get("name") for a in one.get("authors") or ()],
        "year": one.get("year"),
        "doi": _part(one, "externalIds").get("DOI"),
        "abstract": one.get("abstract"),
        "citations": one.get("citationCount"),
        "pdf_url": _part(one, "openAccessPdf").get("url") or None,
        "url": one.get("url"),
        "venue": one.get("venue") or None,
        "kind": None,
        "open_access": one.get("isOpenAccess"),
        "retracted": None,
    }


def _arxiv(url: str, asked: Asked) -> Answer:
    import arxiv

    client = arxiv.Client(page_size=asked.size, delay_seconds=0, num_retries=0)
    client.query_url_format = f"{url}/?{{}}"
    first = (asked.page - 1) * asked.size
    wanted = arxiv.Search(query=asked.query, max_results=first + asked.size, sort_by=arxiv.SortCriterion.Relevance)
    found: list[Any] = list(client.results(wanted, offset=first))
    years = (asked.first_year or 0, asked.last_year or 9999)
    return Answer(None, tuple(_preprint(one) for one in found if years[0] <= one.published.year <= years[1]))


def _preprint(one: Any) -> Json:
    return {
        "title": one.title,
        "authors": [a.name for a in one.authors],
        "year": one.published.year,
        "doi": one.doi or None,
        "abstract": one.summary,
        "citations": None,
        "pdf_url": one.pdf_url,
        "url": one.entry_id,
        "venue": one.journal_ref or "arXiv",
        "kind": "preprint",
        "open_access": True,
        "retracted": None,
    }


def _withdrawn(one: Json) -> bool:
    """A work of Crossref that a notice of retraction refers to. The notice itself says `update-to`, and is not withdrawn."""
    return any(str(update.get("type", "")).lower() in WITHDRAWN for update in one.get("updated-by") or ())


def _part(one: Json, name: str) -> Json:
    """What is under a name, where services write null as often as nothing."""
    return one.get(name) or {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


_CLIENTS: dict[str, Callable[[str, Asked], Answer]] = {
    "openalex": _openalex,
    "crossref": _crossref,
    "semantic_scholar": _semantic_scholar,
    "arxiv": _arxiv,
}
