# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
#   "temporalio>=1.35,<2", "cryptography>=45",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: runs commands that campaigns elsewhere place. `uv run core/worker.py --backend temporal://HOST:7233 --root DIR`"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json, StrataError, usage
from lib.machines import address as addresses
from lib.machines import house, submission
from lib.machines.address import Address
from lib.process import processes
from lib.session.events import emit_event
from lib.temporal import engine
from lib.temporal.working import MOST_LABELS, Changed, Terms, Working, default_name
from lib.tool.arguments import count, seconds

TOOL = Tool(
    "worker",
    layer=0,
    summary="Run commands for campaigns on other machines until asked to stop; then finish what runs and take no more.",
    example="uv run core/worker.py --backend temporal://127.0.0.1:7233 --slots 8 --root /shared/strata",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    known = os.getenv("STRATA_BACKEND")
    where = "temporal://HOST:7233/NAMESPACE, as the campaigns have it (default: STRATA_BACKEND)"
    add("--backend", metavar="ADDRESS", required=not known, default=known, help=where)
    add("--root", metavar="DIR", required=True, help="the shared folder with the sessions; nothing outside it is worked on")
    add("--slots", type=count, metavar="N", default=4, help="how many commands it runs at the same time (default 4)")
    add(
        "--label",
        metavar="NAME",
        action="append",
        default=[],
        help="what this machine has, for stages that need it",
    )
    add("--name", metavar="NAME", help="its name in reports (default: the machine's name and the process)")
    add("--drain", type=seconds, metavar="SECONDS", help="how long running commands may take after a stop (default: unlimited)")


def main(call: Call) -> Json:
    return asyncio.run(work(call))


async def work(call: Call) -> Json:
    options = call.options
    address = Address.parse(options.backend)
    root = Path(options.root).resolve()
    if address is None:
        usage("a worker is for campaigns on other machines", "--backend temporal://HOST:7233")
    if not root.is_dir():
        raise StrataError(
            "BAD_FOLDER", f"--root {options.root}: there is no such folder", "give the shared folder with the sessions"
        )
    submission.require_place(root)
    if len(options.label) > MOST_LABELS:
        usage(f"at most {MOST_LABELS} labels", "name what stages ask for, and not every property")
    labels = tuple(sorted({addresses.label(text) for text in options.label}))
    terms = Terms(
        addresses.worker_name(options.name or default_name()), options.slots, root, labels, address.place, options.drain
    )
    facts = house.facts()
    client = await engine.connect(address, terms.name)
    say = partial(emit_event, "worker", terms.name)
    working = Working(client, terms, facts, lambda status, detail: say(status, detail=detail))
    processes.stop_softly = stop_softly(asyncio.get_running_loop(), working, say)
    shown: Json = {"slots": terms.slots, "root": str(root), "labels": list(labels), "house": facts.name}
    await working.serve(lambda: say("working", detail=shown))
    if working.changed:
        raise Changed()
    return {"tool": "worker", "status": "success", "exit_code": 0, "name": terms.name, "ran": working.ran}


def stop_softly(loop: asyncio.AbstractEventLoop, working: Working, say: Callable[..., None]) -> processes.Stop:
    def stop() -> None:
        say("draining", detail={"running": working.busy})
        loop.call_soon_threadsafe(working.stopping.set)

    return stop


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
