"""`isolation: worktree`: writers at the same time in one project, each in a worktree, merged back in order; real git."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support import House, Ran, wait_for, with_marker

# Each item edits one line of a shared file and adds one of its own; what it does besides is in a file of the house.
WORK = """
def work(task, out, call):
    import os, signal
    name = str(task.item)
    told = json.loads((Path(__file__).parent.parent / "told.json").read_text()).get(name, "")
    log = Path(__file__).parent.parent / "log"
    with log.open("a") as file:
        file.write(name + "\\n")
    shared = call.cwd / "shared.txt"
    lines = shared.read_text().splitlines()
    number = 0 if told == "first line" else int(name)
    lines[number * 3] = f"changed by {name}"
    shared.write_text("\\n".join(lines) + "\\n")
    (call.cwd / f"own-{name}.txt").write_text((call.cwd / "draft.txt").read_text())
    if told == "delete":
        (call.cwd / "shared.txt").unlink()
    if told == "wait":
        (Path(__file__).parent.parent / "waiting").write_text(str(os.getpid()))
        time.sleep(600)
    if told == "fail":
        raise StrataError("TRIAL", "as told")
    return Verdict("done")
"""
STAGES = """version: 1
name: trial
params: {names: {about: who, type: list, default: "1,2,3"}}
stages:
  - name: build
    tool: worker.py
    foreach: {items: param.names, cap: 3}
    isolation: worktree
    retry: {max: 0}
    on_item_failure: %s
"""
PLAN = """version: 1
name: trial
workspace: session
repository: true
files: {draft.txt: d, shared.txt: "%s"}
phases: [{name: one, run: [{orchestrator: trial}], verify: {none: a trial}}]
""" % (r"line\n" * 12)


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORK)
    house.orchestrator(STAGES % "abort")
    told(house)
    git(house, "init", "-q")
    (house.workspace / "shared.txt").write_text("".join(f"line {n}\n" for n in range(12)))
    git(house, "add", ".")
    git(house, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "first")
    (house.workspace / "draft.txt").write_text("not committed\n")
    return house


def git(house: House, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=house.workspace, capture_output=True, text=True, check=True).stdout


def told(house: House, **words: str) -> None:
    (house.folder / "told.json").write_text(json.dumps({k.removeprefix("n"): v for k, v in words.items()}))


def run(house: House, *flags: str) -> Ran:
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags)


def ran(house: House) -> list[str]:
    return (house.folder / "log").read_text().split()


def shared(house: House) -> list[str]:
    return [line for line in (house.workspace / "shared.txt").read_text().splitlines() if line.startswith("changed")]


def nothing_left(house: House) -> None:
    assert len(git(house, "worktree", "list").splitlines()) == 1
    assert not list((house.folder / "s/worktrees").glob("*"))


def test_changes_made_at_the_same_time_come_together(trial: House) -> None:
    trial.lock_as_nfs()
    before = (git(trial, "rev-parse", "HEAD"), git(trial, "branch", "-a"), git(trial, "stash", "list"))
    done = run(trial)
    assert done.code == 0, done.stderr
    assert shared(trial) == ["changed by 1", "changed by 2", "changed by 3"]
    assert [(trial.workspace / f"own-{n}.txt").read_text() for n in "123"] == ["not committed\n"] * 3, "it began as it was"
    assert (git(trial, "rev-parse", "HEAD"), git(trial, "branch", "-a"), git(trial, "stash", "list")) == before
    nothing_left(trial)
    merged = [json.loads(line) for line in (trial.folder / "s/.live-report").read_text().splitlines()]
    order = [e["stage"][-1] for e in merged if e["status"] == "merged"]
    assert order == ["1", "2", "3"], "in the order they are listed, whoever was first"
    assert run(trial).code == 0
    assert len(ran(trial)) == 3, "merged work is finished"


def test_a_conflict_is_a_request_for_refinement_and_loses_nothing(trial: House) -> None:
    told(trial, n1="first line", n2="first line")
    done = run(trial)
    assert (done.code, done.error["code"]) == (10, "ITEMS_FAILED"), done.stdout
    items = {i["name"]: i for i in done.document["stages"][0]["items"]}
    assert (items["2"]["exit_code"], items["2"]["code"]) == (10, "MERGE_CONFLICT")
    assert shared(trial) == ["changed by 1", "changed by 3"], "what could be merged is"
    assert not (trial.workspace / "own-2.txt").exists()
    text = next((trial.folder / "s/refinements").glob("*2.md")).read_text()
    assert "shared.txt" in text
    commit = next(w for w in text.split() if len(w) == 40)
    assert "changed by 2" in git(trial, "show", f"{commit}:shared.txt"), "and what could not be is a commit"
    nothing_left(trial)
    told(trial)
    again = run(trial)
    assert again.code == 0, again.stderr
    assert ran(trial)[3:] == ["2"], "only that one, from what is merged"
    assert shared(trial) == ["changed by 1", "changed by 2", "changed by 3"]


def test_a_step_that_failed_leaves_nothing_in_the_workspace(trial: House) -> None:
    trial.orchestrator(STAGES % "skip")
    told(trial, n2="fail")
    done = run(trial)
    assert done.code == 12, done.stderr
    assert shared(trial) == ["changed by 1", "changed by 3"]
    assert not (trial.workspace / "own-2.txt").exists()
    nothing_left(trial)


def test_one_that_deletes_what_another_changed_conflicts(trial: House) -> None:
    told(trial, n2="delete")
    done = run(trial)
    assert done.code == 10, done.stdout
    assert shared(trial) == ["changed by 1", "changed by 3"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_loses_no_finished_work_and_leaves_no_worktree(trial: House, how: int) -> None:
    told(trial, n3="wait")
    with trial.start("orchestrator", "trial", "--session-dir", str(trial.folder / "s")) as child:
        wait_for((trial.folder / "waiting").exists, what="the third waits")
        wait_for(lambda: len(list((trial.folder / "s").glob("**/outcome.json"))) == 2, what="the others have ended")
        os.kill(child.pid, how)
        child.communicate(timeout=60)
    if how == signal.SIGTERM:
        nothing_left(trial)
    told(trial)
    done = run(trial)
    assert done.code == 0, done.stderr
    assert sorted(ran(trial)) == ["1", "2", "3", "3"], "what had finished was not done again"
    assert shared(trial) == ["changed by 1", "changed by 2", "changed by 3"]
    nothing_left(trial)
    kept = git(trial, "for-each-ref", "--format=%(refname)", "refs/strata")
    assert "cut-short" in kept, "what the interrupted one had done is still there"


def test_what_was_finished_and_not_yet_kept_is_merged_by_a_resume(trial: House) -> None:
    """Killed between the outcome and the merge, with nothing else left to do in the stage."""
    line = '        tree.note(work=tree.keep("work"))\n'
    die = '        if (call.session.folder.parent / "die").exists():\n            os.kill(os.getpid(), 9)\n'
    trial.rewrite("worktrees", (line, f"{die}{line}"))
    (trial.folder / "die").write_text("")
    words = ("orchestrator", "trial", "--param", "names=1", "--session-dir", str(trial.folder / "s"))
    with trial.start(*words) as child:
        child.communicate(timeout=60)
    assert not shared(trial)
    (trial.folder / "die").unlink()
    done = trial.json(*words)
    assert done.code == 0 and shared(trial) == ["changed by 1"] and ran(trial) == ["1"], done.stderr[-1500:]
    nothing_left(trial)


def kill_all_at_once(marker: str) -> None:
    """Nobody is left to put anything away: all stand still first, also who was started meanwhile; some end by themselves."""
    doomed: list[int] = []
    while new := [pid for pid in with_marker(marker) if pid not in doomed]:
        doomed += new
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_copy_of_a_session_works_in_its_own_repository(trial: House) -> None:
    """git links worktrees by absolute paths: those of a copy lead into the original."""
    (trial.folder / "plan.yaml").write_text(PLAN)
    told(trial, n3="wait")
    session, copy = trial.folder / "s", trial.folder / "copied"
    with trial.start("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(session)) as child:
        wait_for((trial.folder / "waiting").exists, what="the third waits")
        wait_for(lambda: len(list(session.glob("**/stages/**/outcome.json"))) == 2, what="the others have ended")
        kill_all_at_once(str(trial.folder / "core"))
        child.communicate(timeout=60)
    shutil.copytree(session, copy, symlinks=True)
    before = {p: p.read_bytes() for p in session.rglob("*") if p.is_file()}
    told(trial)
    done = trial.json("campaign", "--resume", str(copy))
    assert done.code == 0, done.stdout + done.stderr[-2000:]
    assert sorted(ran(trial)) == ["1", "2", "3", "3"], "what had finished was not done again"
    assert (copy / "workspace/own-1.txt").exists() and not (copy / "lost-worktrees").exists()
    assert {p: p.read_bytes() for p in session.rglob("*") if p.is_file()} == before, "the original is not touched"


def test_items_that_wait_for_others_begin_with_what_those_did(trial: House) -> None:
    items = [{"id": "1", "after": ["2"]}, {"id": "2", "after": []}]
    (trial.workspace / "items.json").write_text(json.dumps(items))
    text = (
        (STAGES % "abort")
        .replace('default: "1,2,3"', "default: []")
        .replace("{items: param.names, cap: 3}", "{items: param.names, key: id, after: after, cap: 3}")
    )
    trial.orchestrator(text)
    trial.tool(
        "worker",
        WORK.replace("str(task.item)", 'task.item["id"]').replace(
            'if told == "delete"', 'if name == "1":\n        assert (call.cwd / "own-2.txt").exists()\n    if told == "delete"'
        ),
    )
    (trial.folder / "params.json").write_text(json.dumps({"names": items}))
    done = run(trial, "--params", str(trial.folder / "params.json"))
    assert done.code == 0, done.stderr
    assert ran(trial) == ["2", "1"]


def test_a_workspace_inside_a_repository_is_isolated_there(trial: House) -> None:
    inner = trial.workspace / "inner"
    inner.mkdir()
    (trial.workspace / "shared.txt").rename(inner / "shared.txt")
    (trial.workspace / "draft.txt").rename(inner / "draft.txt")
    done = run(trial, "--cwd", str(inner))
    assert done.code == 0, done.stderr
    assert (inner / "own-1.txt").exists()
    assert not (trial.workspace / "own-1.txt").exists()
    nothing_left(trial)


def test_outside_a_repository_it_is_refused(house: House) -> None:
    house.tool("worker", WORK)
    house.orchestrator(STAGES % "abort")
    done = run(house)
    assert (done.code, done.error["code"]) == (1, "NO_REPOSITORY")
    git(house, "init", "-q")
    told(house)
    done = run(house)
    assert "first commit" in done.error["hint"]


def test_an_agent_works_in_its_worktree(house: House, model) -> None:
    from scripted_model.server import Reply, Request, say, tool

    house.agent("builder", tools="Write, Read", strata={"completion": "cluster", "scope": ["**"]})
    house.orchestrator(
        "version: 1\nname: trial\nparams: {names: {about: who, type: list, default: 'a,b'}}\nstages:\n"
        "  - {name: build, agent: builder, action: DO, target: '{item}', isolation: worktree,\n"
        "     foreach: {items: param.names, cap: 2}}\n"
    )
    git(house, "init", "-q")
    git(house, "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "first")

    def script(request: Request) -> Reply:
        folder = request.prompt.split("Working folder: ")[1].splitlines()[0]
        name = request.prompt.splitlines()[0].split()[-1]
        if request.turn == 0:
            return say(
                tool("Write", file_path=f"{folder}/{name}.txt", content=name),
                tool("Write", file_path=f"{house.workspace}/x", content="x"),
            )
        return say("DONE: it is there")

    model(script)
    done = run(house)
    assert done.code == 0, done.stderr
    assert sorted(p.name for p in house.workspace.glob("[!.]*")) == ["a.txt", "b.txt"], "and not where others work"
    nothing_left(house)
    assert Path(house.folder / "s/worktrees").is_dir()


def test_a_conflict_is_not_forgotten_when_the_next_attempt_is_killed_before_it_began(trial: House) -> None:
    told(trial, n1="first line", n2="first line")
    assert run(trial).code == 10
    (work,) = [
        x for x in git(trial, "for-each-ref", "--format=%(objectname) %(refname)", "refs/strata").splitlines() if "2/work-" in x
    ]
    told(trial)
    opened = "        yield tree.open()\n"
    killed = "        tree.open()\n        os.kill(os.getpid(), 9)\n        yield\n"
    trial.rewrite("worktrees", (opened, killed))
    assert run(trial).code == -9
    trial.rewrite("worktrees", (killed, opened))
    done = run(trial)
    assert done.code == 0, done.stderr
    assert ran(trial)[3:] == ["2"], "what conflicted is not finished"
    assert shared(trial) == ["changed by 1", "changed by 2", "changed by 3"]
    assert work in git(trial, "for-each-ref", "--format=%(objectname) %(refname)", "refs/strata"), "and its commit is still there"
    nothing_left(trial)
