"""Starting, streaming and stopping child processes: the one place that starts anything.

Every child gets a lease (a pipe only its parent holds open) and its own session, so that it can be ended whole. It is
started by the thread that waits for it, because the parent-death signal belongs to the thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from lib import names
from lib.contract import CORE, Interrupted
from lib.process import keeper, nursery

STDOUT_LIMIT = 64 * 1024 * 1024  # one document; a child that prints more has lost its mind
LINE_LIMIT = 4 * 1024 * 1024
TAIL_LINES = 20
INSIST_SECONDS = 5.0  # a killed process is gone long before; who has not said so by then cannot

stopping = threading.Event()  # set once, when this process has been asked to end
stop_softly: Callable[[], None] | None = None  # what to do then instead of raising, where raising would be unsafe
session_lock: int | None = None  # a descriptor every child inherits: the lock lasts until the whole tree has ended
Child = subprocess.Popen[bytes] | nursery.Child
_starting = threading.Lock()
_own_children: set[int] = set()


def say_stop() -> None:
    """From the main thread: a signal in the middle of it would wait for a lock that this thread holds."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    stopping.set()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def grace_seconds(layer: int) -> float:
    """How long a tool of this layer waits for a child it asked to stop: always less than its own parent waits."""
    return keeper.GRACE_SECONDS + 2.0 * (layer + 1)


@dataclass(frozen=True)
class Finished:
    exit_code: int
    stdout: bytes
    tail: str  # the last lines of stderr, for an error a person can use
    timed_out: bool = False
    silent: bool = False  # stopped because nothing was heard of it


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes | None = None,
    timeout_seconds: float | None = None,
    grace: float = keeper.GRACE_SECONDS + 2.0,
    on_line: Callable[[str], None] = lambda line: None,
    stdout_file: Path | None = None,
    silence_seconds: float | None = None,
) -> Finished:
    """Runs one child to its end. Each stderr line goes to `on_line` as it comes; stdout is returned whole, or, with
    `stdout_file`, both streams go to that file and neither is kept in memory."""
    if stopping.is_set():
        raise Interrupted()
    lease_read, lease_write = os.pipe()
    inherit = {names.LEASE: lease_read} | ({names.LOCK: session_lock} if session_lock is not None else {})
    child: Child
    try:
        child = _fork(argv, cwd, env, inherit, stdin is not None) or _start(
            argv, cwd, env, inherit, stdin is not None, stdout_file
        )
    except BaseException:  # whatever it was, a stop included: a lease nobody holds must not stay open
        os.close(lease_write)
        raise
    finally:
        os.close(lease_read)
    try:
        return _follow(child, stdin, timeout_seconds, silence_seconds, grace, on_line)
    finally:
        if child.poll() is None:
            stop(child, grace)
        os.close(lease_write)
        with _starting:
            _own_children.discard(getattr(child, "pid", 0))
            if child.returncode:
                end_orphans()  # a child that ended well has ended everything below itself


def _fork(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str], inherit: Mapping[str, int], stdin: bool
) -> nursery.Child | None:
    """From the nursery, where it can; one that is gone is not missed."""
    if not nursery.can_start(argv):
        return None
    try:
        return nursery.start(argv, cwd=cwd, env=env, inherit={**inherit, **nursery.lend()}, stdin=stdin)
    except (BrokenPipeError, ConnectionError):
        nursery.close_nursery()
        return None


def _start(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str], inherit: Mapping[str, int], stdin: bool, sink: Path | None
) -> subprocess.Popen[bytes]:
    with _starting, sink.open("wb") if sink else nullcontext() as file:
        child = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**env, **{name: str(descriptor) for name, descriptor in inherit.items()}},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=file or subprocess.PIPE,
            stderr=subprocess.STDOUT if file else subprocess.PIPE,
            pass_fds=tuple(inherit.values()),
            start_new_session=True,
        )
        _own_children.add(child.pid)
    return child


def inherit_lock() -> None:
    """Keeps the lock a parent handed down, and hands it on. A variable without its descriptor means nothing."""
    global session_lock
    text = os.environ.pop(names.LOCK, "")
    if text.isascii() and text.isdigit() and len(text) < 7:
        try:
            os.fstat(int(text))
        except OSError:
            return
        os.set_inheritable(int(text), False)
        session_lock = int(text)


def end_orphans() -> None:
    """A child that was killed leaves its own children to us, its subreaper. They are not ours to keep."""
    table = keeper.parents()
    me = os.getpid()
    for pid in [p for p, parent in table.items() if parent == me and p not in (*_own_children, nursery.pid)]:
        for lost in [*keeper.descendants(pid), pid]:
            keeper.send(lost, signal.SIGKILL)
        keeper.reap([pid])


def stop(child: Child, grace: float) -> None:
    """Ask, wait, then insist."""
    child.terminate()
    _wait(child, grace)
    if child.poll() is None:
        child.kill()
        _wait(child, INSIST_SECONDS)
    if child.poll() is None:
        nursery.close_nursery()  # it does not pass our orders on: stopped, or gone
        child.wait()


def _wait(child: Child, seconds: float) -> None:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass  # the caller looks again, and at its clock


class _Lines:
    """Cuts a byte stream into lines. A line is handed on once, whole, however the bytes were cut up in between."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.pending = bytearray()
        self.tail: list[str] = []
        self.on_line = on_line

    def feed(self, data: bytes) -> None:
        self.pending += data
        if b"\n" in data:
            *lines, rest = bytes(self.pending).split(b"\n")
            self.pending = bytearray(rest)
            for line in lines:
                self._emit(line)
        elif len(self.pending) > LINE_LIMIT:
            self.close()

    def close(self) -> None:
        if self.pending:
            line, self.pending = bytes(self.pending), bytearray()
            self._emit(line)

    def _emit(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.tail = [*self.tail[1 - TAIL_LINES :], text[:2000]]
        self.on_line(text)


def _follow(
    child: Child,
    stdin: bytes | None,
    timeout_seconds: float | None,
    silence_seconds: float | None,
    grace: float,
    on_line: Callable[[str], None],
) -> Finished:
    lines = _Lines(on_line)
    stdout = bytearray()
    pending_input = memoryview(stdin or b"")
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    kill_at: float | None = None
    gone_at: float | None = None
    timed_out = silent = False
    heard = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for stream, event in (
            (child.stdout, selectors.EVENT_READ),
            (child.stderr, selectors.EVENT_READ),
            (child.stdin, selectors.EVENT_WRITE),
        ):
            if stream:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, event)
        while True:
            now = time.monotonic()
            quiet = bool(silence_seconds) and now - heard > (silence_seconds or 0)
            if kill_at is None and (stopping.is_set() or quiet or (deadline and now > deadline)):
                timed_out = not stopping.is_set()
                silent = timed_out and quiet
                child.terminate()
                kill_at = now + grace
            if kill_at and now > kill_at and child.poll() is None:
                child.kill()
                if now > kill_at + INSIST_SECONDS:
                    nursery.close_nursery()
            if not selector.get_map():
                _wait(child, 0.1)  # it has said all it has to say, and is about to end
            for key, _ in selector.select(0.1) if selector.get_map() else ():
                stream = cast(IO[bytes], key.fileobj)
                if stream is child.stdin:
                    try:
                        pending_input = pending_input[os.write(key.fd, pending_input[:65536]) :]
                    except BrokenPipeError:
                        pending_input = memoryview(b"")  # the child chose not to read the rest
                    if not pending_input:
                        selector.unregister(stream)
                        stream.close()
                    continue
                data = os.read(key.fd, 65536)
                heard = now
                if not data:
                    selector.unregister(stream)
                    stream.close()
                elif stream is child.stdout:
                    stdout += data
                    if len(stdout) > STDOUT_LIMIT:
                        kill_at = now
                        stdout = stdout[:STDOUT_LIMIT]
                        child.kill()
                else:
                    lines.feed(data)
            if child.poll() is not None:
                if not selector.get_map():
                    break
                # A grandchild that kept the pipe must not keep us: what the child wrote is read by now.
                gone_at = gone_at or now
                if now - gone_at > 1.0:
                    break
    lines.close()
    if stopping.is_set():
        raise Interrupted()
    return Finished(child.wait(), bytes(stdout), "\n".join(lines.tail), timed_out, silent)


def ask(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """A short question to a program we trust, git above all. It is known as ours: ending the orphans of a step that failed at
    the same time, in another thread, does not end it."""
    with _starting:
        child = subprocess.Popen(
            list(argv), cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _own_children.add(child.pid)
    try:
        out, err = child.communicate(stdin, timeout_seconds)
    except BaseException:  # whatever it was, a stop included: it does not run on behind us
        child.kill()
        child.communicate()
        raise
    finally:
        with _starting:
            _own_children.discard(child.pid)
    return subprocess.CompletedProcess(argv, child.returncode, out, err)


def run_command(argv: Sequence[str], **options: object) -> Finished:
    """Runs a program that is not a tool, under a keeper, so that nothing it starts can outlive us."""
    return run(kept(argv), **options)  # type: ignore[arg-type]


def kept(argv: Sequence[str], parent: int = 0) -> list[str]:
    """The command under a keeper. `parent`: of one that is started by somebody who passes no lease on."""
    watched = ["--parent", str(parent)] if parent else []
    return [sys.executable, "-S", "-E", str(CORE / "lib" / "process" / "keeper.py"), *watched, "--", *argv]
