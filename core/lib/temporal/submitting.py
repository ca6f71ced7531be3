"""The submitter's side: every command that a tool of the run asks to have placed is an activity, until its word has come back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import timedelta

import msgspec
from temporalio.client import ActivityFailureError, Client
from temporalio.common import ActivityIDConflictPolicy, RetryPolicy
from temporalio.exceptions import CancelledError
from temporalio.service import RPCError

from lib.contract import Json
from lib.disk import records
from lib.machines.address import Address, Asked, Shown, Told
from lib.machines.house import Facts
from lib.machines.placed import Word
from lib.temporal import engine

AGAIN_SECONDS = 1.0
TIMES = 5  # that the server may lose one command
SAY_SECONDS = 30.0
LONG_SECONDS = 10.0  # what no worker has begun by then is worth a word
Report = Callable[[str, Json], None]


class Submitter:
    def __init__(self, client: Client, address: Address, facts: Facts, report: Report) -> None:
        self._client, self._address, self._facts, self._report = client, address, facts, report
        self._room = asyncio.Semaphore(address.cap) if address.cap else None
        self._placed: dict[str, tuple[Asked, float]] = {}  # by id: what, and since when
        self._unwanted: set[str] = set()
        self._away = False

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One command of one tool, from its order to its word. A tool that hangs up wants it no more."""
        try:
            asked = msgspec.json.decode(await reader.readuntil(), type=Asked)
            async with self._room or contextlib.nullcontext():
                told = await self._until(reader, asked)
            if told:
                writer.write(msgspec.json.encode(told) + b"\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
            pass  # it hung up, or was none of ours
        finally:
            writer.close()

    async def _until(self, reader: asyncio.StreamReader, asked: Asked) -> Told | None:
        """What became of it; nothing where nobody is left to hear that."""
        work = asyncio.create_task(self._place(asked))
        while not work.done():
            heard = asyncio.create_task(reader.readline())
            await asyncio.wait({work, heard}, return_when=asyncio.FIRST_COMPLETED)
            if not heard.done():
                heard.cancel()
                break
            self._unwanted.add(asked.id)
            await self._cancel(asked)
            if not heard.result():
                work.cancel()
                await asyncio.wait({work})
                return None
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - whatever it was, the tool that waits is told, and does not take us for gone
            return Told(lost=f"{type(error).__name__}: {error}")

    async def _place(self, asked: Asked) -> Told:
        """The folder of the order is the truth, so that asking twice does no harm: the same id is the same activity, and one that
        somebody has ended on the server, or that a server has forgotten, is asked for again."""
        self._placed[asked.id] = (asked, time.monotonic())
        times = 0
        try:
            while True:
                try:
                    told = await self._once(asked)
                except RPCError as error:
                    if engine.is_away(error):
                        self._say_away(True)
                        await asyncio.sleep(AGAIN_SECONDS)
                        continue
                    told = Told(lost=f"the Temporal server answered: {error.message}")
                times += 1
                if told.word or asked.id in self._unwanted or times == TIMES:
                    return told
                self._report("again", {"order": asked.id, "why": told.lost})
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._placed.pop(asked.id, None)

    async def _once(self, asked: Asked) -> Told:
        starting = self._client.start_activity(
            engine.ACTIVITY,
            records.document(asked.ticket),
            id=asked.id,
            task_queue=engine.channel(self._facts.name, self._address.place, asked.needs),
            result_type=dict,
            start_to_close_timeout=engine.LONGEST,
            heartbeat_timeout=timedelta(seconds=engine.HEARTBEAT_SECONDS),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=engine.RETRY_SECONDS), backoff_coefficient=1.0, maximum_attempts=0
            ),  # the leases in its folder count how often it was begun
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
            summary=asked.label,
        )
        handle = await engine.reach(starting)
        self._say_away(False)
        try:
            word: Json = await engine.reach(handle.result())
        except ActivityFailureError as failure:
            cause = failure.cause
            return Told(lost="it was withdrawn" if isinstance(cause, CancelledError) else str(cause))
        return Told(word=records.of(word, Word))

    async def _cancel(self, asked: Asked) -> None:
        """What waits in a queue is taken out of it. What runs is ended by whoever runs it: the folder of its order says so."""
        with contextlib.suppress(RPCError):
            handle = self._client.get_activity_handle(asked.id)
            await engine.reach(handle.cancel(rpc_timeout=timedelta(seconds=AGAIN_SECONDS)))

    # Who is there

    async def watch(self) -> None:
        """Says now and then what no worker has begun yet, and why none takes it."""
        said = 0.0
        while True:
            await asyncio.sleep(LONG_SECONDS / 2)
            now = time.monotonic()
            waiting = [asked for asked, since in self._placed.values() if now - since > LONG_SECONDS and not asked.begun]
            if waiting and now - said > SAY_SECONDS:
                with contextlib.suppress(RPCError):
                    self._report("waiting", await self._why(waiting))
                    said = now

    async def _why(self, waiting: list[Asked]) -> Json:
        shown: Json = {"waiting": len(waiting), "workers": await self.workers()}
        needs = sorted({label for asked in waiting for label in asked.needs})
        handle = self._client.get_activity_handle(waiting[0].id)
        known = await engine.reach(handle.describe(include_last_failure=True))
        failure = await engine.reach(known.last_failure())
        return {**shown, **({"needs": needs} if needs else {}), **({"last": str(failure)} if failure else {})}

    async def workers(self) -> list[str]:
        """Each worker, with its labels, and in what it differs from what this run needs."""
        return [self._described(shown) for shown in await engine.present(self._client)]

    def _described(self, shown: Shown) -> str:
        other = f"it runs {shown.place}" if shown.place != self._address.place else ""
        differs = self._facts.differs(shown.facts) or other
        labels = f" ({', '.join(shown.labels)})" if shown.labels else ""
        return f"{shown.name}{labels}{': ' if differs else ''}{differs}"

    def _say_away(self, away: bool) -> None:
        if away != self._away:
            self._away = away
            self._report("server-away" if away else "server-back", {"placed": len(self._placed)})
