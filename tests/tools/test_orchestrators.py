"""Layer 2: routing, retries, resume, loops and asking, with executors that need no model."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from pathlib import Path

import pytest
from support import WORKER, House, Ran, alive, log, plan, wait_for, with_marker


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    return house


def configure(house: House, stages: str, head: str = "") -> None:
    house.orchestrator(f"version: 1\nname: trial\n{head}stages:\n{stages}")


def stage(name: str, extra: str = "") -> str:
    more = f", {extra}" if extra else ""
    return f"  - {{name: {name}, tool: worker.py, args: [{name}], outputs: {{made: {{path: made.json}}}}{more}}}\n"


def run(house: House, *flags: str) -> Ran:
    sessions = list(house.sessions.iterdir()) if house.sessions.exists() else []
    resume = ["--session-dir", str(sessions[0])] if sessions else []
    return house.json("orchestrator", "trial", *resume, *flags)


def statuses(ran: Ran) -> dict[str, str]:
    return {s["name"]: s["status"] for s in ran.document["stages"]}


def made(ran: Ran, name: str) -> dict:
    (path,) = [s["artifact"] for s in ran.document["stages"] if s["name"] == name]
    return json.loads(Path(path).read_text())


def test_stages_run_in_order_and_the_manifest_is_the_seeds(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "inputs: {first: a.made}"))
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["a", "b"]
    manifest = ran.document
    assert manifest["orchestrator"] == "trial"
    assert manifest["summary"] == {"total": 2, "passed": 2, "failed": 0, "waiting": 0, "warnings": 0, "exit_code": 0}
    assert {"name", "status", "exit_code", "artifact"} <= set(manifest["stages"][0])
    on_disk = json.loads((trial.session / "trial/manifest.json").read_text())
    assert on_disk["stages"][0]["artifact"] == "artifacts/trial/01-a/made.json"
    assert made(ran, "b")["inputs"]["first"].endswith("01-a/made.json")
    assert {p.name for p in (trial.session / ".signals").iterdir()} == {
        "exec-trial.01-a.done",
        "exec-trial.02-b.done",
        "orch-trial.done",
    }
    traces = {e["trace_id"] for e in ran.events if "trace_id" in e}
    assert traces == {(trial.session / ".trace").read_text().strip()}


@pytest.mark.parametrize(
    ("word", "code", "attempts"),
    [
        ("fail", 1, 2),
        ("timeout", 21, 2),
        ("depth", 2, 1),
        ("human", 3, 1),
        ("refine", 10, 1),
        ("escalate", 11, 1),
        ("revise", 10, 1),
    ],
)
def test_exit_codes_route_as_in_the_table(trial: House, word: str, code: int, attempts: int) -> None:
    configure(trial, stage("a", "retry: {max: 1}") + stage("b"))
    plan(trial, a=word)
    ran = run(trial)
    assert ran.code == code
    assert log(trial) == ["a"] * attempts
    assert statuses(ran)["b"] == "not-run"


def test_a_retry_is_told_why_the_last_attempt_failed(trial: House) -> None:
    configure(trial, stage("a"))
    plan(trial, a="fail ok")
    ran = run(trial)
    assert ran.code == 0
    assert made(ran, "a")["told"] == ["An earlier attempt at this failed with TRIAL: a says fail\n"]


def test_retries_wait_as_long_as_they_are_told(trial: House) -> None:
    configure(trial, stage("a", "retry: {max: 2, backoff_seconds: [2.0, 4.0]}"))
    plan(trial, a="fail fail ok")
    assert run(trial).code == 0
    assert log(trial) == ["a"] * 3
    ends = [json.loads(p.read_text()) for p in sorted(trial.session.glob("trial/stages/01-a/attempt-*/outcome.json"))]
    times = [datetime.fromisoformat(e["finished_at"]).timestamp() for e in ends]
    assert times[1] - times[0] > 2.0
    assert times[2] - times[1] > 4.0


def test_a_crashed_executor_is_a_failure_that_is_retried(trial: House) -> None:
    configure(trial, stage("a"))
    plan(trial, a="crash")
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "CHILD_CRASHED")
    assert "SIGKILL" in ran.error["message"]
    assert len(log(trial)) == 2
    outcomes = [json.loads(p.read_text()) for p in sorted(trial.session.glob("trial/stages/01-a/attempt-*/outcome.json"))]
    assert [o["error"]["code"] for o in outcomes] == ["CHILD_CRASHED"] * 2, "its parent says that the attempts ended"
    assert (trial.session / ".signals/exec-trial.01-a.fail").exists()


def test_work_that_was_finished_before_its_executor_died_is_not_done_again(trial: House) -> None:
    """The outcome is the truth: the executor here ends its attempt and is killed before it can say so."""
    trial.tool(
        "worker",
        """
def work(task, out, call):
    import os, signal, threading
    with (Path(call.cwd) / "log").open("a") as file:
        file.write("a\\n")
    def die():
        while not (out.parent / "outcome.json").exists():
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=die, daemon=True).start()
    return Verdict("done")
""",
    )
    configure(trial, "  - {name: a, tool: worker.py}\n")
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["a"]


def test_an_executor_that_breaks_still_says_that_its_attempt_ended(trial: House) -> None:
    trial.tool("worker", "def work(task, out, call):\n    return 1 / 0\n")
    configure(trial, stage("a", "retry: {max: 0}"))
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "INTERNAL")
    outcome = json.loads((trial.session / "trial/stages/01-a/attempt-1/outcome.json").read_text())
    assert outcome["error"]["message"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in (trial.session / "strata.log").read_text()
    assert "Traceback" not in ran.stderr


def test_only_optional_stages_failing_is_12_and_never_turns_into_0(trial: House) -> None:
    configure(trial, stage("a", "required: false, retry: {max: 0}") + stage("b"))
    plan(trial, a="fail")
    first = run(trial)
    assert (first.code, statuses(first)) == (12, {"a": "failure", "b": "success"})
    plan(trial, a="ok")
    second = run(trial)
    assert second.code == 12
    assert log(trial) == ["a", "b"], "the run went on without it: a resume adds no try to what was given up"
    assert run(trial, "--from", "a").code == 0, "on purpose it is done again"
    assert log(trial) == ["a", "b", "a", "b"]


@pytest.mark.parametrize(("word", "code"), [("depth", 2), ("human", 3), ("escalate", 11)])
def test_depth_escalation_and_a_persons_input_are_not_absorbed_by_an_optional_stage(trial: House, word: str, code: int) -> None:
    configure(trial, stage("a", "required: false") + stage("b"))
    plan(trial, a=word)
    assert run(trial).code == code
    assert "b" not in log(trial)


def test_of_several_failures_the_gravest_is_raised(trial: House) -> None:
    fan_out(trial, [{"id": "p"}, {"id": "q"}], "skip")
    plan(trial, p="fail", q="escalate")
    assert run(trial).code == 11


def test_a_manifest_of_a_run_that_has_not_ended_claims_nothing(trial: House) -> None:
    configure(trial, stage("a") + stage("b"))
    plan(trial, b="sleep")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: log(trial) == ["a", "b"])
        path = trial.session / "trial/manifest.json"
        during = json.loads(path.read_text())
        assert (during["status"], during["exit_code"], during["stages"][0]["status"]) == ("running", None, "success")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert json.loads(path.read_text())["exit_code"] == 20


def test_a_resolution_makes_a_stage_that_asked_for_one_run_again(trial: House) -> None:
    configure(trial, stage("a") + stage("b"))
    plan(trial, b="revise ok")
    assert run(trial).code == 10
    assert run(trial).code == 10
    assert log(trial) == ["a", "b"], "without an answer there is nothing new to do"
    (trial.workspace / "answer.md").write_text("Do it the short way.")
    ran = run(trial, "--extra-context", "answer.md")
    assert ran.code == 0
    assert log(trial) == ["a", "b", "b"]
    assert "Do it the short way." in made(ran, "b")["told"]


def test_a_file_parameter_that_is_not_there_is_refused_before_anything_runs(trial: House) -> None:
    configure(trial, stage("a", "inputs: {spec: param.spec}"), "params: {spec: {type: file}}\n")
    ran = run(trial, "--param", "spec=nope.md")
    assert (ran.code, ran.error["code"]) == (1, "USAGE")
    assert "nope.md" in ran.error["message"]
    assert log(trial) == []


def test_a_check_that_does_not_exist_is_found_before_earlier_stages_are_paid_for(trial: House) -> None:
    configure(trial, stage("a") + "  - {name: b, tool: check.py, args: [pytset]}\n")
    ran = run(trial)
    assert ran.error["code"] == "UNKNOWN_CHECK"
    assert log(trial) == []


def test_an_earlier_output_can_stand_in_an_argument(trial: House) -> None:
    configure(trial, stage("a") + '  - {name: b, tool: worker.py, args: [b, "{a.made}"], outputs: {made: {path: made.json}}}\n')
    ran = run(trial)
    assert ran.code == 0
    task = json.loads((trial.session / "trial/stages/02-b/task-1.json").read_text())
    assert task["fingerprint"]


def test_an_edited_definition_reruns_the_steps_of_that_agent_also_behind_a_tool(house: House) -> None:
    import sys

    from support import ROOT

    sys.path.insert(0, str(ROOT / "tests/fixtures"))
    import make

    flags = ("--driver", "replay", "--fixtures", str(ROOT / "tests/fixtures/oresearch"))
    make.oresearch(house, *flags)
    market = house.folder / "prompts/executors/researcher-market.md"
    house.put(market, market.read_text() + "\nBe brief.\n")
    ran = make.oresearch(house, *flags, "--session-dir", str(house.session))
    skipped = {i["name"]: i["skipped"] for i in ran.document["stages"][0]["items"]}
    assert skipped == {"market": False, "ux": True, "tech": True}


def test_a_timeout_is_kept_by_the_executor(trial: House) -> None:
    configure(trial, stage("a", "timeout_seconds: 1, retry: {max: 0}"))
    plan(trial, a="sleep")
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (21, "TIMEOUT")
    assert ran.document["stages"][0]["attempts"] == 1


# Finished work


def test_finished_work_is_not_done_again(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "inputs: {first: a.made}"))
    run(trial)
    ran = run(trial)
    assert ran.code == 0
    assert log(trial) == ["a", "b"]
    assert all(s["skipped"] for s in ran.document["stages"])


def test_a_changed_argument_reruns_that_stage_and_what_depends_on_it(trial: House) -> None:
    head = "params: {word: {default: one}}\n"
    first = stage("a", 'target: "{param.word}"') + stage("b", "inputs: {first: a.made}") + stage("c")
    configure(trial, first, head)
    run(trial)
    ran = run(trial, "--param", "word=two")
    assert ran.code == 0
    assert log(trial) == ["a", "b", "c", "a"], "b's input has the same content as before, c does not depend on it"


def test_a_deleted_or_edited_artifact_is_made_again(trial: House) -> None:
    configure(trial, stage("a"))
    artifact = Path(run(trial).document["stages"][0]["artifact"])
    artifact.unlink()
    run(trial)
    artifact.write_text("edited")
    run(trial)
    run(trial)
    assert log(trial) == ["a"] * 3
    attempts = sorted(p.name for p in (trial.session / "trial/stages/01-a").glob("attempt-*"))
    assert attempts == ["attempt-1", "attempt-2", "attempt-3"], "no attempt overwrites an earlier one"


def test_a_changed_file_of_the_workspace_reruns_what_reads_it(trial: House) -> None:
    configure(trial, stage("a", "inputs: {spec: param.spec}") + stage("b"), "params: {spec: {type: file}}\n")
    (trial.workspace / "spec.md").write_text("one")
    run(trial, "--param", "spec=spec.md")
    run(trial, "--param", "spec=spec.md")
    assert log(trial) == ["a", "b"]
    (trial.workspace / "spec.md").write_text("two")
    run(trial, "--param", "spec=spec.md")
    assert log(trial) == ["a", "b", "a"]


def test_a_check_judges_the_folder_as_it_is_now(trial: House) -> None:
    (trial.workspace / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test ! -f bad}}\n")
    configure(trial, "  - {name: a, tool: check.py, args: [good], retry: {max: 0}}\n")
    flags = ("--checks", str(trial.workspace / "checks.yaml"))
    assert run(trial, *flags).code == 0
    assert run(trial, *flags).document["stages"][0]["skipped"]
    (trial.workspace / "bad").write_text("x")
    assert run(trial, *flags).code == 1, "an old judgement does not speak for a changed folder"


def test_an_interrupted_run_goes_on_where_it_was(trial: House) -> None:
    configure(trial, stage("a") + stage("b"))
    plan(trial, b="sleep")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: log(trial) == ["a", "b"])
        child.send_signal(signal.SIGTERM)
        stdout, _ = child.communicate(timeout=60)
    assert child.returncode == 20
    assert json.loads(stdout)["exit_code"] == 20
    plan(trial, b="ok")
    ran = run(trial)
    assert ran.code == 0
    assert log(trial) == ["a", "b", "b"]


def test_a_killed_run_goes_on_where_it_was_and_leaves_nothing_running(trial: House) -> None:
    configure(trial, stage("a") + stage("b"))
    plan(trial, b="sleep")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: log(trial) == ["a", "b"])
        child.kill()
        child.wait()
        wait_for(lambda: not with_marker(str(trial.folder / "core")), what="the end of the tree")
    plan(trial, b="ok")
    assert run(trial).code == 0
    assert log(trial) == ["a", "b", "b"]


def test_a_second_run_at_the_same_time_is_refused(trial: House) -> None:
    configure(trial, stage("a"))
    plan(trial, a="sleep")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: log(trial))
        ran = run(trial)
        assert (ran.code, ran.error["code"]) == (1, "SESSION_LOCKED")
        assert str(child.pid) in ran.error["message"]


# Fan-out

ITEMS = '  - {name: each, tool: worker.py, args: ["{item.id}"], retry: {max: 0}, outputs: {made: {path: made.json}},\n'
ITEMS += "     foreach: {items: list.made, pointer: /items, key: id, after: after, cap: 2%s}, on_item_failure: %s}\n"
LISTER = """
def work(task, out, call):
    (out / "made.json").write_text(Path(call.cwd, "items.json").read_text())
    return Verdict("done")
"""


def fan_out(house: House, items: list, policy: str = "skip", extra: str = "") -> None:
    house.tool("lister", LISTER)
    (house.workspace / "items.json").write_text(json.dumps({"items": items}))
    listing = "  - {name: list, tool: lister.py, outputs: {made: {path: made.json}}}\n"
    configure(house, listing + ITEMS % (extra, policy) + stage("z", "inputs: {all: each.*.made}"))


CHAIN = [{"id": "p"}, {"id": "q", "after": ["p"]}, {"id": "r", "after": ["q"]}, {"id": "s"}]


def test_items_run_in_dependency_order(trial: House) -> None:
    fan_out(trial, CHAIN)
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    order = log(trial)
    assert order.index("p") < order.index("q") < order.index("r") < order.index("z")
    assert len(made(ran, "z")["inputs"]["all"]) == 4


def test_skip_goes_on_with_the_rest_blocks_dependents_and_ends_with_12(trial: House) -> None:
    fan_out(trial, CHAIN)
    plan(trial, q="fail")
    ran = run(trial)
    assert ran.code == 12
    items = {i["name"]: i["status"] for i in ran.document["stages"][1]["items"]}
    assert items == {"p": "success", "q": "failure", "r": "blocked", "s": "success"}
    assert log(trial)[-1] == "z"
    plan(trial, q="ok")
    assert run(trial).code == 12
    assert log(trial).count("q") == 1, "a resume adds no try to what was given up"
    assert run(trial, "--from", "each/q").code == 0
    assert (log(trial).count("p"), log(trial).count("r"), log(trial).count("s")) == (1, 1, 1)


def test_abort_stops_at_the_first_failure(trial: House) -> None:
    fan_out(trial, CHAIN, "abort")
    plan(trial, p="fail")
    ran = run(trial)
    assert ran.code == 1
    assert "q" not in log(trial)
    assert "z" not in log(trial)


def test_ask_waits_for_a_person_and_does_what_they_say(trial: House) -> None:
    fan_out(trial, CHAIN, "ask")
    plan(trial, s="fail")
    first = run(trial)
    assert first.code == 3
    assert first.document["waiting"]["choices"] == ["retry", "skip", "abort"]
    assert "--answer each=" in first.error["hint"]
    assert run(trial, "--answer", "each=retry").code == 3, "it failed again"
    ran = run(trial, "--answer", "each=skip")
    assert ran.code == 12, ran.stderr
    assert log(trial)[-1] == "z"


def test_no_item_at_all_is_a_failure_unless_the_stage_says_that_none_is_fine(trial: House) -> None:
    fan_out(trial, [])
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "TOO_FEW_ITEMS")
    path = trial.folder / "config/orchestrators/trial.yaml"
    path.write_text(path.read_text().replace("foreach: {", "foreach: {min_items: 0, "))
    assert run(trial).code == 0


def test_all_items_failing_fails_the_stage_even_with_skip(trial: House) -> None:
    fan_out(trial, [{"id": "p"}, {"id": "s"}])
    plan(trial, p="fail", s="fail")
    assert run(trial).code == 1


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"id": "p"}, {"id": "p"}], "two items have the key 'p'"),
        ([{"id": "p", "after": ["x"]}], "waits for 'x', which does not exist"),
        ([{"id": "p", "after": ["q"]}, {"id": "q", "after": ["p"]}], "circle"),
        ([{"no": "id"}], "no text under 'id'"),
        ([{"id": str(n)} for n in range(60)], "60 items, at most 50"),
        ("not a list", "is not a list"),
        ([{"id": "p", "after": "q"}], "no list under 'after'"),
    ],
)
def test_items_that_cannot_be_run_are_one_error_before_any_of_them_runs(trial: House, items, words: str) -> None:
    fan_out(trial, items)
    ran = run(trial)
    assert ran.code == 1
    assert words in ran.error["message"]
    assert log(trial) == []


def test_an_item_key_cannot_leave_the_session(trial: House) -> None:
    fan_out(trial, [{"id": "../../evil"}, {"id": "/abs"}, {"id": "a\nb"}, {"id": "x" * 300}, {"id": "attempt-1"}])
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    folders = [p for p in (trial.session / "trial/stages/02-each").iterdir() if p.is_dir()]
    assert len(folders) == 5
    assert not [
        p
        for p in trial.folder.rglob("*evil*")
        if p.parent != trial.session / "trial/stages/02-each"
        and p.is_dir()
        and p.parent != trial.session / "artifacts/trial/02-each"
    ]


def test_enough_successes_are_a_success_and_the_stage_is_then_finished_as_a_whole(trial: House) -> None:
    fan_out(trial, [{"id": "p"}, {"id": "q"}, {"id": "s"}], extra=", min_success: 2")
    plan(trial, q="fail")
    first = run(trial)
    assert first.code == 0, first.stderr
    assert run(trial).code == 0
    assert log(trial).count("q") == 1


def test_where_so_many_are_enough_everybody_is_asked_whoever_fails_first(trial: House) -> None:
    """A failure is no reason not to ask the rest: nobody has said that it aborts, and who is missing would be said nowhere."""
    fan_out(trial, [{"id": n} for n in "pqrstu"], "abort", extra=", min_success: 0")
    plan(trial, p="fail", q="fail")
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    assert sorted(log(trial)) == [*"pqrstu", "z"]
    assert len(made(ran, "z")["inputs"]["all"]) == 4


def test_a_group_with_too_few_successes_fails(trial: House) -> None:
    members = "{one: {tool: worker.py, args: [one]}, two: {tool: worker.py, args: [two]}}"
    configure(trial, f"  - {{name: g, parallel: {{cap: 2, min_success: 2}}, retry: {{max: 0}}, members: {members}}}\n")
    plan(trial, two="fail")
    ran = run(trial)
    assert ran.code == 1
    assert {i["name"]: i["status"] for i in ran.document["stages"][0]["items"]} == {"one": "success", "two": "failure"}


def test_many_at_once_never_exceed_the_cap(trial: House) -> None:
    body = """
def work(task, out, call):
    folder = Path(call.cwd) / "running"
    folder.mkdir(exist_ok=True)
    mine = folder / task.item["id"]
    mine.write_text("")
    count = len(list(folder.iterdir()))
    time.sleep(0.1)
    mine.unlink()
    (out / "made.json").write_text(str(count))
    return Verdict("done")
"""
    fan_out(trial, [{"id": f"i{n}"} for n in range(12)])
    trial.tool("worker", body)
    configure(trial, "  - {name: list, tool: lister.py, outputs: {made: {path: made.json}}}\n" + ITEMS % ("", "skip"))
    run(trial)
    counts = [int(p.read_text()) for p in trial.session.glob("artifacts/trial/02-each/*/made.json")]
    assert len(counts) == 12
    assert max(counts) == 2


# Loops

LOOP = "loops: {again: {to: a, max: 2, then: %s}}\n"


@pytest.mark.parametrize(("then", "code", "last"), [("continue", 12, "c"), ("fail", 10, "b"), ("ask", 3, "b")])
def test_a_loop_is_taken_so_often_and_no_more(trial: House, then: str, code: int, last: str) -> None:
    configure(trial, stage("a") + stage("b", "on: {needs_revision: again}") + stage("c"), LOOP % then)
    plan(trial, b="revise")
    ran = run(trial)
    assert ran.code == code
    assert log(trial) == [*["a", "b"] * 3, *(["c"] if last == "c" else [])]
    before = log(trial)
    assert run(trial).code == code
    assert log(trial) == before, "the counter survives, and nothing is done again"


def test_a_loop_hands_its_cause_to_its_target(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "on: {needs_revision: again}"), LOOP % "fail")
    plan(trial, b="revise ok")
    ran = run(trial)
    assert ran.code == 0
    (told,) = made(ran, "a")["told"]
    assert "The stage `b` sent the work back to `a`" in told
    assert "b wants a revision" in told
    assert (trial.session / "trial/stages/01-a/round-2/attempt-1").is_dir()
    assert (trial.session / "artifacts/trial/01-a/round-1/made.json").exists(), "earlier rounds stay"


def test_a_failure_can_be_routed_to_a_loop_and_is_not_run_again_on_resume(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "on: {failure: again}, retry: {max: 0}") + stage("c"), LOOP % "fail")
    plan(trial, b="fail ok", c="fail ok")
    assert run(trial).code == 0
    assert log(trial) == ["a", "b", "a", "b", "c", "c"]
    assert run(trial).code == 0
    assert log(trial) == ["a", "b", "a", "b", "c", "c"]


def test_a_person_can_allow_a_loop_another_round_or_end_it(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "on: {needs_revision: again}") + stage("c"), LOOP % "ask")
    plan(trial, b="revise")
    assert run(trial).code == 3
    assert log(trial).count("a") == 3
    assert run(trial, "--answer", "b=again").code == 3
    assert log(trial).count("a") == 4
    ran = run(trial, "--answer", "b=continue")
    assert ran.code == 12
    assert log(trial).count("a") == 4
    assert log(trial)[-1] == "c"


def test_a_loop_that_was_cut_off_by_kill_9_is_not_counted_twice(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "on: {needs_revision: again}"), LOOP % "fail")
    plan(trial, a="ok sleep ok", b="revise ok")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: log(trial) == ["a", "b", "a"])
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        wait_for(lambda: not with_marker(str(trial.folder / "core")), what="the end of the tree")
    ran = run(trial)
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["a", "b", "a", "a", "b"]
    assert [p.name for p in (trial.session / "trial/loops").glob("*.json")] == ["again-1.json"]


# Depth, stopping, layers


def test_a_stack_that_cannot_fit_is_refused_before_it_starts(trial: House) -> None:
    configure(trial, stage("a"))
    ran = run(trial, "--max-depth", "1")
    assert (ran.code, ran.error["code"]) == (2, "DEPTH_EXCEEDED")
    assert log(trial) == []


@pytest.mark.parametrize("victim", ["executor", "orchestrator"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_whichever_process_of_the_tree_is_stopped_nothing_below_it_keeps_running(trial: House, victim, number) -> None:
    marker = f"sleep 985{os.getpid()}"
    trial.tool(
        "sleeper",
        f'''
def work(task, out, call):
    from lib.process import running
    import os
    running.run_kept(["sh", "-c", "{marker} & setsid {marker} & {marker}"], env=dict(os.environ))
    return Verdict("done")
''',
    )
    configure(trial, "  - {name: a, tool: sleeper.py, retry: {max: 0}}\n")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: len(with_marker(marker)) >= 4, what="the sleepers")
        executor = next(p for p in with_marker("core/sleeper.py") if str(trial.folder) in _line(p))
        os.kill(executor if victim == "executor" else child.pid, number)
        child.wait(timeout=60)
        wait_for(lambda: not with_marker(marker), what="the end of the sleepers")
        wait_for(lambda: not alive(executor), what="the end of the executor")


def _line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_a_parallel_group_is_stopped_whole(trial: House) -> None:
    members = ", ".join(f"m{n}: {{tool: worker.py, args: [m{n}]}}" for n in range(4))
    configure(trial, f"  - {{name: g, parallel: {{cap: 4}}, members: {{{members}}}}}\n")
    plan(trial, **{f"m{n}": "sleep" for n in range(4)})
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: len(log(trial)) == 4)
        child.send_signal(signal.SIGINT)
        child.wait(timeout=60)
    assert child.returncode == 20
    assert with_marker(str(trial.folder / "core")) == []


# What an attacker tried


LIAR = """
import json, sys
if "--help" in sys.argv:
    sys.exit(0)
print(json.dumps({document}))
"""


@pytest.mark.parametrize(
    "document",
    [
        {"exit_code": 0},
        {"exit_code": 0, "verdict": "failed"},
        {"exit_code": 0, "verdict": "done"},
        {"exit_code": 0, "verdict": "done", "outputs": 7},
        {"exit_code": 0, "verdict": "done", "version": 2, "outputs": [{"output": "made", "root": "session", "path": "/nowhere"}]},
    ],
)
def test_a_tool_that_claims_success_without_its_outputs_is_not_believed(trial: House, document: dict) -> None:
    block = (trial.folder / "core/check.py").read_text().split('"""')[0]
    head = 'TOOL = Tool("liar", layer=1)\n'
    body = LIAR.replace("{document}", repr(document))
    (trial.folder / "core/liar.py").write_text(f"{block}Tool = lambda *a, **k: None\n{head}{body}")
    configure(trial, "  - {name: a, tool: liar.py, outputs: {made: {path: made.json}}, retry: {max: 0}}\n")
    ran = run(trial)
    assert (ran.code, ran.error["code"]) == (1, "CHILD_CRASHED")


@pytest.mark.parametrize("verdict", ["FAILED", "error", "needs-revision", "ok"])
def test_a_verdict_nobody_knows_is_a_failure(trial: House, verdict: str) -> None:
    trial.tool("worker", f"def work(task, out, call):\n    return {{'verdict': {verdict!r}}}\n")
    configure(trial, "  - {name: a, tool: worker.py, retry: {max: 0}}\n")
    assert run(trial).code == 1


def test_a_rewritten_input_reruns_what_was_made_from_it_although_we_wrote_it_ourselves(trial: House) -> None:
    writer = """
def work(task, out, call):
    (Path(call.cwd) / "spec.md").write_text(task.inputs["words"])
    return Verdict("done")
"""
    trial.tool("writer", writer)
    first = "  - {name: w, tool: writer.py, inputs: {words: param.words}, outputs: {spec: {path: spec.md, in: workspace}}}\n"
    configure(trial, first + stage("a", "target: spec.md"), "params: {words: {}}\n")
    run(trial, "--param", "words=one")
    run(trial, "--param", "words=one")
    assert log(trial) == ["a"]
    run(trial, "--param", "words=two")
    assert log(trial) == ["a", "a"]


def test_two_stages_that_write_the_same_file_are_both_finished(trial: House) -> None:
    writer = """
def work(task, out, call):
    with (Path(call.cwd) / "log").open("a") as file:
        file.write(call.options.words[0] + "\\n")
    (Path(call.cwd) / "same.txt").write_text(call.options.words[0])
    return Verdict("done")
"""
    trial.tool("writer", writer)
    one = "  - {name: %s, tool: writer.py, args: [%s], outputs: {x: {path: same.txt, in: workspace}}}\n"
    configure(trial, one % ("a", "a") + one % ("b", "b"))
    run(trial)
    run(trial)
    assert log(trial) == ["a", "b"]


def test_item_keys_that_imitate_each_others_folder_names_stay_apart(trial: House) -> None:
    from lib.disk.files import safe_name

    fan_out(trial, [{"id": "a b"}, {"id": safe_name("a b")}])
    assert run(trial).code == 0
    assert len(list(trial.session.glob("artifacts/trial/02-each/*/made.json"))) == 2


def test_a_question_in_a_loop_is_answered_round_by_round(trial: House) -> None:
    ask = "  - {name: ok, ask: {question: Is it good}}\n"
    configure(trial, stage("a") + ask + stage("b", "on: {needs_revision: again}"), LOOP % "fail")
    plan(trial, b="revise ok")
    assert run(trial).code == 3
    assert run(trial, "--answer", "ok=first").code == 3, "the second round asks again"
    assert log(trial) == ["a", "b", "a"]
    ran = run(trial, "--answer", "ok=second")
    assert ran.code == 0
    assert log(trial) == ["a", "b", "a", "b"]
    answers = [json.loads(p.read_text())["answer"] for p in sorted(trial.session.glob("trial/stages/02-ok/round-*/answer.json"))]
    assert answers == ["first", "second"]


def test_a_damaged_output_of_an_earlier_round_is_made_again_not_run_past(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "inputs: {x: a.made}, on: {needs_revision: again}"), LOOP % "fail")
    plan(trial, b="revise ok")
    assert run(trial).code == 0
    (trial.session / "artifacts/trial/01-a/round-1/made.json").unlink()
    assert run(trial).code == 0
    assert (trial.session / "artifacts/trial/01-a/round-1/made.json").exists()


def test_a_moved_session_is_still_finished(trial: House) -> None:
    configure(trial, stage("a") + stage("b", "inputs: {x: a.made}, on: {needs_revision: again}"), LOOP % "fail")
    plan(trial, b="revise ok")
    run(trial)
    before = log(trial)
    moved = trial.session.rename(trial.sessions / "moved")
    assert trial.json("orchestrator", "trial", "--session-dir", str(moved)).code == 0
    assert log(trial) == before


def test_a_new_run_waits_for_the_whole_old_tree_not_only_for_its_top(trial: House) -> None:
    trial.tool(
        "sleeper",
        """
def work(task, out, call):
    from lib.process import running
    import os
    if (call.cwd / "second").exists():
        old = (call.cwd / "started").read_text().strip()
        assert not Path(f"/proc/{old}").exists(), "the old tree is gone before anything new begins"
        return Verdict("done")
    words = "trap '' TERM; echo $$ > started; while :; do sleep 0.1; done"
    running.run_kept(["sh", "-c", words], env=dict(os.environ), cwd=call.cwd)
    return Verdict("done")
""",
    )
    configure(trial, "  - {name: a, tool: sleeper.py, retry: {max: 0}}\n")
    with trial.start("orchestrator", "trial", "--output-format", "json") as child:
        wait_for(lambda: (trial.workspace / "started").exists() and (trial.workspace / "started").read_text())
        (trial.workspace / "second").touch()
        child.kill()
        child.wait()
        ran = run(trial, "--driver", "live")
        assert ran.code == 0, ran.stderr
        wait_for(lambda: not with_marker(str(trial.folder / "core")), what="the end of the old tree")


def test_a_text_of_any_length_is_a_text(trial: House) -> None:
    configure(trial, stage("a", 'target: "{param.t}", inputs: {x: param.t}'), "params: {t: {}}\n")
    assert run(trial, "--param", f"t={'long ' * 2000}").code == 0


def test_an_item_that_cannot_be_passed_on_fails_alone(trial: House) -> None:
    fan_out(trial, [{"id": "good"}, {"id": "nul\x00"}, {"id": "h" * 200_000}])
    ran = run(trial)
    assert ran.code == 12, ran.stderr
    assert [i["status"] for i in ran.document["stages"][1]["items"]] == ["success", "failure", "failure"]


@pytest.mark.parametrize("phase", ["a b", "../../evil", "x/y"])
def test_a_phase_is_a_plain_name(trial: House, phase: str) -> None:
    configure(trial, stage("a"))
    assert run(trial, "--phase", phase).error["code"] == "USAGE"


@pytest.mark.parametrize("text", ["{}", '{"exit_code": "0"}', '{"exit_code": true}'])
def test_an_outcome_that_says_nothing_stops_the_run_with_its_name(trial: House, text: str) -> None:
    configure(trial, stage("a"))
    run(trial)
    (trial.session / "trial/stages/01-a/attempt-1/outcome.json").write_text(text)
    ran = run(trial)
    assert ran.error["code"] == "CORRUPT_STATE"
    assert "attempt-1/outcome.json" in ran.error["message"]


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">/dev/full", "2>/dev/full", "2>&1 | true; exit ${PIPESTATUS[0]}"])
def test_the_exit_code_does_not_depend_on_who_listens(trial: House, redirect: str) -> None:
    import shlex
    import subprocess

    configure(trial, stage("a"))
    plan(trial, a="human")
    command = f"{shlex.join(trial.argv('orchestrator', 'trial'))} {redirect}"
    done = subprocess.run(
        ["bash", "-c", command], env=trial.env, cwd=trial.workspace, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stdout + done.stderr
