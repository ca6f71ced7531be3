"""Running many at once: in dependency order, at most so many, with the blocked ones named."""

from __future__ import annotations

import threading
import time

import pytest
from lib.contract import StrataError
from lib.process import fanout


def go(after, work, cap=4, go_on=lambda r: True):
    return fanout.run(after, cap, work, lambda r: r != "bad", lambda k, c: f"blocked by {c}", go_on)


def test_nothing_starts_before_what_it_waits_for_has_ended() -> None:
    order: list[str] = []

    def work(key: str) -> str:
        time.sleep(0.01)
        order.append(key)
        return "ok"

    go({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}, work)
    assert order.index("a") == 0
    assert order.index("d") == 3


def test_dependents_of_a_failure_are_blocked_with_the_cause_and_never_run() -> None:
    ran: list[str] = []

    def work(key: str) -> str:
        ran.append(key)
        return "bad" if key == "b" else "ok"

    results = fanout.run(
        {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a"]}, 2, work,
        lambda r: r == "ok", lambda k, c: f"blocked by {c}", lambda r: True,
    )  # fmt: skip
    assert results == {"a": "ok", "b": "bad", "c": "blocked by b", "d": "blocked by c", "e": "ok"}
    assert set(ran) == {"a", "b", "e"}


def test_the_cap_holds() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def work(key: str) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return "ok"

    go({str(n): [] for n in range(20)}, work, cap=3)
    assert most == 3


def test_after_a_stop_nothing_new_is_started() -> None:
    ran: list[str] = []

    def work(key: str) -> str:
        ran.append(key)
        return "bad"

    results = go({str(n): [] for n in range(9)}, work, cap=1, go_on=lambda r: False)
    assert (ran, results) == (["0"], {"0": "bad"})


@pytest.mark.parametrize(
    ("after", "words"), [({"a": ["b"]}, "does not exist"), ({"a": ["b"], "b": ["a"]}, "circle"), ({"a": ["a"]}, "circle")]
)
def test_a_graph_that_cannot_be_run_is_refused_before_it_starts(after, words: str) -> None:
    with pytest.raises(StrataError, match=words):
        fanout.check_graph(after, "build")
