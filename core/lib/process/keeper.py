"""Keeps processes from outliving the one that started them. Standard library only, and the names of the variables.

As a module: what every tool uses to end all that runs below it. As a program (`start_keeper.py`) it stands between a tool and a
foreign command (a check, the agent CLI): it adopts whatever the command leaves behind, and when its parent goes away, however
that happens, it ends the command and everything below it. Every agent waits for its start, so what few need is imported late.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from lib import names

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it would take as long as half of the rest
    from typing import NoReturn

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
        import subprocess

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


NOT_STARTED = 127  # the exit code of a shell, too, for a command that is not there
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HEARD = (*_STOPPING, signal.SIGCHLD)
_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, and by nothing else


def keep(command: Sequence[str], parent: int) -> int:
    """Runs `command`, passes signals on to it, and leaves nothing of it behind. Signals are waited for, not handled: one that
    comes while the command is being started, or just before it is waited for, would be noted and not acted on."""
    become_subreaper()
    os.environ.pop(names.LOCK, None)  # the session's lock ends with us; the command has no part in it
    child = 0
    stopping = False

    def tell(number: int) -> None:
        if child:
            send(child, number)

    def stop(number: int) -> None:
        nonlocal stopping
        if not stopping:
            polite = number == signal.SIGINT
            tell(signal.SIGINT if polite else signal.SIGTERM)
            insisting = ((GRACE_SECONDS * 0.6, signal.SIGTERM), (GRACE_SECONDS, signal.SIGKILL))
            for seconds, order in insisting[0 if polite else 1 :]:
                late = threading.Timer(seconds, tell, [order])
                late.daemon = True
                late.start()
        stopping = True

    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)  # in every thread that is started from here on, too
    for number in _HEARD:
        signal.signal(number, _noted)  # what is ignored, here or by who started us, is not kept for who waits

    def parent_is_gone() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    if parent:
        _watch_parent(parent, parent_is_gone)
    else:
        watch_lease(parent_is_gone)
    code = -signal.SIGTERM
    if not signal.sigpending() & set(_STOPPING):
        try:
            child = os.fork()
        except OSError as error:
            _say_not_started(command, error)
            code = NOT_STARTED
        else:
            if not child:
                # Should the keeper itself be killed: the agent CLI is asked to stop its own children, anything else just ends.
                _become(command, signal.SIGTERM if parent else signal.SIGKILL)
    while child:
        number = signal.sigwait(_HEARD)
        if number != signal.SIGCHLD:
            stop(number)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)  # it may have been another that we have adopted
        if ended:
            child, code = 0, os.waitstatus_to_exitcode(status)
    end_descendants(ask_seconds=0.2 if stopping else 0.0)
    return code if code >= 0 else 128 - code


def _become(command: Sequence[str], farewell: int) -> NoReturn:
    """Of a forked process: from here on it is that command, with its three streams and nothing else of ours."""
    try:
        die_with_parent(farewell)
        for number in (*_HEARD, *_IGNORED_HERE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        _close_ours()
        os.execvp(command[0], list(command))
    except (OSError, ValueError) as error:
        _say_not_started(command, error)
    finally:
        os._exit(NOT_STARTED)


def _noted(_number: int, _frame: object) -> None:
    """`sigwait` is what hears it."""


def _say_not_started(command: Sequence[str], error: Exception) -> None:
    why = getattr(error, "strerror", None) or error
    os.write(2, f"cannot start {command[0]}: {why}\n".encode(errors="backslashreplace"))


def _close_ours() -> None:
    """All but the three streams, by the list of what is open: trying every number takes minutes where a million may be."""
    for entry in os.listdir("/dev/fd"):
        if int(entry) > 2:
            try:
                os.close(int(entry))
            except OSError:
                pass  # the one the list itself was read from


def main(arguments: list[str]) -> NoReturn:
    parent = 0
    if arguments[:1] == ["--parent"]:
        parent, arguments = int(arguments[1]), arguments[2:]
    os._exit(keep(arguments[1:] if arguments[:1] == ["--"] else arguments, parent))  # nothing is left to take apart
