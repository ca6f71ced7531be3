"""Layers 3 and 4: phases by dependency, the propagation table, state on disk, resume; executors need no model here."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from lib.disk import schemas
from support import ROOT, WORKER, House, Ran, log, plan, wait_for, with_marker

pytestmark = pytest.mark.rehearsed

STAGE = "  - {name: %s, tool: worker.py, args: [%s], retry: {max: 0}, outputs: {made: {path: made.json}}}\n"


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    for name in "abcd":
        house.orchestrator(f"version: 1\nname: o{name}\nstages:\n{STAGE % (name, name)}", f"o{name}")
    (house.workspace / "checks.yaml").write_text(
        "version: 1\nchecks: {good: {command: test ! -f bad}, warn: {command: test ! -f odd, blocking: false}}\n"
    )
    return house


def phase(name: str, *runs: str, after: str = "", verify: str = "{none: a test}") -> str:
    listed = ", ".join(f"{{orchestrator: {r}}}" for r in runs)
    depends = f", depends_on: [{after}]" if after else ""
    return f"  - {{name: {name}, run: [{listed}], verify: {verify}{depends}}}\n"


def write(house: House, phases: str, head: str = "") -> None:
    text = f"version: 1\nname: trial\nchecks: checks.yaml\n{head}phases:\n{phases}"
    (house.workspace / "plan.yaml").write_text(text)


def campaign(house: House, *flags: str) -> Ran:
    return house.json("campaign", "plan.yaml", *flags)


def resume(house: House, *flags: str) -> Ran:
    return house.json("campaign", "--resume", house.session.name, *flags)


def test_phases_run_by_dependency_and_leave_the_seeds_files(trial: House) -> None:
    write(trial, phase("second", "ob", after="first") + phase("first", "oa", verify="{checks: [good]}"))
    ran = campaign(trial)
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["a", "b"]
    assert not schemas.describe(ran.document, schemas.load("campaign"))
    session = trial.session
    state = yaml.safe_load((session / ".session-state").read_text())
    assert list(state) == ["state", "current_phase", "total_phases", "started_at", "last_checkpoint", "depth_used", "depth_max"]
    assert state["state"] == "COMPLETE"
    latest = json.loads((session / state["last_checkpoint"]).read_text())
    assert latest["checkpoint_version"] == 1
    assert {p["name"]: p["sentinel_grade"] for p in latest["completed_phases"]} == {
        "phase-01-second": "UNVERIFIABLE",
        "phase-02-first": "PASS",
    }
    assert latest["pending_phases"] == []
    report = json.loads((session / "phases/phase-02-first/report.json").read_text())
    assert not schemas.describe(report, schemas.load("report"))
    assert report["orchestrators"] == [{"name": "oa", "manifest": "phases/phase-02-first/oa/manifest.json", "exit_code": 0}]
    assert report["artifacts"] == ["phases/phase-02-first/artifacts/oa/01-a/made.json"]
    assert (session / "sentinel/grade.txt").read_text() == "UNVERIFIABLE\n", "the worst of its phases"
    assert (session / "phases/phase-02-first/sentinel/grade.txt").read_text() == "PASS\n"
    assert "| a | success |" in (session / "execution-report.md").read_text()
    assert yaml.safe_load((session / "plan.yaml").read_text())["name"] == "trial"
    assert {p.name for p in (session / ".signals").glob("c*")} == {
        "campaign-trial.done",
        "coord-phase-01-second.done",
        "coord-phase-02-first.done",
    }
    assert len({e["trace_id"] for e in ran.events if e.get("trace_id")}) == 1


@pytest.mark.parametrize(
    ("word", "code", "times"),
    [
        ("fail", 3, 2),  # retried once by the coordinator, then a person is asked
        ("depth", 2, 1),
        ("human", 3, 1),
        ("refine", 3, 4),  # answered once by the coordinator, tried once more by the campaign
        ("escalate", 3, 1),
        ("timeout", 3, 1),
    ],
)
def test_what_goes_wrong_propagates_as_in_the_table(trial: House, word: str, code: int, times: int) -> None:
    write(trial, phase("one", "oa") + phase("two", "ob", after="one"))
    plan(trial, a=word)
    ran = campaign(trial)
    assert ran.code == code, ran.stdout
    assert log(trial) == ["a"] * times
    assert ran.document["phases"][1]["exit_code"] in (None, 1), "what depends on it did not run"
    if word in ("fail", "refine", "escalate", "timeout"):
        assert ran.error["code"] == "ESCALATED"
        text = next((trial.session / "escalations").glob("*.md")).read_text()
        assert "--resume" in text
        assert str(trial.session) in ran.error["hint"]


def test_partial_results_are_logged_and_never_turn_into_a_success(trial: House) -> None:
    optional = STAGE.replace("retry", "required: false, retry") % ("a", "a")
    trial.orchestrator(f"version: 1\nname: oa\nstages:\n{optional}{STAGE % ('c', 'c')}", "oa")
    write(trial, phase("one", "oa") + phase("two", "ob", after="one"))
    plan(trial, a="fail")
    ran = campaign(trial)
    assert ran.code == 12, ran.stderr
    assert log(trial) == ["a", "c", "a", "b"], "the coordinator re-ran only what failed"
    plan(trial, a="ok")
    assert resume(trial).code == 12
    assert log(trial).count("a") == 2, "a resume adds no try to what was given up"
    assert resume(trial, "--from", "one/oa/a").code == 0


def test_independent_orchestrators_of_a_phase_run_at_the_same_time(trial: House) -> None:
    write(trial, phase("one", "oa", "ob"))
    plan(trial, a="sleep", b="sleep")
    with trial.start("campaign", "plan.yaml", "--output-format", "json") as child:
        wait_for(lambda: sorted(log(trial)) == ["a", "b"], what="both at once")
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=60)
    assert child.returncode == 20
    assert with_marker(str(trial.folder / "core")) == []


def test_independent_phases_run_together_only_where_the_plan_allows_it(trial: House) -> None:
    write(trial, phase("one", "oa") + phase("two", "ob"), "max_parallel: 2\n")
    plan(trial, a="sleep", b="sleep")
    with trial.start("campaign", "plan.yaml", "--output-format", "json") as child:
        wait_for(lambda: sorted(log(trial)) == ["a", "b"], what="both at once")
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=60)


def test_a_killed_campaign_is_resumed_by_one_command_from_anywhere(trial: House, tmp_path: Path) -> None:
    write(trial, phase("one", "oa") + phase("two", "ob", after="one"))
    plan(trial, b="sleep")
    with trial.start("campaign", "plan.yaml", "--output-format", "json") as child:
        wait_for(lambda: log(trial) == ["a", "b"])
        child.kill()
        child.wait()
        wait_for(lambda: not with_marker(str(trial.folder / "core")), what="the end of the tree")
    plan(trial, b="ok")
    import subprocess

    done = subprocess.run(
        [*trial.argv("campaign", "--resume", str(trial.session)), "--output-format", "json"],
        cwd=tmp_path, env=trial.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert log(trial) == ["a", "b", "b"]
    assert json.loads(done.stdout)["phases"][0]["status"] == "complete"


def test_a_failed_check_is_not_a_success_whatever_the_stages_say(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{checks: [good]}"))
    (trial.workspace / "bad").write_text("x")
    ran = campaign(trial)
    assert ran.code == 3
    assert ran.document["grade"] == "FAIL"
    (trial.workspace / "bad").unlink()
    ran = resume(trial)
    assert (ran.code, ran.document["grade"]) == (0, "PASS")
    assert log(trial) == ["a"]


def test_the_artifacts_check_finds_what_was_changed_or_is_missing(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{checks: [artifacts]}"))
    ran = campaign(trial)
    assert (ran.code, ran.document["grade"]) == (0, "PASS"), ran.stderr
    from lib.attempt import checks

    artifact = trial.session / "phases/phase-01-one/artifacts/oa/01-a/made.json"
    folder = (trial.session, "phase-01-one", trial.workspace)
    assert checks.run_artifacts(*folder).passed
    artifact.write_text("other")
    assert checks.run_artifacts(*folder).note.endswith("made.json is not what was produced")
    artifact.unlink()
    assert checks.run_artifacts(*folder).note.endswith("made.json is not there")
    assert checks.run_artifacts(trial.session, "phase-09-none", trial.workspace).note == "the phase produced no output"


def test_evidence_that_is_gone_is_not_a_pass(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{checks: [good]}"))
    assert campaign(trial).code == 0
    for path in trial.session.glob("phases/*/sentinel/stages/**/verification-results.json"):
        path.unlink()
    ran = resume(trial)
    assert (ran.code, ran.document["grade"]) == (0, "PASS")
    again = list(trial.session.glob("phases/*/sentinel/stages/**/verification-results.json"))
    assert len(again) == 1, "the checks were run once more, and there is evidence again"


def test_a_warning_is_shown_and_does_not_block(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{checks: [good, warn]}"))
    (trial.workspace / "odd").write_text("x")
    ran = campaign(trial)
    assert (ran.code, ran.document["grade"]) == (0, "WARN")


def test_an_output_of_one_phase_is_a_parameter_of_another(trial: House) -> None:
    text = STAGE.replace("retry", "inputs: {x: param.x}, retry") % ("b", "b")
    trial.orchestrator(f"version: 1\nname: ob\nparams: {{x: {{}}}}\nstages:\n{text}", "ob")
    second = "  - {name: two, depends_on: [one], run: [{orchestrator: ob, inputs: {x: one.oa.made}}], verify: {none: a test}}\n"
    write(trial, phase("one", "oa") + second)
    ran = campaign(trial)
    assert ran.code == 0, ran.stderr
    made = json.loads((trial.session / "phases/phase-02-two/artifacts/ob/01-b/made.json").read_text())
    assert made["inputs"]["x"].endswith("phases/phase-01-one/artifacts/oa/01-a/made.json")


def test_a_phase_file_runs_alone_through_the_coordinator(trial: House) -> None:
    (trial.workspace / "phase.yaml").write_text("version: 1\nname: alone\nrun: [{orchestrator: oa}]\nverify: {none: a test}\n")
    ran = trial.json("coordinator", "phase.yaml")
    assert ran.code == 0, ran.stderr
    assert not schemas.describe(ran.document, schemas.load("report"))
    write(trial, phase("one", "oa") + phase("two", "ob"))
    assert "--phase, one of: one, two" in trial.json("coordinator", "plan.yaml").error["hint"]
    assert trial.json("coordinator", "plan.yaml", "--phase", "two").code == 0
    assert log(trial) == ["a", "b"]


def test_a_dry_run_says_what_it_may_cost_and_what_that_rests_on(trial: House) -> None:
    """From what the same agents really cost before: neither a recording nor a scripted model says anything about that."""
    quick = trial.json("campaign", str(ROOT / "config/plans/quickstart.yaml"), "--dry-run").document
    assert quick["usd_expected"] is None
    assert "replayed and scripted ones do not count" in quick["cost_note"]
    assert quick["usd_at_most"] is None
    assert "no upper bound" in quick["cost_note"]
    implement = quick["phases"][1]["runs"][0]["stages"][1]
    assert implement["agent_sessions"] == 1
    assert implement["agent_sessions_at_most"] > 2, "a review may send it back"


def test_a_coordinator_alone_leaves_checkpoints_and_a_report(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{none: a trial}"))
    ran = trial.json("coordinator", "plan.yaml", "--phase", "one")
    assert ran.code == 0, ran.stderr
    session = Path(ran.document["session_dir"])
    first, last = sorted(session.glob("phases/phase-01-one/checkpoints/cp-*.json"))
    assert json.loads(first.read_text())["completed_runs"] == [{"name": "oa", "exit_code": 0, "sentinel_grade": ""}]
    assert json.loads(last.read_text())["completed_runs"][0]["sentinel_grade"] == "UNVERIFIABLE"
    text = Path(ran.document["report"]).read_text()
    assert text == (session / "execution-report.md").read_text()
    assert "one complete" in text
    assert "Nothing was checked: a trial" in text


def test_a_checkpoint_of_another_version_stops_a_resume(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{none: a trial}"))
    session = Path(campaign(trial).document["session_dir"])
    newest = max(session.glob("checkpoints/cp-*.json"))
    newest.write_text(newest.read_text().replace('"checkpoint_version": 1', '"checkpoint_version": 7'))
    ran = trial.json("campaign", "--resume", str(session))
    assert ran.code == 1
    assert ran.error["code"] == "CORRUPT_STATE"
    assert newest.name in ran.error["message"]


def test_a_resume_goes_on_at_the_depth_it_had(trial: House) -> None:
    write(trial, phase("one", "oa", verify="{none: a trial}"))
    session = Path(campaign(trial).document["session_dir"])
    newest = max(session.glob("checkpoints/cp-*.json"))
    newest.write_text(newest.read_text().replace('"depth_used": 0', '"depth_used": 9'))
    assert trial.json("campaign", "--resume", str(session)).code == 2


def test_a_dry_run_checks_everything_and_creates_nothing(trial: House) -> None:
    write(trial, phase("one", "oa") + phase("two", "ob", after="one"))
    ran = campaign(trial, "--dry-run")
    assert ran.code == 0
    assert [p["name"] for p in ran.document["phases"]] == ["one", "two"]
    assert not trial.sessions.exists()
    assert log(trial) == []
    quick = trial.json("campaign", str(ROOT / "config/plans/quickstart.yaml"), "--dry-run").document
    assert quick["agent_sessions_at_most"] > 8
    assert "sentinel-fixer" in json.dumps(quick), "what verification may ask for is counted too"
    bugfix = trial.json("campaign", "bugfix", "--dry-run").document
    assert "there is no file 'docs/bug.md'" in bugfix["warnings"][0]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("orchestrator: oa", "orchestrator: ox", 5, "no orchestrator 'ox'"),
        ("orchestrator: oa", "orchestrator: oa, params: {t: 1}", 5, "no parameter 't'"),
        ("orchestrator: oa", "orchestrator: oa, modifier: lean", 5, "no modifier 'lean'"),
        ("verify: {none: a test}", "verify: {checks: [godo]}", 5, "no check 'godo'"),
        (", verify: {none: a test}", "", 5, "missing key 'verify'"),
        ("depends_on: [one]", "depends_on: [noe]", 4, "which does not exist"),
        ("{name: one,", "{name: one, depends_on: [two],", 4, "circle"),
        ("{name: two", "{name: one", 5, "two phases are called 'one'"),
        ("name: trial", "name: trial\nworkspce: x", 3, "did you mean 'workspace'?"),
    ],
)
def test_a_mistake_in_a_plan_is_one_error_with_its_place(trial: House, old: str, new: str, line: int, words: str) -> None:
    write(trial, phase("one", "oa") + phase("two", "ob", after="one"))
    path = trial.workspace / "plan.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    ran = campaign(trial)
    assert ran.code == 1
    assert words in ran.error["message"], ran.error
    assert f"plan.yaml:{line}:" in ran.error["message"], ran.error
    assert not trial.sessions.exists()


def test_sessions_are_listed_and_found_by_the_beginning_of_their_name(trial: House) -> None:
    write(trial, phase("one", "oa"))
    campaign(trial)
    (listed,) = trial.json("campaign", "--list").document["sessions"]
    assert (listed["session"], listed["status"]) == (trial.session.name, "success")
    assert trial.json("campaign", "--resume", trial.session.name[:8]).code == 0
    assert trial.json("campaign", "--resume", "nothing").error["code"] == "NO_SESSION"
    assert trial.json("campaign").error["code"] == "USAGE"


def test_the_quickstart_needs_no_key_and_passes_real_checks(house: House) -> None:
    sys.path.insert(0, str(ROOT / "tests/fixtures"))
    plan_file = house.folder / "config/plans/quickstart.yaml"
    house.put(plan_file, plan_file.read_text().replace("../../tests", str(ROOT / "tests")))
    ran = house.json("campaign", str(plan_file))
    assert ran.code == 0, ran.stderr
    grades = {p["name"]: p["sentinel_grade"] for p in ran.document["phases"]}
    assert grades == {"research": "PASS", "build": "PASS"}
    assert ran.document["grade"] == "PASS"
    sentinel = house.session / "phases/phase-02-build/sentinel"
    looks = [json.loads((sentinel / f"cycle-{n}/verification-results.json").read_text()) for n in (1, 2)]
    assert [look["overall"] for look in looks] == ["FAIL", "PASS"], "the recording has a real defect, found and mended"
    assert {c["name"]: c["passed"] for c in looks[0]["checks"]} == {"pytest": False, "ruff": False}
    assert len(json.loads((sentinel / "cycle-1/fix-list.json").read_text())["fixes"]) == 2
    assert "stranger" in (house.session / "workspace/greet.py").read_text()
    text = (house.session / "execution-report.md").read_text()
    assert "replayed, not spent" in text
    again = house.json("campaign", "--resume", str(house.session))
    assert again.code == 0
    agents = [p.parent.name for p in house.session.glob("**/attempt-*/transcript.jsonl")]
    assert set(agents) == {"attempt-1"}, "no agent was asked twice"
    assert not (sentinel / "cycle-3").exists(), "what was verified has not changed, and is not verified again"


PLANS = sorted((ROOT / "config/plans").glob("*.yaml"))


@pytest.mark.parametrize("path", [p for p in PLANS if not p.stem.endswith("checks")], ids=lambda p: p.stem)
def test_every_plan_to_start_from_is_valid_commented_and_completed_by_editors(house: House, path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=../schemas/plan.json\n")
    assert text.count("#") >= 4
    needed = [name for name, param in (yaml.safe_load(text).get("params") or {}).items() if "default" not in param]
    subprocess.run(["git", "init", "-q"], cwd=house.workspace, check=True)  # some put it back as it was
    ran = house.json("campaign", str(path), "--dry-run", *(word for name in needed for word in ("--param", f"{name}=x")))
    assert ran.code == 0, ran.stderr


def test_resuming_with_an_edited_plan_keeps_how_the_session_was_started(trial: House) -> None:
    write(trial, phase("one", "oa"))
    elsewhere = trial.folder / "elsewhere"
    elsewhere.mkdir()
    assert campaign(trial, "--max-depth", "5", "--cwd", str(elsewhere)).code == 0
    write(trial, phase("zero", "ob") + phase("one", "oa"))
    ran = campaign(trial, "--resume", trial.session.name)
    assert ran.code == 0, ran.stderr
    settings = json.loads((trial.session / "effective-config.json").read_text())["settings"]
    assert (settings["cwd"], settings["max_depth"]) == (str(elsewhere), 5)
    assert log(House.at(trial, elsewhere)) == ["a", "b"], "a phase put before another does not make that one run again"
    assert sorted(p.name for p in (trial.session / "phases").iterdir()) == ["phase-01-one", "phase-02-zero"]


def test_a_session_is_found_by_its_exact_name_first(trial: House) -> None:
    write(trial, phase("one", "oa"))
    campaign(trial, "--session-dir", str(trial.sessions / "x"))
    campaign(trial, "--session-dir", str(trial.sessions / "x-2"))
    assert trial.json("campaign", "--resume", "x").code == 0
    assert trial.json("campaign", "--resume", "x-").code == 0
    assert trial.json("campaign", "--resume", "/nowhere/at/all").error["code"] == "NO_SESSION"


def test_an_interrupted_campaign_says_how_to_go_on(trial: House) -> None:
    trial.tool(
        "worker",
        "\ndef work(task, out, call):\n    import time\n    (call.cwd / 'started').write_text('x')\n    time.sleep(60)\n",
    )
    write(trial, phase("one", "oa"))
    with trial.start("campaign", "plan.yaml", "--output-format", "json") as child:
        wait_for((trial.workspace / "started").exists)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 20
    document = json.loads(out)
    assert document["status"] == "interrupted"
    assert "--resume" in json.loads(err.decode().strip().splitlines()[-1])["error"]["hint"]
    assert (trial.session / "execution-report.md").exists()
    assert 'state: "STOPPED"' in (trial.session / ".session-state").read_text()


def test_a_question_of_a_stage_reaches_only_the_run_that_asks_it(trial: House) -> None:
    trial.orchestrator(
        "version: 1\nname: ob\nstages:\n" + STAGE % ("b", "b") + "  - {name: sure, ask: {question: Really?}}\n", "ob"
    )
    write(trial, phase("one", "oa", "ob"))
    ran = campaign(trial)
    assert ran.code == 3
    assert 'state: "WAITING"' in (trial.session / ".session-state").read_text()
    assert "--resume" in ran.error["hint"] and "--answer sure=" in ran.error["hint"]
    assert ran.document["grade"] == "PENDING"
    ran = resume(trial, "--answer", "sure=yes")
    assert ran.code == 0, ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  - {name: one, run: [{orchestrator: oa}], verify: {cheks: [good]}}\n", "unknown key 'cheks' (did you mean 'checks'?)"),
        ("  - {name: one, run: [{orchestrator: oa}], verfy: {none: x}}\n", "unknown key 'verfy' (did you mean 'verify'?)"),
        ("  - {name: one, run: [{orchestrator: oa}], verify: {checks: [artifact]}}\n", "artifacts"),
    ],
)
def test_a_misspelt_key_is_named_with_the_one_that_was_meant(trial: House, text: str, message: str) -> None:
    write(trial, text)
    error = campaign(trial).error
    assert error["code"] == "BAD_CONFIG"
    assert message in f"{error['message']} {error.get('hint')}"


def test_a_phase_run_alone_keeps_to_its_plan(house: House) -> None:
    ran = house.json("coordinator", str(ROOT / "config/plans/quickstart.yaml"), "--phase", "research")
    assert ran.code == 0, ran.stderr
    assert (house.session / "workspace/greeting.md").exists()


def test_a_session_that_was_moved_goes_on_with_the_workspace_in_it(house: House) -> None:
    ran = house.json("campaign", str(ROOT / "config/plans/quickstart.yaml"))
    assert ran.code == 0, ran.stderr
    moved = house.folder / "elsewhere"
    house.session.rename(moved)
    ran = house.json("campaign", "--resume", str(moved))
    assert ran.code == 0, ran.stderr
    assert {p.parent.name for p in moved.glob("**/attempt-*/transcript.jsonl")} == {"attempt-1"}, "no agent was asked again"


def test_a_workspace_that_is_gone_is_named(trial: House) -> None:
    elsewhere = trial.folder / "elsewhere"
    elsewhere.mkdir()
    write(trial, phase("one", "oa"))
    assert campaign(trial, "--cwd", str(elsewhere)).code == 0
    shutil.rmtree(elsewhere)
    ran = resume(trial)
    assert (ran.code, ran.error["code"]) == (1, "NO_WORKSPACE")
    assert "--cwd" in ran.error["hint"]


def test_a_tool_whose_interpreter_breaks_is_called_once_more(trial: House) -> None:
    """Rare, and nobody's fault: what it had finished is not done again, and a person is not asked about it."""
    write(trial, phase("one", "oa"))
    trial.orchestrator("version: 1\nname: oa\nstages:\n" + STAGE % ("a", "a"), "oa")
    path = trial.folder / "core/coordinator.py"
    breaks = "    import os, signal\n    mark = call.cwd / 'broke'\n"
    breaks += "    if not mark.exists():\n        mark.touch()\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
    text = path.read_text()
    at = text.index("def main(call: Call) -> Json:\n") + len("def main(call: Call) -> Json:\n")
    trial.put(path, text[:at] + breaks + text[at:])
    ran = campaign(trial)
    assert ran.code == 0, ran.stderr[-1500:]
    assert any(event.get("event") == "crashed" for event in ran.events)
