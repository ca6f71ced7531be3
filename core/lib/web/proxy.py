"""A browser's way out: a proxy on loopback, in this process, that connects only where the door would.

What a page loads, where it redirects to and what its scripts open all come by here. The address that was checked is the one
that is connected to, and a connection carries one request, or one tunnel that the browser has asked for by name.

    with served(door) as address:  # for --proxy-server, with --proxy-bypass-list=<-loopback>
"""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from lib.contract import StrataError
from lib.web.door import Door
from lib.web.rules import Place

MOST_HEADERS = 65_536  # bytes
QUIET_SECONDS = 120.0  # a connection on which nothing comes for so long is closed
_HOP = (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"upgrade")


@contextmanager
def served(door: Door) -> Generator[str]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    class Handler(socketserver.StreamRequestHandler):
        timeout = QUIET_SECONDS

        def handle(self) -> None:
            try:
                _carry(door, self)
            except (OSError, ValueError):
                return  # one side has hung up, or what came is no HTTP: the browser says what it makes of it

    with running(Server(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def running(server: socketserver.TCPServer) -> Generator[str]:
    """Its address, as long as it is wanted."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _carry(door: Door, asked: socketserver.StreamRequestHandler) -> None:
    method, target, _ = asked.rfile.readline(MOST_HEADERS).decode("latin-1").split(None, 2)
    headers = _headers(asked)
    tunnel = method == "CONNECT"
    address = f"https://{target}/" if tunnel else target
    try:
        place = door.admit(address, mannered=False)
    except StrataError as error:
        text = error.message.encode()
        asked.wfile.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        return
    with _connected(place) as upstream:
        if tunnel:
            asked.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _both(asked.connection, upstream)
            return
        parts = urlsplit(target)
        line = f"{method} {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1\r\n"
        kept = [h for h in headers if h.partition(b":")[0].strip().lower() not in _HOP]
        upstream.sendall(line.encode("latin-1") + b"".join(kept) + b"Connection: close\r\n\r\n")
        left = _length(headers)
        while left > 0 and (part := asked.rfile.read(min(left, 65_536))):
            upstream.sendall(part)
            left -= len(part)
        while part := upstream.recv(65_536):
            asked.wfile.write(part)


def _headers(asked: socketserver.StreamRequestHandler) -> list[bytes]:
    found: list[bytes] = []
    while (line := asked.rfile.readline(MOST_HEADERS)) not in (b"\r\n", b"\n", b""):
        found.append(line)
        if sum(map(len, found)) > MOST_HEADERS:
            raise ValueError("too many headers")
    return found


def _length(headers: list[bytes]) -> int:
    """Of what is sent along. A body without a length is not carried: where it ends could not be told."""
    named = {h.partition(b":")[0].strip().lower(): h.partition(b":")[2].strip() for h in headers}
    if b"transfer-encoding" in named:
        raise ValueError("a body without a length")
    return int(named.get(b"content-length", b"0"))


def _connected(place: Place) -> socket.socket:
    last: OSError | None = None
    for address in place.addresses:
        try:
            return socket.create_connection((address, place.port), timeout=QUIET_SECONDS)
        except OSError as error:
            last = error
    raise last or OSError(f"{place.host} has no address")


def _both(one: socket.socket, other: socket.socket) -> None:
    """Carries what either side says to the other, until one has nothing more to say."""
    while True:
        ready, _, _ = select.select([one, other], [], [], QUIET_SECONDS)
        if not ready:
            return
        for source in ready:
            part = source.recv(65_536)
            if not part:
                return
            (other if source is one else one).sendall(part)
