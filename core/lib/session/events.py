"""What a tool says while it works: an event is a line on stderr, and a line of `.live-report`.

A view that draws on the terminal takes the lines over: it puts itself in `screen`, and nothing here knows what it draws.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, Self, cast

from msgspec import Struct

from lib import names
from lib.contract import HANDED, Json
from lib.disk import files, lenient
from lib.disk.clock import now
from lib.disk.redact import redact
from lib.process import processes, streams
from lib.session.documents import Problem

HEARTBEAT_SECONDS = 30.0
_stderr_lock = threading.Lock()


class Screen(Protocol):
    """Something that draws on the terminal."""

    def say(self, line: str) -> None: ...

    def paused(self) -> AbstractContextManager[None]: ...


screen: Screen | None = None


@contextmanager
def aside() -> Generator[None]:
    """While a person is asked something, nothing is drawn over it."""
    if screen:
        with screen.paused():
            yield
    else:
        yield


class Timer:
    """`with Timer() as timer:`; the elapsed figures stand still once the block has ended."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._end: float | None = None

    def __enter__(self) -> Self:
        self._start, self._end = time.monotonic(), None
        return self

    def __exit__(self, *_: object) -> None:
        self._end = time.monotonic()

    def elapsed_seconds(self) -> float:
        return (self._end if self._end is not None else time.monotonic()) - self._start

    def elapsed_ms(self) -> int:
        return int(self.elapsed_seconds() * 1000)

    def running_elapsed_ms(self) -> int:
        return int((time.monotonic() - self._start) * 1000)


def emit_event(layer: str, stage: str, status: str, *, elapsed_ms: int | None = None, detail: Json | str | None = None) -> None:
    """One JSON line on stderr; at a terminal, one line for a person."""
    event: Json = {
        "event": "progress",
        "timestamp": now(),
        "trace_id": os.getenv(names.TRACE, ""),
        "layer": layer,
        "depth": int(os.getenv(names.DEPTH, "0") or 0),
        "stage": stage,
        "status": status,
    }
    if elapsed_ms is not None:
        event["elapsed_ms"] = elapsed_ms
    if detail:
        event["detail"] = detail
    show(event)


def hand_over(attempt: str, sha256: str, path: str) -> None:
    """For the parent alone: what this executor is about to write down as its outcome, and where in the session."""
    with _stderr_lock:
        told = {"event": HANDED, "attempt": attempt, "sha256": sha256, "path": path}
        streams.write(sys.stderr, json.dumps(told) + "\n")


def start_heart(layer: str, label: Callable[[], str]) -> None:
    """A line now and then, whatever the tool is doing: a parent that hears nothing at all knows that something is wrong."""

    def beat() -> None:
        while not processes.stopping.wait(HEARTBEAT_SECONDS):
            show({"event": "heartbeat", "timestamp": now(), "layer": layer, "stage": label()})

    threading.Thread(target=beat, daemon=True, name="heart").start()


def write_live_report(
    session_dir: Path | str | None,
    layer: str,
    stage: str,
    status: str,
    *,
    elapsed_seconds: float | None = None,
    detail: Json | str | None = None,
) -> None:
    """Appends a line to `.live-report`, for `tail -f`."""
    if session_dir is None:
        return
    line: Json = {"timestamp": now(), "layer": layer, "stage": stage, "status": status}
    if elapsed_seconds is not None:
        line["elapsed_seconds"] = round(elapsed_seconds, 3)
    if detail:
        line["detail"] = detail
    files.append_line(Path(session_dir) / ".live-report", line)


# How lines reach a person or a parent


def relay(line: str) -> None:
    """Passes on a line of a child's stderr. A child's last error line is progress here: only the top tool's is the last."""
    event = parse(line) if line.startswith("{") else {}
    if not event:
        if line.strip():
            _write(line)
        return
    if event.get("event") == "heartbeat":
        return  # it has been heard; ours is heard further up
    if event.get("status") == "error":
        event = {"event": "child-error", **event, "status": "failed"}
    show(event)


def show(event: Json) -> None:
    if screen or (event.get("event") == "heartbeat" and sys.stderr.isatty()):
        return  # whoever looks on sees it in the tree
    _write(streams.harmless(for_person(event)) if sys.stderr.isatty() else json.dumps(event, ensure_ascii=False))


def parse(line: str) -> Json:
    """A line of an event stream, or nothing."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(Json, found) if isinstance(found, dict) else {}


class _Shown(Struct, frozen=True):
    """What of an event a person is told."""

    layer: str = ""
    stage: str = ""
    status: str = ""
    elapsed_ms: float | None = None
    elapsed_seconds: float | None = None
    detail: Json | str = ""
    error: Problem | None = None


def for_person(event: Json) -> str:
    known = lenient.of(event, _Shown)
    if known.error:
        return f"    {known.error.code}: {known.error.message}"
    seconds = known.elapsed_seconds if known.elapsed_ms is None else known.elapsed_ms / 1000
    took = f"  {seconds:.1f}s" if seconds is not None else ""
    detail = known.detail if isinstance(known.detail, str) else "  ".join(f"{k}={v}" for k, v in known.detail.items())
    return f"{known.layer:>8} {known.stage}: {known.status}{took}  {detail}".rstrip()


def _write(line: str) -> None:
    if screen:
        screen.say(redact(line))
        return
    with _stderr_lock:
        streams.write(sys.stderr, redact(line) + "\n")  # the session folder has everything, whoever listens
