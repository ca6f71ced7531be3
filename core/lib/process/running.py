"""Running a command to its end, wherever it is placed: its clock, its silence, and a stop that comes from above."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from lib.contract import Interrupted
from lib.process import keeper, processes
from lib.process.backend import Backend, Command, Finished, OnLine, Status, ToolCall
from lib.process.local import Local

LOOK_SECONDS = 0.1  # between two looks at the clock
backend: Backend = Local()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes | None = None,
    timeout_seconds: float | None = None,
    grace: float = keeper.GRACE_SECONDS + 2.0,
    on_line: OnLine = lambda line: None,
    stdout_file: Path | None = None,
    silence_seconds: float | None = None,
    tool: ToolCall | None = None,
) -> Finished:
    """Each stderr line goes to `on_line` as it comes; stdout is returned whole, or, with `stdout_file`, both streams go to that
    file."""
    if processes.stopping.is_set():
        raise Interrupted()
    command = Command(secrets.token_hex(8), tuple(argv), dict(env), cwd, stdin, stdout_file, tool)
    running = backend.start(command, on_line)
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    why: Status | None = None
    silent = False
    try:
        while (finished := running.wait(LOOK_SECONDS)) is None:
            now = time.monotonic()
            quiet = bool(silence_seconds) and now - running.heard > (silence_seconds or 0)
            if why is None and (processes.stopping.is_set() or quiet or (deadline and now > deadline)):
                why = Status.CANCELLED if processes.stopping.is_set() else Status.TIMEOUT
                silent = why is Status.TIMEOUT and quiet
                running.stop(grace)
    finally:
        running.close(grace)
    if processes.stopping.is_set():
        raise Interrupted()
    return replace(finished, status=why or finished.status, silent=silent)


def run_kept(argv: Sequence[str], **options: object) -> Finished:
    """Runs a program that is not a tool, under a keeper, so that nothing it starts can outlive us."""
    return run(processes.kept(argv), **options)  # type: ignore[arg-type]
