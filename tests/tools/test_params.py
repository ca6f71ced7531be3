"""A plan is filled with what is given: typed, checked with file and line, remembered by a resume, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.contract import StrataError
from lib.plan import plan_file
from support import WORKER, House, log

PLAN = """version: 1
name: letters
params:
  who: {about: whom to write to}
  files: {about: what to read, type: list, default: [a, b]}
  budget: {type: number, default: 3}
  careful: {type: boolean, default: false}
  tone: {choices: [warm, cool], default: warm}
  note: {optional: true}
budget: {agents: "{param.budget}"}
phases:
  - name: one
    run: [{orchestrator: trial, params: {items: "{param.files}", greeting: "Dear {param.who}, {param.tone}"}}]
    verify: {none: a trial}
    checkpoint: {at: after, question: "Send it to {param.who}?"}
"""
TRIAL = """version: 1
name: trial
params: {items: {type: list}, greeting: {}}
stages:
  - {name: a, tool: worker.py, args: ["{item}"], foreach: {items: param.items}}
"""


def written(tmp_path: Path, text: str = PLAN) -> str:
    (tmp_path / "orchestrators").mkdir(exist_ok=True)
    (tmp_path / "orchestrators" / "trial.yaml").write_text(TRIAL.replace("worker.py", "check.py").replace("{item}", "pytest"))
    path = tmp_path / "letters.yaml"
    path.write_text(text)
    return str(path)


def test_values_have_their_types_wherever_they_stand(tmp_path: Path) -> None:
    plan = plan_file.load(written(tmp_path), {"who": "Ada", "files": "x, y,z", "budget": "7", "careful": "yes"})
    assert plan.params == {"who": "Ada", "files": ["x", "y", "z"], "budget": 7, "careful": True, "tone": "warm", "note": None}
    assert plan.budget == {"agents": 7}
    assert plan.phases[0].runs[0].params == {"items": ["x", "y", "z"], "greeting": "Dear Ada, warm"}
    assert plan.phases[0].checkpoint and plan.phases[0].checkpoint.question == "Send it to Ada?"


@pytest.mark.parametrize(
    ("given", "change", "words"),
    [
        ({}, ("", ""), "needs the parameter 'who': whom to write to"),
        ({"who": "A", "fles": "a"}, ("", ""), "no parameter 'fles'"),
        ({"who": "A", "budget": "much"}, ("", ""), "'budget' is a number, not 'much'"),
        ({"who": "A", "careful": "perhaps"}, ("", ""), "'careful' is true or false"),
        ({"who": "A", "tone": "hot"}, ("", ""), "'tone' is 'hot'"),
        ({"who": "a\0b"}, ("", ""), "holds a NUL"),
        ({"who": "A"}, ("{param.who}?", "{param.whom}?"), "letters.yaml:15: there is no parameter 'whom'"),
        ({"who": "A"}, ("type: boolean", "type: bool"), "letters.yaml:7: there is no type 'bool'"),
        ({"who": "A"}, ("default: 3", "default: -3"), "/budget/agents"),
    ],
)
def test_what_does_not_fit_is_one_error_before_anything_runs(tmp_path: Path, given: dict, change: tuple, words: str) -> None:
    with pytest.raises(StrataError) as caught:
        plan_file.load(written(tmp_path, PLAN.replace(*change) if change[0] else PLAN), given)
    assert words in caught.value.message


def test_a_resume_remembers_the_values_takes_new_ones_and_everybody_shows_them(house: House) -> None:
    house.tool("worker", WORKER)
    house.orchestrator(TRIAL)
    (house.workspace / "letters.yaml").write_text(PLAN)
    session = house.folder / "s"
    ran = house.json("campaign", "letters.yaml", "--param", "who=Ada", "--session-dir", str(session))
    assert ran.code == 3, ran.stderr
    assert ran.document["waiting"][0]["params"]["who"] == "Ada"
    assert sorted(log(house)) == ["a", "b"]
    begun = json.loads((session / "ledger.jsonl").read_text().splitlines()[0])
    assert begun["params"]["files"] == ["a", "b"]
    assert "- who: Ada" in (session / "execution-report.md").read_text()
    assert "who: Ada" in (session / "report.html").read_text()
    yes = house.json("campaign", "--resume", str(session), "--approve")
    assert yes.code == 0, yes.stderr
    assert json.loads(next((session / "approvals").glob("one-after.json")).read_text())["params"]["who"] == "Ada"
    assert sorted(log(house)) == ["a", "b"], "the same values: nothing is done again"
    more = house.json("campaign", "--resume", str(session), "--param", "files=b,c")
    assert more.code == 3, "what is to be approved is another thing"
    assert sorted(log(house)) == ["a", "b", "c"], "what had been done for b still counts"
    assert more.document["waiting"][0]["params"] | {} == {**ran.document["waiting"][0]["params"], "files": ["b", "c"]}


def test_every_shipped_plan_says_what_can_be_given(house: House) -> None:
    for path in sorted((house.folder / "config/plans").glob("*.yaml")):
        if path.stem.endswith("-checks") or "quickstart" in path.stem:
            continue
        declared = plan_file.parameters(path)
        assert declared, f"{path.name} has a file of ours in it instead of a parameter"
        assert "docs/" not in path.read_text().split("phases:")[1]
