"""Asking a person: checkpoints, escalations and what comes back; and putting a workspace back as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lib.contract import ExitCode
from scripted_model.server import by_agent, scripted
from skeletons.scripts import returns
from support import WORKER, House, Ran, at_a_terminal, log, plan, wait_for, with_marker

pytestmark = pytest.mark.rehearsed

STAGE = "  - {name: %s, tool: worker.py, args: [%s], retry: {max: 0}, outputs: {made: {path: made.json}}}\n"


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    for name in "ab":
        house.orchestrator(f"version: 1\nname: o{name}\nstages:\n{STAGE % (name, name)}", f"o{name}")
    (house.workspace / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test ! -f bad}}\n")
    return house


def write(house: House, phases: str) -> None:
    (house.workspace / "plan.yaml").write_text(f"version: 1\nname: trial\nchecks: checks.yaml\nphases:\n{phases}")


def campaign(house: House, *flags: str) -> Ran:
    return house.json("campaign", "plan.yaml", *flags)


def resume(house: House, *flags: str) -> Ran:
    return house.json("campaign", "--resume", house.session.name, *flags)


FIRST = "  - {name: one, run: [{orchestrator: oa}], verify: {none: a test}%s}\n"
SECOND = "  - {name: two, depends_on: [one], run: [{orchestrator: ob}], verify: {none: a test}%s}\n"


def test_a_checkpoint_waits_and_that_is_no_failure(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: after, show: [oa.made], question: Is this what you want?}" + SECOND % "")
    ran = campaign(trial)
    assert ran.code == 3
    assert ran.error["message"] == "Is this what you want?"
    assert "--approve" in ran.error["hint"] and "--reject" in ran.error["hint"]
    assert [p["status"] for p in ran.document["phases"]] == ["waiting", "blocked"]
    assert 'state: "WAITING"' in (trial.session / ".session-state").read_text()
    assert not list(trial.session.glob("escalations/*"))
    assert log(trial) == ["a"]
    assert resume(trial).code == 3, "saying nothing is not a yes"
    ran = resume(trial, "--approve")
    assert ran.code == 0, ran.stderr
    assert log(trial) == ["a", "b"], "what was finished is not done again"
    known = json.loads((trial.session / "approvals/one-after.json").read_text())
    assert known["decision"] == "approve"
    assert known["by"] and known["when"] and len(known["digest"]) == 64
    assert known["show"] == ["phases/phase-01-one/artifacts/oa/01-a/made.json"]


def test_an_approval_holds_only_for_what_was_approved(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}")
    campaign(trial)
    assert resume(trial, "--approve").code == 0
    assert resume(trial).code == 0, "it still holds"
    write(trial, FIRST.replace("oa", "ob") % ", checkpoint: {at: before}")
    ran = house_run(trial, {}, "--resume", trial.session.name)
    assert ran.code == 3, "another plan: it is asked again"
    assert log(trial) == ["a"]


def test_a_changed_artifact_is_asked_about_again(trial: House) -> None:
    from lib.campaign.approvals import Approvals
    from lib.plan.plan import Checkpoint, Phase, Plan, Run

    phase = Phase("one", "phase-01-one", (Run("oa", "oa"),), checkpoint=Checkpoint("after", "Well?", ("one.oa.made",)))
    session = trial.folder / "s"
    made = session / "phases/phase-01-one/artifacts/made.json"
    made.parent.mkdir(parents=True)
    made.write_text("1")
    manifest = session / "phases/phase-01-one/oa/manifest.json"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps({"stages": [{"outputs": {"made": "phases/phase-01-one/artifacts/made.json"}}]}))
    approvals = Approvals(session, Plan("trial", "", (phase,)))
    approvals.record(approvals.asked(phase), "approve", "", None)
    assert approvals.decision(approvals.asked(phase))
    made.write_text("2")
    assert approvals.decision(approvals.asked(phase)) is None
    approvals.record(approvals.asked(phase), "reject", "no", None)
    assert len(list((session / "approvals").iterdir())) == 2, "the earlier decision stays on record"


def test_a_no_ends_it_and_is_on_record(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}" + SECOND % "")
    assert campaign(trial).code == 3
    assert not (trial.workspace / "log").exists()
    ran = resume(trial, "--reject", "not this week")
    assert (ran.code, ran.error["code"]) == (1, "REJECTED")
    assert "not this week" in ran.error["message"]
    assert json.loads((trial.session / "approvals/one-before.json").read_text())["why"] == "not this week"
    assert resume(trial).code == 1, "a no stays a no"


def test_an_answer_has_the_form_that_was_asked_for_and_reaches_the_next_phase(trial: House) -> None:
    schema = {"type": "object", "required": ["choice"], "properties": {"choice": {"enum": ["a", "b"]}}}
    (trial.folder / "config/schemas/selection.json").write_text(json.dumps(schema))
    trial.orchestrator(
        "version: 1\nname: ob\nparams: {choice: {type: file}}\nstages:\n"
        "  - {name: b, tool: worker.py, args: [b], inputs: {choice: param.choice}, outputs: {made: {path: made.json}}}\n",
        "ob",
    )
    second = SECOND.replace("orchestrator: ob", "orchestrator: ob, inputs: {choice: one.answer}") % ""
    write(trial, FIRST % ", checkpoint: {at: after, answer_schema: selection}" + second)
    assert campaign(trial).code == 3
    assert resume(trial, "--approve").error["code"] == "ANSWER_NEEDED"
    assert resume(trial, "--answer", 'one={"choice": "c"}').error["code"] == "BAD_ANSWER"
    ran = resume(trial, "--answer", 'one={"choice": "b"}')
    assert ran.code == 0, ran.stderr
    assert json.loads((trial.session / "approvals/one.answer.json").read_text()) == {"answer": {"choice": "b"}}
    (task,) = trial.session.glob("phases/phase-02-two/ob/stages/*/task-1.json")
    assert json.loads(task.read_text())["inputs"]["choice"].endswith("one.answer.json")


def test_other_phases_go_on_while_one_waits(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}" + SECOND.replace(", depends_on: [one]", "") % "")
    ran = campaign(trial)
    assert ran.code == 3
    assert log(trial) == ["b"]


def test_a_person_answers_an_escalation_with_a_file(trial: House) -> None:
    write(trial, FIRST.replace("{none: a test}", "{checks: [good], fix: false}") % "")
    (trial.workspace / "bad").write_text("x")
    ran = campaign(trial)
    assert (ran.code, ran.error["code"]) == (3, "ESCALATED")
    text = Path(ran.error["escalation"]).read_text()
    for needed in ("What was tried", "Evidence", "--resolution FILE", "--reject", "good: 1 error"):
        assert needed in text
    (trial.workspace / "bad").unlink()
    (trial.workspace / "answer.md").write_text("I removed the bad file.")
    ran = resume(trial, "--resolution", "answer.md")
    assert ran.code == 0, ran.stderr
    assert "I removed the bad file." in (trial.session / "resolutions/human-01.md").read_text()
    assert log(trial) == ["a"]


def test_giving_up_on_an_escalation_runs_nothing(trial: House) -> None:
    write(trial, FIRST % "")
    plan(trial, a="fail")
    assert campaign(trial).code == 3
    before = log(trial)
    ran = resume(trial, "--reject", "not worth it")
    assert (ran.code, ran.error["code"]) == (1, "REJECTED")
    assert log(trial) == before
    assert json.loads((trial.session / "escalations/rejected.json").read_text())["why"] == "not worth it"


def test_decisions_belong_to_a_campaign_that_waits(trial: House) -> None:
    write(trial, FIRST % "")
    assert campaign(trial, "--approve").error["code"] == "USAGE"


@pytest.mark.parametrize("decision", ["resolve", "escalate"])
def test_a_request_is_judged_by_one_executor(trial: House, decision: str) -> None:
    """A stage whose healing is exhausted asks; its parent's evaluator answers, or passes the question on."""
    trial.agent("asker", strata={"outputs": {"doc": {"path": "doc.md"}}}, tools="Read, Write")
    trial.orchestrator("version: 1\nname: oa\nstages:\n  - {name: a, agent: asker, self_heal: true, retry: {max: 0}}\n", "oa")
    write(trial, FIRST % "")

    def asker(request):  # type: ignore[no-untyped-def]
        from scripted_model.server import say, tool

        if "Write it in French" not in request.prompt:
            return say("I do not know the language.\n\nSTAGE_FAILED: which language?")
        if request.turn == 0:
            return say(tool("Write", file_path=request.path("doc"), content="Bonjour\n"))
        return say("STAGE_TASK_COMPLETE")

    def evaluator(request):  # type: ignore[no-untyped-def]
        known = {"resolve": ("Write it in French.", ""), "escalate": ("I would guess.", "Which language?")}[decision]
        return returns(request, decision=decision, guidance=known[0], question=known[1])

    with scripted(by_agent(asker=asker, refinement__evaluator=evaluator)) as model:
        ran = house_run(trial, model.environment(str(trial.folder / "claude")))
    if decision == "resolve":
        assert ran.code == 0, ran.stderr
        assert "Write it in French." in (trial.session / "resolutions/orch-phase-01-one.oa.md").read_text()
    else:
        assert (ran.code, ran.error["code"]) == (3, "ESCALATED"), ran.stderr
        assert "**Question:** Which language?" in Path(ran.error["escalation"]).read_text()
        attempts = list(trial.session.glob("phases/phase-01-one/oa/stages/01-a/attempt-*"))
        assert len(attempts) == 3, "with nothing to tell it, it is not called again"


def house_run(house: House, env: dict[str, str], *flags: str) -> Ran:
    return house.json("campaign", "plan.yaml", *flags, **env)


# Rollback


def git(folder: Path, *words: str) -> str:
    env = os.environ | {f"GIT_{w}_{x}": "t" for w in ("AUTHOR", "COMMITTER") for x in ("NAME", "EMAIL")}
    return subprocess.run(["git", "-C", str(folder), *words], env=env, check=True, capture_output=True, text=True).stdout


SPOILER = """
def work(task, out, call):
    from pathlib import Path
    cwd = Path(call.cwd)
    (cwd / "kept.txt").write_text("spoiled")
    (cwd / "loose.txt").unlink()
    (cwd / "new").mkdir()
    (cwd / "new/file.txt").write_text("new")
    (cwd / "run.sh").chmod(0o600)
    (cwd / "secret.env").write_text("gone")
    (out / "made.json").write_text("1")
    return Verdict("done")
"""


@pytest.fixture
def repository(trial: House) -> House:
    trial.tool("worker", SPOILER)
    w = trial.workspace
    git(w, "init", "-q")
    (w / ".gitattributes").write_text("*.txt text eol=crlf\n")
    (w / ".gitignore").write_text("secret.env\n")
    (w / "kept.txt").write_bytes(b"one\ntwo\n")
    (w / "run.sh").write_text("#!/bin/sh\n")
    (w / "run.sh").chmod(0o750)
    git(w, "add", "-A")
    git(w, "commit", "-qm", "start")
    (w / "loose.txt").write_bytes(b"never added\r\n")
    (w / "secret.env").write_text("TOKEN=1")
    (w / "staged.txt").write_text("staged")
    git(w, "add", "staged.txt")
    (w / "empty").mkdir()
    (w / "link").symlink_to("kept.txt")
    return trial


def state_of(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.relative_to(folder).parts and path.name not in ("plan.yaml", "checks.yaml"):
            content = str(path.readlink()) if path.is_symlink() else (path.read_bytes() if path.is_file() else "")
            found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def test_a_failed_phase_is_put_back_exactly_and_stays_reachable(repository: House) -> None:
    w = repository.workspace
    write(repository, FIRST.replace("{none: a test}", "{checks: [good], fix: false}") % ", on_failure: rollback")
    (w / "checks.yaml").write_text('version: 1\nchecks: {good: {command: "false"}}\n')
    before = state_of(w), git(w, "status", "--porcelain"), git(w, "rev-parse", "HEAD"), git(w, "stash", "list"), git(w, "branch")
    ran = campaign(repository)
    assert ran.code == 3, ran.stderr
    after = state_of(w), git(w, "status", "--porcelain"), git(w, "rev-parse", "HEAD"), git(w, "stash", "list"), git(w, "branch")
    assert after == before
    report = json.loads((repository.session / "phases/phase-01-one/report.json").read_text())
    ref = report["rolled_back"]["ref"]
    assert git(w, "show", f"{ref}:kept.txt") == "spoiled"
    assert git(w, "show", f"{ref}:new/file.txt") == "new"
    assert ref in Path(ran.error["escalation"]).read_text()
    assert ref in (repository.session / "execution-report.md").read_text()
    assert resume(repository).code == 3
    assert state_of(w) == before[0], "and again"
    assert len(git(w, "for-each-ref", "refs/strata").splitlines()) == 3, "each failed state has its own"


def test_a_phase_that_succeeds_is_not_put_back(repository: House) -> None:
    write(repository, FIRST % ", on_failure: rollback")
    assert campaign(repository).code == 0
    assert (repository.workspace / "kept.txt").read_text() == "spoiled"


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_rollback_outside_git_is_refused_before_anything_runs(trial: House, flags: tuple[str, ...]) -> None:
    write(trial, FIRST % ", on_failure: rollback")
    ran = campaign(trial, *flags)
    assert (ran.code, ran.error["code"]) == (1, "NO_REPOSITORY")
    assert not trial.sessions.exists() or not list(trial.sessions.iterdir())


def test_rollback_in_a_fresh_workspace_is_refused_with_its_place(trial: House) -> None:
    (trial.workspace / "plan.yaml").write_text(
        "version: 1\nname: trial\nworkspace: session\nphases:\n" + FIRST % ", on_failure: rollback"
    )
    ran = campaign(trial)
    assert ran.error["code"] == "BAD_CONFIG"
    assert "plan.yaml:5" in ran.error["message"]


def test_rollback_works_in_a_subfolder_and_with_odd_names(repository: House) -> None:
    from lib.workspace.trees import Tree

    folder = repository.workspace / "sub"
    folder.mkdir()
    for name in ('"quoted.txt', "new\nline.txt", "plain.txt"):
        (folder / name).write_text(name)
    tree = Tree(folder, repository.folder / "s")
    commit = tree.take("refs/strata/test/before", "before")
    before = state_of(folder)
    for path in folder.iterdir():
        path.write_text("spoiled")
    (folder / "made").mkdir()
    (folder / "made/__pycache__").mkdir()
    (folder / "made/__pycache__/x.pyc").write_text("x")
    (folder / "made/x.py").write_text("x")
    assert len(tree.put_back(commit)) == 4
    assert state_of(folder) == before
    assert (repository.workspace / "kept.txt").exists(), "the rest of the repository is not touched"


def test_a_phase_that_had_succeeded_is_put_back_only_to_where_it_went_on(repository: House) -> None:
    write(repository, FIRST.replace("{none: a test}", "{checks: [good], fix: false}") % ", on_failure: rollback")
    assert campaign(repository).code == 0
    (repository.workspace / "mine.txt").write_text("the user's")
    (repository.workspace / "bad").write_text("x")
    assert resume(repository).code == 3
    assert (repository.workspace / "mine.txt").read_text() == "the user's"


def test_rollback_and_parallel_phases_exclude_each_other(repository: House) -> None:
    write(repository, FIRST % ", on_failure: rollback")
    path = repository.workspace / "plan.yaml"
    path.write_text(path.read_text().replace("name: trial\n", "name: trial\nmax_parallel: 2\n"))
    assert "share a workspace" in campaign(repository).error["message"]


def test_an_approval_is_of_what_was_waiting_and_of_nothing_else(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}" + SECOND % ", checkpoint: {at: after, show: [ob.made]}")
    campaign(trial)
    assert resume(trial, "--approve", "two").error["code"] == "USAGE"
    ran = resume(trial, "--approve")
    assert (ran.code, [p["status"] for p in ran.document["phases"]]) == (3, ["complete", "waiting"]), (
        "the second was not seen yet"
    )
    assert ran.document["phases"][1]["sentinel_grade"] == "UNVERIFIABLE"
    assert resume(trial, "--approve").code == 0
    assert resume(trial, "--approve").error["code"] == "USAGE", "nothing waits any more"


def test_a_no_can_be_taken_back(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}")
    campaign(trial)
    assert resume(trial, "--reject", "not yet").code == 1
    assert resume(trial, "--approve").code == 0
    assert len(list((trial.session / "approvals").iterdir())) == 2, "both are on record"


def test_what_a_person_was_asked_by_the_evaluator_is_in_the_escalation(trial: House) -> None:
    from lib.campaign.people import escalation
    from lib.plan.plan import Phase, Run
    from lib.process.tools import ToolResult

    reply = ToolResult(
        ExitCode.NEEDS_ESCALATION, {"status": "x", "error": {"code": "C", "message": "m", "question": "Red or blue?"}}
    )
    phase = Phase("one", "phase-01-one", (Run("oa", "oa"),))
    assert "**Question:** Red or blue?" in escalation("trial", trial.folder, [(phase, reply)], "cmd")


def test_a_rollback_that_was_cut_short_is_finished(repository: House) -> None:
    write(repository, FIRST.replace("{none: a test}", "{checks: [good], fix: false}") % ", on_failure: rollback")
    (repository.workspace / "checks.yaml").write_text('version: 1\nchecks: {good: {command: "test ! -f new/file.txt"}}\n')
    before = state_of(repository.workspace)
    put_back = "        changed = self.tree.put_back("
    killed = f"        import os; os.kill(os.getpid(), 9)\n{put_back}"
    repository.rewrite("rollback", (put_back, killed))
    campaign(repository)
    shutil.rmtree(repository.workspace / "new")  # as far as it came
    (repository.workspace / "kept.txt").unlink()
    repository.rewrite("rollback", (killed, put_back))
    ran = resume(repository)
    assert ran.code == 3, "the phase is done again from where it was put back to, and fails again"
    assert state_of(repository.workspace) == before
    assert len(git(repository.workspace, "for-each-ref", "refs/strata", "--format=%(refname)").split()) == 3, (
        "before, failed-1, failed-2"
    )


def test_what_the_user_did_while_a_phase_waited_is_not_put_back(repository: House) -> None:
    stages = STAGE % ("a", "a") + "  - {name: q, ask: {question: Well?}}\n"
    repository.orchestrator(f"version: 1\nname: oa\nstages:\n{stages}", "oa")
    write(repository, FIRST.replace("{none: a test}", "{checks: [good], fix: false}") % ", on_failure: rollback")
    (repository.workspace / "checks.yaml").write_text('version: 1\nchecks: {good: {command: "false"}}\n')
    assert campaign(repository).code == 3
    (repository.workspace / "user.txt").write_text("mine")
    assert resume(repository, "--answer", "q=yes").code == 3
    assert (repository.workspace / "user.txt").read_text() == "mine"


def test_a_link_that_became_a_folder_is_put_back(repository: House) -> None:
    from lib.workspace.trees import Tree

    tree = Tree(repository.workspace, repository.folder / "s")
    commit = tree.take("refs/strata/test/before", "before")
    before = state_of(repository.workspace)
    (repository.workspace / "link").unlink()
    (repository.workspace / "link").mkdir()
    (repository.workspace / "kept.txt").unlink()
    tree.put_back(commit)
    assert state_of(repository.workspace) == before


def test_a_resolution_is_told_until_it_has_helped(trial: House) -> None:
    from lib.campaign import people

    session = trial.folder / "s"
    (session / "escalations").mkdir(parents=True)
    (session / "escalations/01.md").write_text("?")
    os.utime(session / "escalations/01.md", (1, 1))
    path = people.keep_resolution(session, "blue")
    assert people.resolutions(session) == [path]
    (session / "escalations/02.md").write_text("?")
    os.utime(path, (2, 2))
    assert people.resolutions(session) == [], "another question was asked since"


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_waiting_is_3_whoever_listens(trial: House, closed: str) -> None:
    import shlex

    write(trial, FIRST % ", checkpoint: {at: after}")
    command = f"{shlex.join(trial.argv('campaign', 'plan.yaml'))} {closed}"
    done = subprocess.run(["bash", "-c", command], env=trial.env, cwd=trial.workspace, check=False, capture_output=True)
    assert done.returncode == 3
    assert log(trial) == ["a"]


# At a terminal


def test_at_a_terminal_a_checkpoint_is_asked_at_once(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: after, question: Good?}" + SECOND % "")
    code, shown = at_a_terminal(trial, "campaign", [("later: ", "y\n")], "plan.yaml")
    assert code == 0, shown
    assert log(trial) == ["a", "b"]


def test_at_a_terminal_no_answer_means_later_and_ctrl_c_means_stop(trial: House) -> None:
    write(trial, FIRST % ", checkpoint: {at: before}")
    code, shown = at_a_terminal(trial, "campaign", [("later: ", "\n")], "plan.yaml")
    assert code == 3
    assert "waiting for you: " in shown and "error" not in shown
    code, shown = at_a_terminal(trial, "campaign", [("later: ", "\x03")], "--resume", trial.session.name)
    assert code == 20, shown


def test_at_a_terminal_an_escalation_is_answered_and_goes_on(trial: House) -> None:
    write(trial, FIRST % "")
    plan(trial, a="fail")
    code, shown = at_a_terminal(trial, "campaign", [("stop here: ", "try blue\n"), ("stop here: ", "\n")], "plan.yaml")
    assert code == 3, shown
    assert "What was tried" in shown
    assert "try blue" in (trial.session / "resolutions/human-01.md").read_text()
    assert log(trial) == ["a"] * 3, "once, and once more; and once with the answer"


# In the background

WAITER = """
def work(task, out, call):
    import time
    (call.cwd / "started").write_text("x")
    while not (call.cwd / "go").exists():
        time.sleep(0.02)
    (out / "made.json").write_text("1")
    return Verdict("done")
"""


def test_a_detached_run_goes_on_alone_and_is_stopped_and_resumed(trial: House) -> None:
    trial.tool("worker", WAITER)
    write(trial, FIRST % "")
    ran = campaign(trial, "--detach")
    assert ran.code == 0, ran.stderr
    assert "session.py watch" in ran.document["watch"] and "--stop" in ran.document["stop"]
    wait_for((trial.workspace / "started").exists)
    stopped = trial.json("campaign", "--stop", ran.document["session_dir"])
    assert stopped.code == 0, stopped.stderr
    assert not with_marker(str(trial.folder / "core")), "all of it has ended"
    again = trial.json("campaign", "--stop", ran.document["session_dir"])
    assert again.error["code"] == "NOT_RUNNING"
    (trial.workspace / "go").write_text("x")
    ran = resume(trial)
    assert ran.code == 0, ran.stderr
