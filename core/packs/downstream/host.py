"""The process of a downstream agent that is a Python class. Called with the folder of its contract, its handoff folder
and the working folder."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path


def main() -> None:
    home, handoff, cwd = map(Path, sys.argv[1:4])
    core = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(core))
    from lib.disk import records

    from packs.downstream import bundles
    from packs.downstream.base import DownstreamAgent
    from packs.downstream.contract import AgentContract
    from packs.downstream.helping import CONTRACT

    sys.path[:0] = [str(home), str(cwd)]  # behind our own imports: a folder of the user's may be called as one of ours
    contract = records.read(handoff / CONTRACT, AgentContract)
    module = importlib.import_module(contract.execution.module)
    made = getattr(module, contract.execution.class_, None)
    if not (isinstance(made, type) and issubclass(made, DownstreamAgent)):
        raise SystemExit(f"{contract.execution.module} has no {contract.execution.class_} that is a DownstreamAgent")
    agent = made(contract, bundles.read(handoff / bundles.FILE))
    waits = agent.execute()
    if inspect.iscoroutine(waits):
        asyncio.run(waits)
    agent.finish()


if __name__ == "__main__":
    main()
