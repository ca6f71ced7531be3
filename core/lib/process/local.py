"""The local backend: a child process on this machine, forked by the nursery where that can, with a lease on its parent.

Every child gets a lease (a pipe only its parent holds open) and its own session, so that it can be ended whole. It is
started by the thread that waits for it, because the parent-death signal belongs to the thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import IO, cast

from lib import names
from lib.process import keeper, nursery, processes
from lib.process.backend import Command, Finished, OnLine, Status

STDOUT_LIMIT = 64 * 1024 * 1024  # one document; a child that prints more has lost its mind
LINE_LIMIT = 4 * 1024 * 1024
TAIL_LINES = 20
INSIST_SECONDS = 5.0  # a killed process is gone long before; who has not said so by then cannot
Child = subprocess.Popen[bytes] | nursery.Child


class Local:
    """Runs commands as children of this process."""

    def start(self, command: Command, on_line: OnLine) -> LocalRunning:
        lease_read, lease_write = os.pipe()
        lock = {names.LOCK: processes.session_lock} if processes.session_lock is not None else {}
        inherit = {names.LEASE: lease_read, **lock}
        try:
            child = _fork(command, inherit) or _start(command, inherit)
        except BaseException:  # whatever it was, a stop included: a lease nobody holds must not stay open
            os.close(lease_write)
            raise
        finally:
            os.close(lease_read)
        return LocalRunning(child, lease_write, command.stdin, on_line)


def _fork(command: Command, inherit: Mapping[str, int]) -> nursery.Child | None:
    """From the nursery, where it can; one that is gone is not missed."""
    if not nursery.can_start(command.argv):
        return None
    given = {**inherit, **nursery.lend()}
    try:
        return nursery.start(command.argv, cwd=command.cwd, env=command.env, inherit=given, stdin=command.stdin is not None)
    except (BrokenPipeError, ConnectionError):
        nursery.close_nursery()
        return None


def _start(command: Command, inherit: Mapping[str, int]) -> subprocess.Popen[bytes]:
    sink = command.stdout_file
    with processes.starting, sink.open("wb") if sink else nullcontext() as file:
        child = subprocess.Popen(
            list(command.argv),
            cwd=command.cwd,
            env={**command.env, **{name: str(descriptor) for name, descriptor in inherit.items()}},
            stdin=subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL,
            stdout=file or subprocess.PIPE,
            stderr=subprocess.STDOUT if file else subprocess.PIPE,
            pass_fds=tuple(inherit.values()),
            start_new_session=True,
        )
        processes.own_children.add(child.pid)
    return child


class LocalRunning:
    def __init__(self, child: Child, lease: int, stdin: bytes | None, on_line: OnLine) -> None:
        self.child = child
        self.heard = time.monotonic()
        self._lease = lease
        self._input = memoryview(stdin or b"")
        self._lines = _Lines(on_line)
        self._stdout = bytearray()
        self._kill_at: float | None = None
        self._gone_at: float | None = None
        self._selector = selectors.DefaultSelector()
        ways = ((child.stdout, selectors.EVENT_READ), (child.stderr, selectors.EVENT_READ), (child.stdin, selectors.EVENT_WRITE))
        for stream, way in ways:
            if stream:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, way)

    def stop(self, grace: float) -> None:
        if self._kill_at is None:
            self.child.terminate()
            self._kill_at = time.monotonic() + grace

    def wait(self, seconds: float) -> Finished | None:
        until = time.monotonic() + seconds
        while True:
            self._insist()
            if not self._selector.get_map():
                _wait(self.child, min(seconds, 0.1))  # it has said all it has to say, and is about to end
            left = max(until - time.monotonic(), 0.0)
            for key, _ in self._selector.select(left) if self._selector.get_map() else ():
                self._take(cast(IO[bytes], key.fileobj), key.fd)
            if self._ended():
                self._lines.close()
                status = Status.LOST if getattr(self.child, "lost", False) else Status.EXITED
                return Finished(self.child.wait(), bytes(self._stdout), "\n".join(self._lines.tail), status)
            if time.monotonic() >= until:
                return None

    def _insist(self) -> None:
        now = time.monotonic()
        if self._kill_at and now > self._kill_at and self.child.poll() is None:
            self.child.kill()
            if now > self._kill_at + INSIST_SECONDS:
                _give_up(self.child)

    def _take(self, stream: IO[bytes], descriptor: int) -> None:
        if stream is self.child.stdin:
            try:
                self._input = self._input[os.write(descriptor, self._input[:65536]) :]
            except BrokenPipeError:
                self._input = memoryview(b"")  # the child chose not to read the rest
            if not self._input:
                self._selector.unregister(stream)
                stream.close()
            return
        data = os.read(descriptor, 65536)
        self.heard = time.monotonic()
        if not data:
            self._selector.unregister(stream)
            stream.close()
        elif stream is self.child.stdout:
            self._stdout += data
            if len(self._stdout) > STDOUT_LIMIT:
                self._stdout = self._stdout[:STDOUT_LIMIT]
                self._kill_at = self.heard
                self.child.kill()
        else:
            self._lines.feed(data)

    def _ended(self) -> bool:
        if self.child.poll() is None:
            return False
        if not self._selector.get_map():
            return True
        # A grandchild that kept the pipe must not keep us: what the child wrote is read by now.
        self._gone_at = self._gone_at or time.monotonic()
        return time.monotonic() - self._gone_at > 1.0

    def close(self, grace: float) -> None:
        if self.child.poll() is None:
            _end(self.child, grace)
        self._selector.close()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream and not stream.closed:
                stream.close()
        os.close(self._lease)
        with processes.starting:
            processes.own_children.discard(getattr(self.child, "pid", 0))
            if self.child.returncode:
                end_orphans()  # a child that ended well has ended everything below itself


def end_orphans() -> None:
    """A child that was killed leaves its own children to us, its subreaper. They are not ours to keep."""
    table = keeper.parents()
    me = os.getpid()
    for pid in [p for p, parent in table.items() if parent == me and p not in (*processes.own_children, nursery.pid)]:
        for lost in [*keeper.descendants(pid), pid]:
            keeper.send(lost, signal.SIGKILL)
        keeper.reap([pid])


def _end(child: Child, grace: float) -> None:
    """What nobody waits for any more: ask, wait, then insist."""
    child.terminate()
    _wait(child, grace)
    if child.poll() is None:
        child.kill()
        _wait(child, INSIST_SECONDS)
    if child.poll() is None:
        _give_up(child)
        child.wait()


def _give_up(child: Child) -> None:
    """Of a nursery that does not pass our orders on: it is stopped, or gone, or what it started cannot be ended."""
    nursery.close_nursery()
    if isinstance(child, nursery.Child):
        child.give_up()


def _wait(child: Child, seconds: float) -> None:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass  # the caller looks again, and at its clock


class _Lines:
    """Cuts a byte stream into lines. A line is handed on once, whole, however the bytes were cut up in between."""

    def __init__(self, on_line: OnLine) -> None:
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
