"""A goal in words: planned by an agent, read strictly, approved by a person, run, and held against the goal. Real SDK and CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripted_model.server import Reply, Request, Script, by_agent, say, tool
from support import House, Ran, at_a_terminal, wait_for

pytestmark = pytest.mark.rehearsed

STAGES = """version: 1
name: trial
description: Makes one thing.
params: {what: {about: what to make}}
stages:
  - {name: make, agent: maker, action: DO, target: "{param.what}", outputs: {made: {path: made.md}}}
"""
GOAL = "There is a note about herons."


def phase(name: str, what: str = "herons", **fields: Any) -> dict[str, Any]:
    run = [{"orchestrator": "trial", "params": {"what": what}}]
    return {"name": name, "run": run, "verify": {"checks": ["artifacts"], "fix": False}, **fields}


def roadmap(*phases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    plan = {"name": "notes", "budget": {"usd": 5}, "phases": list(phases), **fields}
    return {"decision": "plan", "reason": "it makes the note", "plan": plan}


GOOD = roadmap(phase("write"))
MET = {
    "met": "yes",
    "summary": "it is there",
    "requirements": [{"requirement": "a", "status": "met", "evidence": "b"}],
    "gaps": [],
}
OPEN = {
    "met": "partly",
    "summary": "no word of owls",
    "requirements": [{"requirement": "owls", "status": "unmet", "evidence": "made.md"}],
    "gaps": ["write about owls"],
}


def answers(*documents: dict[str, Any]) -> Script:
    """A structured answer for each time the agent is asked; the last one repeats."""
    asked: list[str] = []

    def script(request: Request) -> Reply:
        if request.turn:
            return say("done")
        asked.append(request.prompt)
        return say(tool("StructuredOutput", **documents[min(len(asked), len(documents)) - 1]))

    return script


def maker(request: Request) -> Reply:
    if request.turn == 0:
        return say(tool("Write", file_path=request.path("made"), content="a heron\n"))
    return say("DONE: made")


@pytest.fixture
def trial(house: House) -> House:
    house.agent("maker", tools="Write", strata={"completion": "cluster", "outputs": {"made": {"path": "made.md"}}})
    house.orchestrator(STAGES)
    return house


def scripted(model: Any, *plans: dict[str, Any], judged: tuple[dict[str, Any], ...] = (MET,)) -> Any:
    return model(by_agent(roadmap__writer=answers(*plans), evaluator=answers(*judged), maker=maker))


def run(house: House, *flags: str) -> Ran:
    return house.json("campaign", "--goal", GOAL, "--session-dir", str(house.folder / "s"), *flags, timeout=300)


def resume(house: House, *flags: str) -> Ran:
    return house.json("campaign", "--resume", str(house.folder / "s"), *flags, timeout=300)


def prompts(model: Any, agent: str) -> list[str]:
    return [r.prompt for r in model.requests if r.prompt.startswith(f"/{agent}") and not r.turn]


def test_a_goal_becomes_a_plan_that_waits_for_a_yes_and_is_judged_when_it_has_run(trial: House, model) -> None:
    asked = scripted(model, GOOD)
    held = run(trial)
    assert (held.code, held.document["status"]) == (3, "human-input"), held.stderr[-2000:]
    question = held.document["waiting"][0]["question"]
    assert GOAL in question
    assert "write: trial (what=herons); checked by artifacts" in question
    assert "expected: 2 agent sessions" in question
    assert "usd=5" in question
    assert not prompts(asked, "maker"), "nothing runs before the yes"
    assert "--approve" in held.error["hint"]
    done = resume(trial, "--approve")
    assert (done.code, done.document["grade"]) == (0, "PASS"), done.stderr[-2000:]
    assert done.document["evaluation"] == MET
    report = (trial.folder / "s/execution-report.md").read_text()
    assert GOAL in report
    assert "**Met: yes.** it is there" in report
    counts = len(asked.requests)
    assert resume(trial).code == 0
    assert len(asked.requests) == counts, "neither planned, nor made, nor judged again"
    found = {e["step"]: e["does"] for e in resume(trial, "--explain").document["explained"]}
    assert found["goal/evaluate"] == "SKIP"
    assert sorted(p.name for p in (trial.folder / "s/.signals").glob("campaign-*")) == ["campaign-goal.done"]
    other = trial.json("campaign", "--goal", "Something else.", "--session-dir", str(trial.folder / "s"))
    assert (other.error["code"], "another goal" in other.error["message"]) == ("USAGE", True)
    kept = yaml.safe_load((trial.folder / "s/plan.yaml").read_text())
    assert kept["goal"] == GOAL


def test_unattended_it_is_approved_beforehand_and_the_catalogue_is_what_there_is(trial: House, model) -> None:
    asked = scripted(model, GOOD)
    done = run(trial, "--approve-plan")
    assert done.code == 0, done.stderr[-2000:]
    decided = json.loads((trial.folder / "s/approvals/plan-round-1.json").read_text())
    assert (decided["decision"], decided["why"]) == ("approve", "--approve-plan")
    known = json.loads((trial.folder / "s/goal/catalogue.json").read_text())
    assert known["orchestrators"]["trial"]["params"]["what"]["needed"] is True
    assert known["orchestrators"]["trial"]["agents"] == {"maker": "The maker."}
    assert {"pytest", "ruff", "artifacts"} <= set(known["checks"])
    assert "catalogue.json" in prompts(asked, "roadmap-writer")[0]
    assert "execution-report.md" in prompts(asked, "evaluator")[0]


BAD = {
    "an orchestrator that is not there": (roadmap({**phase("x"), "run": [{"orchestrator": "trail"}]}), "trial"),
    "a check that is not there": (roadmap(phase("x", verify={"checks": ["spelling"]})), "no check 'spelling'"),
    "no budget": ({**GOOD, "plan": {**GOOD["plan"], "budget": {"agents": 3}}}, "budget: {usd"),
    "an orchestrator of its own": (roadmap({**phase("x"), "run": [{"orchestrator": "../mine.yaml"}]}), "mine.yaml"),
    "an orchestrator by its whole path": (roadmap({**phase("x"), "run": [{"orchestrator": "/tmp/mine"}]}), "/tmp/mine"),
    "a mode": (roadmap(phase("x", mode="agent")), "mode is not for a plan"),
    "a parameter that is missing": (roadmap({**phase("x"), "run": [{"orchestrator": "trial"}]}), "needs the parameter 'what'"),
}


def test_a_bad_plan_is_repaired_with_the_mistake_named(trial: House, model) -> None:
    first, second = BAD["an orchestrator that is not there"], BAD["a check that is not there"]
    asked = scripted(model, first[0], second[0], GOOD)
    done = run(trial, "--approve-plan")
    assert done.code == 0, done.stderr[-2000:]
    told = prompts(asked, "roadmap-writer")
    assert len(told) == 3
    assert first[1] in told[1]
    assert second[1] in told[2]
    assert len(list((trial.folder / "s/goal/stages/01-roadmap/round-1").glob("attempt-*"))) == 3


def test_a_plan_that_stays_bad_is_refused_after_two_repairs(trial: House, model) -> None:
    asked = scripted(model, BAD["no budget"][0])
    done = run(trial, "--approve-plan")
    assert (done.code, done.error["code"]) == (1, "BAD_ROADMAP"), done.stderr[-2000:]
    assert len(prompts(asked, "roadmap-writer")) == 3
    assert not prompts(asked, "maker")
    assert json.loads((trial.folder / "s/manifest.json").read_text())["error"]["code"] == "BAD_ROADMAP"


@pytest.mark.parametrize("name", BAD)
def test_what_a_plan_may_not_say(trial: House, name: str) -> None:
    """The reader alone, without an agent."""
    written, said = BAD[name]
    code = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, 'core'); from lib.campaign import goals;"
        "w = json.loads(sys.stdin.read()); d = Path('draft.yaml');"
        "d.write_text(goals._text(w, {'goal': 'x', 'rounds': 1}, None)); print(goals.mistake(d, w, None))"
    )
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(written["plan"]),
        cwd=trial.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said in done.stdout, done.stdout


def test_an_impossible_goal_is_refused_and_nothing_runs(trial: House, model) -> None:
    asked = scripted(model, {"decision": "impossible", "reason": "nothing here can fly", "plan": None})
    done = run(trial, "--approve-plan")
    assert (done.code, done.error["code"]) == (1, "GOAL_IMPOSSIBLE")
    assert "nothing here can fly" in done.error["message"]
    assert len(prompts(asked, "roadmap-writer")) == 1, "that is no mistake to repair"
    assert "nothing here can fly" in (trial.folder / "s/execution-report.md").read_text()


@pytest.mark.long
def test_what_is_missing_gets_another_round_and_what_is_done_is_not_done_again(trial: House, model) -> None:
    more = roadmap(phase("owls", "owls", depends_on=["write"]), budget={"usd": 2})
    asked = scripted(model, GOOD, more, judged=(OPEN, MET))
    done = run(trial, "--approve-plan", "--rounds", "2")
    assert done.code == 0, done.stderr[-2000:]
    assert (done.document["round"], done.document["evaluation"]) == (2, MET)
    assert [p["name"] for p in done.document["phases"]] == ["write", "owls"]
    assert len(prompts(asked, "maker")) == 2
    assert "gaps-1.md" in prompts(asked, "roadmap-writer")[1]
    assert json.loads((trial.folder / "s/budget.json").read_text())[""]["usd"] == 7
    count = len(asked.requests)
    assert resume(trial).code == 0
    assert len(asked.requests) == count


def test_another_round_is_asked_about_and_rounds_have_an_end(trial: House, model) -> None:
    more = roadmap(phase("owls", "owls"))
    asked = scripted(model, GOOD, more, judged=(OPEN,))
    assert run(trial, "--rounds", "2").code == 3
    effective = trial.folder / "s/effective-config.json"
    before = effective.read_text()
    held = resume(trial, "--approve")
    assert held.code == 3, held.stderr[-2000:]
    assert "round 2 of 2" in held.document["waiting"][0]["question"]
    assert held.document["evaluation"] == OPEN
    effective.write_text(before)  # as a kill leaves it between planning the round and taking the plan
    assert resume(trial).code == 3
    assert len(prompts(asked, "roadmap-writer")) == 2, "what was planned is not planned again"
    refused = resume(trial, "--reject", "enough")
    assert (refused.code, refused.error["code"]) == (1, "REJECTED")
    done = resume(trial, "--approve")
    assert (done.code, done.error["code"]) == (12, "GOAL_NOT_MET"), done.stderr[-2000:]
    assert "owls" in done.error["message"]
    assert len(prompts(asked, "roadmap-writer")) == 2, "no third round"


def test_a_plan_of_a_person_may_have_a_goal_too(trial: House, model) -> None:
    fields = {"version": 1, "name": "mine", "goal": GOAL, "phases": [phase("write")]}
    (trial.folder / "plan.yaml").write_text(yaml.safe_dump(fields))
    asked = scripted(model, judged=({**OPEN, "met": "yes"},))
    done = trial.json("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s"))
    assert (done.code, done.error["code"]) == (12, "GOAL_NOT_MET"), "a yes with gaps is none"
    assert not prompts(asked, "roadmap-writer")
    (trial.folder / "plan.yaml").write_text(yaml.safe_dump({**fields, "rounds": 2, "goal": ""}))
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).error["code"] == "BAD_CONFIG"


@pytest.mark.long
def test_a_plan_that_a_person_has_changed_needs_no_second_yes(trial: House, model) -> None:
    asked = scripted(model, GOOD)
    assert run(trial).code == 3
    text = (trial.folder / "s/plan.yaml").read_text().replace("herons", "cranes", 1)
    (trial.folder / "mine.yaml").write_text(text)
    done = resume(trial, str(trial.folder / "mine.yaml"))
    assert done.code == 0, done.stderr[-2000:]
    assert len(prompts(asked, "maker")) == 1


def test_only_the_plan_that_is_run_is_what_a_yes_is_about(trial: House, model) -> None:
    """Neither an edit of the session's copy nor naming the agent's own file is a yes."""
    asked = scripted(model, GOOD)
    assert run(trial).code == 3
    kept = trial.folder / "s/plan.yaml"
    kept.write_text(kept.read_text().replace("herons", "cranes", 1))
    assert resume(trial).code == 3
    assert resume(trial, str(trial.folder / "s/goal/round-1.yaml")).code == 3
    assert not prompts(asked, "maker")
    assert not list((trial.folder / "s").glob("approvals/*"))


def test_what_an_agent_wrote_cannot_pass_for_a_line_of_ours(trial: House, model) -> None:
    forged = "ok)\n  expected: 1 agent sessions, 0.01 USD"
    scripted(model, roadmap(phase("write", "h\x1b[2K\x1b[1Aerons", verify={"none": forged})))
    question = run(trial, "--budget", "usd=1").document["waiting"][0]["question"]
    assert question.count("\n") == 2, question
    assert "it stops at: usd=1" in question, "what was said on the command line counts"
    code, shown = at_a_terminal(trial, "campaign", [("later: ", "\n")], "--resume", str(trial.folder / "s"), TERM="dumb")
    assert code == 3
    assert "\x1b" not in shown


def test_one_phase_alone_does_not_make_an_unmet_goal_a_success(trial: House, model) -> None:
    asked = scripted(model, GOOD, judged=(OPEN,))
    assert run(trial, "--approve-plan").code == 12
    done = resume(trial, "--only", "write")
    assert (done.code, done.error["code"]) == (12, "GOAL_NOT_MET"), "the same thing once more has been judged"
    assert len(prompts(asked, "evaluator")) == 1


@pytest.mark.long
def test_a_goal_that_a_person_changed_is_the_goal_of_the_next_round_too(trial: House, model) -> None:
    scripted(model, GOOD, roadmap(phase("owls", "owls")), judged=(OPEN, MET))
    assert run(trial, "--rounds", "2").code == 3
    text = (trial.folder / "s/plan.yaml").read_text().replace("about herons", "about cranes")
    (trial.folder / "mine.yaml").write_text(text)
    done = resume(trial, str(trial.folder / "mine.yaml"), "--approve-plan")
    assert done.code == 0, done.stderr[-2000:]
    assert "cranes" in done.document["goal"]


def test_an_interrupted_planner_is_gone_on_with_by_resume(trial: House, model) -> None:
    model(by_agent(roadmap__writer=lambda r: say("late", hang_seconds=300)))
    session = trial.folder / "s"
    with trial.start("campaign", "--goal", GOAL, "--approve-plan", "--session-dir", str(session)) as child:
        wait_for(lambda: list(session.glob("goal/stages/01-roadmap/round-1/attempt-1/prompt.md")), what="it is asked")
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 20
    scripted(model, GOOD)
    done = resume(trial)
    assert done.code == 0, done.stderr[-2000:]
    assert Path(session / "goal.json").exists()


def test_wrong_words_are_refused_before_anything_is_made(trial: House) -> None:
    assert trial.json("campaign", "--goal", " ").error["code"] == "USAGE"
    assert trial.json("campaign", "x.yaml", "--goal", GOAL).error["code"] == "USAGE"
    assert run(trial, "--rounds", "9").error["code"] == "USAGE"
    assert run(trial, "--dry-run").error["code"] == "USAGE"
    assert trial.json("campaign", "--resume", "x", "--goal", GOAL).error["code"] == "USAGE"
    assert trial.json("campaign", "quickstart", "--rounds", "2").error["code"] == "USAGE"
    assert not (trial.folder / "s").exists()
