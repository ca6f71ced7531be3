"""What people meet first when something is wrong: each error says what happened, where to look, and the next command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from scripted_model.server import fail, say, turns
from support import WORKER, House, at_a_terminal, plan, wait_for

pytestmark = pytest.mark.rehearsed

STAGES = "version: 1\nname: trial\nstages:\n  - {name: only, agent: helper, action: DO}\n"
TOOLS = "version: 1\nname: trial\nstages:\n  - {name: only, tool: worker.py, args: [only]}\n"
PLAN = "version: 1\nname: first\n%sphases:\n  - {name: one, run: [{orchestrator: trial}], verify: {none: a test}%s}\n"


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    house.agent("helper", strata={"completion": "cluster"})
    house.orchestrator(TOOLS)
    write(house)
    return house


def write(house: House, head: str = "", tail: str = "") -> None:
    (house.folder / "plan.yaml").write_text(PLAN % (head, tail))


def run(house: House, *flags: str):
    return house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"), *flags)


def next_command(house: House, hint: str) -> list[str]:
    """The command in a hint, as the words after `campaign.py`."""
    found = re.search(r"uv run (\S+/core/campaign\.py) (.*)", hint)
    assert found, hint
    assert Path(found[1]) == house.folder / "core/campaign.py"
    return shlex.split(found[2])


def test_a_wrong_key_of_a_plan(trial: House) -> None:
    (trial.folder / "plan.yaml").write_text(PLAN.replace("phases:", "fases:") % ("", ""))
    error = run(trial).error
    assert f"{trial.folder}/plan.yaml:3" in error["message"]
    assert "did you mean 'phases'?" in error["message"]
    assert not (trial.folder / "s").exists()


@pytest.mark.real_cli
def test_a_missing_login_and_then_the_hint_is_followed(trial: House, model) -> None:
    trial.orchestrator(STAGES)
    scripted = model(turns(fail(401)))
    trial.env.pop("ANTHROPIC_API_KEY")
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "LOGIN_MISSING"), ran.stdout
    assert "ANTHROPIC_API_KEY" in ran.error["hint"]
    assert "attempt-" in ran.error["evidence"]
    assert not list((trial.folder / "s/escalations").glob("*")), "that is nothing to ask a person to resolve"
    assert not scripted.requests
    model(turns(say("DONE: yes")))
    assert trial.json("campaign", *next_command(trial, ran.error["hint"])).code == 0


def test_no_budget_left(trial: House, model) -> None:
    trial.orchestrator(STAGES)
    write(trial, "budget: {usd: 0.001}\n")
    model(turns(say("DONE: yes")))
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED")
    assert "0.001" in ran.error["message"]
    assert ran.error["evidence"].endswith("report.html")
    words = next_command(trial, ran.error["hint"])
    assert words[-2:] == ["--budget", "usd=0.002"]
    assert next_command(trial, ran.document["next"]) == words
    words[-1] = "usd=5"
    assert trial.json("campaign", *words).code == 0


def test_no_budget_left_for_a_phase(trial: House, model) -> None:
    trial.orchestrator(STAGES)
    write(trial, tail=", budget: {usd: 0.001}")
    model(turns(say("DONE: yes")))
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED")
    assert str(trial.folder / "plan.yaml") in ran.error["hint"]
    write(trial, tail=", budget: {usd: 5}")
    assert trial.json("campaign", *next_command(trial, ran.error["hint"])).code == 0


def test_waiting_for_an_approval(trial: House) -> None:
    write(trial, tail=", checkpoint: {at: before, question: Shall it begin?}")
    ran = run(trial)
    assert (ran.code, ran.error["code"], ran.error["message"]) == (3, "HUMAN_INPUT", "Shall it begin?")
    hint = ran.error["hint"].partition(", or ")[0]
    assert trial.json("campaign", *next_command(trial, hint)).code == 0


def test_interrupted(trial: House) -> None:
    plan(trial, only="sleep")
    with trial.start(
        "campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s"), "--output-format", "json"
    ) as child:
        wait_for((trial.workspace / "log").exists, what="it runs")
        child.terminate()
        _, said = child.communicate(timeout=60)
    error = json.loads(said.splitlines()[-1])["error"]
    assert (child.returncode, error["code"]) == (20, "INTERRUPTED")
    assert error["evidence"].endswith("report.html")
    plan(trial, only="ok")
    assert trial.json("campaign", *next_command(trial, error["hint"])).code == 0


def test_not_deep_enough(trial: House) -> None:
    trial.orchestrator(STAGES)
    ran = run(trial, "--max-depth", "1")
    assert (ran.code, ran.error["code"]) == (2, "DEPTH_EXCEEDED")
    assert "--max-depth 2" in ran.error["hint"]


def test_a_failure_at_a_terminal_reads_well(trial: House) -> None:
    plan(trial, only="fail")
    code, shown = at_a_terminal(trial, "campaign", [("stop here: ", "\n")], str(trial.folder / "plan.yaml"), TERM="dumb")
    assert code == 3
    lines = shown.replace("\r", "").rstrip().splitlines()
    assert lines[-3].startswith("error: one did not succeed: only says fail")
    assert lines[-2].strip().startswith("evidence: ")
    assert "--resolution FILE" in lines[-1]
    assert Path(lines[-2].split()[-1]).exists()


def test_a_plan_that_is_not_there_and_a_session_that_is_not_there(trial: House) -> None:
    near = trial.json("campaign", "quikstart.yaml").error["hint"]
    assert near == f"did you mean {trial.folder}/config/plans/quickstart.yaml?", "whole, where it is seen from elsewhere"
    assert "--list" in trial.json("campaign", "--resume", "nobody").error["hint"]
