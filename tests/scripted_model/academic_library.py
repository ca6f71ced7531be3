"""A library on 127.0.0.1: four services that answer as the real ones document, a portal, two search pages of different syntax, and papers."""

from __future__ import annotations

import html
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from scripted_model import academic_papers

Answer = tuple[int, dict[str, str], bytes]
Record = dict[str, Any]
_OPERATORS = {"and", "or", "not", "title", "abs", "all", "key", "near"}


def words(query: str) -> set[str]:
    return {w for w in re.findall(r"[a-z]{4,}", query.lower()) if w not in _OPERATORS}


class Library:
    """`trouble` by path: what is answered instead, as a function that may change its mind. `seen`: every request, by path."""

    def __init__(self, port: int = 0, records: list[Record] | None = None) -> None:
        self.records = academic_papers.PAPERS if records is None else records
        self.trouble: dict[str, Callable[[], Answer | None]] = {}
        self.seen: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.files: dict[str, bytes] = {}
        self.logged_in = False  # the second search page wants it
        self.captcha = False  # the first one shows it
        self._lock = threading.Lock()
        library = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with library._lock:
                    library.seen.append(self.path)
                    library.headers.append({k.lower(): v for k, v in self.headers.items()})
                try:
                    status, more, body = library.answer(self.path)
                except BrokenPipeError:
                    return
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hangs up is not an error of the library."""

        self.server = Server(("127.0.0.1", port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def asked(self, beginning: str) -> int:
        return sum(path.startswith(beginning) for path in self.seen)

    def counts(self) -> Counter[str]:
        return Counter(urlsplit(path).path for path in self.seen)

    def settings(self) -> dict[str, Any]:
        """academic_settings.yaml of a project that uses this library."""
        at = self.url
        services = {"openalex": f"{at}/openalex", "crossref": f"{at}/crossref", "semantic_scholar": f"{at}/s2"}
        pages = {"row": "li.hit", "fields": {"title": "h3", "authors": ".by", "year": ".year", "url": "h3 a::attr(href)"}}
        pages |= {"captcha": "#captcha", "login": "input[type=password]", "count": ".count", "ready": "form"}
        return {
            "version": 1,
            "services": {n: {"url": u} for n, u in services.items()} | {"arxiv": {"url": f"{at}/arxiv/api/query"}},
            "portals": {
                "Local": {
                    "start": f"{at}/portal?discipline={{discipline}}",
                    "row": "tr.db",
                    "fields": {"name": "td.name", "url": "a::attr(href)", "relevance": "td.rel", "discipline": "td.field"},
                    "login": "input[type=password]",
                    "captcha": "#captcha",
                    "next": "a.next",
                }
            },
            "interfaces": {
                "alpha": pages
                | {"start": f"{at}/alpha", "box": "input[name=q]", "submit": "button", "next": "a.next", "syntax": "ieee"},
                "beta": pages | {"start": f"{at}/beta", "box": "#query", "submit": "#go", "syntax": "pubmed"},
            },
            "databases": {
                "Alpha Index": {"url": f"{at}/alpha", "syntax": "ieee", "interface": "alpha"},
                "Beta Abstracts": {"url": f"{at}/beta", "syntax": "pubmed", "interface": "beta"},
            },
            "resolver": f"{at}/doi/{{doi}}",
            "browser": {"retry_seconds": [0.05, 0.15, 0.45], "page_seconds": 20},
            "busy_seconds": 0.05,
        }

    # Answers

    def answer(self, path: str) -> Answer:
        parts = urlsplit(path)
        asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
        for beginning, trouble in self.trouble.items():
            if path.startswith(beginning) and (instead := trouble()) is not None:
                return instead
        where = unquote(parts.path)
        for beginning, answer in self._answers.items():
            if where.startswith(beginning):
                return answer(self, where.removeprefix(beginning), asked)
        return 404, {}, b"nothing"

    def _found(self, query: str, asked: dict[str, str], first: int, size: int) -> tuple[int, list[Record]]:
        wanted = words(query)
        hits = [r for r in self.records if wanted & words(f"{r['title']} {r['abstract'] or ''}")]
        return len(hits), hits[first : first + size]

    def _openalex(self, rest: str, asked: dict[str, str]) -> Answer:
        if "doi:" in asked.get("filter", ""):
            dois = asked["filter"].partition("doi:")[2].split("|")
            found = [r for r in self.records if r["doi"] in {d.rpartition("doi.org/")[2].lower() for d in dois}]
            total = len(found)
        else:
            size = int(asked.get("per-page", asked.get("per_page", "25")))
            total, found = self._found(asked.get("search", ""), asked, (int(asked.get("page", "1")) - 1) * size, size)
        return _json({"meta": {"count": total, "page": 1, "per_page": 25}, "results": [self._work(r) for r in found]})

    def _work(self, r: Record) -> Json:
        places = {"pdf_url": self.pdf_url(r), "landing_page_url": f"https://doi.org/{r['doi']}", "is_oa": bool(r["text"])}
        inverted: dict[str, list[int]] = {}
        for n, word in enumerate((r["abstract"] or "").split()):
            inverted.setdefault(word, []).append(n)
        return {
            "id": f"https://openalex.org/W{len(r['title'])}{r['year']}",
            "doi": f"https://doi.org/{r['doi']}",
            "title": r["title"],
            "display_name": r["title"],
            "publication_year": r["year"],
            "type": "preprint" if r.get("preprint") else "article",
            "cited_by_count": r["citations"],
            "is_retracted": r["retracted"],
            "open_access": {"is_oa": bool(r["text"]), "oa_status": "gold" if r["text"] else "closed"},
            "authorships": [{"author": {"display_name": a}, "author_position": "first"} for a in r["authors"]],
            "primary_location": places | {"source": {"display_name": r["venue"]}},
            "best_oa_location": places if places["pdf_url"] else None,
            "abstract_inverted_index": inverted or None,
            "biblio": {
                "volume": r.get("volume"),
                "issue": r.get("issue"),
                "first_page": r.get("first"),
                "last_page": r.get("last"),
            },
        }

    def pdf_url(self, r: Record) -> str | None:
        return f"{self.url}/pdf/{r['name']}.pdf" if r["text"] or r.get("forbidden") or r.get("gone") or r.get("paywall") else None

    def _crossref(self, rest: str, asked: dict[str, str]) -> Answer:
        if rest:  # one work
            found = [r for r in self.records if r["doi"] == rest.strip("/").lower()]
            return (
                _json({"status": "ok", "message-type": "work", "message": self._item(found[0])})
                if found
                else (404, {}, b"Resource not found.")
            )
        total, found = self._found(asked.get("query", ""), asked, int(asked.get("offset", "0")), int(asked.get("rows", "20")))
        message = {"total-results": total, "items": [self._item(r) for r in found if not r.get("preprint")], "items-per-page": 20}
        return _json({"status": "ok", "message-type": "work-list", "message-version": "1.0.0", "message": message})

    def _item(self, r: Record) -> Json:
        people = [{"given": a.rpartition(" ")[0], "family": a.rpartition(" ")[2], "sequence": "first"} for a in r["authors"]]
        item: Json = {
            "DOI": r["doi"].upper(),
            "URL": f"https://doi.org/{r['doi']}",
            "title": [r["title"]],
            "author": people,
            "issued": {"date-parts": [[r["year"], 5]]},
            "container-title": [r["venue"]],
            "is-referenced-by-count": max(0, r["citations"] - 2),
            "type": "journal-article",
            **({"volume": r["volume"], "issue": r["issue"], "page": f"{r['first']}-{r['last']}"} if r.get("volume") else {}),
            "abstract": f"<jats:p>{html.escape(r['abstract'] or '')}</jats:p>",
        }
        if r["retracted"]:
            item["updated-by"] = [{"DOI": "10.5555/notice", "type": "retraction", "label": "Retraction"}]
        return item

    def _s2(self, rest: str, asked: dict[str, str]) -> Answer:
        total, found = self._found(asked.get("query", ""), asked, 0, 1000)
        papers = [
            {
                "paperId": f"{len(r['title']):040x}",
                "externalIds": {"DOI": r["doi"]},
                "url": f"https://www.semanticscholar.org/paper/{r['name']}",
                "title": r["title"],
                "abstract": r["abstract"],
                "venue": r["venue"],
                "year": r["year"],
                "citationCount": r["citations"],
                "isOpenAccess": bool(r["text"]),
                "openAccessPdf": {"url": self.pdf_url(r), "status": "GOLD"} if r["text"] else None,
                "authors": [{"authorId": "1", "name": a} for a in r["authors"]],
            }
            for r in found
        ]
        return _json({"total": total, "token": None, "data": papers})

    def _arxiv(self, rest: str, asked: dict[str, str]) -> Answer:
        known = [r for r in self.records if r.get("preprint") and words(asked.get("search_query", "")) & words(r["title"])]
        first = int(asked.get("start", "0"))
        entries = "".join(
            f"""<entry><id>http://arxiv.org/abs/2501.0000{n}v1</id><updated>{r["year"]}-01-05T00:00:00Z</updated>
<published>{r["year"]}-01-05T00:00:00Z</published><title>{escape(r["title"])}</title><summary>{escape(r["abstract"] or "")}</summary>
{"".join(f"<author><name>{escape(a)}</name></author>" for a in r["authors"])}
<arxiv:doi xmlns:arxiv="http://arxiv.org/schemas/atom">{r["doi"]}</arxiv:doi>
<link href="http://arxiv.org/abs/2501.0000{n}v1" rel="alternate" type="text/html"/>
<link title="pdf" href="{self.pdf_url(r)}" rel="related" type="application/pdf"/>
<arxiv:primary_category xmlns:arxiv="http://arxiv.org/schemas/atom" term="physics.ao-ph"/><category term="physics.ao-ph"/></entry>"""
            for n, r in enumerate(known[first:])
        )
        feed = f"""<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>query</title><id>q</id>
<updated>2026-01-01T00:00:00Z</updated>
<opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{len(known)}</opensearch:totalResults>
<opensearch:startIndex xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{first}</opensearch:startIndex>
<opensearch:itemsPerPage xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{len(known)}</opensearch:itemsPerPage>{entries}</feed>"""
        return 200, {"Content-Type": "application/atom+xml"}, feed.encode()

    def _pdf(self, rest: str, asked: dict[str, str]) -> Answer:
        name = rest.removesuffix(".pdf")
        if name in self.files:
            return 200, {"Content-Type": "application/pdf"}, self.files[name]
        record = next((r for r in self.records if r["name"] == name), None)
        if not record or record.get("gone"):
            return 404, {}, b"nothing"
        if record.get("forbidden"):
            return 403, {}, b"not for you"
        if record.get("paywall") or not record["text"]:
            return _page("Buy this article", "<p>38 dollars</p>")
        return 200, {"Content-Type": "application/pdf"}, self.files.setdefault(name, academic_papers.pdf(record))

    def _doi(self, rest: str, asked: dict[str, str]) -> Answer:
        record = next((r for r in self.records if r["doi"] == rest), None)
        if not record:
            return 404, {}, b"nothing"
        meta = f'<meta name="citation_pdf_url" content="{self.pdf_url(record)}">' if self.pdf_url(record) else ""
        return _page(record["title"], "<p>A landing page.</p>", meta)

    def _portal(self, rest: str, asked: dict[str, str]) -> Answer:
        field = html.escape(asked.get("discipline", ""))
        rows = {
            "1": [
                ("Alpha Index", "/alpha", "top"),
                ("OpenAlex", "https://openalex.org", "high"),
                ("Old Card File", "/cards", ""),
            ],
            "2": [("Beta Abstracts", "/beta", "medium"), ("arXiv", "https://arxiv.org", "low")],
        }[asked.get("page", "1")]
        table = "".join(
            f'<tr class="db"><td class="name">{n}</td><td><a href="{u if u.startswith("http") else self.url + u}">go</a></td>'
            f'<td class="rel">{r}</td><td class="field">{field}</td></tr>'
            for n, u, r in rows
        )
        more = (
            f'<a class="next" href="/portal?discipline={quote(field)}&amp;page=2">more</a>'
            if asked.get("page", "1") == "1"
            else ""
        )
        return _page("Databases", f"<script>document.title='Databases for {field}'</script><table>{table}</table>{more}")

    def _alpha(self, rest: str, asked: dict[str, str]) -> Answer:
        """Two hits to a page; its list is written by a script, as such pages are."""
        if self.captcha:
            return _page("Are you a person?", '<div id="captcha">Pick all traffic lights</div>')
        form = '<form action="/alpha"><input name="q"><button>Search</button></form>'
        if "q" not in asked:
            return _page("Alpha Index", form)
        page = int(asked.get("page", "1"))
        total, found = self._found(asked["q"], asked, (page - 1) * 2, 2)
        more = f'<a class="next" href="/alpha?q={quote(asked["q"])}&amp;page={page + 1}">next</a>' if page * 2 < total else ""
        listed = json.dumps("".join(_hit(r) for r in found))
        write = f'<ul id="l"></ul><script>setTimeout(() => {{document.getElementById("l").innerHTML = {listed}}}, 30)</script>'
        return _page("Alpha Index", f'{form}<p class="count">{total} hits</p>{write}{more}')

    def _beta(self, rest: str, asked: dict[str, str]) -> Answer:
        if not self.logged_in:
            return _page("Log in", '<form><input name="u"><input type="password"></form>')
        form = '<form action="/beta"><input id="query" name="term"><input type="submit" id="go" value="Go"></form>'
        if "term" not in asked:
            return _page("Beta Abstracts", form)
        total, found = self._found(asked["term"], asked, 0, 5)
        return _page("Beta Abstracts", f'{form}<p class="count">{total}</p><ul>{"".join(_hit(r) for r in found)}</ul>')

    _answers: ClassVar[dict[str, Callable[[Library, str, dict[str, str]], Answer]]] = {
        "/openalex/works": _openalex,
        "/crossref/works": _crossref,
        "/s2/graph/v1/paper/search/bulk": _s2,
        "/arxiv/api/query": _arxiv,
        "/pdf/": _pdf,
        "/doi/": _doi,
        "/portal": _portal,
        "/alpha": _alpha,
        "/beta": _beta,
    }


Json = dict[str, Any]


def times(count: int, answer: Answer) -> Callable[[], Answer | None]:
    """An answer that is given so often, and then the usual one."""
    left = [count]

    def instead() -> Answer | None:
        left[0] -= 1
        return answer if left[0] >= 0 else None

    return instead


def slow(seconds: float) -> Callable[[], Answer | None]:
    def instead() -> Answer | None:
        time.sleep(seconds)
        return None

    return instead


def _hit(r: Record) -> str:
    by = "; ".join(html.escape(a) for a in r["authors"])
    return (
        f'<li class="hit"><h3><a href="https://doi.org/{r["doi"]}">{html.escape(r["title"])}</a></h3>'
        f'<span class="by">{by}</span> <span class="year">{r["year"]}</span></li>'
    )


def _page(title: str, body: str, head: str = "") -> Answer:
    text = f"<!doctype html><html><head><title>{html.escape(title)}</title>{head}</head><body><h1>{html.escape(title)}</h1>{body}</body></html>"
    return 200, {"Content-Type": "text/html; charset=utf-8"}, text.encode()


def _json(document: Json) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()
