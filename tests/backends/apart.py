"""A second backend, for tests: each command in a PID namespace of its own where the machine allows that, without any descriptor
of its caller, and with an environment from a list. What works here needs no inherited lease, lock or nursery."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from functools import cache

from lib.process.backend import Command, Finished, OnLine, Status

LISTED = re.compile(r"AGENTIC_(?!.*_FD$).*|PATH|HOME|LANG|TMPDIR|UV|UV_CACHE_DIR|ANTHROPIC_.*|CLAUDE_.*|STRATA_.*")


@cache
def _namespace() -> tuple[str, ...]:
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGTERM")
    if not shutil.which("unshare"):
        return ()
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else ()


class Apart:
    def start(self, command: Command, on_line: OnLine) -> ApartRunning:
        return ApartRunning(command, on_line)


class ApartRunning:
    def __init__(self, command: Command, on_line: OnLine) -> None:
        self.heard = time.monotonic()
        self._on_line = on_line
        self._tail: list[str] = []
        self._kill_at: float | None = None
        sink = command.stdout_file.open("wb") if command.stdout_file else None
        self._child = subprocess.Popen(
            [*_namespace(), *command.argv],
            cwd=command.cwd,
            env={name: value for name, value in command.env.items() if LISTED.fullmatch(name)},
            stdin=subprocess.PIPE if command.stdin is not None else subprocess.DEVNULL,
            stdout=sink or subprocess.PIPE,
            stderr=subprocess.STDOUT if sink else subprocess.PIPE,
            close_fds=True,
            start_new_session=True,
        )
        if sink:
            sink.close()
        self._stdout = b""
        readers = [(self._child.stdout, self._read_document), (self._child.stderr, self._read_lines)]
        self._threads = [threading.Thread(target=read, args=(s,), daemon=True) for s, read in readers if s]
        self._threads += [threading.Thread(target=self._feed, args=(command.stdin,), daemon=True)] if command.stdin else []
        for thread in self._threads:
            thread.start()

    def _feed(self, data: bytes) -> None:
        assert self._child.stdin
        try:
            self._child.stdin.write(data)
            self._child.stdin.close()
        except BrokenPipeError:
            pass  # it chose not to read the rest

    def _read_document(self, stream) -> None:
        self._stdout = stream.read()

    def _read_lines(self, stream) -> None:
        for line in stream:
            self.heard = time.monotonic()
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._tail = [*self._tail[-19:], text]
            self._on_line(text)

    def stop(self, grace: float) -> None:
        if self._kill_at is None:
            self._signal("-TERM")
            self._kill_at = time.monotonic() + grace

    def _signal(self, name: str) -> None:
        """To what runs in the namespace: unshare itself passes nothing on."""
        below = subprocess.run(["pgrep", "-P", str(self._child.pid)], capture_output=True, text=True, check=False).stdout.split()
        targets = below if _namespace() else [str(self._child.pid)]
        subprocess.run(["kill", name, *targets], capture_output=True, check=False)

    def wait(self, seconds: float) -> Finished | None:
        if self._kill_at and time.monotonic() > self._kill_at:
            self._child.kill()
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        for thread in self._threads:
            thread.join(5)
        return Finished(code, self._stdout, "\n".join(self._tail), Status.EXITED)

    def close(self, grace: float) -> None:
        if self._child.poll() is None:
            self.stop(grace)
            while self.wait(0.1) is None:
                pass
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream:
                stream.close()
