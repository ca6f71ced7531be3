"""Configuration: one clear error each, with file and line, and what would be right, before anything runs."""

from __future__ import annotations

import pytest
from support import House

GOOD = """\
version: 1
name: trial
params:
  topic: {about: x}
loops:
  again: {to: plan, max: 1}
modifiers:
  short: [plan, review]
stages:
  - name: plan
    agent: spec-plan
    action: PLAN
    target: "{param.topic}"
  - name: review
    agent: spec-plan-review
    action: PLAN_REVIEW
    inputs: {plan: plan.plan}
    on: {needs_revision: again}
  - name: group
    parallel: {cap: 2}
    members:
      one: {agent: researcher-ux, action: RESEARCH, target: "{param.topic}"}
      two: {agent: researcher-tech, action: RESEARCH, target: "{param.topic}"}
  - name: merge
    tool: check.py
    args: [pytest]
    inputs: {reports: group.*.report, first: group.one.report}
"""


def validate(house: House, text: str):
    house.orchestrator(text)
    return house.json("orchestrator", "trial", "--param", "topic=x", "--driver", "replay", "--fixtures", str(house.folder))


def test_the_good_one_is_accepted(house: House) -> None:
    ran = validate(house, GOOD)
    assert ran.document["stages"][0]["code"] == "FIXTURE_MISSING", "it was accepted, and stopped only for want of a recording"


@pytest.mark.parametrize(
    ("old", "new", "line", "words", "hint"),
    [
        ("version: 1", "version: 2", 1, "1 was expected", ""),
        ("name: plan\n    agent", "name: plan\n    agnet", 11, "unknown key 'agnet' (did you mean 'agent'?)", ""),
        ("name: plan\n", "name: plan\n    name: plan\n", 11, "is used twice", ""),
        ("agent: spec-plan\n", "agent: spec-pln\n", 11, "no agent 'spec-pln'", "did you mean spec-plan"),
        ("action: PLAN\n", "action: PLANT\n", 12, "does not know the action 'PLANT'", "PLAN"),
        ("{param.topic}\"\n  - name: review", "{param.tpic}\"\n  - name: review", 13, "no parameter 'tpic'", "did you mean topic"),
        ("plan: plan.plan", "plan: plan.pln", 17, "no output 'pln'", "did you mean plan"),
        ("plan: plan.plan", "plan: pln.plan", 17, "no stage 'pln'", "did you mean plan"),
        ("plan: plan.plan", "plan: merge.x", 17, "comes later", "earlier"),
        ("plan: plan.plan", "plan: item.x", 17, "only in a foreach", ""),
        ("plan: plan.plan", "plan: 'not a ref'", 17, "not a reference", "STAGE.OUTPUT"),
        ("    inputs: {plan: plan.plan}\n", "", 14, "needs the input 'plan'", "inputs:"),
        ("needs_revision: again", "needs_revision: agin", 18, "no loop 'agin'", "did you mean again"),
        ("to: plan,", "to: pln,", 6, "no stage 'pln'", "did you mean plan"),
        ("to: plan,", "to: merge,", 18, "goes forward", "goes back"),
        ("short: [plan, review]", "short: [review]", 8, "leaves that out", "add plan"),
        ("short: [plan, review]", "short: [plan, reveiw]", 8, "no stage 'reveiw'", "did you mean review"),
        ("tool: check.py", "tool: chekc.py", 25, "no tool 'chekc.py'", "check.py"),
        ("tool: check.py", "tool: spawn.py", 25, "not an executor", "layer 1"),
        ("tool: check.py", "tool: check.py\n    agent: spec-plan", 24, "exactly one of agent, tool, members, ask", ""),
        ("reports: group.*.report", "reports: group.report", 27, "does not fit the stage 'group'", "group.one.OUTPUT"),
        ("first: group.one.report", "first: group.three.report", 27, "does not fit", "group.two.OUTPUT"),
        ("parallel: {cap: 2}", "parallel: {cap: 0}", 20, "less than the minimum", ""),
        ("parallel: {cap: 2}", "parallel: {min_success: 3}", 20, "3 of 2 members", ""),
        ("name: group\n    parallel: {cap: 2}", "name: group\n    foreach: {items: param.topic}", 19, "either a group of members or a foreach", ""),
        ("target: \"{param.topic}\"}\n      two", "target: x, after: [thre]}\n      two", 22, "no member 'thre'", ""),
        ("two: {agent", "two: {after: [two], agent", 21, "in a circle: two", ""),
        ("args: [pytest]", "timeout_seconds: soon\n    args: [pytest]", 26, "not of type 'number'", ""),
        ("  - name: merge", "  - name: plan", 24, "two stages are called 'plan'", ""),
        ("again: {to: plan, max: 1}", "again: {to: plan, max: 1}\n  idle: {to: plan, max: 1}", 7, "no stage uses the loop 'idle'", ""),
        ("stages:", "stages: []\nx:", 10, "unknown key 'x'", ""),
        ("args: [pytest]", "outputs: {x: {path: ../x}}\n    args: [pytest]", 26, "leaves its folder", ""),
        ("args: [pytest]", "outputs: {x: {path: x, schema: chekcs}}\n    args: [pytest]", 26, "no schema 'chekcs'", "did you mean checks"),
        ("args: [pytest]", "model: huge-tier\n    args: [pytest]", 26, "no tier 'huge-tier'", "high-tier"),
        ("args: [pytest]", "isolation: docker\n    args: [pytest]", 26, "docker", ""),
        ("name: trial", "name: other", 2, "differs from the file's", "name: trial"),
        ("topic: {about: x}", "topic: {about: x, type: text, default: [a]}", 4, "the default of 'topic' is no text", "change"),
        ("target: \"{param.topic}\"\n  - name: review", "target: \"{Topic}\"\n  - name: review", 13, "'Topic' is not a reference", "param.NAME"),
        ("target: \"{param.topic}\"\n  - name: review", "target: x\n    required: false\n  - name: review", 18, "comes from an optional stage", "optional plan.plan"),
        ("args: [pytest]", "args: [pytest]\n    foreach: {items: param.topic}", 27, "is a text, not a list", "type: list"),
        ("version: 1", "version: 1\n\t- x", 2, "not valid YAML", ""),
    ],
)  # fmt: skip
def test_each_mistake_is_one_error_with_its_place(
    house: House, old: str, new: str, line: int | None, words: str, hint: str
) -> None:
    assert old in GOOD
    ran = validate(house, GOOD.replace(old, new, 1))
    assert ran.code == 1
    assert words in ran.error["message"], ran.error
    assert hint in ran.error.get("hint", "")
    if line:
        assert f"trial.yaml:{line}:" in ran.error["message"], ran.error
    assert not list(house.sessions.glob("*/trial")), "nothing may have been started"


def test_two_parallel_writers_of_the_working_folder_are_refused(house: House) -> None:
    text = GOOD.replace("agent: researcher-ux, action: RESEARCH", "agent: spec-implement, action: IMPLEMENT")
    text = text.replace("agent: researcher-tech, action: RESEARCH", "agent: spec-document, action: DOCUMENT")
    text = text.replace("inputs: {reports: group.*.report, first: group.one.report}", "")
    assert "write the working folder at the same time" in validate(house, text).error["message"]
    single = text.replace("agent: spec-document, action: DOCUMENT", "agent: researcher-tech, action: RESEARCH")
    assert validate(house, single).document["stages"][0]["code"] == "FIXTURE_MISSING", "one writer among readers is allowed"
    waiting = text.replace("two: {agent", "two: {after: [one], agent")
    assert validate(house, waiting).document["stages"][0]["code"] == "FIXTURE_MISSING"
    one_by_one = text.replace("parallel: {cap: 2}", "parallel: {cap: 1}")
    assert validate(house, one_by_one).document["stages"][0]["code"] == "FIXTURE_MISSING"


def test_items_that_write_the_working_folder_at_the_same_time_are_refused(house: House) -> None:
    text = (
        "version: 1\nname: trial\nparams:\n  topic: {type: list}\nstages:\n"
        "  - {name: x, agent: spec-implement, action: IMPLEMENT, foreach: {items: param.topic}}\n"
    )
    assert "items of 'x' write the working folder" in validate(house, text).error["message"]


def test_parameters_need_no_block_where_stages_mention_them(house: House) -> None:
    text = "version: 1\nname: trial\nstages:\n  - {name: x, agent: spec-plan, action: PLAN, target: '{param.topic}'}\n"
    assert validate(house, text).document["stages"][0]["code"] == "FIXTURE_MISSING"
    assert "needs the parameter 'topic'" in house.json("orchestrator", "trial").error["message"]


def test_an_unknown_orchestrator_and_an_unknown_parameter_say_what_there_is(house: House) -> None:
    ran = house.json("orchestrator", "oresaerch")
    assert ran.error["hint"] == "did you mean oresearch?"
    ran = house.json("orchestrator", "oresearch", "--param", "tpic=x")
    assert "no parameter 'tpic'" in ran.error["message"]
    ran = house.json("orchestrator", "oresearch")
    assert "needs the parameter 'topic'" in ran.error["message"]
