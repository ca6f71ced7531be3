"""What a stage can be given: rosters, what those it waited for made, its own of the round before, and why it was sent back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lib.contract import StrataError
from lib.plan import orchestrator_file
from lib.stages import rosters
from support import WORKER, House, log, plan

OUT = "outputs: {made: {path: made.json}}"


def run(house: House, text: str, *flags: str) -> Any:
    house.tool("worker", WORKER)
    house.orchestrator(f"version: 1\nname: trial\n{text}")
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags)


def made(house: House, place: str) -> dict[str, Any]:
    """What a worker wrote down: its name, its inputs, and what it was told."""
    return json.loads((house.folder / "s/artifacts/trial" / place / "made.json").read_text())


FAN = f"""params: {{items: {{type: list, default: [one, "src/two.py", three]}}}}
stages:
  - name: each
    tool: worker.py
    args: ["{{item}}"]
    foreach: {{items: param.items}}
    on_item_failure: skip
    retry: {{max: 0}}
    {OUT}
  - {{name: sum, tool: worker.py, args: [sum], inputs: {{who: each.roster}}, {OUT}}}
"""


def test_a_roster_says_who_was_asked_and_how_each_ended(house: House) -> None:
    plan(house, **{"three": "fail"})
    ran = run(house, FAN)
    assert ran.code == 12, ran.stderr
    path = Path(made(house, "02-sum")["inputs"]["who"])
    found = rosters.read(path)
    assert (found.stage, found.asked, found.succeeded) == ("each", 3, 2)
    assert [e.key for e in found.entries] == ["one", "src/two.py", "three"], "items keep the keys people gave them"
    one, _, three = found.entries
    assert (one.item, one.status, (path.parent / one.outputs["made"]).is_file()) == ("one", "success", True)
    assert (three.status, three.code, "three says fail" in three.message) == ("failure", "TRIAL", True)
    assert str(house.folder) not in path.read_text(), "it says the same wherever the session lies"
    assert log(house).count("sum") == 1
    assert run(house, FAN).code == 12
    assert log(house).count("sum") == 1, "the same roster is the same input"


def test_a_blocked_item_is_on_the_roster_with_its_item(house: House) -> None:
    items = [{"id": "a", "needs": []}, {"id": "b", "needs": ["a"]}]
    (house.workspace / "items.json").write_text(json.dumps(items))
    text = f"""params: {{items: {{type: file, default: items.json}}}}
stages:
  - name: each
    tool: worker.py
    args: ["{{item.id}}"]
    foreach: {{items: param.items, key: id, after: needs}}
    on_item_failure: skip
    retry: {{max: 0}}
    inputs: {{earlier: after.*.made}}
    required: false
    {OUT}
  - {{name: sum, tool: worker.py, args: [sum], inputs: {{who: each.roster}}, {OUT}}}
"""
    plan(house, a="fail ok")
    run(house, text)
    found = rosters.read(Path(made(house, "02-sum")["inputs"]["who"]))
    assert [(e.key, e.status, e.item) for e in found.entries] == [("a", "failure", items[0]), ("b", "blocked", items[1])]
    ran = run(house, text, "--from", "each")
    assert ran.code == 0, ran.stderr
    earlier = made(house, "01-each/b")["inputs"]["earlier"]
    assert [json.loads(Path(p).read_text())["name"] for p in earlier] == ["a"], "b reads what a made"
    assert made(house, "01-each/a")["inputs"].get("earlier", []) == []


def test_a_member_reads_what_the_one_it_waits_for_made(house: House) -> None:
    text = f"""stages:
  - name: group
    {OUT}
    members:
      build: {{tool: worker.py, args: [build]}}
      tests: {{tool: worker.py, args: [tests], after: [build], inputs: {{report: after.build.made}}}}
      both: {{tool: worker.py, args: [both], after: [build, tests], inputs: {{all: after.*.made}}}}
"""
    assert run(house, text).code == 0
    assert json.loads(Path(made(house, "01-group/tests")["inputs"]["report"]).read_text())["name"] == "build"
    assert len(made(house, "01-group/both")["inputs"]["all"]) == 2
    before = log(house)
    (house.folder / "s/artifacts/trial/01-group/build/made.json").unlink()
    assert run(house, text).code == 0
    assert log(house)[len(before) :] == ["build"], "what it came to is the same: those behind it are finished"


LOOP = f"""loops:
  again: {{to: write, max: 2, then: fail}}
stages:
  - name: write
    tool: worker.py
    args: [write]
    inputs: {{draft: previous.made, findings: loop.again.made, why: loop.again.cause, who: loop.again.roster}}
    {OUT}
  - name: judge
    {OUT}
    members: {{a: {{tool: worker.py, args: [a]}}, b: {{tool: worker.py, args: [b], on: {{needs_revision: again}}}}}}
"""


def test_a_loop_hands_back_data_and_a_round_reads_the_one_before(house: House) -> None:
    plan(house, b="revise ok")
    text = LOOP.replace("loop.again.made", "loop.again.b.made")
    ran = run(house, text)
    assert ran.code == 0, ran.stderr
    first, second = made(house, "01-write/round-1"), made(house, "01-write/round-2")
    assert first["inputs"] == {}, "there is nothing to hand back in the first round"
    given = {name: json.loads(Path(path).read_text()) for name, path in second["inputs"].items()}
    assert given["draft"]["name"] == "write"
    assert given["findings"]["name"] == "b"
    assert (given["why"]["loop"], given["why"]["stage"], given["why"]["reason"]) == ("again", "judge", "b wants a revision")
    assert [(e["key"], e["verdict"]) for e in given["who"]["entries"]] == [("a", "done"), ("b", "needs_revision")]
    assert log(house) == ["write", "a", "b", "write", "a", "b"] or sorted(log(house)) == sorted(["write", "a", "b"] * 2)
    assert run(house, text).document["summary"]["passed"] == 2
    assert len(log(house)) == 6, "resumed: nothing is done again"


def test_the_reasons_of_those_that_failed_are_handed_back(house: House) -> None:
    plan(house, a="fail ok", b="ok")
    text = LOOP.replace("loop.again.made", "loop.again.*.made").replace(
        "b: {args: [b], on: {needs_revision: again}}", "b: {args: [b]}"
    )
    text = text.replace("    members: {a:", "    retry: {max: 0}\n    on: {failure: again}\n    members: {a:")
    ran = run(house, text)
    assert ran.code == 0, ran.stderr
    given = made(house, "01-write/round-2")["inputs"]
    assert json.loads(Path(given["why"]).read_text())["failed"] == [{"key": "a", "code": "TRIAL", "message": "a says fail"}]
    assert len(given["findings"]) == 1, "of those that succeeded"


def test_the_verdict_of_one_member_routes_although_enough_others_succeeded(house: House) -> None:
    plan(house, b="fail ok")
    text = LOOP.replace("{needs_revision: again}", "{failure: again}").replace("loop.again.made", "loop.again.a.made")
    text = text.replace("    members: {a:", "    retry: {max: 0}\n    parallel: {min_success: 1}\n    members: {a:")
    ran = run(house, text)
    assert ran.code == 0, ran.stderr
    assert log(house).count("write") == 2


def test_several_lists_are_gone_through_together(house: House) -> None:
    text = f"""params: {{one: {{type: list, default: [a]}}, two: {{type: list, default: [b, c]}}}}
stages:
  - {{name: each, tool: worker.py, args: ["{{item}}"], foreach: {{items: [param.one, param.two]}}, {OUT}}}
"""
    assert run(house, text).code == 0
    assert sorted(log(house)) == ["a", "b", "c"]
    assert run(house, text, "--param", "two=b,a").error["message"] == "each: two items have the key 'a'"


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ("{name: a, tool: check.py, args: [x], inputs: {y: after.*.made}}", "only for members and items"),
        ("{name: a, tool: check.py, args: [x], inputs: {y: previous.made}}", "there is no round before"),
        ("{name: a, tool: check.py, args: [x], inputs: {y: loop.again.made}}", "there is no loop 'again'"),
        (
            "{name: a, members: {m: {tool: check.py, inputs: {y: after.n.made}}, n: {tool: check.py}}}",
            "'m' does not wait for that",
        ),
        (
            "{name: a, members: {m: {tool: check.py, after: [n], inputs: {y: after.n.made}}, n: {tool: check.py}}}",
            "no output 'made'",
        ),
        ("{name: a, tool: check.py, inputs: {y: after.*.z}, foreach: {items: param.i}}", "only where items wait"),
        ("{name: a, tool: check.py, args: [x]}\n  - {name: b, tool: check.py, inputs: {y: a.roster}}", "has no output 'roster'"),
        ("{name: loop, tool: check.py, args: [x]}", "reserved word"),
        ("{name: a, members: {m: {tool: check.py, on: {failure: nope}}}}", "there is no loop 'nope'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_error(tmp_path: Path, stages: str, words: str) -> None:
    path = tmp_path / "trial.yaml"
    path.write_text(f"version: 1\nname: trial\nparams: {{i: {{type: list}}}}\nstages:\n  - {stages}\n")
    with pytest.raises(StrataError) as caught:
        orchestrator_file.load(str(path))
    assert words in caught.value.message
    assert "trial.yaml:" in caught.value.message


def test_what_a_loop_is_to_hand_back_must_be_made_by_who_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "trial.yaml"
    text = "version: 1\nname: trial\nloops: {again: {to: a, max: 1}}\nstages:\n"
    text += "  - {name: a, tool: check.py, args: [x], inputs: {y: loop.again.made}}\n"
    text += "  - {name: b, tool: check.py, args: [x], on: {failure: again}}\n"
    path.write_text(text)
    with pytest.raises(StrataError, match="b has no output 'made'"):
        orchestrator_file.load(str(path))
