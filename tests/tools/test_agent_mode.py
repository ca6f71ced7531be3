"""Agents in the place of orchestrators: they call the layer below and nothing else, and what they claim is held against files.
Real SDK, real CLI, real `uv run`, scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Reply, Request, Script, by_agent, say, tool
from support import House, Ran

pytestmark = pytest.mark.rehearsed

STAGES = """version: 1
name: trial
loops: {redo: {to: make, max: 1, then: fail}}
params: {names: {about: who, type: list, default: "x,y"}}
stages:
  - {name: make, agent: maker, action: DO, outputs: {made: {path: made.md}}}
  - {name: look, agent: critic, action: DO, inputs: {made: make.made}, on: {needs_revision: redo}}
  - {name: each, agent: maker, action: DO, target: "{item}", foreach: {items: param.names}, outputs: {made: {path: made.md}}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.agent("maker", tools="Write", strata={"completion": "cluster", "outputs": {"made": {"path": "made.md"}}})
    house.agent("critic", strata={"completion": "cluster"})
    house.orchestrator(STAGES)
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: 'true'}}\n")
    return house


def maker(request: Request) -> Reply:
    if request.turn == 0:
        return say(tool("Write", file_path=request.path("made"), content="it is made\n"))
    return say("DONE: made")


def critic(first: str = "DONE: good") -> Script:
    said: list[str] = []

    def script(request: Request) -> Reply:
        said.append(first if not said else "DONE: good")
        return say(said[-1])

    return script


def command(request: Request, stage: str, item: str = "") -> dict[str, Any]:
    """The command the task lists for a stage, as it stands there."""
    found = re.search(rf"^- {stage}: (uv run \S+ --of \S+ --stage \S+)", request.prompt, re.M)
    assert found, request.prompt
    return tool("Bash", command=found[1] + (f" --item {item}" if item else ""))


def sequencer(*steps: tuple[str, str], end: str = "DONE: all of it") -> Script:
    """Calls the given stages one after the other, then says that it is done."""

    def script(request: Request) -> Reply:
        if request.turn < len(steps):
            return say(command(request, *steps[request.turn]))
        return say(end)

    return script


WHOLE = (("make", ""), ("look", ""), ("each", "x"), ("each", "y"))


def run(house: House, model: Callable[[Script], Any], sequence: Script, *flags: str, **scripts: Script) -> Ran:
    known: dict[str, Script] = {"maker": maker, "critic": critic(), **scripts}
    house.scripted = model(by_agent(**{"stage__sequencer": sequence, **known}))  # type: ignore[attr-defined]
    return house.json("orchestrator", "trial", "--mode", "agent", "--session-dir", str(house.folder / "s"), *flags, timeout=300)


def outcome(house: House) -> dict[str, Any]:
    return json.loads((house.folder / "s/trial/stages/00-agent/attempt-1/outcome.json").read_text())


def test_an_agent_takes_a_run_through_its_stages(trial: House, model) -> None:
    ran = run(trial, model, sequencer(*WHOLE))
    assert ran.code == 0, ran.stderr[-3000:]
    assert [s["status"] for s in ran.document["stages"]] == ["success"] * 3
    assert ran.document["summary"]["exit_code"] == 0
    again = trial.json("orchestrator", "trial", "--session-dir", str(trial.folder / "s"))
    assert [s["skipped"] for s in again.document["stages"]] == [True] * 3, "tool mode finds all of it finished"
    depths = {
        p.parent.parent.name: json.loads(p.read_text())["depth"] for p in (trial.folder / "s").glob("**/attempt-1/outcome.json")
    }
    assert depths["00-agent"] == 1
    assert {d for name, d in depths.items() if name != "00-agent"} == {2}


@pytest.mark.long
def test_a_loop_is_taken_when_a_stage_asks_for_it(trial: House, model) -> None:
    steps = (("make", ""), ("look", ""), ("make", ""), ("look", ""), ("each", "x"), ("each", "y"))
    ran = run(trial, model, sequencer(*steps), critic=critic("NEEDS_REVISION: once more"))
    assert ran.code == 0, ran.stderr[-3000:]
    assert (trial.folder / "s/trial/loops/redo-1.json").exists()
    assert (trial.folder / "s/trial/stages/01-make/round-2/attempt-1/outcome.json").exists()


@pytest.mark.parametrize(
    ("steps", "stage"),
    [((), "make"), ((("look", ""), ("each", "x")), "make"), ((("make", ""), ("look", ""), ("each", "y")), "each")],
    ids=["claims it without calling anything", "begins with the second", "leaves an item out"],
)
def test_a_claim_without_the_work_is_found_out(trial: House, model, steps: tuple[tuple[str, str], ...], stage: str) -> None:
    ran = run(trial, model, sequencer(*steps, end="DONE: every stage succeeded"))
    assert (ran.code, ran.error["code"], ran.error["stage"]) == (1, "STAGE_NOT_RUN", stage), ran.stdout
    assert "every stage succeeded" in ran.error["message"]
    done = [s["name"] for s in ran.document["stages"] if s["status"] == "success"]
    assert done == ([] if stage == "make" else ["make", "look"])


@pytest.mark.long
def test_a_step_that_is_finished_is_not_done_twice(trial: House, model) -> None:
    ran = run(trial, model, sequencer(("make", ""), ("make", ""), *WHOLE[1:]))
    assert ran.code == 0, ran.stderr[-2000:]
    assert len(list((trial.folder / "s").glob("**/01-make/round-1/attempt-*"))) == 1


REFUSED = {
    "cd": "cd / && {make}",
    "a second command": "{make}; touch {mark}",
    "and": "{make} && touch {mark}",
    "a pipe to a writer": "{make} | tee {mark}",
    "substitution": "{make} $(touch {mark})",
    "backticks": "{make} `touch {mark}`",
    "redirection": "{make} > {mark}",
    "another script": "uv run {core}/campaign.py --list > {mark}",
    "the primitive": "uv run {core}/spawn.py --prompt x",
    "an orchestrator": "uv run {core}/orchestrator.py trial",
    "a file beside it": "uv run {workspace}/agent.py",
    "reading sources": "cat {core}/agent.py",
    "python": 'python3 -c \'open("{mark}", "w")\'',
    "a variable in front": "AGENTIC_MAX_DEPTH=9 {make}",
    "the background": "{make} & touch {mark}",
}


@pytest.mark.real_cli
def test_nothing_but_the_tools_below_can_be_called(trial: House, model) -> None:
    mark = trial.folder / "mark"
    (trial.workspace / "agent.py").write_text(f"open({str(mark)!r}, 'w')")
    tried: list[str] = []

    def script(request: Request) -> Reply:
        make = command(request, "make")["input"]["command"]
        places = {"make": make, "mark": str(mark), "core": str(trial.folder / "core"), "workspace": str(trial.workspace)}
        names = list(REFUSED)
        if request.turn < len(names):
            text = REFUSED[names[request.turn]]
            for key, value in places.items():
                text = text.replace("{" + key + "}", value)
            tried.append(text)
            return say(tool("Bash", command=text))
        return say("DONE: I did it all")

    ran = run(trial, model, script)
    assert (ran.code, ran.error["code"]) == (1, "STAGE_NOT_RUN"), ran.stdout
    assert not mark.exists()
    assert len(outcome(trial)["denials"]) == len(REFUSED), [d["tool_input"] for d in outcome(trial)["denials"]]
    assert not list((trial.folder / "s").glob("**/01-make/**/outcome.json"))


WIDENING = [
    "--permission-mode acceptEdits",
    "--driver record",
    "--cwd /",
    "--session-dir /tmp/other",
    "--max-depth 99",
    "maker DO",
]


def test_flags_that_would_widen_anything_are_refused(trial: House, model) -> None:
    def script(request: Request) -> Reply:
        if request.turn < len(WIDENING):
            make = command(request, "make")["input"]["command"]
            return say(tool("Bash", command=f"{make} {WIDENING[request.turn]}"))
        return say("DONE: x")

    ran = run(trial, model, script)
    assert (ran.code, ran.error["code"]) == (1, "STAGE_NOT_RUN")
    heard = trial.scripted.requests[-1].heard  # type: ignore[attr-defined]
    assert heard.count("USAGE") >= len(WIDENING)
    assert not list((trial.folder / "s").glob("**/01-make/**/outcome.json"))


def test_depth_is_checked_before_the_start(trial: House, model) -> None:
    ran = run(trial, model, sequencer(*WHOLE), "--max-depth", "2")
    assert (ran.code, ran.error["code"]) == (2, "DEPTH_EXCEEDED")
    assert not trial.scripted.requests  # type: ignore[attr-defined]


def test_a_tool_mode_campaign_may_have_one_orchestrator_in_agent_mode(trial: House, model) -> None:
    (trial.folder / "plan.yaml").write_text(
        "version: 1\nname: mixed\nmax_depth: 4\nphases:\n"
        "  - {name: one, run: [{orchestrator: trial, mode: agent}], verify: {checks: [artifacts]}}\n"
    )
    model(by_agent(stage__sequencer=sequencer(*WHOLE), maker=maker, critic=critic()))
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s"), timeout=300)
    assert (ran.code, ran.document["grade"]) == (0, "PASS"), ran.stderr[-3000:]
    assert Path(trial.folder / "s/phases/phase-01-one/trial/manifest.json").exists()


# The whole stack: an agent for the campaign, one for the coordinator, one for the orchestrator, one for each executor

STACK = """version: 1
name: stack
max_depth: 7
checks: checks.yaml
phases:
  - name: one
    mode: agent
    run: [{orchestrator: trial, mode: agent}]
    verify: {checks: [artifacts, good], fix: false}
"""


def listed(request: Request, name: str) -> dict[str, Any]:
    found = re.search(rf"^- {name}: (uv run \S+ --of \S+)", request.prompt, re.M)
    assert found, request.prompt
    return tool("Bash", command=found[1])


def caller(*names: str, end: str = "DONE: all of it") -> Script:
    return lambda r: say(listed(r, names[r.turn])) if r.turn < len(names) else say(end)


def stack(house: House, model: Callable[[Script], Any], *flags: str, **scripts: Script) -> Ran:
    (house.folder / "plan.yaml").write_text(STACK)
    known: dict[str, Script] = {
        "campaign__controller": caller("one"),
        "phase__coordinator": caller("trial", "verification"),
        "stage__sequencer": sequencer(*WHOLE),
        "maker": maker,
        "critic": critic(),
        **scripts,
    }
    house.scripted = model(by_agent(**known))  # type: ignore[attr-defined]
    plan = str(house.folder / "plan.yaml")
    return house.json("campaign", plan, "--mode", "agent", "--session-dir", str(house.folder / "s"), *flags, timeout=400)


def test_a_campaign_of_agents_all_the_way_down(trial: House, model) -> None:
    ran = stack(trial, model)
    assert (ran.code, ran.document["grade"]) == (0, "PASS"), ran.stderr[-4000:]
    outcomes = [json.loads(p.read_text()) for p in (trial.folder / "s").glob("**/attempt-*/outcome.json")]
    depths = {(o["agent"], o["depth"]) for o in outcomes if o.get("agent")}
    assert depths == {("campaign-controller", 1), ("phase-coordinator", 2), ("stage-sequencer", 3), ("maker", 4), ("critic", 4)}
    again = trial.json("campaign", "--resume", str(trial.folder / "s"))
    assert again.code == 0
    assert len(list((trial.folder / "s").glob("**/attempt-*/outcome.json"))) == len(outcomes), (
        "in tool mode all of it is finished"
    )


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_stack_that_does_not_fit_is_refused_before_the_start(trial: House, model, depth: int) -> None:
    ran = stack(trial, model, "--max-depth", str(depth))
    assert (ran.code, ran.error["code"]) == (2, "DEPTH_EXCEEDED")
    assert "5 levels" in ran.error["message"], "one for each agent layer, two for an executor that can heal"
    assert not trial.scripted.requests  # type: ignore[attr-defined]


def test_a_coordinator_that_leaves_verification_out_is_found_out(trial: House, model) -> None:
    (trial.folder / "plan.yaml").write_text(STACK.replace("orchestrator: trial, mode: agent", "orchestrator: trial"))
    model(by_agent(phase__coordinator=caller("trial", end="DONE: verified, PASS"), maker=maker, critic=critic()))
    flags = ("--mode", "agent", "--session-dir", str(trial.folder / "s"))
    ran = trial.json("coordinator", str(trial.folder / "plan.yaml"), *flags, timeout=300)
    assert (ran.code, ran.error["code"]) == (1, "VERIFICATION_NOT_RUN"), ran.stdout
    assert ran.document["sentinel_grade"] == "FAIL"


def test_a_coordinator_that_verifies_before_the_work_is_told_so(trial: House, model) -> None:
    (trial.folder / "plan.yaml").write_text(STACK)
    scripted = model(by_agent(phase__coordinator=caller("verification", end="DONE: PASS")))
    flags = ("--mode", "agent", "--session-dir", str(trial.folder / "s"))
    ran = trial.json("coordinator", str(trial.folder / "plan.yaml"), *flags, timeout=300)
    assert (ran.code, ran.error["code"]) == (1, "RUN_NOT_DONE"), ran.stdout
    assert "OUT_OF_ORDER" in scripted.requests[-1].heard


def test_a_campaign_that_only_claims_its_phases_is_no_success(trial: House, model) -> None:
    ran = stack(trial, model, campaign__controller=caller(end="DONE: every phase passed"))
    assert ran.code == 3
    assert ran.document["grade"] == "FAIL"
    assert "every phase passed" in ran.document["phases"][0]["error"]


def test_a_report_of_an_earlier_run_does_not_speak_for_this_one(trial: House, model) -> None:
    """The first run passed; then what is checked was changed, and the agent only says that it is done."""
    (trial.folder / "plan.yaml").write_text(STACK.replace("    mode: agent\n", "").replace(", mode: agent", ""))
    argv = ("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s"))
    model(by_agent(maker=maker, critic=critic()))
    assert trial.json(*argv).code == 0
    (trial.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: 'false'}}\n")
    model(by_agent(campaign__controller=caller(end="DONE: every phase passed")))
    ran = trial.json(*argv, "--mode", "agent", timeout=300)
    assert (ran.code, ran.document["grade"]) == (3, "FAIL"), ran.stdout


def test_only_one_phase_is_not_for_agents(trial: House) -> None:
    (trial.folder / "plan.yaml").write_text(STACK)
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"), "--mode", "agent", "--only", "one")
    assert (ran.code, ran.error["code"]) == (1, "USAGE")


@pytest.mark.long
def test_items_that_wait_for_each_other_are_refused(trial: House, model) -> None:
    text = STAGES.replace("foreach: {items: param.names}", "foreach: {items: param.names, key: id, after: after}")
    trial.orchestrator(text.replace('default: "x,y"', "default: []"))
    items = [{"id": "x", "after": ["y"]}, {"id": "y", "after": ["x"]}]
    (trial.folder / "params.json").write_text(json.dumps({"names": items}))
    ran = run(trial, model, sequencer(*WHOLE), "--params", str(trial.folder / "params.json"))
    assert ran.code == 1
    assert ran.error["code"] == "BAD_ITEMS", ran.stdout
