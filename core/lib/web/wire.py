"""One exchange over the network, with the body on disk: the checked address is the one that is connected to.

The HTTP is httpx2's. The address stands in the place of the name; the name is what TLS asks for and verifies, and what the Host
header says.
No connection is used twice: one made for another name at the same address would have been verified for that name.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lib.contract import StrataError
from lib.disk import files
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


class Outgoing(Struct, frozen=True):
    method: str
    url: Any  # httpx2.URL
    headers: dict[str, str]
    content: bytes = b""


def exchange(rules: Rules, session: Path, place: Place, outgoing: Outgoing, most: int) -> Raw:
    import httpx2

    deadline = time.monotonic() + rules.timeout_seconds
    headers = {"User-Agent": rules.agent, "Accept-Encoding": "gzip, deflate", **outgoing.headers}
    headers["Host"] = _authority(outgoing.url)
    secure = ssl.create_default_context()
    if rules.ca:
        secure.load_verify_locations(rules.ca)
    alone = httpx2.Limits(max_connections=1, max_keepalive_connections=0)
    transport = httpx2.HTTPTransport(verify=secure, trust_env=False, limits=alone)
    timeout = httpx2.Timeout(rules.timeout_seconds)
    try:
        with httpx2.Client(transport=transport, trust_env=False, timeout=timeout, follow_redirects=False) as client:
            request = client.build_request(
                outgoing.method,
                outgoing.url.copy_with(host=place.address),
                headers=headers,
                content=outgoing.content or None,
                extensions={"sni_hostname": place.host, "timeout": timeout.as_dict()},
            )
            response = client.send(request, stream=True)
            try:
                return _received(response, session, deadline, most, outgoing)
            finally:
                response.close()
    except httpx2.TimeoutException:
        message = f"{outgoing.url}: nothing for {rules.timeout_seconds:g} s"
        raise StrataError("TIMEOUT", message, "try again, or raise timeout_seconds") from None
    except httpx2.HTTPError as error:
        raise StrataError("UNREACHABLE", f"{outgoing.url}: {error or type(error).__name__}", "try again") from None


def _received(response: httpx2.Response, session: Path, deadline: float, most: int, outgoing: Outgoing) -> Raw:
    """The body, unpacked no further than is allowed, into a file that is named by what is in it."""
    folder = session / BODIES
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{os.getpid()}-{time.monotonic_ns()}.part"
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as file:
            for chunk in _unpacked(response, most):
                size += len(chunk)
                if size > most:
                    message = f"{outgoing.url} is larger than {most} bytes"
                    raise StrataError("TOO_LARGE", message, "raise max_bytes, or ask for less", final=True)
                if time.monotonic() > deadline:
                    raise StrataError("TIMEOUT", f"{outgoing.url}: still coming after its time", "raise timeout_seconds")
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / digest.hexdigest())
    finally:
        part.unlink(missing_ok=True)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Raw(response.status_code, headers, digest.hexdigest(), size, str(BODIES / digest.hexdigest()))


def _unpacked(response: httpx2.Response, most: int) -> Iterator[bytes]:
    """As it is, or out of gzip or deflate, a bounded piece at a time: a small body may be a very large one packed."""
    how = response.headers.get("content-encoding", "identity").strip().lower()
    if how in ("", "identity"):
        yield from response.iter_raw(CHUNK)
        return
    if how not in ("gzip", "x-gzip", "deflate"):
        raise StrataError("UNREADABLE", f"packed as {how!r}, which was not asked for", "the site is not to be used", final=True)
    packed = zlib.decompressobj(wbits=47)  # either, by its first bytes
    try:
        for raw in response.iter_raw(CHUNK):
            data = raw
            while data and not packed.eof:
                yield packed.decompress(data, CHUNK)
                data = packed.unconsumed_tail
        while not packed.eof and (rest := packed.decompress(packed.unconsumed_tail, CHUNK)):
            yield rest
    except zlib.error as error:
        raise StrataError("UNREADABLE", f"{response.url}: it is not {how}: {error}", "try again") from None
    if not packed.eof:
        raise StrataError("UNREACHABLE", f"{response.url}: it broke off in the middle", "try again")


def _authority(url: Any) -> str:
    return str(url.netloc.decode("ascii"))


def read_body(session: Path, body: str) -> bytes:
    return files.find(session, body).read_bytes()
