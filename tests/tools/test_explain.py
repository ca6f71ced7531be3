"""What a resume would do and why, doing finished work again on purpose, and going on with a session below a campaign."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support import WORKER, House, Ran, log, plan

pytestmark = pytest.mark.rehearsed

STAGE = "  - {name: %s, tool: worker.py, args: [%s], retry: {max: 0}, outputs: {made: {path: made.json}}%s}\n"
CHAIN = "version: 1\nname: chain\nparams: {word: {about: a word, default: one}}\nstages:\n" + (
    STAGE % ("first", "first", ", inputs: {word: param.word}")
    + STAGE % ("second", "second", ", inputs: {made: first.made}")
    + STAGE % ("other", "other", "")
)
FAN = """version: 1
name: fan
params: {names: {about: who, type: list, default: "x,y,z"}}
stages:
  - {name: each, tool: worker.py, retry: {max: 0}, foreach: {items: param.names}, outputs: {made: {path: made.json}}}
  - {name: sum, tool: worker.py, args: [sum], retry: {max: 0}, inputs: {all: each.*.made}, outputs: {made: {path: made.json}}}
"""
PLAN = """version: 1
name: trial
checks: checks.yaml
phases:
  - {name: one, run: [{orchestrator: chain}], verify: {none: a test}}
  - {name: two, depends_on: [one], run: [{orchestrator: fan, inputs: {}}], verify: {none: a test}}
  - {name: three, depends_on: [one], run: [{orchestrator: chain, name: third, params: {word: three}}], verify: {checks: [good]}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    house.orchestrator(CHAIN, "chain")
    house.orchestrator(FAN, "fan")
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test ! -f bad}}\n")
    (house.folder / "plan.yaml").write_text(PLAN)
    return house


def campaign(house: House, *flags: str) -> Ran:
    return house.json("campaign", *flags)


def start(house: House) -> Ran:
    return campaign(house, str(house.folder / "plan.yaml"))


def explain(house: House, *flags: str) -> dict[str, tuple[str, str]]:
    """Says what would be done, and changes nothing by saying it."""
    before = state(house.session)
    ran = campaign(house, "--resume", house.session.name, "--explain", *flags)
    assert ran.code == 0, ran.stderr
    assert state(house.session) == before, "looking changes nothing"
    return {line["step"]: (line["does"], line["why"]) for line in ran.document["explained"]}


def state(session: Path) -> dict[str, bytes]:
    return {str(p.relative_to(session)): p.read_bytes() for p in sorted(session.rglob("*")) if p.is_file()}


def does(found: dict[str, tuple[str, str]], word: str) -> set[str]:
    return {step for step, (said, _) in found.items() if said == word}


def test_a_finished_campaign_is_skipped_step_by_step(trial: House) -> None:
    assert start(trial).code == 0
    found = explain(trial)
    assert does(found, "SKIP") == set(found)
    assert set(found) == {
        *(f"phase-01-one/chain/{s}" for s in ("first", "second", "other")),
        *(f"phase-02-two/fan/each/{k}" for k in "xyz"),
        "phase-02-two/fan/sum",
        *(f"phase-03-three/third/{s}" for s in ("first", "second", "other")),
        "phase-03-three/sentinel",
    }


def test_what_would_run_is_what_does_run_and_the_reason_names_what_changed(trial: House) -> None:
    assert start(trial).code == 0
    (trial.folder / "plan.yaml").write_text(PLAN.replace("word: three", "word: other"))
    found = explain(trial, str(trial.folder / "plan.yaml"))
    assert does(found, "RUN") == {f"phase-03-three/{s}" for s in ("third/first", "third/second", "sentinel")}
    assert found["phase-03-three/third/first"][1] == "the input word changed"
    assert "first" in found["phase-03-three/third/second"][1]
    before = len(log(trial))
    assert campaign(trial, "--resume", trial.session.name, str(trial.folder / "plan.yaml")).code == 0
    assert log(trial)[before:] == ["first", "second"]


def test_damage_failure_and_a_cut_short_step_are_told_apart(trial: House) -> None:
    plan(trial, y="fail")
    assert start(trial).code == 3
    session = trial.session
    (session / "phases/phase-01-one/artifacts/chain/01-first/made.json").write_text("edited")
    (session / "phases/phase-03-three/third/stages/03-other/attempt-1/outcome.json").unlink()
    found = explain(trial)
    assert found["phase-01-one/chain/first"][1].endswith("made.json was changed")
    assert found["phase-03-three/third/other"] == ("RUN", "it was cut short")
    assert found["phase-02-two/fan/each/y"][1].startswith("attempt ")
    assert "TRIAL" in found["phase-02-two/fan/each/y"][1]
    assert found["phase-02-two/fan/each/x"][0] == "SKIP"
    assert found["phase-02-two/fan/sum"] == ("RUN", "it uses what each will make")


def test_what_waits_for_a_person_halts_and_so_does_what_is_behind_it(trial: House) -> None:
    asking = PLAN.replace(
        "{orchestrator: chain}], verify: {none: a test}",
        "{orchestrator: chain}], verify: {none: a test}, checkpoint: {at: after, question: Good so far?}",
    )
    (trial.folder / "plan.yaml").write_text(asking)
    assert start(trial).code == 3
    found = explain(trial)
    assert found["phase-01-one/checkpoint"] == ("HALT", "a person is asked: Good so far?")
    assert does(found, "HALT") == {s for s in found if not s.startswith("phase-01")} | {"phase-01-one/checkpoint"}
    assert campaign(trial, "--resume", trial.session.name, "--approve").code == 0
    assert does(explain(trial), "HALT") == does(explain(trial), "RUN") == set()


def test_a_session_that_does_not_exist_yet_would_run_everything(trial: House) -> None:
    ran = campaign(trial, str(trial.folder / "plan.yaml"), "--explain")
    assert {line["does"] for line in ran.document["explained"]} == {"RUN"}
    assert not trial.sessions.exists() or not list(trial.sessions.iterdir())


def test_as_a_table_for_people(trial: House) -> None:
    assert start(trial).code == 0
    ran = trial.run("campaign", "--resume", trial.session.name, "--explain")
    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["SKIP", "phase-01-one/chain/first", "attempt", "1", "finished", "it"]
    assert lines[-1] == "11 to skip, 0 to run, 0 halted; expected spend in USD: 0.0000"


@pytest.mark.parametrize(
    ("where", "runs"),
    [
        pytest.param("two", ["x", "y", "z", "sum"], marks=pytest.mark.long),
        ("two/fan/each/y", ["y", "sum"]),
        pytest.param("two/fan/sum", ["sum"], marks=pytest.mark.long),
        pytest.param("three/third/second", ["second", "other"], marks=pytest.mark.long),
        pytest.param("three/sentinel", [], marks=pytest.mark.long),
        ("one/chain/other", ["other", "x", "y", "z", "sum", "first", "second", "other"]),  # and all that depends on the phase
    ],
)
def test_from_a_step_on_everything_is_done_again_and_nothing_else(trial: House, where: str, runs: list[str]) -> None:
    assert start(trial).code == 0
    before = len(log(trial))
    evidence = state(trial.session)
    found = explain(trial, "--from", where)
    ran = campaign(trial, "--resume", trial.session.name, "--from", where)
    assert ran.code == 0, ran.stderr
    assert sorted(log(trial)[before:]) == sorted(runs)
    assert len([s for s in does(found, "RUN") if not s.endswith("sentinel")]) == len(runs)
    attempts = {n: text for n, text in evidence.items() if "/attempt-" in n}
    now = state(trial.session)
    assert all(now[name] == text for name, text in attempts.items()), "what earlier attempts left is as it was"
    left = does(explain(trial), "RUN") - {"phase-03-three/sentinel"}  # the worker's log is in the folder that is judged
    assert left == set(), "and it is finished now"


def test_a_re_run_that_was_cut_short_is_gone_on_with_by_a_plain_resume(trial: House) -> None:
    assert start(trial).code == 0
    plan(trial, sum="crash")
    before = len(log(trial))
    assert campaign(trial, "--resume", trial.session.name, "--from", "two").code != 0
    plan(trial, sum="ok")
    assert campaign(trial, "--resume", trial.session.name).code == 0
    again = log(trial)[before:]
    assert sorted(x for x in again if x != "sum") == ["x", "y", "z"], "those that were done again were not done twice"


def test_only_one_phase_is_done_again(trial: House) -> None:
    assert start(trial).code == 0
    before = len(log(trial))
    ran = campaign(trial, "--resume", trial.session.name, "--only", "three")
    assert ran.code == 0, ran.stderr
    assert log(trial)[before:] == ["first", "second", "other"]
    assert [p["exit_code"] for p in ran.document["phases"]] == [0, 0, 0]


def test_only_is_refused_before_what_it_depends_on_and_is_no_whole_success(trial: House) -> None:
    plan(trial, first="fail")
    assert start(trial).code == 3
    assert "depends on one" in campaign(trial, "--resume", trial.session.name, "--only", "two").error["message"]
    plan(trial, first="ok")
    ran = campaign(trial, "--resume", trial.session.name, "--only", "one")
    assert (ran.code, ran.error["code"]) == (12, "PARTIAL_SUCCESS")
    assert campaign(trial, "--resume", trial.session.name).code == 0


def test_steps_that_do_not_exist_are_refused_with_the_nearest(trial: House) -> None:
    assert start(trial).code == 0
    for flags in (("--from", "tow"), ("--only", "tow")):
        assert campaign(trial, "--resume", trial.session.name, *flags).error["hint"] == "did you mean two?"
    assert campaign(trial, "--resume", trial.session.name, "--from", "two/fan/some").error["hint"] == "did you mean sum?"
    assert campaign(trial, str(trial.folder / "plan.yaml"), "--from", "two").error["code"] == "USAGE"


def test_a_loop_that_was_taken_is_explained_and_can_be_done_again(trial: House) -> None:
    loop = "version: 1\nname: loop\nloops: {redo: {to: make, max: 2, then: continue}}\nstages:\n"
    loop += STAGE % ("make", "make", "") + STAGE % ("look", "look", ", inputs: {made: make.made}, on: {needs_revision: redo}")
    trial.orchestrator(loop, "loop")
    plan(trial, look="revise ok")
    session = str(trial.folder / "s")
    assert trial.json("orchestrator", "loop", "--session-dir", session).code == 0
    assert log(trial) == ["make", "look", "make", "look"]
    ran = trial.json("orchestrator", "--resume", session, "--explain")
    assert {line["does"] for line in ran.document["explained"]} == {"SKIP"}
    assert [line["step"] for line in ran.document["explained"]][-1] == "loop/look/round-2"
    ran = trial.json("orchestrator", "--resume", session, "--from", "make")
    assert ran.code == 0, ran.stderr
    assert log(trial)[4:] == ["make", "look"], "the loop is not taken again unless it is asked for again"
    home = Path(session) / "loop"
    assert (home / "stages/01-make/round-1/attempt-2/outcome.json").exists(), "it began at the beginning"
    assert list(home.glob("loops/before-*/redo-1.json")), "and the loop of before is set aside, not lost"


def test_an_orchestrator_goes_on_as_it_was_started_from_anywhere(trial: House, tmp_path: Path) -> None:
    plan(trial, second="fail ok")
    session = str(trial.folder / "s")
    first = trial.json("orchestrator", "chain", "--param", "word=two words", "--session-dir", session)
    assert first.code == 1
    elsewhere = House.at(trial, tmp_path)
    ran = elsewhere.json("orchestrator", "--resume", session)
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["first", "second", "second", "other"]
    made = json.loads((Path(session) / "artifacts/chain/01-first/made.json").read_text())
    assert made["inputs"] == {"word": "two words"}


def test_what_was_asked_last_is_what_is_resumed(trial: House) -> None:
    session = str(trial.folder / "s")
    assert trial.json("orchestrator", "chain", "--param", "word=one", "--session-dir", session).code == 0
    plan(trial, first="fail")
    assert trial.json("orchestrator", "chain", "--param", "word=two", "--session-dir", session).code == 1
    plan(trial, first="ok")
    assert trial.json("orchestrator", "--resume", session).code == 0
    made = json.loads((Path(session) / "artifacts/chain/01-first/made.json").read_text())
    assert made["inputs"] == {"word": "two"}


def test_a_phase_goes_on_as_it_was_started(trial: House, tmp_path: Path) -> None:
    plan(trial, second="fail fail ok")
    session = str(trial.folder / "s")
    first = trial.json("coordinator", str(trial.folder / "plan.yaml"), "--phase", "one", "--session-dir", session)
    assert first.code == 1, first.stdout
    shutil.move(session, tmp_path / "moved")
    elsewhere = House.at(trial, tmp_path)
    found = elsewhere.json("coordinator", "--resume", str(tmp_path / "moved"), "--explain").document["explained"]
    assert [line["does"] for line in found] == ["SKIP", "RUN", "RUN"]
    assert elsewhere.json("coordinator", "--resume", str(tmp_path / "moved")).code == 0
    assert log(trial) == ["first", "second", "second", "second", "other"]


def test_a_session_is_resumed_by_the_tool_that_began_it(trial: House) -> None:
    session = str(trial.folder / "s")
    assert trial.json("orchestrator", "chain", "--session-dir", session).code == 0
    wrong = campaign(trial, "--resume", session)
    assert wrong.error["code"] == "NO_SESSION"
    assert "orchestrator.py --resume" in wrong.error["hint"]
    assert start(trial).code == 0
    other = trial.json("orchestrator", "--resume", str(trial.session))
    assert "campaign.py --resume" in other.error["hint"]


def test_what_a_phase_gets_from_one_that_runs_is_not_known_yet(trial: House) -> None:
    asked = PLAN.replace(
        "run: [{orchestrator: fan, inputs: {}}]",
        "run: [{orchestrator: chain, name: after, inputs: {word: one.chain.made}}]",
    )
    assert asked != PLAN
    (trial.folder / "plan.yaml").write_text(asked)
    assert start(trial).code == 0
    (trial.session / "phases/phase-01-one/artifacts/chain/01-first/made.json").write_text("edited")
    found = explain(trial)
    assert does(found, "RUN") >= {"phase-01-one/chain/first", "phase-02-two/after/first"}
    assert "param.word" in found["phase-02-two/after/first"][1]
