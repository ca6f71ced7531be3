# /// script
# requires-python = ">=3.11"
# dependencies = ["msgspec>=0.19,<1", "temporalio>=1.35,<2", "cryptography>=45"]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Brings the commands of one run to workers. A program that the outermost tool of a run starts, and that ends with it.

Its one argument says what for (`Mandate`). On stdout it says once that it has reached its server, or why not; on stderr what its
run should know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # core: a script finds only what is beside it
from lib.contract import Json, StrataError
from lib.disk import records
from lib.machines.address import Address, Mandate
from lib.process import keeper
from lib.session.events import emit_event, write_live_report
from lib.temporal import engine
from lib.temporal.submitting import Submitter


async def serve(mandate: Mandate) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    keeper.watch_lease(lambda: os.kill(os.getpid(), signal.SIGTERM))
    session, address = Path(mandate.session), Address.parse(mandate.backend)
    assert address

    def report(status: str, detail: Json) -> None:
        emit_event("monitor", "backend", status, detail=detail)
        with contextlib.suppress(OSError):  # a full disk is said by whoever cannot go on without it
            write_live_report(session, "monitor", "backend", status, detail=detail)

    client = await engine.connect(address, f"submitter of {session.name}")
    submitter = Submitter(client, address, mandate.facts, report)
    listening = await asyncio.start_unix_server(submitter.answer, mandate.listen)
    print(json.dumps({"ready": True}), flush=True)
    report("connected", {"address": str(address), "workers": await submitter.workers()})
    watching = asyncio.create_task(submitter.watch())
    await stop.wait()
    watching.cancel()
    listening.close()


def main() -> None:
    try:
        asyncio.run(serve(records.of(json.loads(sys.argv[1]), Mandate)))
    except StrataError as error:
        print(json.dumps({"ready": False, "error": error.document()}), flush=True)
        os._exit(int(error.exit_code))
    os._exit(0)  # what is still asked of the server is nobody's any more


if __name__ == "__main__":
    main()
