"""Stands over one command that a worker runs for a run on another machine. A program, as which a worker starts it.

It takes the lease of the order's folder, runs the command, keeps what it prints, and writes the result. It ends the command and
everything below it when the worker is gone, when the lease cannot be renewed, when the order is withdrawn, when the run it
belongs to has ended, and when the worker is cut off from its server and somebody else was given the order. Should it be frozen
itself, or killed, the kernel ends the command in its place.

stdin: a line of JSON (`Assignment`), then a byte for every sign that the worker reached its server; end of file is its death.
stdout: an empty line once it is there, and one of JSON (`Word`).
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # core: a script finds only what is beside it
from msgspec import Struct
from msgspec.structs import replace

from lib import names
from lib.contract import HANDING_OVER
from lib.disk import files, lenient, records
from lib.machines import captive, lease, placed
from lib.machines.captive import Captive, Deadman
from lib.machines.lease import Lease, Watch
from lib.machines.placed import CUT, FAILED, REFUSED, RESULT, STOPPED, UNSEEN, WITHDRAWN, Order, OwnRun, Result, Ticket, Word
from lib.machines.prepared import Prepared
from lib.process import forking, keeper

LOOK_SECONDS = 0.2
CUT_GRACE_SECONDS = 3.0  # nobody waits for it here any more: what it can still put in order, it does quickly
TIMES = 5  # a command that was begun so often and never ended is not begun again
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.E2BIG)  # for every worker
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)  # for this one: it may run as another user
_FOREIGN = ("TEMPORAL_", "STRATA_PAYLOAD_KEY")  # the worker's own, and nothing to a tool


class Assignment(Struct, frozen=True):
    """What a worker asks for."""

    ticket: Ticket
    argv: tuple[str, ...]
    cwd: str
    worker: str


class _Handed(Struct, frozen=True):
    """What an executor is about to write down."""

    path: str = ""
    sha256: str = ""


class Worker:
    """The one who started us: when it last said that it reaches its server, and whether it is there at all."""

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self.gone = False

    def listen(self, seconds: float, wake: int) -> None:
        ready, _, _ = select.select([wake] if self.gone else [0, wake], [], [], seconds)
        for descriptor in ready:
            data = os.read(descriptor, 4096)
            self.gone = self.gone or (descriptor == 0 and not data)
            if descriptor == 0 and data:
                self.heard = time.monotonic()

    @property
    def cut_off(self) -> bool:
        return time.monotonic() - self.heard > lease.HOLD_SECONDS


class Keeping(threading.Thread):
    """Renews the lease, and looks whether anybody still wants the work. Whether it is in time, others see by the clock."""

    def __init__(self, held: Lease, order: Order, folder: Path, worker: Worker, still: Deadman) -> None:
        super().__init__(daemon=True)
        self.why: Word | None = None  # why it is to end although it is wanted
        self.grace: float | None = None
        self.ended = threading.Event()
        self._held, self._folder, self._worker, self._still = held, folder, worker, still
        self._run = OwnRun(order)

    def run(self) -> None:
        while not self.ended.wait(lease.RENEW_SECONDS):
            try:
                if not self._held.renew():
                    self.why = Word(CUT, "its lease is lost")
                    return
                self._still.put_off(self._held.left + 1.0)
                self.grace = placed.stopped(self._folder)
                if over := self._run.over():
                    self.why = Word(WITHDRAWN, over)
                elif self._worker.cut_off and (self._folder / placed.WANTED).exists():
                    self.why = Word(CUT, "its worker is cut off, and another has been given the work")
            except OSError:
                continue  # the folder is away for a moment, or for longer: the clock decides


def supervise(assignment: Assignment, worker: Worker, wake: int, prepared: Prepared | None = None) -> Word:
    folder = Path(assignment.ticket.folder)
    order = placed.read(folder, assignment.ticket.sha256)
    if order is None:
        return Word(WITHDRAWN, "its order is gone")
    run = OwnRun(order)
    if ended := run.over():
        return Word(WITHDRAWN, ended)
    if not run.lock_holds():
        why = "the run has just ended, or this file system keeps no locks"
        return Word(UNSEEN, f"the lock of {order.session} is not seen there: {why}")
    held = _turn(assignment, folder, worker, wake)
    if isinstance(held, Word):
        return held
    still = Deadman()
    still.put_off(held.left + 1.0)
    keeping = Keeping(held, order, folder, worker, still)
    keeping.start()
    handed_back = False
    try:
        word = _run(assignment, order, held, keeping, wake, worker, prepared)
        handed_back = word.kind == CUT and worker.gone
        return word
    finally:
        keeping.ended.set()
        still.stop()
        try:
            held.release(handed_back)
        except OSError:
            pass  # the folder is away: others see that nobody renews it


def _turn(assignment: Assignment, folder: Path, worker: Worker, wake: int) -> Lease | Word:
    """Waits until nobody else runs it. What somebody else came to meanwhile is the result."""
    watch, key = Watch(folder), assignment.ticket.key
    while True:
        if found := placed.result(folder, key):
            return Word(RESULT, result=found)
        if placed.stopped(folder) is not None:
            return Word(WITHDRAWN, "nobody wants it any more")
        if worker.gone:
            return Word(CUT, "its worker has ended")
        if watch.free():
            held = Lease.take(folder, watch.number + 1, assignment.worker)
            if held and (found := placed.result(folder, key, ended=True)):
                held.release()
                return Word(RESULT, result=found)
            if held and lease.lost(folder) > TIMES:
                held.release()
                return Word(REFUSED, f"it was begun {TIMES} times, and no worker came to its end")
            if held:
                (folder / placed.WANTED).unlink(missing_ok=True)
                return held
        else:
            (folder / placed.WANTED).touch()
        worker.listen(LOOK_SECONDS, wake)


def _run(
    assignment: Assignment, order: Order, held: Lease, keeping: Keeping, wake: int, worker: Worker, prepared: Prepared | None
) -> Word:
    folder, key, number = Path(assignment.ticket.folder), assignment.ticket.key, held.number

    def hear(line: bytes, sha256: str, size: int) -> None:
        """What a command hands over is about to be on disk. From then on it has come to an end, whatever becomes of us."""
        if line.startswith(HANDING_OVER.encode()):
            with streams[1].open("rb") as file:
                os.fsync(file.fileno())  # as the record of it is
            told = lenient.parse(line, _Handed)
            known = Result(number, -signal.SIGKILL, assignment.worker, stderr=sha256, stderr_size=size)
            known = replace(known, outcome=told.path, outcome_sha256=told.sha256).sealed(key)
            files.write_json(folder / f"handed-{number}.json", records.document(known))

    env = {k: v for k, v in os.environ.items() if k not in placed.TRAVELS and not k.startswith(_FOREIGN)}
    env |= {**order.env, names.WORKER: assignment.worker, names.HEARD: str(folder / f"handed-{number}.json")}
    if not held.good:
        return Word(CUT, "its lease was lost before it began")
    streams = (folder / f"stdout-{number}", folder / f"stderr-{number}")
    command = Captive(prepared, assignment.argv, env, assignment.cwd, folder / "stdin" if order.stdin else None, streams, hear)
    why = _watch(command, keeping, held, worker, wake)
    command.settled()
    if command.error:
        raise command.error
    if why and keeping.grace is None:  # it did not end by itself; what it had to say may have been said before that
        known = placed.result(folder, key, ended=True)
        return Word(RESULT, result=known) if known else why
    if keeping.grace is None and command.exit_code in STOPPED:
        return Word(CUT, "somebody on its machine stopped it")  # its run goes on
    out, err = command.stdout, command.stderr
    found = Result(
        number, command.exit_code, assignment.worker, out.hash.hexdigest(), err.hash.hexdigest(), out.size, err.size
    ).sealed(key)
    if not held.renew():
        return Word(CUT, "its lease was lost before its result was written")
    files.write_json(folder / f"result-{number}.json", records.document(found))
    return Word(RESULT, result=found)


def _watch(command: Captive, keeping: Keeping, held: Lease, worker: Worker, wake: int) -> Word | None:
    """Until the command has ended. Returns why it was ended, where it did not by itself."""
    why: Word | None = None
    while command.child.poll() is None:
        worker.listen(LOOK_SECONDS, wake)
        if keeping.grace is not None:
            command.ask(keeping.grace)
        why = why or keeping.why or (Word(CUT, "its worker has ended") if worker.gone else None)
        if why:
            command.ask(CUT_GRACE_SECONDS)
        if not held.good:
            why = why or Word(CUT, "its lease could not be renewed")
            command.end()
        command.insist()
    return why


def _heard(_number: int, _frame: object) -> None:
    """The wake-up descriptor is what tells us."""


def main() -> NoReturn:
    keeper.become_subreaper()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, _heard)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _heard)  # the worker decides, and says so on its pipe; to ignore it would be inherited
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 1)
        if not data:
            sys.exit(1)
        line += data
    os.write(1, b"\n")  # it is there
    # While there are no threads: forked from a nursery, it can become a tool as it is.
    prepared = Prepared(captive.namespace()) if forking.loaded else None
    try:
        word = supervise(records.of(json.loads(line), Assignment), Worker(), wake, prepared)
    except OSError as error:
        kind = FAILED if error.errno in _FULL else UNSEEN if error.errno in _FORBIDDEN else CUT  # what is away may come back
        word = Word(kind, f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}")
    try:
        sys.stdout.write(json.dumps(records.document(word)) + "\n")
        sys.stdout.flush()
    except OSError:
        pass  # nobody is left to hear it
    os._exit(0)  # a thread may hang in a folder that is away


if __name__ == "__main__":
    main()
