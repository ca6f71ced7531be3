"""Nothing runs away: money, agents, tokens and time are counted for the whole tree, by every process in it."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest
from lib.contract import StrataError
from lib.ledger import Ledger, read_budget
from lib.session import Step
from scripted_model.server import by_agent, say, scripted, turns
from support import House, Ran

STEP = Step("phase-01-one", "o", "01-a")


def session(folder: Path, **limits: float) -> Ledger:
    (folder / "budget.json").write_text(json.dumps({"": limits}))
    return Ledger(folder)


def test_sixteen_at_once_against_a_budget_for_five(tmp_path: Path) -> None:
    """Each with a descriptor of its own, as in processes of their own, and all at the same moment."""
    session(tmp_path, usd=5)
    together = threading.Barrier(16)
    codes: list[int] = []

    def start(number: int) -> None:
        ledger = Ledger(tmp_path)
        together.wait()
        try:
            ledger.reserve(STEP, "x", str(number), 1.0)
            codes.append(0)
        except StrataError as error:
            codes.append(int(error.exit_code))

    threads = [threading.Thread(target=start, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0] * 5 + [11] * 11
    assert Ledger(tmp_path).sums()[""]["usd"] == 5
    assert len(Ledger(tmp_path).lines()) == 5


def test_what_is_unknown_is_charged_at_the_cap_and_nobody_earns_money(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=10)
    for number, reported in enumerate((None, math.nan, -3.0)):
        room = ledger.reserve(STEP, "x", str(number), 2.0)
        ledger.settle(room, reported, 0, "reported")
    assert ledger.sums()[""] == {"usd": 6.0, "tokens": 0, "agents": 3}
    room = ledger.reserve(STEP, "x", "3", 2.0)
    ledger.settle(room, 0.5, 100, "reported")
    assert ledger.sums()[""] == {"usd": 6.5, "tokens": 100, "agents": 4}
    assert ledger.sums()["phase-01-one"]["usd"] == 6.5


def test_an_agent_without_a_cap_gets_one_where_there_is_a_limit(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=1.5)
    assert ledger.reserve(STEP, "x", "0", None).cap_usd == 1.0
    assert ledger.reserve(STEP, "x", "1", None).cap_usd == 0.5
    with pytest.raises(StrataError) as caught:
        ledger.reserve(STEP, "x", "2", None)
    assert caught.value.detail["spent"] == [{"agent": "x", "agents": 2, "usd": 1.5}]
    (tmp_path / "free").mkdir()
    assert Ledger(tmp_path / "free").reserve(STEP, "x", "0", None).cap_usd is None


def test_a_phase_has_limits_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text(json.dumps({"phase-01-one": {"agents": 1}}))
    ledger = Ledger(tmp_path)
    ledger.reserve(STEP, "x", "0", None)
    ledger.reserve(Step("phase-02-two", "o", "01-a"), "x", "1", None)
    with pytest.raises(StrataError, match="the phase phase-01-one"):
        ledger.reserve(STEP, "x", "2", None)


def test_a_torn_line_is_kept_and_does_not_count(tmp_path: Path) -> None:
    ledger = session(tmp_path, agents=3)
    ledger.reserve(STEP, "x", "0", None)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"kind": "reserve", "agents": 1, "su')
    ledger.reserve(STEP, "x", "1", None)
    assert ledger.sums()[""]["agents"] == 2
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 3


def test_nearly_there_is_said_once(tmp_path: Path) -> None:
    ledger = session(tmp_path, tokens=1000)
    said = [ledger.settle(ledger.reserve(STEP, "x", str(n), None), 0, 300, "reported") for n in range(3)]
    assert said == [[], [], ["the campaign: 900 of 1000 tokens"]]
    assert ledger.settle(ledger.reserve(STEP, "x", "3", None), 0, 50, "reported") == []


@pytest.mark.parametrize("text", ["usd", "usd=", "usd=x", "usd=-1", "usd=nan", "euros=5", ""])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StrataError):
        read_budget(text)


PLAN = """version: 1
name: trial
budget: {agents: 1}
phases:
  - {name: one, run: [{orchestrator: two-agents}], verify: {none: a test}}
"""


def test_out_of_budget_is_11_and_more_of_it_goes_on_from_there(house: House) -> None:
    house.agent("first")
    house.agent("second")
    house.orchestrator(
        "version: 1\nname: two-agents\nstages:\n  - {name: a, agent: first}\n  - {name: b, agent: second}\n", "two-agents"
    )
    (house.workspace / "plan.yaml").write_text(PLAN)
    done = turns(say("STAGE_TASK_COMPLETE"))
    with scripted(by_agent(first=done, second=done)) as model:
        env = model.environment(str(house.folder / "claude"))

        def run(*flags: str) -> Ran:
            return house.json("campaign", *flags, **env)

        ran = run("plan.yaml")
        assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED"), ran.stderr
        assert ran.error["spent"] == [{"agent": "first", "agents": 1, "usd": pytest.approx(0, abs=0.1)}]
        assert "--budget agents=" in ran.error["hint"]
        assert len(model.requests) == 1
        assert run("--resume", house.session.name).code == 11, "the ledger survives a resume"
        ran = run("--resume", house.session.name, "--budget", "agents=5")
        assert ran.code == 0, ran.stderr
        assert len(model.requests) == 2, "the first was not asked again"
        kinds = [line["kind"] for line in Ledger(house.session).lines()]
        assert kinds.count("reserve") == kinds.count("settle") == 2
