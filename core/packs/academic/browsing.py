"""Pages of databases and portals in a real browser, by selectors of the settings. What it shows is kept, and can be replayed.

The browser has a profile of its own and listens on no port: it is spoken to through a pipe.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from lib.contract import Json, StrataError
from lib.disk import files
from lib.disk.clock import now
from lib.web import manners, proxy
from lib.web.door import FINAL, Door
from lib.web.evidence import BODIES, Fetched
from msgspec import Struct
from msgspec.structs import replace

from packs.academic import config, merging
from packs.academic.at import At
from packs.academic.folder import add_line
from packs.academic.settings import Browser, Interface

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
CHOICES = ("yes", "skip")
CRASHED = "BROWSER_CRASHED"
HEALTH = "logs/cdp_health.log"
_GONE = "crashed:"
_DEAD = re.compile(
    r"has been closed|was closed|closed unexpectedly|crashed|disconnected|Connection closed", re.I
)  # playwright's words


class Sight(Struct, frozen=True):
    """A page as the browser shows it, and where a picture of it is."""

    html: str
    url: str
    picture: Path | None = None


class Walk:
    """Through the pages of one interface. With a recording, what was seen then is seen again."""

    def __init__(self, at: At, phase: int, name: str, interface: Interface, stage: str) -> None:
        """`stage`: under which name a person answers."""
        self.at, self.phase, self.name, self.interface, self.stage = at, phase, name, interface, stage
        self.door = Door(at.call, at.out)
        self.seen = 0
        self.seen_at = ""  # when the last page was seen; of a recording, when it was recorded

    def pages(self, start: str, query: str = "") -> Generator[Sight]:
        """Page after page, as long as there is a next one. A page that wants a person asks for one."""
        looked = self._replayed(start, query) if self.door.shelf.recorded else self._live(start, query)
        with closing(looked):  # the browser ends with the walk, also when whoever looks has had enough
            for sight in looked:
                self._require_nobody(sight)
                yield sight

    def _replayed(self, start: str, query: str) -> Generator[Sight]:
        while True:
            known = self.door.shelf.replayed(self._asked(start, query))
            if known.error:
                raise StrataError(str(known.error["code"]), str(known.error["message"]), detail=dict(known.error))
            self.seen, self.seen_at = self.seen + 1, known.at
            sight = Sight((self.door.session / known.body).read_text(encoding="utf-8"), known.final_url)
            yield sight
            if not self._goes_on(sight):
                return

    def _live(self, start: str, query: str) -> Generator[Sight]:
        if self.at.task.answer is not None:
            self.at.folder.state.answered(self.stage)
        with _running(self.at, self.door, self.name) as tab:
            try:
                self._go(tab, start)
                if query:
                    self._require_nobody(self._look(tab, start, query, keep=False))
                    tab.fill(self.interface.box, query)
                    self._arrive(tab, lambda: tab.click(self.interface.submit))
                while True:
                    sight = self._look(tab, start, query)
                    yield sight
                    if not self._goes_on(sight):
                        return
                    self._arrive(tab, lambda: tab.click(self.interface.next))
            except StrataError as error:
                if error.code != "HUMAN_INPUT":
                    self.door.shelf.keep(replace(self._asked(start, query), error=error.document()))
                raise

    def _go(self, tab: Any, address: str) -> None:
        self.door.admit(address)
        answer = tab.goto(address, wait_until="domcontentloaded")
        status = answer.status if answer else 0
        if status >= 400 and not self._wants_somebody(tab.content()):
            message = f"{address} answered {status}"
            wait = manners.retry_after(answer.headers.get("retry-after", ""))
            raise StrataError(f"HTTP_{status}", message, "", detail={"wait": wait}, final=status in FINAL)
        _settle(tab, self.interface)

    def _arrive(self, tab: Any, act: Callable[[], None]) -> None:
        with tab.expect_navigation(wait_until="domcontentloaded"):
            act()
        _settle(tab, self.interface)

    def _look(self, tab: Any, start: str, query: str, keep: bool = True) -> Sight:
        html = tab.content()
        picture = self.at.out / f"page-{self.seen + 1}.png"
        tab.screenshot(path=str(picture))
        _health(self.at, f"{self.name}: {tab.url} ({len(html)} letters)")
        if keep:
            body = html.encode()
            sha = files.digest_bytes(body)
            files.write_atomic(self.door.session / BODIES / sha, body)
            kind = {"content-type": "text/html; charset=utf-8"}
            facts = replace(self._asked(start, query), final_url=tab.url, status=200, headers=kind, sha256=sha, size=len(body))
            self.door.shelf.keep(replace(facts, body=str(BODIES / sha)))
            self.seen, self.seen_at = self.seen + 1, facts.at
        return Sight(html, tab.url, picture)

    def _wants_somebody(self, html: str) -> bool:
        return any(selector and select(html, selector) for selector in (self.interface.captcha, self.interface.login))

    def _asked(self, start: str, query: str) -> Fetched:
        sent = files.digest_bytes(f"{query}\n{self.seen}".encode())
        return Fetched("BROWSE", start, f"{self.name}: {query or 'its list'}"[:200], now(), sent_sha256=sent)

    def _goes_on(self, sight: Sight) -> bool:
        return bool(self.interface.next) and bool(select(sight.html, self.interface.next))

    def _require_nobody(self, sight: Sight) -> None:
        """A CAPTCHA and a login are a person's: they are not tried again, and not got around."""
        for kind, selector, what in (
            ("captcha", self.interface.captcha, "wants to see that you are a person"),
            ("login", self.interface.login, "wants somebody to log in"),
        ):
            if selector and select(sight.html, selector):
                if str(self.at.task.answer or "") == "skip":
                    raise StrataError("SKIPPED", f"{self.name} {what}, and a person says to skip it", "", final=True)
                show = (sight.picture,) if sight.picture else ()
                kept = self.at.settings().browser.profiles
                where = (
                    f"the profile {kept}/{files.safe_name(self.name)}"
                    if kept
                    else "`browser: {profiles: FOLDER}` in the settings"
                )
                hint = f"Settle it in a browser with {where}, and say yes; or skip {self.name}."
                _health(self.at, f"{self.name}: {kind}")
                raise self.at.ask(self.phase, self.stage, f"{self.name} {what}: {sight.url}. {hint}", CHOICES, show)


def select(html: str, selector: str) -> list[str]:
    """What a selector finds: text, or an attribute with `::attr(name)`."""
    from parsel import Selector

    return [" ".join(found.split()) for found in Selector(text=html).css(selector).getall()]


def rows(sight: Sight, interface: Interface) -> list[Json]:
    """The results of a page, by the names of the settings; what is not there is null."""
    from parsel import Selector

    made: list[Json] = []
    for row in Selector(text=sight.html).css(interface.row):
        one: Json = {}
        for name, selector in interface.fields.items():
            wanted = row.css(selector) if "::" in selector else row.css(selector).xpath("string()")
            text = " ".join((wanted.get() or "").split())
            one[name] = text or None
        made.append(one)
    return made


def patiently(at: At, phase: int, name: str, settings: Browser, work: Callable[[], Json]) -> Json:
    """Tries again after 5, 15 and 45 seconds, and up to a tenth more; what a site refuses for good is not tried again."""
    for wait in (*settings.retry_seconds, None):
        try:
            return work()
        except StrataError as error:
            if error.code == "HUMAN_INPUT" or error.detail.get("final") or wait is None:
                raise
            longer = max(wait, float(error.detail.get("wait") or 0)) * (1 + random.random() / 10)
            at.folder.state.retried(phase, "browser", name, f"{error.code}: {error.message}", longer)
            at.say(phase, f"{name}: {error.message}; again in {longer:.0f} s", "warning")
            replaying = at.call.driver == "replay"
            manners.pause(0 if replaying else longer)
    raise AssertionError("unreachable")


def portal(at: At) -> Json:
    """One list of databases, for one field."""
    item: Json = at.task.item
    settings = at.settings()
    interface = settings.portal(item["portal"])
    start = interface.start.replace("{discipline}", quote(item["discipline"]))

    def walk() -> Json:
        found: list[Json] = []
        more = False
        walked = Walk(at, 0, item["portal"], interface, f"portal/{item['key']}")
        with closing(walked.pages(start)) as seen:
            for _, sight in zip(range(interface.pages), seen, strict=False):
                found += [
                    row | {"discipline": row.get("discipline") or item["discipline"]}
                    for row in rows(sight, interface)
                    if row.get("name")
                ]
                more = bool(interface.next) and bool(select(sight.html, interface.next))
        if more:
            at.warn(
                0, f"{item['portal']} has more than {interface.pages} pages, and the rest is not read (pages: in the settings)"
            )
        return {"rows": [row | {"url": urljoin(start, row["url"]) if row.get("url") else None} for row in found]}

    made = patiently(at, 0, item["portal"], settings.browser, walk)
    at.leave("found", made)
    return at.done(f"{len(made['rows'])} databases for {item['discipline']}")


def search(at: At) -> Json:
    """One query through the pages of one database. A round takes as many pages as the settings allow, each round the next."""
    item: Json = at.task.item
    interface = at.settings().interface(item["interface"])
    walked = Walk(at, 2, item["database"], interface, f"browse/{item['key']}")
    first = (item["page"] - 1) * interface.pages
    found: list[Json] = []
    hits: int | None = None
    with closing(walked.pages(interface.start, item["query"])) as seen:
        for number, sight in enumerate(seen):
            said = select(sight.html, f"{interface.count}::text") if interface.count else []
            digits = "".join(c for c in (said[0] if said else "") if c.isdigit())
            hits = int(digits) if digits else hits
            if number >= first:
                found += [_record(row, sight.url) for row in rows(sight, interface)]
            if number + 1 >= first + interface.pages:
                break
    period = config.of(at.folder.take("run_config", 2)).period
    found = [one for one in found if (period.from_ or 0) <= (one["year"] or period.from_ or 0) <= (period.to or 9999)]
    at.leave("found", {"hits": hits, "at": walked.seen_at or now(), "records": found})
    at.say(2, f"{item['database']}, round {item['iteration']}: {len(found)} of {hits} for {item['query']}")
    return at.done(f"{len(found)} records")


def _record(row: Json, address: str) -> Json:
    """A result of a page, under our names. Several authors stand behind each other, with a semicolon."""
    year = next(iter(re.findall(r"\b(?:19|20)\d\d\b", str(row.get("year") or ""))), None)
    names = [part.strip() for part in re.split(r";|\band\b|&", str(row.get("authors") or "")) if part.strip()]
    url = urljoin(address, row["url"]) if row.get("url") else None
    return {**row, "authors": names, "year": int(year) if year else None, "url": url, "doi": merging.doi(row.get("doi") or url)}


@contextmanager
def _running(at: At, door: Door, name: str) -> Generator[Any]:
    """A tab of a browser of its own. One that crashes is a reason to start another, with a clean profile."""
    from playwright.sync_api import Error, TimeoutError, sync_playwright

    settings = at.settings().browser
    command = settings.command or next((found for p in PROGRAMS if (found := shutil.which(p))), "")
    if not command:
        raise StrataError(
            "NO_BROWSER", "this machine has no Chromium", "Debian: apt-get install chromium; or browser.command", final=True
        )
    with tempfile.TemporaryDirectory(prefix="strata-browser-", ignore_cleanup_errors=True) as clean:
        profile = _profile(at, settings, name, clean)
        flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        try:
            with proxy.served(door) as way_out, sync_playwright() as driver:
                browser = driver.chromium.launch_persistent_context(
                    profile,
                    executable_path=command,
                    headless=settings.headless,
                    args=[*flags, f"--proxy-server={way_out}", "--proxy-bypass-list=<-loopback>"],
                    handle_sigint=False,
                    handle_sigterm=False,
                )
                browser.set_default_timeout(settings.page_seconds * 1000)
                _health(at, f"{name}: started {command} with {'a clean profile' if profile == clean else profile}")
                try:
                    yield browser.pages[0] if browser.pages else browser.new_page()
                finally:
                    _closed(at, browser)
        except TimeoutError as error:
            raise StrataError("TIMEOUT", f"the page did not come: {_first(error)}", "") from None
        except Error as error:
            if not _DEAD.search(str(error)):
                _health(at, f"{name}: {_first(error)}")
                raise StrataError("UNREACHABLE", f"{name}: {_first(error)}", "") from None
            _health(at, f"{name}: {_GONE} {_first(error)}")
            raise StrataError(CRASHED, f"the browser is gone: {_first(error)}", "it is started again") from None


def _profile(at: At, settings: Browser, name: str, clean: str) -> str:
    """The one that is kept for these pages, if any is; behind a crash a clean one."""
    log = at.folder.root / HEALTH
    last = [line for line in log.read_text(encoding="utf-8").splitlines() if f" {name}: " in line][-1:] if log.is_file() else []
    if not settings.profiles or any(_GONE in line for line in last):
        return clean
    return str(Path(settings.profiles).expanduser() / files.safe_name(name))


def _closed(at: At, browser: Any) -> None:
    from playwright.sync_api import Error

    try:
        browser.close()
        _health(at, "closed")
    except Error as error:
        _health(at, f"could not be closed: {_first(error)}")


def _settle(tab: Any, interface: Interface) -> None:
    """Until the page is quiet and what is wanted is there; a page without any result shows none."""
    from playwright.sync_api import TimeoutError

    tab.wait_for_load_state("networkidle")
    wanted = ", ".join(s for s in (interface.row, interface.captcha, interface.login, interface.ready) if s)
    try:
        tab.wait_for_selector(wanted, state="attached")
    except TimeoutError:
        return  # the page is there, and has nothing


def _health(at: At, text: str) -> None:
    add_line(at.folder.root / HEALTH, f"{now()} {' '.join(text.split())}\n")


def _first(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
