"""What we promise, where it once broke: each of these was seen to go wrong, on a real run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lib.contract import STATUS, ExitCode, StrataError
from lib.plan import plan
from lib.session import ledger
from lib.session.owner import Owner
from lib.stages.walk import GRAVEST_FIRST
from lib.view import report
from msgspec.structs import asdict
from scripted_model.server import Reply, Request, by_agent, say, tool, turns
from support import WORKER, House, Ran, log, wait_for, with_marker
from support import plan as told

pytestmark = pytest.mark.rehearsed

STAGE = "  - {name: %s, tool: worker.py, args: [%s], retry: {max: 0}, outputs: {made: {path: made.json}}%s}\n"
PLAN = """version: 1
name: trial
checks: checks.yaml
phases:
  - {name: one, run: [{orchestrator: oa}], verify: {checks: [good], fix: false}}
  - {name: two, depends_on: [one], run: [{orchestrator: ob}], verify: {checks: [good], fix: false}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    house.orchestrator(f"version: 1\nname: oa\nstages:\n{STAGE % ('a', 'a', '')}", "oa")
    house.orchestrator(f"version: 1\nname: ob\nstages:\n{STAGE % ('b', 'b', '')}", "ob")
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test ! -f bad}}\n")
    (house.folder / "plan.yaml").write_text(PLAN)
    return house


def orchestrate(house: House, *flags: str, **env: str) -> Ran:
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags, **env)


# A success is true


def test_an_output_that_was_there_before_and_was_not_touched_is_not_made(house: House, model) -> None:
    outputs = {"report": {"path": "report.md", "in": "workspace"}}
    house.agent("lazy", tools="Write", strata={"completion": "cluster", "outputs": outputs})
    (house.workspace / "report.md").write_text("from last year")
    model(turns(say("DONE: it is all there")))
    ran = house.json("agent", "lazy", "DO")
    assert (ran.code, ran.error["code"]) == (1, "NOT_VERIFIED")
    assert "was not touched" in ran.error["message"]
    outputs["report"]["unchanged"] = True
    house.agent("lazy", tools="Write", strata={"completion": "cluster", "outputs": outputs})
    assert house.json("agent", "lazy", "DO").code == 0, "a definition may say that it is fine"


def test_an_agent_that_writes_its_output_anew_has_made_it_also_with_the_same_words(house: House, model) -> None:
    house.agent(
        "keen", tools="Write, Read", strata={"completion": "cluster", "outputs": {"r": {"path": "r.md", "in": "workspace"}}}
    )
    (house.workspace / "r.md").write_text("the same")
    path = str(house.workspace / "r.md")
    model(turns(say(tool("Read", file_path=path)), say(tool("Write", file_path=path, content="the same")), say("DONE: yes")))
    assert house.json("agent", "keen", "DO").code == 0


def test_an_agent_that_must_leave_outputs_and_cannot_write_is_refused_before_anything_is_spent(house: House, model) -> None:
    scripted = model(turns(say("DONE: yes")))
    house.agent("reader", tools="Read, Glob", strata={"completion": "cluster", "outputs": {"r": {"path": "r.md"}}})
    ran = house.json("agent", "reader", "DO")
    assert ran.error["code"] == "BAD_CONFIG" and "no tool to write with" in ran.error["message"]
    house.agent("reader", tools="Read", strata={"completion": "cluster"})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, agent: reader, outputs: {r: {path: r.md}}}\n")
    ran = orchestrate(house)
    assert "trial.yaml:4" in ran.error["message"] and "no tool to write with" in ran.error["message"]
    assert not scripted.requests


def test_enough_members_succeeding_is_done_with_warnings_everywhere(trial: House) -> None:
    group = "  - name: g\n    retry: {max: 0}\n    parallel: {min_success: 1}\n    outputs: {made: {path: made.json}}\n"
    group += "    members: {x: {tool: worker.py, args: [x]}, y: {tool: worker.py, args: [y]}}\n"
    trial.orchestrator(f"version: 1\nname: oa\nstages:\n{group}", "oa")
    told(trial, y="fail")
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"))
    assert ran.code == 0, ran.stderr
    warning = "one/oa/g: y did not succeed: y says fail"
    assert ran.document["warnings"] == [warning]
    session = trial.session
    manifest = json.loads((session / "phases/phase-01-one/oa/manifest.json").read_text())
    assert manifest["summary"]["warnings"] == 1 and manifest["stages"][0]["warnings"]
    assert json.loads((session / "phases/phase-01-one/report.json").read_text())["warnings"]
    text = (session / "execution-report.md").read_text()
    assert "success with 1 warnings" in text and warning in text
    assert warning in (session / "report.html").read_text()
    assert f"! {warning}" in trial.run("session", "show", str(session)).stdout


def test_the_order_of_codes_is_total_and_two_members_may_end_with_any(house: House) -> None:
    assert sorted(GRAVEST_FIRST) == sorted(STATUS), "every code has its place"
    house.tool(
        "odd", 'def work(task, out, call):\n    raise StrataError("X", "x", exit_code=ExitCode(int(call.options.words[0])))\n'
    )
    members = "members: {x: {tool: odd.py, args: ['12']}, y: {tool: odd.py, args: ['12']}}"
    house.orchestrator(f"version: 1\nname: trial\nstages:\n  - {{name: g, retry: {{max: 0}}, {members}}}\n")
    ran = orchestrate(house)
    assert (ran.code, ran.error["code"]) == (12, "ITEMS_FAILED")


def test_a_tool_that_simply_ends_has_exit_code_0_from_the_nursery_too(house: House) -> None:
    house.tool("plain", "work = None\n")
    path = house.folder / "core/plain.py"
    head = path.read_text().partition("if __name__")[0]
    path.write_text(head + 'print(\'{"exit_code": 0, "verdict": "done", "outputs": []}\')\n')
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, tool: plain.py, retry: {max: 0}}\n")
    assert orchestrate(house).code == 0


def test_a_tool_that_says_done_and_ends_with_a_failure_is_not_counted_as_done(house: House) -> None:
    """Of two statements the worse counts, also in a group where one of two would be enough."""
    house.tool("plain", "work = None\n")
    path = house.folder / "core/plain.py"
    head = path.read_text().partition("if __name__")[0]
    path.write_text(head + 'print(\'{"exit_code": 1, "verdict": "done", "outputs": []}\')\nraise SystemExit(1)\n')
    house.orchestrator(
        "version: 1\nname: trial\nstages:\n  - name: a\n    parallel: {min_success: 1}\n    retry: {max: 0}\n"
        "    members: {x: {tool: plain.py}, y: {tool: plain.py}}\n"
    )
    ran = orchestrate(house)
    assert ran.code == 1, ran.stdout
    assert ran.document["stages"][0]["verdict"] == "failed"


def test_an_outcome_that_merely_appeared_on_disk_is_not_believed_now_or_later(house: House) -> None:
    """A tool plants a success as its next attempt, and one for the stage after it, and dies."""
    house.tool(
        "evil",
        """
def work(task, out, call):
    import os, signal
    good = {"exit_code": 0, "verdict": "done", "fingerprint": task.fingerprint, "outputs": [], "number": 50, "kind": "first"}
    for name in ("attempt-1", "attempt-2", "attempt-9"):
        folder = out.parent.parent / name
        folder.mkdir(exist_ok=True)
        (folder / "outcome.json").write_text(json.dumps(good))
    os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, tool: evil.py, retry: {max: 0}}\n")
    ran = orchestrate(house)
    assert (ran.code, ran.error["code"]) == (1, "CHILD_CRASHED")
    assert len(list((house.folder / "s").glob("**/planted-outcome.json"))) == 3
    assert orchestrate(house).code == 1, "and a resume finds none of them"


def test_a_tool_that_forgets_an_output_it_was_asked_for_has_not_succeeded_now_or_later(house: House) -> None:
    house.tool("forgets", "def work(task, out, call):\n    return Verdict('done')\n")
    path = house.folder / "core/forgets.py"
    path.write_text(path.read_text().replace('call, "forgets", task,', 'call, "forgets", Task(fingerprint=task.fingerprint),'))
    house.orchestrator(
        "version: 1\nname: trial\nstages:\n  - {name: a, tool: forgets.py, retry: {max: 0}, outputs: {made: {path: made.json}}}\n"
    )
    for _ in range(2):
        ran = orchestrate(house)
        assert (ran.code, ran.error["code"]) == (1, "CHILD_CRASHED"), ran.stdout
        assert "without made" in ran.error["message"]


# Nothing finished is done twice


def test_a_later_stage_that_is_killed_in_the_middle_of_an_edit_does_not_unfinish_an_earlier_one(house: House, model) -> None:
    house.agent(
        "maker", tools="Write", strata={"completion": "cluster", "outputs": {"doc": {"path": "doc.md", "in": "workspace"}}}
    )
    house.agent("editor", tools="Write, Read", strata={"completion": "cluster", "scope": ["*.md"]})
    house.orchestrator(
        "version: 1\nname: trial\nstages:\n"
        "  - {name: make, agent: maker, action: DO}\n  - {name: edit, agent: editor, action: DO}\n"
    )
    path, killed = str(house.workspace / "doc.md"), list[str]()

    def edits(request: Request) -> Reply:
        turn = min(request.turn, 2)
        last = say("DONE: yes") if killed else say("too late", hang_seconds=300)
        return (say(tool("Read", file_path=path)), say(tool("Write", file_path=path, content="edited")), last)[turn]

    makes = turns(say(tool("Write", file_path=path, content="made")), say("DONE: yes"))
    scripted = model(by_agent(maker=makes, editor=edits))
    for how in (signal.SIGKILL, signal.SIGTERM):
        with house.start("orchestrator", "trial", "--session-dir", str(house.folder / "s")) as child:
            wait_for(lambda: (house.workspace / "doc.md").exists() and Path(path).read_text() == "edited", what="the edit")
            os.kill(child.pid, how)
            child.communicate(timeout=60)
        wait_for(lambda: not with_marker(str(house.folder)), what="the whole tree has ended")
        looked = orchestrate(house, "--explain").document["explained"]
        assert [(e["step"], e["does"]) for e in looked] == [("trial/make", "SKIP"), ("trial/edit", "RUN")], how
    killed.append("yes")
    assert orchestrate(house).code == 0
    assert sum("/maker" in r.prompt and r.turn == 0 for r in scripted.requests) == 1, "it was asked, and paid, once"
    (house.workspace / "doc.md").write_text("a person was here")
    looked = orchestrate(house, "--explain").document["explained"]
    assert [e["does"] for e in looked] == ["RUN", "RUN"]


def test_a_campaign_killed_in_its_second_phase_is_resumed(trial: House) -> None:
    """The second phase is half done, and by the first one's checks that is wrong: it was judged when it was right."""
    body = """
def work(task, out, call):
    (Path(__file__).parent.parent / "log").open("a").write(call.options.words[0])
    (out / "made.json").write_text("{}")
    if call.options.words[0] == "b":
        (Path(call.cwd) / "bad").write_text("half")
        if not (Path(__file__).parent.parent / "go").exists():
            time.sleep(600)
        (Path(call.cwd) / "bad").unlink()
    return Verdict("done")
"""
    trial.tool("worker", body)
    with trial.start("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s")) as child:
        wait_for((trial.workspace / "bad").exists, what="the second phase works")
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=60)
    wait_for(lambda: not with_marker(str(trial.folder)), what="the whole tree has ended")
    (trial.folder / "go").touch()
    ran = trial.json("campaign", "--resume", str(trial.folder / "s"))
    assert ran.code == 0, ran.stdout
    looks = list((trial.folder / "s/phases/phase-01-one/sentinel").glob("cycle-*"))
    assert len(looks) == 1, "the first phase was verified once"
    assert (trial.folder / "log").read_text() == "abb"


def test_what_was_waited_for_is_part_of_what_a_step_is_made_of(trial: House) -> None:
    group = "  - name: g\n    parallel: {cap: 2}\n    retry: {max: 0}\n    outputs: {made: {path: made.json}}\n"
    group += "    members: {x: {tool: worker.py, args: [x, %s]}, y: {tool: worker.py, args: [y], after: [x]},"
    group += " z: {tool: worker.py, args: [z]}}\n"
    trial.orchestrator(f"version: 1\nname: trial\nstages:\n{group % 'one'}")
    body = WORKER.replace('{"name": name,', '{"name": call.options.words,')
    trial.tool("worker", body)
    assert orchestrate(trial).code == 0
    assert sorted(log(trial)) == ["x", "y", "z"]
    trial.orchestrator(f"version: 1\nname: trial\nstages:\n{group % 'two'}")
    looked = {e["step"]: e["does"] for e in orchestrate(trial, "--explain").document["explained"]}
    assert looked == {"trial/g/x": "RUN", "trial/g/y": "RUN", "trial/g/z": "SKIP"}
    assert orchestrate(trial).code == 0
    assert sorted(log(trial)) == ["x", "x", "y", "y", "z"]
    assert orchestrate(trial, "--from", "g/x").code == 0
    assert sorted(log(trial)) == ["x", "x", "x", "y", "y", "y", "z"], "--from means what waits for it, too"


def test_a_person_is_not_asked_twice_about_the_same_thing_and_a_skipped_item_stays_skipped(trial: House) -> None:
    each = "  - {name: each, tool: worker.py, retry: {max: 0}, foreach: {items: param.names}, on_item_failure: skip,"
    each += " outputs: {made: {path: made.json}}}\n"
    ask = "  - {name: choose, ask: {question: Good?, show: [each.*.made]}}\n"
    trial.orchestrator(
        f"version: 1\nname: oa\nparams: {{names: {{type: list, default: 'x,y'}}}}\nstages:\n{each}{ask}{STAGE % ('z', 'z', '')}",
        "oa",
    )
    told(trial, y="fail")
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).code == 3
    session = trial.session.name
    told(trial, y="ok")
    ran = trial.json("campaign", "--resume", session, "--answer", 'choose="yes"')
    assert ran.code == 12, ran.stdout
    assert trial.json("campaign", "--resume", session).code == 12
    assert log(trial).count("y") == 1, "it was given up before a person was asked, and stays so"


def test_an_error_that_repeating_cannot_mend_is_tried_once(house: House) -> None:
    house.tool(
        "refused",
        'def work(task, out, call):\n    (Path(call.cwd) / "log").open("a").write("x")\n'
        '    raise StrataError("API_REFUSED", "403")\n',
    )
    (house.folder / "plan.yaml").write_text(PLAN.partition("  - {name: two")[0])
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: 'true'}}\n")
    each = "{name: a, tool: refused.py, retry: {max: 2}, foreach: {items: param.n}, required: false, on_item_failure: skip}"
    house.tool("worker", WORKER)
    head = "version: 1\nname: oa\nparams: {n: {type: list, default: 'one'}}\nstages:\n"
    house.orchestrator(f"{head}  - {each}\n{STAGE % ('z', 'z', '')}", "oa")
    assert house.json("campaign", str(house.folder / "plan.yaml")).code == 12
    assert house.json("campaign", "--resume", house.session.name).code == 12
    assert (house.workspace / "log").read_text().count("x") == 1


# Money and time


@pytest.mark.real_cli
def test_a_stop_costs_what_it_had_cost_and_every_view_says_the_same(house: House, model) -> None:
    house.agent("slow", tools="Write", strata={"completion": "cluster"})
    house.orchestrator("version: 1\nname: oa\nstages:\n  - {name: a, agent: slow, action: DO}\n", "oa")
    (house.folder / "plan.yaml").write_text(
        "version: 1\nname: trial\nbudget: {usd: 2}\nphases:\n  - {name: one, run: [{orchestrator: oa}], verify: {none: a test}}\n"
    )
    path, stopped = str(house.workspace / "x"), list[str]()

    def script(request: Request) -> Reply:
        if "Write" not in json.dumps(request.messages):
            return say(tool("Write", file_path=path, content="x"))
        return say("DONE: yes") if stopped else say("late", hang_seconds=300)

    model(script)
    session = house.folder / "s"
    for number in range(3):
        words = ["--resume", str(session)] if number else [str(house.folder / "plan.yaml"), "--session-dir", str(session)]
        with house.start("campaign", *words) as child:
            wait_for(lambda: (session / "ledger.jsonl").exists() and ledger.Ledger(session).open(), what="it has reserved")
            wait_for(lambda: list(session.glob("**/transcript.jsonl")), what="it talks")
            wait_for(lambda n=number: len(list(session.glob("**/agent-session.json"))) > n, what="the session is known")
            os.kill(child.pid, signal.SIGTERM)
            child.communicate(timeout=60)
        assert child.returncode == 20
    sums = ledger.Ledger(session).figures()
    assert sums.held <= 1 and sums.usd < 0.1, "three stops do not use up a budget of two"
    stopped.append("yes")
    ran = house.json("campaign", "--resume", str(session))
    assert ran.code == 0, ran.stderr
    sums = ledger.Ledger(session).figures()
    assert (ran.document["usd"], ran.document["usd_held"]) == (sums.usd, 0.0)
    shown = house.json("session", "show", str(session)).document["session"]
    assert (shown["usd"], shown["usd_held"]) == (sums.usd, 0.0)
    text = f"{sums.usd:.4f} USD"
    assert text in ran.document["spent"]
    assert text in report.text(session)
    assert text in (session / "report.html").read_text()
    kinds = [line.kind for line in ledger.Ledger(session).lines()]
    assert kinds.count("reserve") == kinds.count("settle"), "no reservation is left open"


def test_a_budget_of_time_stops_what_is_running_and_more_of_it_goes_on(trial: House) -> None:
    text = PLAN.replace("checks: checks.yaml\n", "checks: checks.yaml\nbudget: {wall_seconds: 3}\n")
    (trial.folder / "plan.yaml").write_text(text)
    told(trial, a="sleep")
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"), timeout=60)
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED"), ran.stdout
    assert "wall_seconds" in ran.error["message"] and "--budget wall_seconds=" in ran.error["hint"]
    assert not with_marker(str(trial.folder))
    told(trial, a="ok")
    ran = trial.json("campaign", "--resume", trial.session.name, "--budget", "wall_seconds=600")
    assert ran.code == 0, ran.stdout


def test_items_that_found_no_money_are_done_when_there_is_some(house: House, model) -> None:
    house.agent("helper", strata={"completion": "cluster"})
    each = "{name: each, agent: helper, action: DO, target: '{item}', foreach: {items: param.n, cap: 1}, on_item_failure: skip}"
    house.orchestrator(f"version: 1\nname: oa\nparams: {{n: {{type: list, default: 'x,y,z'}}}}\nstages:\n  - {each}\n", "oa")
    text = "version: 1\nname: trial\nbudget: {agents: 1}\nphases:\n"
    text += "  - {name: one, run: [{orchestrator: oa}], verify: {none: a test}}\n"
    (house.folder / "plan.yaml").write_text(text)
    scripted = model(turns(say("DONE: yes")))
    ran = house.json("campaign", str(house.folder / "plan.yaml"))
    assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED")
    ran = house.json("campaign", "--resume", house.session.name, "--budget", "agents=9")
    assert ran.code == 0, ran.stdout
    assert len(scripted.requests) == 3, "each once"


def test_a_phase_has_a_clock_of_its_own(trial: House) -> None:
    text = PLAN.replace("name: two, ", "name: two, budget: {wall_seconds: 2}, ")
    (trial.folder / "plan.yaml").write_text(text)
    told(trial, b="sleep")
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"), timeout=60)
    assert (ran.code, ran.error["code"], ran.error["scope"]) == (11, "BUDGET_EXCEEDED", "phase-02-two"), ran.stdout


def test_a_target_of_any_size_reaches_a_tool(trial: House) -> None:
    trial.orchestrator(
        "version: 1\nname: trial\nparams: {big: {}}\nstages:\n"
        "  - {name: a, tool: worker.py, args: [a], target: '{param.big}', outputs: {made: {path: made.json}}}\n"
    )
    (trial.folder / "params.json").write_text(json.dumps({"big": "x" * 140_000}))
    ran = orchestrate(trial, "--params", str(trial.folder / "params.json"))
    assert ran.code == 0, ran.stderr[-500:]


def test_the_tree_ends_when_the_uv_that_started_it_is_killed(trial: House) -> None:
    told(trial, a="sleep")
    words = ["uv", "run", "--quiet", str(trial.folder / "core/campaign.py"), str(trial.folder / "plan.yaml")]
    child = subprocess.Popen(words, env=trial.env, cwd=trial.workspace, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: log(trial) == ["a"], 60, "it works")
    child.kill()
    child.wait()
    wait_for(lambda: not with_marker(str(trial.folder)), what="nothing of it is left")


# Odd days


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\nname: x\n1: y\n", "plan.yaml:3: the key 1 is no word"),
        ('version: 1\nname: "a\\0b"\n', "plan.yaml:2: a text with a NUL"),
        ("version: 1\nname: x\nbudget: {usd: .nan}\n", "plan.yaml:3: .nan is not a number"),
        ("version: 1\nname: x\nnull: 1\n", "the key null is no word"),
    ],
)
def test_a_plan_with_something_odd_in_it_is_refused_with_its_place(house: House, text: str, words: str) -> None:
    (house.workspace / "plan.yaml").write_text(text)
    ran = house.json("campaign", "plan.yaml", "--dry-run")
    assert ran.error["code"] == "BAD_CONFIG" and words in ran.error["message"], ran.error


def test_an_agent_file_that_is_not_utf8_is_named(house: House) -> None:
    (house.folder / "prompts/executors/odd.md").write_bytes(b"---\nname: odd\ndescription: \xff\n---\nx\n")
    ran = house.json("agent", "odd", "DO")
    assert ran.error["code"] == "BAD_CONFIG" and "odd.md" in ran.error["message"]


@pytest.mark.parametrize(
    "change", [("plan", "name", []), ("plan", "phases", [1]), ("settings", "cwd", 7), ("plan", "phases", "x")]
)
def test_a_session_whose_configuration_was_changed_is_refused_and_says_where(trial: House, change: tuple[str, str, Any]) -> None:
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).code == 0
    path = trial.session / "effective-config.json"
    known = json.loads(path.read_text())
    known[change[0]][change[1]] = change[2]
    path.write_text(json.dumps(known))
    ran = trial.json("campaign", "--resume", trial.session.name)
    assert (ran.code, ran.error["code"]) == (1, "CORRUPT_STATE"), ran.stderr
    assert "effective-config.json" in ran.error["message"]
    with pytest.raises(StrataError):
        plan.read({"phases": 3})


@pytest.mark.parametrize("field", [{"outputs": [1]}])  # every field is in tests/lib/session/test_outcome.py
def test_an_outcome_of_the_wrong_types_is_kept_aside_and_the_next_run_goes_on(trial: House, field: dict[str, Any]) -> None:
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).code == 0
    path = next(trial.session.glob("**/01-a/attempt-1/outcome.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | field))
    ran = trial.json("campaign", "--resume", trial.session.name)
    assert ran.code != 0 and "CORRUPT_STATE" in ran.stdout and next(iter(field)) in ran.stdout
    assert "Traceback" not in ran.stderr
    assert trial.json("campaign", "--resume", trial.session.name).code == 0
    assert log(trial).count("a") == 2


@pytest.mark.parametrize("text", [b"\xff\xfe", b"half", b""])
def test_a_torn_trace_is_said_and_the_next_run_goes_on(trial: House, text: bytes) -> None:
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).code == 0
    (trial.session / ".trace").write_bytes(text)
    codes = [trial.json("campaign", "--resume", str(trial.session)).code for _ in range(2)]
    assert codes in ([1, 0], [0, 0])


@pytest.mark.parametrize("value", ["99999999999999999999", "²", "-1", "x", "3"])
def test_a_silly_lease_is_no_lease(trial: House, value: str) -> None:
    ran = trial.json("signals", "list", "--session-dir", str(trial.folder), AGENTIC_LEASE_FD=value, AGENTIC_LOCK_FD=value)
    assert ran.code == 0 and "Traceback" not in ran.stderr


def test_stop_ends_nobody_but_the_run_itself(trial: House) -> None:
    """Somebody else has its number now, or it runs on another machine."""
    assert trial.json("campaign", str(trial.folder / "plan.yaml")).code == 0
    session = trial.session
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        mine = Owner.this()
        (session / ".lock").write_text(json.dumps(asdict(Owner(stranger.pid, mine.host, mine.boot, "1"))))
        assert trial.json("campaign", "--stop", session.name).error["code"] == "NOT_RUNNING"
        holder = "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX)"
        holder += "; print('held', flush=True); time.sleep(60)"
        with subprocess.Popen([sys.executable, "-c", holder, str(session / ".lock")], stdout=subprocess.PIPE) as other:
            assert other.stdout and other.stdout.readline()
            (session / ".lock").write_text(json.dumps(asdict(Owner(stranger.pid, "elsewhere", mine.boot, "1"))))
            ran = trial.json("campaign", "--stop", session.name)
            assert ran.error["code"] == "RUNS_ELSEWHERE" and "elsewhere" in ran.error["message"]
            other.kill()
        assert stranger.poll() is None
        stranger.kill()


def test_waiting_for_a_signal_returns_what_the_run_returned(trial: House) -> None:
    text = PLAN.replace("name: one, ", "name: one, checkpoint: {at: after, question: Shall it go on?}, ")
    (trial.folder / "plan.yaml").write_text(text)
    ran = trial.json("campaign", str(trial.folder / "plan.yaml"))
    assert ran.code == 3
    waited = trial.json("signals", "wait", "--session-dir", str(trial.session), "--expect", "campaign-trial")
    assert (waited.code, waited.error["code"]) == (3, "HUMAN_INPUT")
    assert "Shall it go on?" in waited.error["message"] and "--approve" in waited.error["hint"]
    assert trial.json("signals", "wait", "--session-dir", str(trial.session), "--expect", "coord-phase-01-one").code == 0


def test_an_interrupted_campaign_is_not_graded_and_its_phase_is_unfinished(trial: House) -> None:
    told(trial, b="sleep")
    with trial.start("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s")) as child:
        wait_for(lambda: "b" in log(trial), what="the second phase works")
        child.terminate()
        child.communicate(timeout=60)
    manifest = json.loads((trial.folder / "s/manifest.json").read_text())
    assert (manifest["exit_code"], manifest["grade"]) == (int(ExitCode.INTERRUPTED), "PENDING")
    assert [p["status"] for p in manifest["phases"]] == ["complete", "unfinished"]


def test_an_answer_needs_no_user_name(trial: House) -> None:
    trial.orchestrator("version: 1\nname: trial\nstages:\n  - {name: q, ask: {question: Good?}}\n" + STAGE % ("z", "z", ""))
    assert orchestrate(trial).code == 3
    (trial.folder / "core/sitecustomize.py").write_text("")
    code = "import getpass, os\nos.getlogin = lambda: 1 / 0\ngetpass.getuser = lambda: {}['nobody']\n"
    (trial.folder / "nobody").mkdir()
    (trial.folder / "nobody/sitecustomize.py").write_text(code)
    ran = orchestrate(trial, "--answer", 'q="yes"', PYTHONPATH=str(trial.folder / "nobody"))
    assert ran.code == 0, ran.stderr
