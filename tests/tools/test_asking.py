"""A tool asks a person in the middle of a wave: the others go on, and the answer reaches exactly the one that asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import WORKER, House, log, plan, some

ASKER = """
from lib.contract import AsksPerson

def work(task, out, call):
    name = call.options.words[0]
    with (Path(call.cwd) / "log").open("a") as file:
        file.write(name + "\\n")
    if name.startswith("ask") and task.answer is None:
        picture = out / "page.png"
        picture.write_bytes(b"a picture")
        choices = ["cat", "dog"] if name == "ask-1" else []
        raise AsksPerson(f"What does the picture of {name} say?", show=[picture], choices=choices)
    for output in task.outputs:
        (out / output.path).write_text(json.dumps({"name": name, "answer": task.answer}))
    return Verdict("done")
"""
STAGES = """version: 1
name: trial
params: {items: {type: list, default: [a, ask-1, b, ask-2]}}
stages:
  - {name: each, tool: asker.py, args: ["{item}"], foreach: {items: param.items, cap: 1}, outputs: {made: {path: made.json}}}
  - {name: sum, tool: asker.py, args: [sum], inputs: {all: each.*.made}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.tool("asker", ASKER)
    house.orchestrator(STAGES)
    return house


def run(house: House, *flags: str) -> Any:
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags)


def answer_of(house: House, key: str) -> Any:
    return json.loads((house.folder / f"s/artifacts/trial/01-each/{key}/made.json").read_text())["answer"]


def test_the_others_go_on_and_every_question_is_listed(trial: House) -> None:
    ran = run(trial)
    assert ran.code == 3, ran.stderr
    assert log(trial) == ["a", "ask-1", "b", "ask-2"], "the others went on"
    asked = ran.document["waiting"]["questions"]
    assert [(q["item"], q["choices"]) for q in asked] == [("ask-1", ["cat", "dog"]), ("ask-2", [])]
    assert asked[0]["question"] == "What does the picture of ask-1 say?"
    assert Path(asked[0]["show"][0]).read_bytes() == b"a picture", "there is something to look at"
    assert "--answer" in asked[1]["answer_with"] and "each/ask-2" in asked[1]["answer_with"]
    assert [i["status"] for i in ran.document["stages"][0]["items"]] == ["success", "human-input", "success", "human-input"]


def test_an_answer_goes_to_exactly_that_item_and_nobody_is_asked_twice(trial: House) -> None:
    run(trial)
    assert run(trial).code == 3
    assert len(log(trial)) == 4, "without an answer nothing is tried again"
    explained = run(trial, "--explain").document["explained"]
    assert [e["does"] for e in explained] == ["SKIP", "HALT", "SKIP", "HALT", "HALT"]
    one = run(trial, "--answer", "each/ask-1=cat")
    assert one.code == 3
    assert log(trial)[4:] == ["ask-1"]
    assert [q["item"] for q in one.document["waiting"]["questions"]] == ["ask-2"]
    assert answer_of(trial, "ask-1") == "cat"
    done = run(trial, "--answer", 'each/ask-2={"words": "three dogs"}')
    assert done.code == 0, done.stderr
    assert log(trial)[5:] == ["ask-2", "sum"]
    assert answer_of(trial, "ask-2") == {"words": "three dogs"}
    assert run(trial).code == 0
    assert len(log(trial)) == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("each/ask-1=horse", "can be answered with cat, dog, not with 'horse'"),
        ("each/a=cat", "each/a asks nothing"),
        ("nope/a=cat", "there is no stage 'nope/a'"),
    ],
)
def test_an_answer_that_fits_no_question_is_refused(trial: House, given: str, words: str) -> None:
    run(trial)
    assert words in run(trial, "--answer", given).error["message"]


def test_a_campaign_lists_what_its_items_ask_and_takes_the_answers(trial: House) -> None:
    text = "version: 1\nname: p\nphases:\n  - {name: one, run: [{orchestrator: trial}], verify: {none: a trial}}\n"
    (trial.workspace / "plan.yaml").write_text(text)
    session = str(trial.folder / "c")
    ran = trial.json("campaign", "plan.yaml", "--session-dir", session)
    assert ran.code == 3, ran.stderr
    assert [q["item"] for q in ran.document["waiting"]] == ["ask-1", "ask-2"]
    kept = json.loads((trial.folder / "c/manifest.json").read_text())
    assert len(kept["waiting"]) == 2
    assert ran.document["next"].endswith(f"--resume {session} --answer each/ask-1=cat"), "the next command is the one that works"
    wrong = trial.json("campaign", "--resume", session, "--answer", "eahc/ask-1=dog")
    assert wrong.code == 1 and "neither a checkpoint nor a stage" in wrong.error["message"], "an answer is never lost"
    done = trial.json("campaign", "--resume", session, "--answer", "each/ask-1=dog", "--answer", "each/ask-2=x")
    assert done.code == 0, done.stderr


def test_an_answer_to_one_run_is_no_answer_to_a_stage_of_another_that_has_the_name(trial: House) -> None:
    asks = "version: 1\nname: asks\nstages:\n  - {name: sum, ask: {question: Go on?}}\n"
    trial.orchestrator(asks, "asks")
    text = "version: 1\nname: p\nphases:\n  - {name: one, run: [{orchestrator: asks}], verify: {none: a trial}}\n"
    text += "  - {name: two, run: [{orchestrator: trial, params: {items: [a]}}], verify: {none: a trial}, depends_on: [one]}\n"
    (trial.workspace / "plan.yaml").write_text(text)
    done = trial.json("campaign", "plan.yaml", "--session-dir", str(trial.folder / "c"), "--answer", "sum=yes")
    assert done.code == 0, done.stderr


def test_a_single_step_asks_and_is_answered(house: House) -> None:
    house.tool("asker", ASKER)
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: look, tool: asker.py, args: [ask-1]}\n")
    ran = run(house)
    assert (ran.code, ran.document["waiting"]["choices"]) == (3, ["cat", "dog"])
    assert run(house, "--answer", "look=cat").code == 0


def test_a_step_that_is_done_again_on_purpose_asks_again(house: House) -> None:
    house.tool("asker", ASKER)
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: look, tool: asker.py, args: [ask-1]}\n")
    assert [run(house).code, run(house, "--answer", "look=cat").code, run(house).code] == [3, 0, 0]
    assert run(house, "--from", "look").code == 3, "the old answer was to what has been set aside"
    assert run(house).code == 3, "and a resume does not take it either"
    assert run(house, "--answer", "look=dog").code == 0


ROUTES = """version: 1
name: trial
loops: {adjust: {to: draft, max: 2, then: fail}}
stages:
  - {name: draft, tool: worker.py, args: [draft], inputs: {said: loop.adjust.answer}, outputs: {made: {path: made.json}}}
  - name: decide
    ask: {question: Good enough?, show: [draft.made], on: {adjust: adjust, "no": fail}}
  - {name: send, tool: worker.py, args: [send]}
"""


def test_the_answer_to_a_question_routes(house: House) -> None:
    house.tool("worker", WORKER)
    house.orchestrator(ROUTES)
    plan(house)
    ran = run(house)
    assert (ran.code, ran.document["waiting"]["choices"]) == (3, ["yes", "adjust", "no"])
    again = run(house, "--answer", 'decide={"decision": "adjust", "how": "shorter"}')
    assert again.code == 3, "it was done again, and is asked about again"
    assert log(house) == ["draft", "draft"]
    given = json.loads((house.folder / "s/artifacts/trial/01-draft/round-2/made.json").read_text())["inputs"]["said"]
    assert json.loads(Path(given).read_text())["how"] == "shorter", "the answer itself is handed back"
    no = run(house, "--answer", "decide=no")
    assert (no.code, no.error["code"]) == (1, "REJECTED")
    assert "send" not in log(house)
    assert run(house, "--from", "decide", "--answer", "decide=yes").code == 0
    assert log(house) == ["draft", "draft", "send"]


# What was tried, and did not hold once


WORDS = ["No", "nope", "false", "adjsut", '["no"]', '{"decision": "No"}', '{"decision": false}', "{}"]


@pytest.mark.parametrize("word", some(WORDS, 3))
def test_a_word_that_was_not_offered_is_no_yes(house: House, word: str) -> None:
    house.tool("worker", WORKER)
    house.orchestrator(ROUTES)
    plan(house)
    run(house)
    said = run(house, "--answer", f"decide={word}")
    assert said.code == 1 and "can be answered with yes, adjust, no" in said.error["message"]
    assert "send" not in log(house)
    assert "without items" in run(house, "--answer", "decide/x=yes").error["message"]
    assert "asks nothing" in run(house, "--answer", "draft=skip").error["message"]


DELETES = """
from lib.contract import AsksPerson

def work(task, out, call):
    word = call.options.words[0]
    if task.answer is None:
        raise AsksPerson(f"Delete {word}?", choices=["yes", "no"])
    (out / "made.json").write_text(json.dumps([word, task.answer]))
    return Verdict("done")
"""
ONE = """version: 1
name: trial
params: {what: {default: old-backups}}
stages:
  - {name: one, tool: asker.py, args: ["{param.what}"], outputs: {made: {path: made.json}}}
"""


@pytest.mark.parametrize("answered", [True, False])
def test_a_yes_is_to_that_question_and_to_no_other(house: House, answered: bool) -> None:
    house.tool("asker", DELETES)
    house.orchestrator(ONE)
    assert run(house).code == 3
    if answered:
        assert run(house, "--answer", "one=yes").code == 0
        other = run(house, "--param", "what=production")
    else:
        other = run(house, "--param", "what=production", "--answer", "one=yes")
    assert (other.code, other.document["waiting"]["question"]) == (3, "Delete production?")


def test_a_yes_is_to_what_was_shown_and_to_nothing_that_came_later(house: House) -> None:
    house.tool("worker", WORKER)
    text = ROUTES.replace("stages:", "params: {version: {default: v1}}\nstages:")
    house.orchestrator(text.replace("inputs: {said:", "inputs: {v: param.version, said:"))
    plan(house)
    assert run(house).code == 3
    changed = run(house, "--param", "version=v2", "--answer", "decide=yes")
    assert changed.code == 3, "nobody has seen that one"
    assert "send" not in log(house)
    assert run(house, "--param", "version=v2", "--answer", "decide=yes").code == 0


def test_nothing_is_tried_again_while_a_question_waits(house: House) -> None:
    failing = ASKER.replace(
        "    for output in task.outputs:",
        '    if name == "bad":\n        raise ValueError("it fails")\n    for output in task.outputs:',
    )
    house.tool("asker", failing)
    house.orchestrator(STAGES.replace("[a, ask-1, b, ask-2]", "[bad, ask-1]").replace("cap: 1}", "cap: 2}"))
    assert run(house).code == 3
    before = len(log(house))
    for _ in range(3):
        assert run(house).code == 3
    assert len(log(house)) == before
    explained = {e["step"]: e["does"] for e in run(house, "--explain").document["explained"]}
    assert "RUN" not in explained.values()
