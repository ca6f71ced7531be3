"""The order of agents: waves by what each depends on."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from lib.contract import StrataError

from packs.downstream.contract import Contracts


def waves(contracts: Contracts) -> list[list[str]]:
    """Who can run side by side, one wave after the other, each in the order of names."""
    for name, contract in contracts.items():
        for other in contract.depends_on:
            if other not in contracts:
                raise StrataError(
                    "DANGLING_DEPENDENCY", f"{name} depends on {other!r}, which does not exist", "add it, or take it out"
                )
    sorter = TopologicalSorter({name: contract.depends_on for name, contract in contracts.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " → ".join(map(str, error.args[1]))
        raise StrataError("CIRCULAR_DEPENDENCY", f"the agents wait for each other: {circle}", "take one dependency out") from None
    found: list[list[str]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found
