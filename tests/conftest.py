"""Fixtures every test may ask for. The machine's own login and sessions are out of reach of all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import staff
from lib.disk import places
from scripted_model.server import Script, ScriptedModel
from support import House, template

# A background job, or nohup, starts us with some signals ignored, and every child would inherit that.
for number, handler in {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are cores: while a test waits for a clock, others work."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CLAUDE", "ANTHROPIC", "AGENTIC")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def nothing_found_before() -> Iterator[None]:
    """A test that looks for things by their names, in this process, does not find what an earlier one brought."""
    yield
    places.forget()


@pytest.fixture(autouse=True)
def no_staff_stays() -> Iterator[None]:
    yield
    staff.dismiss()


@pytest.fixture(autouse=True)
def what_all_houses_share_stays() -> Iterator[None]:
    before = House.made
    yield
    changed = template().changed() if House.made > before else []
    if changed:
        template.cache_clear()  # the next one gets a new one
    assert not changed, f"this test wrote into {changed}, which all houses share: `House.put` changes a file of one of them"


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> House:
    marked = {mark.name for mark in request.node.iter_markers()}
    return House(tmp_path / "house", rehearsed="rehearsed" in marked and "real_cli" not in marked)


@pytest.fixture
def model(house: House) -> Iterator[Callable[[Script], ScriptedModel]]:
    """Starts a scripted model and points the house's environment at it."""
    started: list[ScriptedModel] = []

    def start(script: Script) -> ScriptedModel:
        started.append(ScriptedModel(script).start())
        house.env |= started[-1].environment(str(house.folder / "claude"))
        return started[-1]

    yield start
    for each in started:
        each.stop()
