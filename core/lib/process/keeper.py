"""Keeps processes from outliving the one that started them. Standard library only, and the names of the variables.

As a module: what every tool uses to end all that runs below it. As a program, `python keeper.py [--parent PID] --
COMMAND ARGS`, it stands between a tool and a foreign command (a check, the agent CLI): it adopts whatever the command
leaves behind, and when its parent goes away, however that happens, it ends the command and everything below it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable

if __name__ == "__main__":
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")  # core: a script finds only what is beside it
from lib import names

GRACE_SECONDS = 4.0  # the agent CLI needs about a second to stop its own Bash children; every layer above waits longer
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, value: int) -> None:
    if _libc:
        _libc.prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Orphans below this process become its children, so it can still find them. Linux only; elsewhere a no-op."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def stop_being_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 0)


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Belongs to the thread that started this process. Linux only; elsewhere a no-op."""
    _prctl(_PR_SET_PDEATHSIG, number)


def parents() -> dict[int, int]:
    """The parent of every process on the machine."""
    table: dict[int, int] = {}
    if os.path.isdir("/proc/self"):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat", "rb") as file:
                        fields = file.read().rpartition(b")")[2].split()
                    table[int(entry)] = int(fields[1])
                except (FileNotFoundError, ProcessLookupError, IndexError):
                    continue  # it ended while we looked
    else:
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            pid, ppid = line.split()
            table[int(pid)] = int(ppid)
    return table


def descendants(root: int) -> list[int]:
    """Everything below `root`, nearest first."""
    below: dict[int, list[int]] = {}
    for pid, ppid in parents().items():
        below.setdefault(ppid, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        next_ones = below.get(queue.pop(0), [])
        found += next_ones
        queue += next_ones
    return found


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # already gone, or not ours any more: nothing is left to stop


def reap(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # not a direct child, or somebody waited for it first


def wait_for(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # somebody waited for it first


def has_children() -> bool:
    """Whether anything is below this process at all. Those that have ended already are taken note of, and gone."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_descendants(ask_seconds: float = 0.0) -> list[int]:
    """Ends all that runs below this process and returns the pids that had to be ended."""
    if not has_children():
        return []
    ended: set[int] = set()
    if ask_seconds:
        asked = descendants(os.getpid())
        for pid in asked:
            send(pid, signal.SIGTERM)
        ended.update(asked)
        deadline = time.monotonic() + ask_seconds
        while time.monotonic() < deadline and (left := descendants(os.getpid())):
            reap(left)
            time.sleep(0.02)
    deadline = time.monotonic() + 10
    while left := descendants(os.getpid()):
        for pid in left:
            send(pid, signal.SIGKILL)
        ended.update(left)
        reap(left)
        if time.monotonic() > deadline:
            break  # a process in uninterruptible sleep: waiting longer would hang the whole tree above us
        time.sleep(0.01)
    return sorted(ended)


leased = False  # whether a tool started this one: a person and an agent give no lease


def watch_lease(on_end: Callable[[], None]) -> None:
    """Calls `on_end` from a thread when the parent that gave us a lease is gone (the pipe reads end of file)."""
    global leased
    text = os.environ.pop(names.LEASE, "")
    leased = text.isascii() and text.isdigit() and len(text) < 7
    if not leased:
        return
    descriptor = int(text)

    def wait() -> None:
        try:
            os.set_inheritable(descriptor, False)
            while os.read(descriptor, 1):
                pass
        except OSError:
            return  # the descriptor is not a lease of ours (a shell passed the variable on without it)
        on_end()

    threading.Thread(target=wait, name="lease", daemon=True).start()


def watch_starter(on_end: Callable[[], None]) -> None:
    """For a tool that `uv run` started: uv passes on every signal but the one it cannot catch, and is gone then."""
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return  # no such list here: nothing to go by
    if os.path.basename(words[0]) != b"uv" or leased:
        return

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        on_end()

    threading.Thread(target=look, name="starter", daemon=True).start()


def _watch_parent(parent: int, on_end: Callable[[], None]) -> None:
    """For a command the agent SDK starts, which passes no descriptors: the parent's death signal, and a look now and then."""
    die_with_parent()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        on_end()

    threading.Thread(target=look, name="parent", daemon=True).start()


def keep(command: list[str], parent: int) -> int:
    """Runs `command`, passes signals on to it, and leaves nothing of it behind."""
    become_subreaper()
    os.environ.pop(names.LOCK, None)  # the session's lock ends with us; the command has no part in it
    child: subprocess.Popen[bytes] | None = None
    stopping = False

    def stop(number: int, *_: object) -> None:
        nonlocal stopping
        if child and not stopping:
            polite = number == signal.SIGINT
            child.send_signal(signal.SIGINT if polite else signal.SIGTERM)
            for seconds, insist in ((GRACE_SECONDS * 0.6, child.terminate), (GRACE_SECONDS, child.kill))[0 if polite else 1 :]:
                late = threading.Timer(seconds, insist)
                late.daemon = True
                late.start()
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)

    def parent_is_gone() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    if parent:
        _watch_parent(parent, parent_is_gone)
    else:
        watch_lease(parent_is_gone)
    if not stopping:
        try:
            # Should the keeper itself be killed: the agent CLI is asked to stop its own children, anything else just ends.
            farewell = signal.SIGTERM if parent else signal.SIGKILL
            say_farewell = functools.partial(die_with_parent, farewell)
            child = subprocess.Popen(command, preexec_fn=say_farewell)  # noqa: PLW1509 - one system call, already loaded
        except OSError as error:
            print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
            return 127
        if stopping:
            child.terminate()
        code = child.wait()
    else:
        code = -signal.SIGTERM
    end_descendants(ask_seconds=0.2 if stopping else 0.0)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    arguments = sys.argv[1:]
    parent_pid = 0
    if arguments[:1] == ["--parent"]:
        parent_pid, arguments = int(arguments[1]), arguments[2:]
    sys.exit(keep(arguments[1:] if arguments[:1] == ["--"] else arguments, parent_pid))
