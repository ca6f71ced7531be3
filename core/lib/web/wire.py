"""One exchange over the network, with the body on disk: the checked address is the one that is connected to.

The HTTP is httpx2's. The address stands in the place of the name; the name is what TLS asks for and verifies, and what the Host
header says.
No connection is used twice: one made for another name at the same address would have been verified for that name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lib.contract import StrataError
from lib.web.evidence import BODIES
from lib.web.rules import Place, Rules

if TYPE_CHECKING:
    import httpx2

CHUNK = 64 * 1024


class Raw(Struct, frozen=True):
    """What came back, unpacked, and in the session by its hash."""

    status: int
    headers: dict[str, str]
    sha256: str
    size: int
    body: str
    address: str


class Outgoing(Struct, frozen=True):
    method: str
    url: Any  # httpx2.URL
    headers: dict[str, str]
    content: bytes = b""


class _Clock:
    """Ends a request after its time, whatever it waits for: a byte now and then is no answer."""

    def __init__(self, seconds: float) -> None:
        self.late = False
        self._streams: list[Any] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Clock:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Of the HTTP library: hears of every connection as it is made."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._streams.append(info["return_value"])

    def _end(self) -> None:
        self.late = True
        for stream in self._streams:
            with contextlib.suppress(OSError, AttributeError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def exchange(rules: Rules, session: Path, place: Place, outgoing: Outgoing, most: int) -> Raw:
    """The first of its addresses that can be reached answers."""
    import httpx2

    headers = {"User-Agent": rules.agent, "Accept-Encoding": "gzip, deflate", **outgoing.headers}
    headers["Host"] = _authority(outgoing.url)
    secure = ssl.create_default_context()
    if rules.ca:
        secure.load_verify_locations(rules.ca)
    problem = StrataError("UNREACHABLE", f"{outgoing.url}: no address", "try again")
    for address in place.addresses:
        with _Clock(rules.timeout_seconds) as clock:
            try:
                return _one(rules, secure, clock, address, place.host, outgoing, headers, session, most)
            except httpx2.ConnectError as error:
                problem = StrataError("UNREACHABLE", f"{outgoing.url}: {error or 'not reached'}", "try again")
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                if clock.late or isinstance(error, httpx2.TimeoutException):
                    message = f"{outgoing.url}: not done after {rules.timeout_seconds:g} s"
                    raise StrataError("TIMEOUT", message, "try again, or raise timeout_seconds") from None
                raise StrataError("UNREACHABLE", f"{outgoing.url}: {type(error).__name__}: {error}", "try again") from None
    raise problem


def _one(
    rules: Rules,
    secure: ssl.SSLContext,
    clock: _Clock,
    address: str,
    host: str,
    outgoing: Outgoing,
    headers: dict[str, str],
    session: Path,
    most: int,
) -> Raw:
    import httpx2

    alone = httpx2.Limits(max_connections=1, max_keepalive_connections=0)
    transport = httpx2.HTTPTransport(verify=secure, trust_env=False, limits=alone)
    timeout = httpx2.Timeout(rules.timeout_seconds)
    with httpx2.Client(transport=transport, trust_env=False, timeout=timeout, follow_redirects=False) as client:
        request = client.build_request(
            outgoing.method,
            outgoing.url.copy_with(host=address),
            headers=headers,
            content=outgoing.content or None,
            extensions={"sni_hostname": host, "timeout": timeout.as_dict(), "trace": clock.trace},
        )
        response = client.send(request, stream=True)
        try:
            return _received(response, session, most, outgoing, address)
        finally:
            response.close()


def _received(response: httpx2.Response, session: Path, most: int, outgoing: Outgoing, address: str) -> Raw:
    """The body, unpacked no further than is allowed, into a file that is named by what is in it."""
    folder = session / BODIES
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}.part"
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as file:
            for chunk in _unpacked(response):
                size += len(chunk)
                if size > most:
                    message = f"{outgoing.url} is larger than {most} bytes"
                    raise StrataError("TOO_LARGE", message, "raise max_bytes, or ask for less", final=True)
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / digest.hexdigest())
    finally:
        part.unlink(missing_ok=True)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Raw(response.status_code, headers, digest.hexdigest(), size, str(BODIES / digest.hexdigest()), address)


def _unpacked(response: httpx2.Response) -> Iterator[bytes]:
    """As it is, or out of gzip or deflate, a bounded piece at a time: a small body may be a very large one packed."""
    how = response.headers.get("content-encoding", "identity").strip().lower()
    if how in ("", "identity"):
        yield from response.iter_raw()
        return
    if how not in ("gzip", "x-gzip", "deflate"):
        raise StrataError("UNREADABLE", f"packed as {how!r}, which was not asked for", "the site is not to be used", final=True)
    packed, begun = zlib.decompressobj(wbits=47), False  # either, by its first bytes
    try:
        for raw in response.iter_raw():
            data = raw
            while data:
                if packed.eof:  # one more piece behind the first: a body may be several
                    packed = zlib.decompressobj(wbits=47)
                first, begun = not begun, True
                if first and how == "deflate" and data[0] & 0x0F != 8:  # some leave the wrapping out
                    packed = zlib.decompressobj(wbits=-15)
                yield packed.decompress(data, CHUNK)
                data = packed.unconsumed_tail or packed.unused_data
        while not packed.eof and (rest := packed.decompress(packed.unconsumed_tail, CHUNK)):
            yield rest
    except zlib.error as error:
        raise StrataError("UNREADABLE", f"{response.url}: it is not {how}: {error}", "try again") from None
    if begun and not packed.eof:
        raise StrataError("UNREACHABLE", f"{response.url}: it broke off in the middle", "try again")


def _authority(url: Any) -> str:
    return str(url.netloc.decode("ascii"))
