"""The one door to the web: GET, POST and download, each with a reason, bounded, polite, and with its evidence on disk.

    door = Door(call, out)                       # in a tool: `out` is where its attempt writes
    page = door.get("https://example.org/", reason="the price list").require()
    page.readable().text

With `--driver replay` nothing is asked of the network: the answers are those of the recorded session.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import StrataError, usage
from lib.disk import files, records, redact
from lib.disk.clock import now
from lib.tool.call import Call
from lib.web import manners, reading, rules, wire
from lib.web.evidence import KEPT_HEADERS, Fetched, Hop, Shelf, discreet
from lib.web.rules import Rules

REDIRECTS = (301, 302, 303, 307, 308)
BUSY = (429, 503)
MOST_ROBOTS = 5_000_000  # bytes, of which the first half million are read
MOST_RETRIES = 2
# What trying again does not help: the site has said no, or has nothing.
FINAL = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 414, 451, 501})


class Page(Struct, frozen=True):
    """What came back."""

    evidence: Fetched
    session: Path

    @property
    def ok(self) -> bool:
        return 200 <= self.evidence.status < 300

    @property
    def path(self) -> Path:
        return self.session / self.evidence.body

    @property
    def content(self) -> bytes:
        return self.path.read_bytes() if self.evidence.body else b""

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise StrataError("UNREADABLE", f"{discreet(self.evidence.final_url)} is not JSON: {error}", "", final=True) from None

    def readable(self) -> reading.Readable:
        """Text and date out of HTML, text by page out of PDF."""
        return reading.read(self.content, self.evidence.headers.get("content-type", ""), self.evidence.final_url)

    def require(self) -> Page:
        """This page, or an error that says whether it helps to try again."""
        if self.ok:
            return self
        status = self.evidence.status
        message = f"{discreet(self.evidence.final_url)} answered {status}"
        raise StrataError(f"HTTP_{status}", message, "see the evidence in the attempt's web/", final=status in FINAL)


class Door:
    """Of one attempt of one tool. Safe to use from several threads."""

    def __init__(self, call: Call, out: Path, bounds: Rules | None = None) -> None:
        fixtures = Path(call.options.fixtures).absolute() if call.driver == "replay" else None
        self.rules = bounds or rules.of_project()
        self.session = call.session.folder
        self.shelf = Shelf(self.session, out.parent, fixtures)
        self.report = call.report
        self._robots: dict[str, manners.Robots] = {}
        self._lock = threading.Lock()

    def get(self, url: str, reason: str, headers: dict[str, str] | None = None) -> Page:
        return self._ask("GET", url, reason, headers or {}, b"", self.rules.max_bytes)

    def post(self, url: str, reason: str, body: Any, headers: dict[str, str] | None = None) -> Page:
        """`body`: bytes as they are, anything else as JSON."""
        given = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}
        return self._ask("POST", url, reason, kind | (headers or {}), given, self.rules.max_bytes)

    def download(self, url: str, reason: str, to: Path, most: int = 0) -> Page:
        """Into a file, which is there when all of it is."""
        page = self._ask("GET", url, reason, {}, b"", most or self.rules.max_bytes).require()
        to.parent.mkdir(parents=True, exist_ok=True)
        part = to.with_name(f".{to.name}.part")
        shutil.copyfile(page.path, part)
        part.replace(to)
        return page

    def admit(self, address: str, mannered: bool = True) -> rules.Place:
        """Raises where a browser may not go either. `mannered`: robots and our turn at the host count, too."""
        url = _parsed(address)
        rules.check_name(self.rules, url.scheme, _host(url), bool(url.userinfo))
        place = rules.locate(self.rules, _host(url), url.port or (443 if url.scheme == "https" else 80))
        if mannered:
            self._mannered(url)
        return place

    def _ask(self, method: str, url: str, reason: str, headers: dict[str, str], body: bytes, most: int) -> Page:
        if not reason.strip():
            usage(f"{url}: no reason is given", "say in a few words why it is fetched; the evidence keeps the reason")
        _check_headers(headers)
        sent = files.digest_bytes(body) if body else ""
        asked = Fetched(method, url, reason, now(), sent_sha256=sent, asked_with=_asked_with(headers))
        if self.shelf.recorded:
            return self._page(self.shelf.replayed(asked))
        began = time.monotonic()
        try:
            fetched = self._fetch(asked, headers, body, most)
        except StrataError as error:
            error.message = discreet(error.message)  # it goes on into outcomes and reports
            self.shelf.keep(replace(asked, error=error.document(), elapsed_seconds=round(time.monotonic() - began, 3)))
            raise
        fetched = self.shelf.keep(replace(fetched, elapsed_seconds=round(time.monotonic() - began, 3)))
        self.report("web", {"what": f"{method} {fetched.status} {discreet(url)}"[:200]})
        return self._page(fetched)

    def _page(self, fetched: Fetched) -> Page:
        if fetched.error:
            known = {"code": "", "message": "", "hint": ""} | fetched.error
            detail = {k: v for k, v in fetched.error.items() if k not in ("code", "message", "hint")}
            raise StrataError(str(known["code"]), str(known["message"]), str(known["hint"]), detail=detail)
        return Page(fetched, self.session)

    def _fetch(self, asked: Fetched, headers: dict[str, str], body: bytes, most: int, mannered: bool = True) -> Fetched:
        """Follows redirects by itself: every one of them is a new place to check."""
        import httpx2

        method, hops = asked.method, list[Hop]()
        url = _parsed(asked.url)
        first = _origin(url)
        while True:
            rules.check_name(self.rules, url.scheme, _host(url), bool(url.userinfo))
            if mannered:
                self._mannered(url)
            known = self.shelf.copy_of(str(url)) if method == "GET" and not headers else None
            raw = self._hop(method, url, headers if _origin(url) == first else {}, body, known, most)
            hops.append(Hop(str(url), raw.address, raw.status))
            kept = {name: value for name, value in raw.headers.items() if name in KEPT_HEADERS}
            came = replace(asked, final_url=str(url), status=raw.status, headers=kept, hops=tuple(hops))
            if raw.status == 304 and known:
                came = replace(came, status=known.status, headers=known.headers | kept, unchanged=True)
                return replace(came, sha256=known.sha256, size=known.size, body=known.body)
            came = replace(came, sha256=raw.sha256, size=raw.size, body=raw.body)
            where = raw.headers.get("location", "")
            if raw.status not in REDIRECTS or not where:
                if raw.status == 200 and method == "GET" and not headers and ("etag" in kept or "last-modified" in kept):
                    self.shelf.keep_copy(str(url), came)
                return came
            if len(hops) > self.rules.max_redirects:
                message = f"{asked.url}: redirected more than {self.rules.max_redirects} times"
                raise StrataError("TOO_MANY_REDIRECTS", message, "ask for the address itself", final=True)
            if method == "POST" and raw.status != 303:
                message = f"{asked.url}: what was posted is redirected to {where}"
                raise StrataError("WEB_REFUSED", message, "post to that address on purpose", final=True)
            method, body = "GET", b""
            try:
                url = url.join(where).copy_with(fragment=None)
            except httpx2.InvalidURL as error:
                raise rules.refuse(f"{asked.url} leads to {where[:200]!r}: {error}", "the site is wrong") from None

    def _hop(self, method: str, url: Any, headers: dict[str, str], body: bytes, known: Fetched | None, most: int) -> wire.Raw:
        """One exchange; a site that is busy and says for how long is waited for."""
        conditions = {"if-none-match": "etag", "if-modified-since": "last-modified"}
        asks = {name: known.headers[of] for name, of in conditions.items() if of in known.headers} if known else {}
        for tries in range(MOST_RETRIES + 1):
            place = rules.locate(self.rules, _host(url), url.port or (443 if url.scheme == "https" else 80))
            raw = wire.exchange(self.rules, self.session, place, wire.Outgoing(method, url, asks | headers, body), most)
            wait = manners.retry_after(raw.headers.get("retry-after", "")) if raw.status in BUSY else 0.0
            if not wait or tries == MOST_RETRIES or wait > self.rules.max_wait_seconds:
                return raw
            self.report("web", {"what": f"{url.host} asks to wait {wait:g} s"})
            manners.pause(wait)
        raise AssertionError("unreachable")

    def _mannered(self, url: Any) -> None:
        """Robots first, then our turn at the host."""
        delay = self.rules.delay_seconds
        if self.rules.robots:
            robots = self._robots_of(url)
            delay = max(delay, robots.delay)
            if robots.closed:
                raise StrataError("UNREACHABLE", f"{url.host} cannot say what robots may do", "try again later")
            if not robots.allows(str(url)):
                hint = "leave it out; `robots: false` is for sites of your own"
                raise rules.refuse(f"robots.txt of {url.host} does not allow {url}", hint)
        manners.wait_for_turn(self.session, _origin(url), delay)

    def _robots_of(self, url: Any) -> manners.Robots:
        origin = _origin(url)
        with self._lock:
            if origin not in self._robots:
                with manners.alone(self.session, f"{origin}-robots"):  # many tools begin at the same moment: one of them asks
                    status, body = self._read_robots(url.copy_with(path="/robots.txt", query=None, fragment=None))
                self._robots[origin] = manners.Robots(status, body, self.rules.user_agent)
            return self._robots[origin]

    def _read_robots(self, url: Any) -> tuple[int, bytes]:
        """Of this session's own copy, or of the site, redirects included; another attempt has asked for it before."""
        known = self.shelf.copy_of(str(url))
        if known:
            return known.status, (self.session / known.body).read_bytes()
        asked = Fetched("GET", str(url), "robots.txt", now())
        try:
            fetched = self._fetch(asked, {}, b"", MOST_ROBOTS, mannered=False)
        except StrataError as error:
            self.shelf.keep(replace(asked, error=error.document()))
            if error.code != "TOO_MANY_REDIRECTS":
                raise
            return 404, b""
        self.shelf.keep(fetched)
        if fetched.status < 500:  # trouble passes
            self.shelf.keep_copy(str(url), fetched)
        return fetched.status, (self.session / fetched.body).read_bytes()


def _check_headers(headers: dict[str, str]) -> None:
    """What cannot be sent is refused by its name: its value may be a secret."""
    for name, value in headers.items():
        sound = value.isascii() and value.isprintable() and name.isascii() and name.replace("-", "").isalnum()
        if not sound or name.lower() == "host":
            usage(f"the header {name!r} cannot be sent", "use printable ASCII without line breaks; the door sets Host itself")


def _asked_with(headers: dict[str, str]) -> str:
    """A digest of the headers that a caller gives; of one that looks like a credential, only that it is there."""

    def secret(name: str) -> bool:
        return name.lower() == "authorization" or redact.credential_name(name.replace("-", "_"))

    plain = {name.lower(): "" if secret(name) else value for name, value in headers.items()}
    return files.digest(sorted(plain.items()))[:16] if plain else ""


def _parsed(text: str) -> Any:
    import httpx2

    try:
        return httpx2.URL(text).copy_with(fragment=None)
    except (httpx2.InvalidURL, TypeError) as error:
        raise rules.refuse(f"{text[:200]!r} is no address: {error}", "give a whole address, https://…") from None


def _host(url: Any) -> str:
    """As it is looked up."""
    return str(url.raw_host.decode("ascii")).lower()


def _origin(url: Any) -> str:
    return f"{url.scheme}-{_host(url)}-{url.port or ''}"


def prepare_for_forks() -> None:
    records.prepare(Fetched, Rules)
