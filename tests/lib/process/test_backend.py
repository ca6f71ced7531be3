"""Ring 2: the seam under every tool and every check holds: another backend, and nothing above it notices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, WORKER, House, log, plan, with_marker

STAGES = """version: 1
name: trial
params: {names: {type: list, default: "x,y"}}
loops: {redo: {to: make, max: 1, then: fail}}
stages:
  - {name: each, tool: worker.py, foreach: {items: param.names, cap: 2}, outputs: {made: {path: made.json}}}
  - {name: make, tool: worker.py, args: [make], inputs: {all: each.*.made}, outputs: {made: {path: made.json}}}
  - {name: look, tool: worker.py, args: [look], inputs: {made: make.made}, on: {needs_revision: redo}}
"""
PLAN = """version: 1
name: seam
checks: checks.yaml
phases:
  - {name: one, run: [{orchestrator: trial}], verify: {checks: [good, artifacts], fix: false}}
"""


def furnished(folder: Path, apart: bool) -> House:
    house = House(folder)
    house.tool("worker", WORKER)
    house.orchestrator(STAGES)
    (house.folder / "plan.yaml").write_text(PLAN)
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test -f log}}\n")
    if apart:
        (house.folder / "core/lib/process/apart.py").write_text((ROOT / "tests/backends/apart.py").read_text())
        house.rewrite(
            "running",
            ("backend: Backend = Local()", "backend: Backend = Apart()"),
            ("from lib.process.local import Local", "from lib.process.apart import Apart"),
        )
    return house


def came_to(house: House, *flags: str) -> dict[str, Any]:
    ran = house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"), *flags)
    session = house.folder / "s"
    outcomes = {
        str(p.parent.relative_to(session)): json.loads(p.read_text())["verdict"]
        for p in session.glob("**/attempt-*/outcome.json")
    }
    made = sorted(str(p.relative_to(session)) for p in session.glob("phases/*/artifacts/**/*") if p.is_file())
    return {"code": ran.code, "grade": ran.document.get("grade"), "outcomes": outcomes, "made": made, "log": sorted(log(house))}


def test_a_campaign_comes_to_the_same_on_another_backend(tmp_path: Path) -> None:
    houses = [furnished(tmp_path / name, name == "apart") for name in ("local", "apart")]
    for house in houses:
        plan(house, look="revise ok", x="fail ok")
    local, apart = (came_to(house) for house in houses)
    assert local == apart
    assert (local["code"], local["grade"]) == (0, "PASS")
    assert not list((houses[1].folder / "s").rglob("planted-outcome.json")), "what a child hands over reaches its parent"
    before = log(houses[1])
    assert came_to(houses[1]) == apart | {"log": sorted(before)}, "and finished work is finished"
    assert log(houses[1]) == before


def test_what_runs_elsewhere_is_stopped_with_the_run(tmp_path: Path) -> None:
    house = furnished(tmp_path / "house", apart=True)
    plan(house, x="sleep")
    with house.start("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s")) as child:
        from support import wait_for

        wait_for(lambda: "x" in log(house), what="the step has begun")
        child.terminate()
        assert child.wait(60) == 20
    wait_for(lambda: not with_marker(str(house.folder / "core")), what="the end of the tree")


@pytest.mark.parametrize("renewed", [0.0, 1.0], ids=["long ago", "just now"])
def test_a_run_on_another_machine_is_known_by_its_renewals(tmp_path: Path, renewed: float) -> None:
    import time

    from lib.contract import StrataError
    from lib.session.folder import open_session
    from lib.session.owner import LOCK_NAME, Owner
    from msgspec.structs import asdict

    there = Owner(1, "another-machine", "x", "1", time.time() if renewed else 0.0)
    (tmp_path / LOCK_NAME).write_text(json.dumps(asdict(there)))
    if renewed:
        with pytest.raises(StrataError, match="on another-machine"):
            open_session(str(tmp_path), None, "x", "")
    else:
        assert open_session(str(tmp_path), None, "x", "").outermost


def test_a_run_that_finds_another_in_its_place_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    from lib.process import processes
    from lib.session import owner
    from msgspec.structs import asdict

    monkeypatch.setattr(processes, "stopping", Event())
    monkeypatch.setattr(owner, "RENEW_SECONDS", 0.05)
    held = owner.lock(tmp_path)
    assert not processes.stopping.wait(0.3), "its own word is no reason"
    (tmp_path / owner.LOCK_NAME).write_text(json.dumps(asdict(owner.Owner(1, "another-machine", "x", "1", 0.0))))
    assert processes.stopping.wait(10), "another has taken the session: two do not work in one"
    owner.release(held)
    assert not (known := owner.Owner.read(tmp_path)) or known.renewed == 0.0
