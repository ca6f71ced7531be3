"""What a process of the tree knows of itself: whether it was asked to stop, who called it, which children are its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lib import names
from lib.contract import CORE
from lib.process import keeper

stopping = threading.Event()  # set once, when this process has been asked to end
called_by_tool = False  # and not by a person or an agent: only to a tool is the outcome handed over
Stop = Callable[[], None]
stop_softly: Stop | None = None  # what to do then instead of raising, where raising would be unsafe
session_lock: int | None = None  # a descriptor every child inherits: the lock lasts until the whole tree has ended
starting = threading.Lock()
own_children: set[int] = set()


def say_stop() -> None:
    """From the main thread: a signal in the middle of it would wait for a lock that this thread holds."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    stopping.set()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def grace_seconds(layer: int) -> float:
    """How long a tool of this layer waits for a child it asked to stop: always less than its own parent waits."""
    return keeper.GRACE_SECONDS + 2.0 * (layer + 1)


def hear_caller() -> None:
    global called_by_tool, _heard
    called_by_tool = bool(os.environ.pop(names.CALLER, ""))
    _heard = os.environ.pop(names.HEARD, "")


_heard = ""
HEARD_SECONDS = 10.0


def wait_until_heard() -> bool:
    """Of what was handed over, where somebody stands between this process and its caller: from then on it is not done again."""
    until = time.monotonic() + HEARD_SECONDS
    while _heard and not Path(_heard).exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


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
    with starting:
        child = subprocess.Popen(
            list(argv), cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        own_children.add(child.pid)
    try:
        out, err = child.communicate(stdin, timeout_seconds)
    except BaseException:  # whatever it was, a stop included: it does not run on behind us
        child.kill()
        child.communicate()
        raise
    finally:
        with starting:
            own_children.discard(child.pid)
    return subprocess.CompletedProcess(argv, child.returncode, out, err)


def kept(argv: Sequence[str], parent: int = 0) -> list[str]:
    """The command under a keeper. `parent`: of one that is started by somebody who passes no lease on."""
    watched = ["--parent", str(parent)] if parent else []
    return [sys.executable, "-S", "-E", str(CORE / "lib" / "process" / "start_keeper.py"), *watched, "--", *argv]
