"""A tool that serves until it is told to stop: lines on stdin and stdout, as MCP does it, or HTTP on this machine only.

The edge is every tool's: a session with its log and its lock, a stop by signal or from another terminal, an end when whoever
started it is gone. Being stopped is how a service ends well. Its stdout belongs to the protocol; what else it has to say goes to
stderr and to the session.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from lib.contract import Json, StrataError
from lib.disk import files
from lib.disk.clock import now
from lib.process import processes
from lib.tool.call import Call

ADDRESS = "service.json"  # in the session: where it is reached, while it is
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_BYTES = 16_000_000  # of one request
Answer = Callable[[str, str, bytes], tuple[int, str, bytes]]  # of method, path and body: status, type and body


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, answer: Answer, served: Callable[[str, int], None]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer, self.served = answer, served

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Said in the session's log, as every request is: a client that hung up, or an answer that is none."""
        self.served(f"failed: {type(sys.exc_info()[1]).__name__}", 0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds without a byte of a request

    def do_GET(self) -> None:
        refused = self._refused()
        if refused:
            self.close_connection = True
            return self._send(*refused)
        length = int(self.headers["Content-Length"] or 0)
        body = self.rfile.read(length) if length else b""
        try:
            answer = cast(_Server, self.server).answer(self.command, self.path, body)
        except Exception as error:  # noqa: BLE001 - one bad request does not end a service; what it was is said
            answer = (500, "text/plain", f"{type(error).__name__}: {error}".encode())
        self._send(*answer)

    def _refused(self) -> tuple[int, str, bytes] | None:
        """Only for programs of this machine, and only what can be read to its end."""
        hosts = self.headers.get_all("Host") or [""]
        names = {host.rpartition(":")[0] if re.search(r":\d+$", host) else host for host in hosts}
        origin = str(self.headers["Origin"] or "")
        if len(hosts) != 1 or not names <= set(LOOPBACK):  # a page elsewhere whose name leads here
            return 403, "text/plain", b"only for this machine"
        if origin and not re.fullmatch(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", origin):
            return 403, "text/plain", b"not for pages of other sites"
        if self.headers["Transfer-Encoding"]:
            return 411, "text/plain", b"say its length"
        length = str(self.headers["Content-Length"] or "0")
        if not length.isdecimal():
            return 400, "text/plain", b"that is no length"
        if int(length) > MOST_BYTES:
            return 413, "text/plain", b"too large"
        return None

    do_POST = do_GET  # noqa: N815 - as the library calls it

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        cast(_Server, self.server).served(f"{self.command} {self.path}", status)

    def log_message(self, format: str, *args: Any) -> None:
        """The session's log is the log."""


def http(call: Call, answer: Answer, port: int = 0) -> Json:
    """Answers requests on 127.0.0.1 until it is stopped."""
    parent = os.getppid()  # before anybody is told where it is: they may be gone at once
    count = _Count(call)
    try:
        server = _Server(port, answer, count.one)
    except OSError as error:
        hint = "choose another --port, or none for a free one"
        raise StrataError("NOT_SERVING", f"port {port}: {error.strerror}", hint) from None
    with server, _announced(call, f"http://127.0.0.1:{server.server_address[1]}"):
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        while not processes.stopping.wait(1.0) and os.getppid() == parent:
            pass  # it ends with whoever started it
        server.shutdown()
        thread.join()
    return count.document()


def lines(call: Call, answer: Callable[[str], str | None]) -> Json:
    """Answers each line of stdin with a line, or with nothing, until stdin ends or it is stopped."""
    count = _Count(call)
    heard: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        try:
            for line in sys.stdin.buffer:
                heard.put(line.decode("utf-8", "replace"))
        finally:
            heard.put(None)

    with _announced(call, "stdio"):
        threading.Thread(target=listen, daemon=True).start()
        while not processes.stopping.is_set():
            try:
                line = heard.get(timeout=0.1)
            except queue.Empty:
                continue
            if line is None:
                break
            said = answer(line.rstrip("\n")) if line.strip() else None
            if said is not None:
                sys.stdout.write(said.rstrip("\n") + "\n")
                sys.stdout.flush()
            count.one(line[:80].strip(), 0)
    return count.document()


def protocol(call: Call, serve: Callable[[Callable[[str], None]], None]) -> Json:
    """For a protocol whose own library reads stdin and writes stdout. `serve` is called in a thread, with a function by which it
    says what it answered; it returns when stdin ends. A stop does not wait for it."""
    count = _Count(call)
    broken: list[BaseException] = []

    def work() -> None:
        try:
            serve(lambda what: count.one(what, 0))
        except BaseException as error:  # noqa: BLE001 - said where the tool ends
            broken.append(error)

    with _announced(call, "stdio"):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive() and not processes.stopping.wait(0.1):
            pass
    if broken:
        raise StrataError("SERVICE_FAILED", f"{type(broken[0]).__name__}: {broken[0]}", "see the session's log")
    return count.document()


class _Count:
    def __init__(self, call: Call) -> None:
        self.call = call
        self.requests = 0
        self.began = time.monotonic()
        self._lock = threading.Lock()

    def one(self, what: str, status: int) -> None:
        with self._lock:
            self.requests += 1
        self.call.report("served", {"what": f"{f'{status} ' if status else ''}{what}"[:200]})

    def document(self) -> Json:
        seconds = round(time.monotonic() - self.began, 1)
        said: Json = {"tool": self.call.tool.name, "status": "success", "exit_code": 0, "requests": self.requests}
        return said | {"served_seconds": seconds, "session_dir": str(self.call.session.folder)}


class _announced:  # noqa: N801 - used as a word
    """Says where it is reached, and while it serves takes a stop as its end and not as an interruption."""

    def __init__(self, call: Call, address: str) -> None:
        self.call, self.address = call, address
        self.file = call.session.folder / ADDRESS

    def __enter__(self) -> None:
        files.write_json(self.file, {"address": self.address, "tool": self.call.tool.name, "at": now()})
        processes.stop_softly = lambda: None
        self.call.report("serving", {"address": self.address})

    def __exit__(self, *_: object) -> None:
        processes.stop_softly = None
        self.file.unlink(missing_ok=True)
