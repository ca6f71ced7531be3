"""The worker's side: an activity is an order in a folder, checked before it is run, and a supervisor that stands over it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO

from msgspec import Struct
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from lib.contract import CORE, Json, StrataError
from lib.disk import records
from lib.machines import captive, house, placed
from lib.machines.address import Shown
from lib.machines.house import Facts
from lib.machines.placed import CUT, REFUSED, UNSEEN, Ticket, Word
from lib.machines.supervisor import Assignment
from lib.process import nursery, processes
from lib.process.local import end_orphans
from lib.temporal import engine, vetting
from lib.temporal.vetting import Misplaced, Unfit

BEAT_SECONDS = 1.0
SEEN_SECONDS = 3.0  # until an order that was written elsewhere is seen here
END_SECONDS = 10.0
START_SECONDS = 20.0  # a supervisor says that it is there as soon as it is
ALONE_SECONDS = 15.0  # until somebody who could run it would have shown up
MOST_LABELS = 4
SUPERVISOR = CORE / "lib/machines/supervisor.py"
WARDEN = CORE / "lib/machines/warden.py"


class Terms(Struct, frozen=True):
    """What a worker is there for."""

    name: str
    slots: int
    root: Path
    labels: tuple[str, ...]
    place: str
    drain: float | None  # seconds that running commands are given when it is asked to stop; None: as long as they take


class Changed(StrataError):  # noqa: N818 - a role: why a worker stops although nobody has asked it to
    def __init__(self) -> None:
        super().__init__("HOUSE_CHANGED", "the house has changed since this worker was started", "start it again")


class Working:
    def __init__(self, client: Client, terms: Terms, facts: Facts, say: Callable[[str, Json], None]) -> None:
        """`say`: hears of every command, for whoever watches the worker."""
        self._client, self.terms, self._facts, self._say = client, terms, facts, say
        self._stamp = house.stamp()
        self.busy = 0
        self._touch = time.monotonic()  # when the server was last reached
        self.stopping = asyncio.Event()  # it takes no more work
        self.changed = False  # the house is no longer what it was when this began
        self._misplaced: dict[str, float] = {}  # orders that only others can run, and since when they come
        self.ran = 0

    async def serve(self, ready: Callable[[], None]) -> None:
        """Takes work until it is asked to stop, and then only ends what it has. `ready` is told when the first may come."""
        nursery.open_apart(WARDEN)
        workers = [self._presence(), *(self._worker(queue) for queue in self._queues())]
        touching = asyncio.create_task(self._keep_touch())
        running = [asyncio.create_task(worker.run()) for worker in workers]
        stop = asyncio.create_task(self.stopping.wait())
        while not all(worker.is_running for worker in workers) and not any(task.done() for task in (stop, *running)):
            await asyncio.sleep(0.05)
        if all(worker.is_running for worker in workers):
            ready()
        await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*(worker.shutdown() for worker in workers))  # all at once: none takes more while another drains
        try:
            await asyncio.gather(*running)
        except RuntimeError as error:  # as where the server goes away at the moment they begin
            raise StrataError(
                "BACKEND_UNREACHABLE", f"the Temporal client has given up: {error}", "start the worker again"
            ) from None
        touching.cancel()

    def _queues(self) -> list[str]:
        labels = sorted(self.terms.labels)
        sets = [needs for number in range(len(labels) + 1) for needs in itertools.combinations(labels, number)]
        return [engine.channel(self._facts.name, self.terms.place, needs) for needs in sets]

    def _presence(self) -> Worker:
        """Shows that this worker is there, whatever its house, to submitters who look for one."""
        shown = Shown(self.terms.name, self._facts, self.terms.place, self.terms.labels)
        return Worker(
            self._client,
            task_queue=engine.PRESENCE,
            activities=[_hello],
            max_concurrent_activities=1,
            identity=json.dumps(records.document(shown)),
            disable_eager_activity_execution=True,
        )

    def _worker(self, queue: str) -> Worker:
        given = timedelta(seconds=self.terms.drain) if self.terms.drain is not None else engine.LONGEST
        return Worker(
            self._client,
            task_queue=queue,
            activities=[self.run],
            max_concurrent_activities=self.terms.slots,
            identity=self.terms.name,
            graceful_shutdown_timeout=given,
            max_heartbeat_throttle_interval=timedelta(seconds=BEAT_SECONDS),
            default_heartbeat_throttle_interval=timedelta(seconds=BEAT_SECONDS),
        )

    async def _keep_touch(self) -> None:
        while True:
            with contextlib.suppress(RPCError, RuntimeError):
                if await engine.reach(self._client.service_client.check_health(timeout=timedelta(seconds=2))):
                    self._touch = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    @activity.defn(name=engine.ACTIVITY)
    async def run(self, given: Json) -> Json:
        """The word on one order. One that others may still have is not failed but handed back."""
        if self.stopping.is_set():
            raise ApplicationError("its worker is about to stop", next_retry_delay=timedelta(seconds=BEAT_SECONDS))
        if self.busy >= self.terms.slots:  # of several queues, each may have brought one
            raise ApplicationError("no slot is free", next_retry_delay=timedelta(seconds=BEAT_SECONDS))
        self.busy += 1
        try:
            word = await self._word(vetting.ticket_of(given))
        except Changed as why:
            self.changed = True
            self.stopping.set()
            word = Word(CUT, why.message)
        except Unfit as why:
            word = Word(REFUSED, f"{self.terms.name}: {why.message}")
        finally:
            self.busy -= 1
        if word.kind == UNSEEN and await self._alone(str(given["folder"])):
            word = Word(REFUSED, f"{self.terms.name}: {word.why}")
        if word.kind in (CUT, UNSEEN):
            raise ApplicationError(f"{self.terms.name}: {word.why}", next_retry_delay=timedelta(seconds=BEAT_SECONDS))
        self.ran += 1
        return records.document(word)

    async def _alone(self, folder: str) -> bool:
        """Whether nobody else has shown up who could run what this one cannot."""
        since = self._misplaced.setdefault(folder, time.monotonic())
        if time.monotonic() - since < ALONE_SECONDS:
            return False
        there = await engine.present(self._client)
        return not any(w.name != self.terms.name and (w.facts, w.place) == (self._facts, self.terms.place) for w in there)

    async def _word(self, ticket: Ticket) -> Word:
        session, step = Path(ticket.folder).parent.parent.name, ""
        try:
            assignment = await asyncio.to_thread(self._assignment, ticket)
            if not assignment:
                return Word(placed.WITHDRAWN, "its order is gone")
            step = "".join(vetting.given(assignment.argv, ("--step",)))
            self._say("runs", {"session": session, "step": step, "running": self.busy})
            word = await self._supervised(assignment)
        except Misplaced as why:
            word = Word(UNSEEN, why.message)
        except Unfit as why:
            word = Word(REFUSED, f"{self.terms.name}: {why.message}")
        ended: Json = {"exit_code": word.result.exit_code} if word.result else {"why": word.why}
        self._say(word.kind, {"session": session, "step": step, **ended, "running": self.busy - 1})
        return word

    # What is run

    def _assignment(self, ticket: Ticket) -> Assignment | None:
        """What is to be run, checked; nothing, where nobody wants it any more."""
        if ticket.house != self._facts.name:
            raise Unfit("the house it was ordered from differs from this one")
        if house.stamp() != self._stamp:
            raise Changed()
        folder = Path(ticket.folder)
        vetting.require_below(self.terms.root, folder)
        order = placed.read(folder, ticket.sha256)
        until = time.monotonic() + SEEN_SECONDS
        while order is None and time.monotonic() < until:
            time.sleep(0.2)
            order = placed.read(folder, ticket.sha256)
        if order is None:
            return None
        argv = vetting.argv_of(order, folder, self.terms.root, self.terms.place)
        return Assignment(ticket, tuple(argv), vetting.cwd_of(order, self.terms.root), self.terms.name)

    async def _supervised(self, assignment: Assignment) -> Word:
        child = _start([sys.executable, str(SUPERVISOR)])
        assert child.stdin and child.stdout
        began = asyncio.Event()
        said = asyncio.create_task(_read(child.stdout, began))
        heard = asyncio.create_task(_read(child.stderr, asyncio.Event())) if child.stderr else None
        until = time.monotonic() + START_SECONDS
        try:
            await asyncio.to_thread(child.stdin.write, json.dumps(records.document(assignment)).encode() + b"\n")
            os.set_blocking(child.stdin.fileno(), False)
            while not said.done():
                if not began.is_set() and time.monotonic() > until:
                    nursery.close_nursery()  # it is stuck, and with it all it would start; from now on they are started without
                    return Word(CUT, "its supervisor did not start")
                try:
                    await asyncio.wait({said}, timeout=BEAT_SECONDS)
                except asyncio.CancelledError:
                    # That it is not wanted stands in its folder. Only a worker whose time is up leaves it to others.
                    details = activity.cancellation_details()
                    if details and details.worker_shutdown:
                        child.stdin.close()
                activity.heartbeat()
                if time.monotonic() - self._touch < 2 * BEAT_SECONDS and not child.stdin.closed:
                    with contextlib.suppress(BrokenPipeError, BlockingIOError):
                        os.write(child.stdin.fileno(), b".")
            return records.of(json.loads(said.result()), Word)
        except (ValueError, BrokenPipeError):
            return Word(CUT, "its supervisor was ended")
        finally:
            child.stdin.close()
            ended = await asyncio.to_thread(_ended, child)
            if ended != 0 and nursery.is_open() and not captive.namespace():
                end_orphans()  # of a supervisor that was killed: with namespaces the kernel has done it
            if heard:
                sys.stderr.write((await heard).decode("utf-8", "replace"))


def _start(argv: list[str]) -> nursery.Child | subprocess.Popen[bytes]:
    """From the nursery beside the worker; one that is gone is not missed."""
    if nursery.is_open():
        try:
            return nursery.start(argv, cwd=None, env=os.environ, inherit={}, stdin=True)
        except OSError:
            nursery.close_nursery()
    with processes.starting:
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        processes.own_children.add(child.pid)
    return child


def _ended(child: nursery.Child | subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return None
    finally:
        with processes.starting:
            processes.own_children.discard(getattr(child, "pid", 0))


async def _read(stream: IO[bytes], began: asyncio.Event) -> bytes:
    """All of it; `began` is set with the first byte."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    try:
        first = await reader.read(1)
        began.set()
        return first + await reader.read()
    finally:
        transport.close()


@activity.defn(name="hello")
async def _hello() -> None:
    """Nobody asks for it: a worker that listens on this queue shows that it is there."""


def default_name() -> str:
    return f"{os.uname().nodename}-{os.getpid()}"
