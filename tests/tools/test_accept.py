"""Python looks at what one step made: its complaints are that step's next try, and an error that no retry helps gets none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_model.server import Request, say, tool
from support import CORE, WORKER, House, log, plan

pytestmark = pytest.mark.rehearsed
BLOCK = (CORE / "check.py").read_text().split('"""')[0]
JUDGE = '''"""Layer 1: a judge of a test."""
import sys
from lib import cli
from lib.attempt import executor, judging
from lib.cli import Tool

TOOL = Tool("judge", layer=1, summary="A judge.", example="judge.py")

def arguments(parser):
    parser.add_argument("verb")
    parser.add_argument("--made")

def look(made):
    if "crash" in made.text("made"):
        raise ValueError("the judge is confused")
    return ["it does not say please"] if "please" not in made.text("made") else []

def main(call):
    return judging.answer("judge", call.options.made, look)

if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
'''
EACH = """version: 1
name: trial
params: {items: {type: list, default: [polite, rude]}}
stages:
  - name: each
    agent: writer
    target: "{item}"
    foreach: {items: param.items}
    accept: judge.py politely
    on_item_failure: skip
    outputs: {made: {path: made.md}}
"""


def furnish(house: House, text: str = EACH) -> None:
    (house.folder / "core/judge.py").write_text(BLOCK + JUDGE)
    house.agent("writer", tools="Write, Read", strata={"outputs": {"made": {"path": "made.md"}}})
    house.orchestrator(text)


def writer(request: Request) -> Any:
    """One is polite at once, one only when it is told."""
    if request.turn:
        return say("STAGE_TASK_COMPLETE")
    told = "it does not say please" in request.prompt
    content = "please" if request.prompt.startswith("/writer polite") or told else "now"
    return say(tool("Write", file_path=request.path("made"), content=content))


def writes(text: str) -> Any:
    return lambda r: say("STAGE_TASK_COMPLETE") if r.turn else say(tool("Write", file_path=r.path("made"), content=text))


def attempts(house: House) -> dict[str, int]:
    folder = house.folder / "s/trial/stages/01-each"
    return {p.name: len(list(p.glob("attempt-*"))) for p in folder.iterdir() if p.is_dir()}


def test_complaints_are_the_next_try_of_that_item_alone(house: House, model) -> None:
    furnish(house)
    model(writer)
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert attempts(house) == {"polite": 1, "rude": 2}, "the whole wave is not asked again"
    outcomes = [json.loads(p.read_text()) for p in sorted((house.folder / "s").rglob("rude/attempt-*/outcome.json"))]
    assert outcomes[0]["error"]["code"] == "NOT_VERIFIED"
    assert outcomes[0]["wrong"] == ["not accepted: it does not say please"]
    (check,) = outcomes[1]["checks"]
    assert (check["name"], check["tool"], check["passed"]) == ("accept", "judge.py politely", True)


def test_complaints_are_bounded_and_a_skipped_item_says_them(house: House, model) -> None:
    furnish(house)
    model(writes("now"))
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), "--param", "items=rude")
    assert ran.code == 1
    assert attempts(house) == {"rude": 2}
    assert "it does not say please" in ran.error["message"]


def test_a_judge_that_cannot_say_has_not_accepted_and_is_not_asked_again(house: House, model) -> None:
    furnish(house)
    model(
        lambda r: say("STAGE_TASK_COMPLETE") if r.turn else say(tool("Write", file_path=r.path("made"), content="crash please"))
    )
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), "--param", "items=rude")
    assert ran.code == 1
    outcome = json.loads(next((house.folder / "s").rglob("outcome.json")).read_text())
    assert (outcome["error"]["code"], outcome["verdict"]) == ("NOT_JUDGED", "failed")
    assert attempts(house) == {"rude": 1}


def test_another_judge_makes_it_another_work_and_the_same_does_not(house: House, model) -> None:
    furnish(house)
    model(writer)
    flags = ("--session-dir", str(house.folder / "s"))
    assert house.json("orchestrator", "trial", *flags).code == 0

    def does() -> list[str]:
        return [e["does"] for e in house.json("orchestrator", "trial", *flags, "--explain").document["explained"]]

    assert does() == ["SKIP", "SKIP"]
    (house.folder / "core/judge.py").write_text(BLOCK + JUDGE + "# a comment\n")
    assert does() == ["SKIP", "SKIP"]
    (house.folder / "core/judge.py").write_text(BLOCK + JUDGE.replace('"please" not in', '"thank you" not in'))
    assert does() == ["RUN", "RUN"]


CLOSED = 'if word == "forbidden":\n        raise StrataError("HTTP_403", "the door is closed", final=True)\n    '
FINAL = WORKER.replace('codes = {"fail": 1', CLOSED + 'codes = {"fail": 1')


def test_an_error_that_no_retry_helps_is_not_retried_at_any_layer(house: House) -> None:
    house.tool("worker", FINAL)
    plan(house, a="forbidden", b="fail fail ok")
    house.orchestrator(
        "version: 1\nname: trial\nparams: {items: {type: list, default: [a, b]}}\nstages:\n"
        '  - {name: each, tool: worker.py, args: ["{item}"], foreach: {items: param.items}, on_item_failure: skip}\n'
    )
    text = "version: 1\nname: p\nphases:\n  - {name: one, run: [{orchestrator: trial}], verify: {none: a trial}}\n"
    (house.workspace / "plan.yaml").write_text(text)
    ran = house.json("campaign", "plan.yaml")
    assert ran.code == 12, ran.stderr
    assert log(house).count("a") == 1, "neither by its stage nor by its coordinator"
    assert log(house).count("b") == 3, "others are"
