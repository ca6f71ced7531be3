"""Looking at a run: the tree at a terminal, and session.py; from files only, while it goes, when it has ended or was killed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from lib.session import catalogue
from lib.view import gallery, reader, terminal, tree
from scripted_model.server import Reply, Request, fail, say, tool
from support import WORKER, House, at_a_terminal, plan, wait_for

pytestmark = pytest.mark.rehearsed

STAGES = """version: 1
name: trial
params: {names: {about: who, type: list, default: "x,y,z"}}
stages:
  - {name: first, tool: worker.py, args: [first], retry: {max: 0}, outputs: {made: {path: made.json}}}
  - name: each
    tool: worker.py
    retry: {max: 0}
    foreach: {items: param.names, cap: 2, max_items: 200}
    on_item_failure: skip
    outputs: {made: {path: made.json}}
  - {name: last, tool: worker.py, args: [last], retry: {max: 0}, outputs: {made: {path: made.json}}}
"""
PLAN = """version: 1
name: seen
description: What is looked at.
budget: {usd: 9}
phases:
  - {name: one, run: [{orchestrator: trial}], verify: {checks: [artifacts]}}
  - {name: two, depends_on: [one], run: [{orchestrator: trial, params: {names: "a,b"}}], verify: {none: a test}}
"""
SCREEN = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    house.orchestrator(STAGES)
    (house.folder / "plan.yaml").write_text(PLAN)
    return house


def run(house: House, *flags: str) -> int:
    return house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"), *flags).code


def look(house: House) -> tree.Scene:
    return reader.Reader(house.folder / "s").look()


def node(root: tree.Node, *names: str) -> tree.Node:
    for name in names:
        root = next(n for n in root.nodes if n.name == name)
    return root


def session(house: House, *words: str, **env: str):
    return house.json("session", *words, "--session-base", str(house.folder), **env)


# The tree


def test_a_finished_run_is_a_tree_of_all_it_did(trial: House) -> None:
    plan(trial, y="fail")
    assert run(trial) == 12
    seen = look(trial)
    assert (seen.root.name, seen.root.status, seen.alive) == ("seen", "partial", False)
    assert [(n.name, n.status) for n in seen.root.nodes] == [("one", "partial"), ("two", "success")]
    each = node(seen.root, "one", "trial", "each")
    assert {n.name: n.status for n in each.nodes} == {"x": "success", "y": "failed", "z": "success"}
    assert "y says fail" in node(each, "y").note
    assert node(each, "y").retries, "the coordinator tried once more"
    assert node(seen.root, "one", "sentinel", "checks").status == "success"
    assert seen.limit_usd == 9


def test_a_run_that_goes_on_is_seen_from_elsewhere_and_a_killed_one_too(trial: House) -> None:
    plan(trial, z="sleep")
    before: set[str] = set()
    with trial.start("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s")) as child:
        wait_for(lambda: list((trial.folder / "s").glob("phases/*/trial/stages/02-each/z/attempt-1")), what="z runs")
        wait_for(lambda: len(list((trial.folder / "s").glob("**/02-each/*/*/outcome.json"))) == 2, what="the others are done")
        seen = look(trial)
        assert seen.alive
        assert seen.root.status == node(seen.root, "one").status == "running"
        each = node(seen.root, "one", "trial", "each")
        assert (each.status, each.wanted) == ("running", 3)
        assert node(each, "z").status == "running"
        assert node(seen.root, "one", "trial", "last").status == "pending", "what is still to come is shown"
        assert node(seen.root, "two").status == "pending"
        shown = trial.run("session", "show", str(trial.folder / "s")).stdout
        assert re.search(r"● each .* 2/3, 1 running", shown), shown
        before = {str(p) for p in (trial.folder / "s").rglob("*")}
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=60)
    wait_for(lambda: not catalogue.alive(trial.folder / "s"), what="it is gone")
    seen = look(trial)
    assert node(seen.root, "one", "trial", "each", "z").status == "cut short"
    assert seen.root.status not in ("running", "success")
    assert {str(p) for p in (trial.folder / "s").rglob("*")} >= before, "and looking leaves everything as it is"


@pytest.mark.parametrize(("width", "height"), [(200, None), (100, 40), (60, 12), (30, 6), (20, 3)])
def test_two_hundred_at_once_fit_any_terminal(tmp_path: Path, width: int, height: int | None) -> None:
    stage = tree.Node("stage", "each", "running", wanted=200)
    for number in range(200):
        status = "failed" if number % 50 == 7 else ("running" if number % 12 == 0 else "success")
        one = tree.Node("item", f"item-{number}", status, note="it did not work out " * 9)
        stage.nodes.append(one)
    root = tree.Node("session", "many", "running", nodes=[tree.Node("phase", "p", "running", nodes=[stage])])
    seen = tree.Scene(tmp_path, root, True, started=time.time() - 3700, now=time.time())
    lines = terminal.picture(seen, width, height)
    assert all(line.cell_len <= width for line in lines)
    assert len(lines) <= (height or 1000)
    words = "\n".join(line.plain for line in lines)
    assert "many" in words
    if height != 3:
        assert "each" in words
        assert "●" in words
    if width > 40 and height != 3:
        assert "/200" in words


def test_a_terminal_that_knows_no_signs_gets_letters(tmp_path: Path) -> None:
    root = tree.Node("session", "ä", "success", nodes=[tree.Node("phase", "p", "failed")])
    lines = terminal.picture(tree.Scene(tmp_path, root, False), 80, None, plain=True)
    assert all(line.plain.isascii() for line in lines)
    assert lines[1].plain.lstrip().startswith("x p")


def test_what_an_agent_does_now_and_that_one_is_parked_are_seen(house: House, model) -> None:
    house.agent("helper", tools="Grep", strata={"completion": "cluster"})
    house.orchestrator(
        "version: 1\nname: trial\nparams: {names: {about: who, type: list, default: 'busy,late'}}\nstages:\n"
        "  - {name: each, agent: helper, action: DO, target: '{item}', foreach: {items: param.names, cap: 2}}\n"
    )

    def script(request: Request) -> Reply:
        if " late" in request.prompt:
            return fail(429)
        return say(tool("Grep", pattern="hello")) if not request.turn else say("DONE: yes", hang_seconds=300)

    model(script)
    session = house.folder / "s"
    with house.start("orchestrator", "trial", "--session-dir", str(session), CLAUDE_CODE_MAX_RETRIES="0") as child:
        report = session / ".live-report"
        wait_for(lambda: report.exists() and '"parked"' in report.read_text(), 60, "one is parked")
        wait_for(lambda: '"hello"' in report.read_text(), 60, "one has called a tool")
        each = node(look(house).root, "trial", "each")
        busy, late = node(each, "busy").rows[-1], node(each, "late").rows[-1]
        assert (busy.status, busy.agent, busy.doing) == ("running", "helper", "Grep hello")
        assert late.status == "parked"
        assert late.doing.startswith("parked until 20")
        words = "\n".join(line.plain for line in terminal.picture(look(house), 120, 20))
        assert "helper Grep hello" in words
        child.terminate()
        child.communicate(timeout=60)


def test_an_ascii_stream_gets_question_marks_and_not_nothing(trial: House) -> None:
    assert run(trial) == 0
    ran = trial.run("session", "show", str(trial.folder / "s"), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "seen success" in ran.stdout


# At a terminal


def test_at_a_terminal_the_tree_is_drawn_and_the_end_is_said(trial: House) -> None:
    code, shown = at_a_terminal(trial, "campaign", [], str(trial.folder / "plan.yaml"), **SCREEN)
    assert code == 0, shown
    assert "\x1b[" in shown
    assert "● seen" in shown.replace("\x1b[36m", "").replace("\x1b[0m", "") or "seen" in shown
    assert '"event"' not in shown, "no lines for programs"
    assert "status: success" in shown
    assert "report.html" in shown


def test_without_colour_and_on_a_dumb_terminal_there_are_plain_lines(trial: House) -> None:
    code, shown = at_a_terminal(trial, "campaign", [], str(trial.folder / "plan.yaml"), **SCREEN | {"TERM": "dumb"})
    assert code == 0
    assert "\x1b[" not in shown
    assert re.search(r"orch .*trial: success", shown), shown
    code, shown = at_a_terminal(trial, "campaign", [], str(trial.folder / "plan.yaml"), **SCREEN, NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown), "NO_COLOR"


def test_a_question_is_not_drawn_over(trial: House) -> None:
    text = PLAN.replace(
        "verify: {checks: [artifacts]}", "verify: {checks: [artifacts]}, checkpoint: {at: after, question: Good?}"
    )
    (trial.folder / "plan.yaml").write_text(text)
    code, shown = at_a_terminal(trial, "campaign", [("later: ", "y\n")], str(trial.folder / "plan.yaml"), **SCREEN)
    assert code == 0, shown
    asked = shown.index("Good?")
    answered = shown.index("later: ", asked)
    assert "\x1b[2K" not in shown[asked:answered]


def test_without_a_terminal_there_are_json_lines(trial: House) -> None:
    ran = trial.run("campaign", str(trial.folder / "plan.yaml"))
    assert all(json.loads(line) for line in ran.stderr.splitlines())


def test_watching_ends_with_the_run(trial: House) -> None:
    plan(trial, z="sleep")
    with trial.start("campaign", str(trial.folder / "plan.yaml"), "--session-dir", str(trial.folder / "s")) as child:
        wait_for(lambda: list((trial.folder / "s").glob("phases/*/trial/stages/02-each/z/*")), what="z runs")
        with trial.start("session", "watch", str(trial.folder / "s")) as watcher:
            time.sleep(1)
            assert watcher.poll() is None
            child.terminate()
            child.communicate(timeout=60)
            out, _ = watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    assert "interrupted" in out.decode()


# session.py


def test_sessions_are_listed_newest_first_and_found_by_any_name(trial: House) -> None:
    assert run(trial) == 0
    base = str(trial.folder)
    assert session(trial, "list").document["sessions"][0]["session"] == "s"
    (trial.folder / "s").rename(trial.folder / "20260101-1000-herons")
    assert trial.json("orchestrator", "trial", "--session-dir", f"{base}/20260101-1001-owls").code == 0
    listed = session(trial, "list").document["sessions"]
    assert [e["session"] for e in listed] == ["20260101-1001-owls", "20260101-1000-herons"]
    assert (listed[1]["status"], listed[1]["grade"]) == ("success", "UNVERIFIABLE")
    for name in ("latest", "owls", "20260101-1001", f"{base}/20260101-1001-owls"):
        assert session(trial, "show", name).document["session"]["session"] == "20260101-1001-owls", name
    assert "2 sessions begin" in session(trial, "show", "2026").error["message"]
    assert "did you mean" in session(trial, "show", "20260101-1001-owl5").error["hint"]
    table = trial.run("session", "list", "--session-base", base).stdout
    assert re.search(r"✓ 20260101-1000-herons +success +UNVERIFIABLE +0.0000 USD", table), table


def test_there_may_be_no_session_yet(house: House) -> None:
    assert house.json("session", "list").document["sessions"] == []
    assert "no sessions" in house.json("session", "show").error["message"]


def test_the_last_lines_and_the_reports(trial: House) -> None:
    assert run(trial) == 0
    (trial.folder / "s/report.html").unlink()
    (trial.folder / "s/execution-report.md").unlink()
    lines = session(trial, "tail", "s", "--lines", "2").document["lines"]
    assert [line["status"] for line in lines] == ["COMPLETE", "success"]
    text = trial.run("session", "tail", str(trial.folder / "s"), "--lines", "1").stdout
    assert text.strip().startswith("campaign seen: success"), text
    made = session(trial, "report", "s").document
    assert Path(made["report"]).read_text().startswith("<!doctype html>")
    assert Path(made["markdown"]).exists()


def test_a_plan_and_a_session_are_drawn_as_mermaid(trial: House) -> None:
    drawn = session(trial, "graph", str(trial.folder / "plan.yaml")).document["graph"]
    assert drawn.startswith("flowchart LR")
    assert 'subgraph p1["one"]' in drawn
    assert 'p1_1_2["trial: each ×"]' in drawn
    assert "p1 --> p2" in drawn
    plan(trial, y="fail")
    assert run(trial) == 12
    drawn = session(trial, "graph", "s").document["graph"]
    assert 'p1_1_2["trial: each ×3<br>x, y, z"]' in drawn
    assert "class p1_1_2 open" in drawn
    assert "class p2_1_1 success" in drawn
    assert gallery._label('a"]; click x') == "a#34;#93;#59; click x"


def test_old_sessions_are_removed_only_when_said_so_and_never_one_that_is_needed(trial: House) -> None:
    base = trial.folder / "many"
    for name in ("old", "young", "waits", "asks", "held", "placed", "runs"):
        folder = base / name
        folder.mkdir(parents=True)
        (folder / ".trace").write_text("0123456789abcdef\n")
    (base / "waits/manifest.json").write_text('{"exit_code": 3}')
    (base / "asks/trial").mkdir()
    (base / "asks/trial/manifest.json").write_text('{"exit_code": 3}')
    (base / "old/gone").symlink_to("/nonexistent")
    (base / "stranger").mkdir()
    (base / "placed/.placed/id").mkdir(parents=True)
    (base / "placed/.placed/id/lease-1").touch()  # a worker renews it, whose run was killed on another machine
    held = (base / "held/.lock").open("w")  # by a process that is called anything at all
    fcntl.flock(held, fcntl.LOCK_EX)
    for name in ("old", "waits", "asks", "held", "placed", "runs"):
        for path in (base / name).iterdir():
            os.utime(path, (1, 1), follow_symlinks=False)
    for name in ("old", "waits", "asks", "held", "placed", "runs", "stranger"):
        os.utime(base / name, (1, 1))
    plan(trial, first="sleep")
    with trial.start("orchestrator", "trial", "--session-dir", str(base / "runs")) as child:
        wait_for((trial.workspace / "log").exists, what="it runs")
        time.sleep(0.5)
        for path in (*(base / "runs").iterdir(), base / "runs"):
            os.utime(path, (1, 1))
        words = ("prune", "--older-than", "30d", "--session-base", str(base))
        asked = trial.json("session", *words).document
        assert asked["would_remove"] == ["old"]
        stays = {s["session"]: s["why"] for s in asked["stays"]}
        person, running = "it waits for a person", "it is running"
        assert stays == {"waits": person, "asks": person, "runs": running, "held": running, "placed": running}
        assert (base / "old").exists()
        assert trial.json("session", *words, "--yes").document["removed"] == ["old"]
        child.terminate()
        child.communicate(timeout=60)
    held.close()
    assert sorted(p.name for p in base.iterdir()) == ["asks", "held", "placed", "runs", "stranger", "waits", "young"]
    assert trial.json("session", "prune", "--older-than", "soon").error["code"] == "USAGE"
    assert trial.json("session", "prune").error["code"] == "USAGE"
