"""Ring 1: a lease on a shared folder: whatever is frozen, late or gone, never do two hold it at the same time."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.machines import lease
from lib.machines.lease import HOLD_SECONDS, TAKE_SECONDS, Lease, Watch, newest

KILLED_SECONDS = HOLD_SECONDS + 1.0  # by then a holder that did not renew has been ended, frozen or not (`captive.Deadman`)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Actor:
    """Somebody who wants the lease, and keeps it as long as he can."""

    def __init__(self, folder: Path, name: str, clock: Clock) -> None:
        self.folder, self.name, self.clock = folder, name, clock
        self.watch: Watch | None = None
        self.held: Lease | None = None

    @property
    def at_work(self) -> bool:
        return self.held is not None and self.clock.now - self.held.renewed < KILLED_SECONDS

    def act(self) -> None:
        if self.held:
            if not self.held.renew():
                self.held = None
            return
        self.watch = self.watch or Watch(self.folder)
        if self.watch.free():
            self.held = Lease.take(self.folder, self.watch.number + 1, self.name)
            self.watch = None


WHAT, PASSES = ["act", "release", "look"], [0.0, 0.3, 1.0, 2.5, 4.5, 7.0]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(WHAT), st.sampled_from(PASSES)), max_size=60))
def test_never_do_two_hold_it(steps: list[tuple[int, str, float]]) -> None:
    """Whoever is not chosen to act is frozen for so long. What the model says: at most one is at work."""
    folder = Path(tempfile.mkdtemp())
    clock = Clock()
    before, lease.time = lease.time, clock  # type: ignore[assignment]
    try:
        actors = [Actor(folder, f"actor {number}", clock) for number in range(3)]
        for who, what, passes in steps:
            actor = actors[who]
            if what == "release" and actor.held and actor.held.good and newest(folder) == actor.held.number:
                actor.held.release()
                actor.held = None
            elif what == "act":
                actor.act()
            clock.now += passes
            assert sum(a.at_work for a in actors) <= 1, [a.name for a in actors if a.at_work]
    finally:
        lease.time = before
        shutil.rmtree(folder)


def test_a_lease_that_is_released_is_free_at_once_and_one_that_is_silent_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    held = Lease.take(tmp_path, 1, "one")
    assert held
    assert Lease.take(tmp_path, 1, "two") is None, "a number is given once"
    watch = Watch(tmp_path)
    assert not watch.free()
    clock.now += TAKE_SECONDS - 0.1
    assert not watch.free()
    clock.now += 0.2
    assert watch.free()
    assert not held.renew(), "whoever was silent for so long does not come back"
    assert not Watch(tmp_path).free(), "somebody else has not seen it silent"
    held.release()
    assert Watch(tmp_path).free()


def test_a_holder_sees_that_another_has_taken_its_place(tmp_path: Path) -> None:
    held = Lease.take(tmp_path, 1, "one")
    assert held
    assert held.renew()
    assert Lease.take(tmp_path, 2, "two")
    assert not held.renew()
