"""Running pieces of work at the same time, each as soon as those it waits for have succeeded."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from lib.contract import StrataError

Result = TypeVar("Result")
LISTEN_SECONDS = 0.5
OWN_DESCRIPTORS = 64
CHILD_DESCRIPTORS = 8  # a channel, three streams, a lease, and two while it starts


def check_graph(after: Mapping[str, Sequence[str]], what: str) -> None:
    """Every dependency exists and none leads back to itself. graphlib would add a missing one without a word."""
    for key, others in after.items():
        for other in others:
            if other not in after:
                raise StrataError("BAD_ITEMS", f"{what}: {key!r} waits for {other!r}, which does not exist", "correct the items")
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        raise StrataError("BAD_ITEMS", f"{what}: a circle of waiting: {' → '.join(error.args[1])}", "correct the items") from None


def all_before(after: Mapping[str, Sequence[str]], name: str) -> set[str]:
    """Everything that has ended when `name` starts."""
    found: set[str] = set()
    queue = list(after[name])
    while queue:
        other = queue.pop()
        if other not in found:
            found.add(other)
            queue += after[other]
    return found


def _room() -> int:
    """How many children this process can follow at once: each needs its pipes, and what is written needs some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max((soft - OWN_DESCRIPTORS) // CHILD_DESCRIPTORS, 1)


def one_by_one(after: Mapping[str, Sequence[str]]) -> list[str]:
    """The order in which `run` takes them where only one runs at a time."""
    sorter = TopologicalSorter(after)
    sorter.prepare()
    rank = {key: place for place, key in enumerate(after)}
    done: list[str] = []
    ready = sorted(sorter.get_ready(), key=rank.__getitem__)
    while ready:
        done.append(ready.pop(0))
        sorter.done(done[-1])
        ready += sorted(sorter.get_ready(), key=rank.__getitem__)
    return done


def run(
    after: Mapping[str, Sequence[str]],
    cap: int,
    work: Callable[[str], Result],
    succeeded: Callable[[Result], bool],
    blocked: Callable[[str, str], Result],
    go_on: Callable[[Result], bool],
    known: Callable[[str], Result | None] = lambda key: None,
) -> dict[str, Result]:
    """Runs `work` for every key. A key whose dependency did not succeed gets `blocked(key, cause)`; one whose result is
    `known` already needs no thread, of which thousands would only get in each other's way. When `go_on` says no
    to a result, nothing new is started; what runs is let finish. Results come in the order of `after`."""
    cap = min(cap, _room())
    sorter = TopologicalSorter(after)
    sorter.prepare()
    results: dict[str, Result] = {}
    running: dict[Future[Result], str] = {}
    ready: deque[str] = deque()
    stopped = False
    rank = {key: place for place, key in enumerate(after)}
    # One thread starts a child and waits for it, because a child's parent-death signal belongs to the thread.
    with ThreadPoolExecutor(max_workers=cap, thread_name_prefix="stage") as pool:
        while sorter.is_active() or running:
            ready += sorted(sorter.get_ready(), key=rank.__getitem__)
            while ready and not stopped and len(running) < cap:
                key = ready.popleft()
                cause = next((o for o in after[key] if not succeeded(results[o])), None)
                result = known(key) if cause is None else blocked(key, cause)
                if result is None:
                    running[pool.submit(work, key)] = key
                    continue
                results[key] = result
                stopped = cause is None and not go_on(result)
                sorter.done(key)
                ready += sorted(sorter.get_ready(), key=rank.__getitem__)
            if not running:
                break
            # Not for ever: a signal that comes between two instructions of a wait without end is not heard until it ends.
            done, _ = wait(running, timeout=LISTEN_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                key = running.pop(future)
                results[key] = future.result()
                stopped = stopped or not go_on(results[key])
                sorter.done(key)
    return with_blocked(after, results, succeeded, blocked)


def with_blocked(
    after: Mapping[str, Sequence[str]],
    results: dict[str, Result],
    succeeded: Callable[[Result], bool],
    blocked: Callable[[str, str], Result],
) -> dict[str, Result]:
    """The results in the order of `after`, with those that could never have begun: it is the same whether they were looked at
    before everything was stopped, or not."""
    for key in one_by_one(after):
        cause = next((o for o in after[key] if o in results and not succeeded(results[o])), None)
        if cause and key not in results:
            results[key] = blocked(key, cause)
    return {key: results[key] for key in after if key in results}
