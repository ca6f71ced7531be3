"""The door to the web, against a real server: what it refuses, what it bounds, how it behaves, and what it leaves as evidence."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from lib.contract import StrataError
from lib.web import rules
from lib.web.door import Door, Page
from lib.web.rules import Rules, special

Answer = tuple[int, dict[str, str], bytes]


class Site:
    """A site of one's own: `pages` by path, each an answer or a function of the request."""

    def __init__(self, secure: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Answer | Callable[[Any], Answer]] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                headers = {k.lower(): v for k, v in self.headers.items()}
                site.seen.append((self.command, self.path, headers, body))
                found = site.pages.get(self.path.partition("?")[0], (404, {}, b"nothing"))
                status, more, content = found(headers) if callable(found) else found
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if "Content-Length" not in more:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if secure:
            self.server.socket = secure.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> int:
        return sum(seen[1] == path for seen in self.seen)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


HTML = """<html><head><title>Prices</title><meta property="article:published_time" content="2025-03-04"></head>
<body><nav>Home | Menu | Imprint</nav><article><h1>Prices of hosting</h1>
<p>Hosting a small wiki costs four dollars a month at most providers, and the price has been stable since the spring.</p>
<p>Larger teams pay by the seat, and should ask for a quote before they decide on one of them.</p></article></body></html>"""


def door(tmp_path: Path, site: Site | None = None, driver: str = "live", fixtures: Path | None = None, **bounds: Any) -> Door:
    session = tmp_path / "session"
    attempt = session / "trial/stages/01-one/attempt-1"
    (attempt / "out").mkdir(parents=True, exist_ok=True)
    call: Any = SimpleNamespace(
        driver=driver, options=Namespace(fixtures=str(fixtures)), session=SimpleNamespace(folder=session), report=lambda *_: None
    )
    private = (f"127.0.0.1:{site.port}",) if site else ()
    return Door(call, attempt / "out", Rules(**({"private": private, "robots": False, "delay_seconds": 0.0} | bounds)))


def evidence(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted((tmp_path / "session/trial/stages/01-one/attempt-1/web").glob("*.json"))]


def refused(what: Callable[[], Page]) -> StrataError:
    with pytest.raises(StrataError) as caught:
        what().require()
    return caught.value


# What it refuses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8", "2002:0a00:0001::", "64:ff9b::10.0.0.1", "::10.0.0.1", "2001:db8::1", "fec0::1", "fe80::1%lo",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_public_internet_are_special(address: str) -> None:
    assert special(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "100.128.0.1"])
def test_addresses_of_the_public_internet_are_not(address: str) -> None:
    assert special(address) == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "file: not one of https, http"),
        ("ftp://example.org/", "ftp: not one of"),
        ("//example.org/", "no scheme"),
        ("https:///x", "without a host"),
        ("https://me:secret@example.org/", "a name or password"),
        ("http://127.0.0.1/", "loopback"),
        ("http://2130706433/", "loopback"),
        ("http://0x7f.1/", "loopback"),
        ("http://[::1]/", "loopback"),
        ("http://[::ffff:127.0.0.1]/", "loopback"),
        ("http://localhost/", "loopback"),
        ("https://other.example/", "not on the list of hosts"),
        ("http://exa mple.org\n/", "is no address"),
    ],
)
def test_what_must_not_be_asked_is_refused_before_anything_is_sent(tmp_path: Path, url: str, words: str) -> None:
    hosts = ("127.*", "localhost", "2130706433", "0x7f.1", "::1", "::ffff:*", "example.org", "")
    error = refused(lambda: door(tmp_path, hosts=hosts).get(url, "a trial"))
    assert (error.code, error.detail.get("final")) == ("WEB_REFUSED", True)
    assert words in error.message
    (kept,) = evidence(tmp_path)
    shown = url.replace("me:secret", "[redacted]")
    assert (kept["url"], kept["reason"], kept["error"]["code"]) == (shown, "a trial", "WEB_REFUSED")


def test_every_address_of_a_name_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(rules.socket, "getaddrinfo", lambda *_, **__: found)
    assert "10.0.0.1" in refused(lambda: door(tmp_path).get("http://two.example/", "x")).message


def test_a_redirect_is_a_new_place_to_check(tmp_path: Path, site: Site) -> None:
    site.pages["/"] = (302, {"Location": "http://localhost:1/"}, b"")
    error = refused(lambda: door(tmp_path, site).get(f"{site.url}/", "x"))
    assert error.code == "WEB_REFUSED" and "localhost leads to" in error.message
    site.pages["/"] = (302, {"Location": "file:///etc/passwd"}, b"")
    assert "file: not one of" in refused(lambda: door(tmp_path, site).get(f"{site.url}/", "x")).message


def test_the_checked_address_is_the_one_that_is_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is looked up once, TLS verifies the name, and a second look-up would lead elsewhere."""
    authority = trustme.CA()
    server, other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.test").configure_cert(server)
    authority.issue_cert("evil.test").configure_cert(other)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    asked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: str, port: int, *args: Any, **kw: Any) -> Any:
        if host == "site.test":
            asked.append(host)
            assert len(asked) == 1, "it is looked up once"
            host = "127.0.0.1"
        return real(host, port, *args, **kw)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    for context, works in ((server, True), (other, False)):
        asked.clear()
        site = Site(context)
        site.pages["/"] = (200, {}, b"hello")
        try:
            bounds = {"private": (f"site.test:{site.port}",), "ca": str(tmp_path / "ca.pem")}
            address = f"https://site.test:{site.port}/"
            if works:
                page = door(tmp_path, **bounds).get(address, "x")
                assert page.content == b"hello"
                assert page.evidence.hops[0].address == "127.0.0.1"
                assert site.seen[0][2]["host"] == f"site.test:{site.port}"
            else:
                error = refused(lambda bounds=bounds, address=address: door(tmp_path, **bounds).get(address, "x"))
                assert error.code == "UNREACHABLE" and "certificate" in error.message.lower()
        finally:
            site.close()


# What it bounds


def test_bytes_are_bounded_unpacked_too(tmp_path: Path, site: Site) -> None:
    site.pages["/big"] = (200, {}, b"x" * 100_000)
    site.pages["/bomb"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"\0" * 50_000_000))
    site.pages["/deflated"] = (200, {"Content-Encoding": "deflate"}, zlib.compress(b"small"))
    site.pages["/odd"] = (200, {"Content-Encoding": "br"}, b"x")
    site.pages["/cut"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"a" * 5000)[:-12])
    this = door(tmp_path, site, max_bytes=50_000)
    for path in ("/big", "/bomb"):
        error = refused(lambda path=path: this.get(site.url + path, "x"))
        assert (error.code, error.detail.get("final")) == ("TOO_LARGE", True)
    assert this.get(f"{site.url}/deflated", "x").content == b"small"
    assert refused(lambda: this.get(f"{site.url}/odd", "x")).code == "UNREADABLE"
    assert refused(lambda: this.get(f"{site.url}/cut", "x")).code == "UNREACHABLE"
    left = [p.name for p in (tmp_path / "session/web/bodies").iterdir()]
    assert not [name for name in left if name.startswith(".")], "nothing half is left"


def test_redirects_and_time_are_bounded(tmp_path: Path, site: Site) -> None:
    site.pages["/loop"] = (302, {"Location": "/loop"}, b"")
    assert refused(lambda: door(tmp_path, site).get(f"{site.url}/loop", "x")).code == "TOO_MANY_REDIRECTS"
    assert site.asked("/loop") == 6
    site.pages["/slow"] = lambda _: (time.sleep(1.0), (200, {}, b"late"))[1]
    error = refused(lambda: door(tmp_path, site, timeout_seconds=0.2).get(f"{site.url}/slow", "x"))
    assert (error.code, error.detail) == ("TIMEOUT", {}), "that is tried again"


# How it behaves


def test_robots_are_kept_to_and_asked_for_once(tmp_path: Path, site: Site) -> None:
    site.pages["/robots.txt"] = (200, {}, b"User-agent: *\nDisallow: /private/*.html\n\nUser-agent: Strata\nDisallow: /no\n")
    site.pages["/yes"] = (200, {}, b"yes")
    this = door(tmp_path, site, robots=True)
    assert this.get(f"{site.url}/yes", "x").content == b"yes"
    assert "robots.txt" in refused(lambda: this.get(f"{site.url}/no/page", "x")).message
    assert door(tmp_path, site, robots=True).get(f"{site.url}/yes", "x").ok
    assert site.asked("/robots.txt") == 1, "the session has its own copy"
    assert site.asked("/no/page") == 0


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (500, False), (403, True)])
def test_a_site_without_robots_allows_all_and_one_that_cannot_say_nothing(
    tmp_path: Path, site: Site, status: int, allowed: bool
) -> None:
    site.pages["/robots.txt"] = (status, {}, b"")
    site.pages["/"] = (200, {}, b"yes")
    this = door(tmp_path, site, robots=True)
    if allowed:
        assert this.get(f"{site.url}/", "x").ok
    else:
        error = refused(lambda: this.get(f"{site.url}/", "x"))
        assert (error.code, error.detail) == ("UNREACHABLE", {}), "trouble passes: that is tried again"
        site.pages["/robots.txt"] = (404, {}, b"")
        assert door(tmp_path, site, robots=True).get(f"{site.url}/", "x").ok


def test_a_host_is_asked_one_after_the_other_whoever_asks(tmp_path: Path, site: Site) -> None:
    at: list[float] = []
    site.pages["/"] = lambda _: (at.append(time.monotonic()), (200, {}, b"x"))[1]
    threads = [
        threading.Thread(target=lambda: door(tmp_path, site, delay_seconds=0.3).get(f"{site.url}/", "x")) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gaps = [b - a for a, b in zip(sorted(at), sorted(at)[1:], strict=False)]
    assert len(gaps) == 2 and min(gaps) > 0.15


def test_a_busy_site_is_waited_for_as_long_as_it_says(tmp_path: Path, site: Site) -> None:
    answers = iter([(429, {"Retry-After": "1"}, b""), (200, {}, b"now")])
    site.pages["/"] = lambda _: next(answers)
    began = time.monotonic()
    assert door(tmp_path, site).get(f"{site.url}/", "x").content == b"now"
    assert time.monotonic() - began >= 1
    site.pages["/never"] = (503, {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, b"")
    error = refused(lambda: door(tmp_path, site).get(f"{site.url}/never", "x"))
    assert (error.code, error.detail) == ("HTTP_503", {}), "too long: that is for a retry"


def test_what_the_session_has_is_asked_for_only_if_it_changed(tmp_path: Path, site: Site) -> None:
    version = {"etag": '"1"', "body": b"one"}

    def page(headers: dict[str, str]) -> Answer:
        if headers.get("if-none-match") == version["etag"]:
            return 304, {"ETag": str(version["etag"])}, b""
        return 200, {"ETag": str(version["etag"])}, bytes(version["body"])  # type: ignore[arg-type]

    site.pages["/"] = page
    this = door(tmp_path, site)
    first, second = this.get(f"{site.url}/", "x"), this.get(f"{site.url}/", "x")
    assert (first.evidence.unchanged, second.evidence.unchanged) == (False, True)
    assert second.content == b"one" and second.evidence.status == 200
    version |= {"etag": '"2"', "body": b"two"}
    assert this.get(f"{site.url}/", "x").content == b"two"


def test_what_is_posted_arrives_and_secrets_do_not_follow_to_another_host(tmp_path: Path, site: Site) -> None:
    site.pages["/api"] = (200, {"Content-Type": "application/json"}, b'{"n": 1}')
    this = door(tmp_path, site)
    assert this.post(f"{site.url}/api", "x", {"q": "ü"}).json() == {"n": 1}
    assert json.loads(site.seen[-1][3]) == {"q": "ü"}
    other = Site()
    try:
        other.pages["/"] = (200, {}, b"x")
        site.pages["/away"] = (302, {"Location": f"http://localhost:{other.port}/"}, b"")
        that = door(tmp_path, site, private=(f"127.0.0.1:{site.port}", f"localhost:{other.port}"))
        that.get(f"{site.url}/away", "x", headers={"Authorization": "Bearer sesame-open"})
        assert "authorization" in site.seen[-1][2] and "authorization" not in other.seen[-1][2]
        site.pages["/moved"] = (307, {"Location": "/api"}, b"")
        assert refused(lambda: that.post(f"{site.url}/moved", "x", b"y")).code == "WEB_REFUSED"
    finally:
        other.close()
    assert "sesame" not in "".join(p.read_text() for p in (tmp_path / "session").rglob("*.json"))


@pytest.mark.parametrize(("status", "final"), [(403, True), (404, True), (401, True), (500, False), (429, False)])
def test_a_no_that_stays_a_no_is_not_tried_again(tmp_path: Path, site: Site, status: int, final: bool) -> None:
    site.pages["/"] = (status, {}, b"")
    error = refused(lambda: door(tmp_path, site).get(f"{site.url}/", "x"))
    assert (error.code, bool(error.detail.get("final"))) == (f"HTTP_{status}", final)


def test_without_a_reason_nothing_is_asked(tmp_path: Path, site: Site) -> None:
    assert "no reason" in refused(lambda: door(tmp_path, site).get(site.url, " ")).message


# Evidence, and what is read in it


def test_evidence_says_what_was_asked_and_what_came_back(tmp_path: Path, site: Site) -> None:
    site.pages["/a"] = (301, {"Location": "/b#part"}, b"")
    site.pages["/b"] = (200, {"Content-Type": "text/html", "Set-Cookie": "id=1", "Last-Modified": "x"}, HTML.encode())
    page = door(tmp_path, site).get(f"{site.url}/a", "what hosting costs")
    (kept,) = evidence(tmp_path)
    assert (kept["method"], kept["url"], kept["final_url"]) == ("GET", f"{site.url}/a", f"{site.url}/b")
    assert kept["reason"] == "what hosting costs" and kept["at"].endswith("Z")
    assert [(h["status"], h["address"]) for h in kept["hops"]] == [(301, "127.0.0.1"), (200, "127.0.0.1")]
    assert kept["headers"] == {"content-type": "text/html", "last-modified": "x", "date": kept["headers"]["date"]}
    assert (tmp_path / "session" / kept["body"]).read_bytes() == HTML.encode()
    assert Path(kept["body"]).name == kept["sha256"]
    found = page.readable()
    assert found.title.startswith("Prices") and found.date == "2025-03-04"
    assert "four dollars a month" in found.text and "Imprint" not in found.text


def pdf(*pages: str) -> bytes:
    """A small PDF with a text layer."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids: list[str] = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
        page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {len(objects)} 0 R/Resources<</Font<</F1 3 0 R>>>>>>"
        objects.append(page.encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Kids[{' '.join(kids)}]/Count {len(kids)}>>".encode()
    out, places = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return out + end % (size, table, size, len(out))


def test_a_pdf_is_read_page_by_page(tmp_path: Path, site: Site) -> None:
    site.pages["/paper"] = (200, {"Content-Type": "application/octet-stream"}, pdf("The first page.", "A second one."))
    site.pages["/fake"] = (200, {"Content-Type": "application/pdf"}, b"%PDF-1.4 and no more")
    site.pages["/image"] = (200, {"Content-Type": "image/png"}, b"png")
    this = door(tmp_path, site)
    found = this.get(f"{site.url}/paper", "x").readable()
    assert [page.strip() for page in found.pages] == ["The first page.", "A second one."]
    for path in ("/fake", "/image"):
        with pytest.raises(StrataError, match=r"UNREADABLE|no PDF|no text"):
            this.get(site.url + path, "x").readable()


def test_a_download_is_whole_or_not_there(tmp_path: Path, site: Site) -> None:
    site.pages["/file"] = (200, {}, b"x" * 5000)
    site.pages["/short"] = (200, {"Content-Length": "9000"}, b"x" * 10)
    this = door(tmp_path, site)
    this.download(f"{site.url}/file", "x", tmp_path / "deep/file.bin")
    assert (tmp_path / "deep/file.bin").read_bytes() == b"x" * 5000
    site.server.RequestHandlerClass.protocol_version = "HTTP/1.0"  # it hangs up behind what it has
    assert refused(lambda: this.download(f"{site.url}/short", "x", tmp_path / "short.bin")).code == "UNREACHABLE"
    assert not (tmp_path / "short.bin").exists()


def test_a_recorded_run_replays_with_the_network_off(tmp_path: Path, site: Site) -> None:
    count = iter(range(9))
    site.pages["/n"] = lambda _: (200, {}, str(next(count)).encode())
    site.pages["/no"] = (403, {}, b"no")
    live = door(tmp_path / "one", site, driver="record", robots=True)
    said = [live.get(f"{site.url}/n", "x").content, live.get(f"{site.url}/n", "x").content]
    assert said == [b"0", b"1"]
    live.post(f"{site.url}/n", "x", {"a": 1})
    refused(lambda: live.get(f"{site.url}/no", "x"))
    refused(lambda: live.get("http://10.0.0.1/", "x"))
    site.close()
    again = door(tmp_path / "two", driver="replay", fixtures=tmp_path / "one/session")
    assert [again.get(f"{site.url}/n", "x").content, again.get(f"{site.url}/n", "x").content] == said
    assert again.post(f"{site.url}/n", "x", {"a": 1}).content == b"2"
    assert refused(lambda: again.get(f"{site.url}/no", "x")).code == "HTTP_403"
    assert refused(lambda: again.get("http://10.0.0.1/", "x")).code == "WEB_REFUSED"
    assert refused(lambda: again.get(f"{site.url}/n", "x")).code == "FIXTURE_MISSING"
    assert refused(lambda: again.post(f"{site.url}/n", "x", {"a": 2})).code == "FIXTURE_MISSING"
    site.thread = threading.Thread(target=lambda: None)
    site.thread.start()
    site.server.shutdown = lambda: None  # type: ignore[method-assign]


def test_a_body_that_was_changed_in_a_recording_is_not_believed(tmp_path: Path, site: Site) -> None:
    site.pages["/"] = (200, {}, b"true")
    page = door(tmp_path / "one", site).get(f"{site.url}/", "x")
    page.path.write_bytes(b"false")
    again = door(tmp_path / "two", driver="replay", fixtures=tmp_path / "one/session")
    assert refused(lambda: again.get(f"{site.url}/", "x")).code == "CORRUPT_STATE"


# What was tried, and did not hold once


@pytest.mark.parametrize("headers_first", [True, False])
def test_a_byte_now_and_then_is_no_answer(tmp_path: Path, headers_first: bool) -> None:
    """Neither in the headers nor in the body: the time of a request is its time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            if headers_first:
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(100):
                try:
                    client.sendall(b"X" if headers_first else b"H")
                except OSError:
                    return
                time.sleep(0.1)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    began = time.monotonic()
    port = listener.getsockname()[1]
    bounds = {"private": (f"127.0.0.1:{port}",), "timeout_seconds": 0.5}
    assert refused(lambda: door(tmp_path, **bounds).get(f"http://127.0.0.1:{port}/", "x")).code == "TIMEOUT"
    assert time.monotonic() - began < 5
    listener.close()
    thread.join()


def test_packed_bodies_of_all_kinds_come_whole_or_not_at_all(tmp_path: Path, site: Site) -> None:
    raw = zlib.compressobj(wbits=-15)
    site.pages["/two"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"first ") + gzip.compress(b"second"))
    site.pages["/raw"] = (200, {"Content-Encoding": "deflate"}, raw.compress(b"plain") + raw.flush())
    site.pages["/garbage"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"first") + b"and garbage")
    site.pages["/empty"] = (200, {"Content-Encoding": "gzip"}, b"")
    this = door(tmp_path, site)
    assert this.get(f"{site.url}/two", "x").content == b"first second"
    assert this.get(f"{site.url}/raw", "x").content == b"plain"
    assert this.get(f"{site.url}/empty", "x").content == b""
    assert refused(lambda: this.get(f"{site.url}/garbage", "x")).code == "UNREADABLE"


def test_what_was_asked_with_headers_is_no_copy_for_those_without(tmp_path: Path, site: Site) -> None:
    def page(headers: dict[str, str]) -> Answer:
        known = headers.get("accept") == "application/json"
        if "if-modified-since" in headers:
            return 304, {}, b""
        return 200, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, b"{}" if known else b"<p>"

    site.pages["/"] = page
    this = door(tmp_path, site)
    assert this.get(f"{site.url}/", "x", {"Accept": "application/json"}).content == b"{}"
    assert this.get(f"{site.url}/", "x").content == b"<p>"


def test_a_secret_goes_to_its_own_origin_only_and_stands_nowhere(tmp_path: Path, site: Site) -> None:
    other = Site()
    try:
        other.pages["/"] = (200, {}, b"x")
        site.pages["/away"] = (302, {"Location": f"{other.url}/"}, b"")
        this = door(tmp_path, site, private=(f"127.0.0.1:{site.port}", f"127.0.0.1:{other.port}"))
        this.get(f"{site.url}/away?api_key=open-sesame-123&page=2", "x", {"Authorization": "Bearer very-secret-word"})
        assert "authorization" not in other.seen[-1][2], "another port is another place"
        error = refused(lambda: this.get(f"{site.url}/", "x", {"X-Key": "very-secret-word\n"}))
        assert "'X-Key'" in error.message and "secret" not in error.message
    finally:
        other.close()
    text = "".join(p.read_text() for p in (tmp_path / "session").rglob("*.json"))
    assert "sesame" not in text and "secret-word" not in text and "page=2" in text


def test_odd_answers_of_a_site_are_errors_with_evidence(tmp_path: Path, site: Site) -> None:
    this = door(tmp_path, site)
    for where in ("mailto:a@b.c", "javascript:alert(1)", "http://[bad/"):
        site.pages["/"] = (302, {"Location": where}, b"")
        assert refused(lambda: this.get(f"{site.url}/", "x")).code in ("WEB_REFUSED", "UNREACHABLE")
    site.pages["/"] = (503, {"Retry-After": "Fri, 31 Dec 99999 23:59:59 GMT"}, b"")
    assert refused(lambda: this.get(f"{site.url}/", "x")).code == "HTTP_503"
    assert len(evidence(tmp_path)) == 4


def test_the_next_address_is_tried_where_one_is_dead(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/"] = (200, {}, b"hello")
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, site.port)) for ip in ("127.0.0.9", "127.0.0.1")]
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: found if host == "two.test" else real(host, *a, **k))
    this = door(tmp_path, private=(f"two.test:{site.port}",))
    page = this.get(f"http://two.test:{site.port}/", "x")
    assert page.content == b"hello" and page.evidence.hops[0].address == "127.0.0.1"


def test_a_replay_keeps_apart_what_headers_tell_apart_and_forgets_what_was_cut_off(tmp_path: Path, site: Site) -> None:
    site.pages["/a"] = lambda headers: (200, {}, headers.get("x-page", "none").encode())
    live = door(tmp_path / "one", site)
    for number in ("1", "2"):
        live.get(f"{site.url}/a", "x", {"X-Page": number})
    steps = tmp_path / "one/session/trial/stages/01-one"
    (steps / "attempt-1").rename(steps / "attempt-2")
    (steps / "attempt-1/out").mkdir(parents=True)  # it was killed before it asked
    again = door(tmp_path / "two", driver="replay", fixtures=tmp_path / "one/session")
    assert again.get(f"{site.url}/a", "x", {"X-Page": "2"}).content == b"2"
    assert again.get(f"{site.url}/a", "x", {"X-Page": "1"}).content == b"1"
