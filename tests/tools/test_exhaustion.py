"""Agents that call executors, and what becomes of a run when the depth for that is not there. Real SDK and CLI."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_model.server import Reply, Request, by_agent, say, tool
from support import House, Ran

pytestmark = pytest.mark.rehearsed

STAGES = """version: 1
name: trial
stages:
  - {name: first, agent: maker, action: DO, outputs: {made: {path: made.md}}}
  - {name: deep, agent: maker, action: DO, depth: 2, on_depth: %s, inputs: {from: first.made}, outputs: {made: {path: made.md}}}
  - {name: last, agent: maker, action: DO, on_depth: %s, inputs: {from: deep.made}, outputs: {made: {path: made.md}}}
"""
SHORT = {"AGENTIC_SPAWN_DEPTH": "1", "AGENTIC_MAX_DEPTH": "2"}  # as below an agent: one level is left


def maker(request: Request) -> Reply:
    if request.turn == 0:
        return say(tool("Write", file_path=request.path("made"), content="it is made\n"))
    return say("DONE: made")


@pytest.fixture
def trial(house: House) -> House:
    house.agent("maker", tools="Write", strata={"completion": "cluster", "outputs": {"made": {"path": "made.md"}}})
    return house


def run(house: House, *flags: str, **env: str) -> Ran:
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags, **env)


def asked(model: Any) -> list[str]:
    return [r.prompt.split()[0] for r in model.requests if not r.turn]


def test_an_agent_in_an_executor_calls_another_executor(house: House, model) -> None:
    house.agent("lead", tools="Bash", strata={"completion": "cluster", "calls": "executors", "sandbox": "off"})
    house.agent("helper", tools="Write", strata={"completion": "cluster", "outputs": {"made": {"path": "made.md"}}})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: only, agent: lead, action: DO}\n")
    command = f"uv run {house.folder}/core/agent.py helper DO --output-format json"

    def lead(request: Request) -> Reply:
        return say(tool("Bash", command=command)) if not request.turn else say("DONE: the helper did it")

    scripted = model(by_agent(lead=lead, helper=maker))
    ran = run(house, "--max-depth", "3")
    assert ran.code == 0, ran.stderr[-2000:]
    outcomes = [json.loads(p.read_text()) for p in (house.folder / "s").glob("**/outcome.json")]
    assert {(o["agent"], o["depth"], o["exit_code"]) for o in outcomes} == {("lead", 1, 0), ("helper", 2, 0)}
    count = len(scripted.requests)
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "t"), **SHORT)
    assert (ran.code, ran.error["code"]) == (2, "DEPTH_EXCEEDED"), "its definition says that it starts others"
    assert len(scripted.requests) == count


@pytest.mark.parametrize(("policy", "code"), [("abort", 2), ("escalate", 11)])
def test_what_is_done_stays_and_more_depth_goes_on_from_there(trial: House, model, policy: str, code: int) -> None:
    trial.orchestrator(STAGES % (policy, "abort"))
    scripted = model(by_agent(maker=maker))
    ran = run(trial, **SHORT)
    assert (ran.code, ran.error["code"]) == (code, "DEPTH_EXCEEDED"), ran.stdout
    assert "--max-depth 3" in ran.error["hint"]
    assert [s["status"] for s in ran.document["stages"]][:1] == ["success"], "partial results are in the manifest"
    assert len(asked(scripted)) == 1
    ran = run(trial, "--max-depth", "3")
    assert ran.code == 0, ran.stderr[-2000:]
    assert len(asked(scripted)) == 3, "the first is not done again"


@pytest.mark.parametrize("policy", ["abort", "compress"])
def test_what_was_done_with_depth_enough_stays_done_with_less(trial: House, model, policy: str) -> None:
    trial.orchestrator(STAGES % (policy, policy))
    scripted = model(by_agent(maker=maker, stage__compressor=compressor("deep", "last")))
    assert run(trial, "--max-depth", "3").code == 0
    assert run(trial, **SHORT).code == 0
    assert len(asked(scripted)) == 3, "nothing is asked again"


def compressor(*stages: str):
    def script(request: Request) -> Reply:
        if request.turn == 0:
            return say(*(tool("Write", file_path=request.path(f"{s}.made"), content=f"{s}, by one\n") for s in stages))
        return say("DONE: all of it")

    return script


def test_the_rest_is_done_by_one_where_the_stages_allow_it(trial: House, model) -> None:
    trial.orchestrator(STAGES % ("compress", "compress"))
    scripted = model(by_agent(maker=maker, stage__compressor=compressor("deep", "last")))
    ran = run(trial, **SHORT)
    assert ran.code == 0, ran.stderr[-2000:]
    assert asked(scripted) == ["/maker", "/stage-compressor"]
    stages = {s["name"]: s for s in ran.document["stages"]}
    assert [s["status"] for s in stages.values()] == ["success"] * 3
    made = trial.folder / "s" / "artifacts/trial/02-compressed/last/made.md"
    assert stages["last"]["artifact"] == str(made)
    assert made.read_text() == "last, by one\n"
    assert "no depth left" in stages["deep"]["note"]
    assert "what you write for deep.made" in (trial.folder / "s/trial/compressed/03-last.md").read_text()
    for flags in ((), ("--max-depth", "3")):  # also where there is depth enough again
        assert run(trial, *flags).code == 0
    assert len(asked(scripted)) == 2
    found = {e["step"]: e["does"] for e in run(trial, "--explain").document["explained"]}
    assert set(found.values()) == {"SKIP"}, found


def test_one_who_leaves_a_stage_out_has_not_done_it(trial: House, model) -> None:
    trial.orchestrator(STAGES % ("compress", "compress"))
    model(by_agent(maker=maker, stage__compressor=compressor("deep")))
    ran = run(trial, **SHORT)
    assert ran.code != 0
    assert "last.made" in ran.error["message"]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (STAGES % ("compress", "abort"), "not declared that way"),
        ((STAGES % ("compress", "compress")).replace("name: last, agent: maker", "name: last, agent: checked"), "has checks"),
        ((STAGES % ("compress", "compress")).replace("name: last, agent: maker", "name: last, agent: shell"), "has Bash"),
    ],
    ids=["those behind it do not", "checks would not be run", "tools it has not"],
)
def test_what_cannot_be_compressed_is_refused_when_it_is_read(trial: House, stages: str, why: str) -> None:
    made = {"made": {"path": "made.md"}}
    trial.agent("checked", tools="Write", strata={"completion": "cluster", "outputs": made, "checks": ["ruff"]})
    trial.agent("shell", tools="Bash, Write", strata={"completion": "cluster", "outputs": made})
    trial.orchestrator(stages)
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "BAD_CONFIG")
    assert why in ran.error["message"]
