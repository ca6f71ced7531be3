"""What bounds one step: caps by tool, what an item says of itself, and commands in a copy that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Request, say, tool
from support import House, log

pytestmark = pytest.mark.rehearsed


def outcome(house: House, *parts: str) -> dict[str, Any]:
    return json.loads((house.folder.joinpath("s", *parts) / "attempt-1/outcome.json").read_text())


def reads(house: House, times: int):
    """An agent that reads a file so many times, and says it is done."""

    def script(r: Request) -> Any:
        if r.turn < times:
            return say(tool("Read", file_path=str(house.workspace / "a.txt")))
        return say("DONE: yes")

    return script


@pytest.mark.real_cli
def test_a_capped_tool_is_refused_while_the_agent_runs_and_calls_are_counted(house: House, model) -> None:
    (house.workspace / "a.txt").write_text("a\n")
    house.agent("reader", tools="Read", strata={"completion": "cluster", "max_uses": {"Read": 2}})
    scripted = model(reads(house, 4))
    ran = house.json("agent", "reader", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert ran.document["tool_uses"] == {"Read": 2}
    assert [d["tool_name"] for d in ran.document["denials"]] == ["Read", "Read"]
    assert "may be called 2 times" in json.dumps(scripted.requests[-1].body), "the agent is told, and goes on"


def test_a_stage_caps_what_its_agent_may_and_the_lower_of_the_two_counts(house: House, model) -> None:
    (house.workspace / "a.txt").write_text("a\n")
    house.agent("reader", tools="Read", strata={"completion": "cluster", "max_uses": {"Read": 3}})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: one, agent: reader, max_uses: {Read: 1}}\n")
    model(reads(house, 3))
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert outcome(house, "trial/stages/01-one")["tool_uses"] == {"Read": 1}


def test_a_cap_on_a_tool_that_the_agent_does_not_have_is_refused(house: House) -> None:
    house.agent("reader", tools="Read", strata={"max_uses": {"WebSearch": 3}})
    assert "has no tool 'WebSearch' to cap" in house.json("agent", "reader").error["message"]
    assert "that is no number" in house.json("spawn", "--prompt", "x", "--max-uses", "Read=x").error["message"]


EACH = """version: 1
name: trial
params: {items: {type: list, default: []}}
stages:
  - name: each
    agent: {from: item.agent, allow: [writer, reader]}
    target: "{item.id}"
    timeout_seconds: 100
    max_budget_usd: 2
    foreach:
      items: param.items
      key: id
      cap: 1
      each:
        scope: optional item.files
        timeout_seconds: optional item.seconds
        max_budget_usd: optional item.usd
        model: optional item.model
        max_uses: optional item.caps
"""


def item(**fields: Any) -> str:
    return json.dumps([{"id": "a", "agent": "writer", **fields}])


@pytest.fixture
def each(house: House) -> House:
    house.agent("writer", tools="Read, Write", strata={"completion": "cluster", "scope": ["src/**"], "tier": "medium-tier"})
    house.agent("reader", tools="Read", strata={"completion": "cluster"})
    house.orchestrator(EACH)
    return house


def test_an_item_says_its_own_scope_agent_and_limits(each: House, model) -> None:
    def script(r: Request) -> Any:
        place = each.workspace / ("src/a.py" if r.turn == 0 else "src/b.py")
        return say(tool("Write", file_path=str(place), content="x\n")) if r.turn < 2 else say("DONE: yes")

    model(script)
    given = item(files=["src/a.py"], seconds=50, usd=1, model="low-tier", caps={"Write": 5})
    ran = each.json("orchestrator", "trial", "--session-dir", str(each.folder / "s"), "--param", f"items={given}")
    assert ran.code == 0, ran.stderr
    assert (each.workspace / "src/a.py").exists()
    assert not (each.workspace / "src/b.py").exists(), "another file of its agent's scope is not the item's"
    came = outcome(each, "trial/stages/01-each/a")
    task = json.loads((each.folder / "s/trial/stages/01-each/a/task-1.json").read_text())
    limits = task["limits"]
    assert (limits["timeout_seconds"], limits["max_budget_usd"], limits["model"]) == (50, 1, "low-tier")
    assert came["tool_uses"] == {"Write": 1}
    assert [d["tool_name"] for d in came["denials"]] == ["Write"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"files": ["../x"]}, "asks for scope ../x"),
        ({"files": ["tests/a.py"]}, "allowed: src/**"),
        ({"files": ["**"]}, "asks for scope **"),
        ({"seconds": 101}, "timeout_seconds: 101; allowed: at most 100"),
        ({"seconds": "soon"}, "Expected `float | null`, got `str`"),
        ({"usd": 3}, "max_budget_usd: 3; allowed: at most 2"),
        ({"model": "high-tier"}, "the model high-tier; allowed: at most medium-tier"),
        ({"agent": "boss"}, "asks for the agent 'boss'"),
        ({"agent": "reader", "files": ["src/a.py"]}, "allowed: only what reader leaves"),
    ],
)
def test_an_item_that_asks_for_more_than_its_stage_allows_is_refused(each: House, fields: dict[str, Any], words: str) -> None:
    ran = each.json("orchestrator", "trial", "--session-dir", str(each.folder / "s"), "--param", f"items={item(**fields)}")
    assert ran.code == 1
    assert words in ran.error["message"]


COPIES = """version: 1
name: trial
params: {items: {type: list, default: [a, b, c]}}
stages:
  - {name: each, tool: messy.py, args: ["{item}"], isolation: copy, foreach: {items: param.items, cap: 3},
     outputs: {made: {path: made.json}}}
"""
MESSY = """
def work(task, out, call):
    name = call.options.words[0]
    here = Path(call.cwd)
    names = sorted(p.name for p in here.iterdir())
    (out / "made.json").write_text(json.dumps([str(here), (here / "code.py").read_text(), names]))
    (here / "code.py").write_text("broken by " + name)
    (here / "new.txt").write_text(name)
    (here / "locked").mkdir()
    (here / "locked/file").write_text("x")
    (here / "locked").chmod(0o500)
    return Verdict("done")
"""


def test_steps_in_copies_run_side_by_side_and_change_nothing(house: House) -> None:
    house.tool("messy", MESSY)
    house.orchestrator(COPIES)
    (house.workspace / "code.py").write_text("good\n")
    (house.workspace / "link").symlink_to("code.py")
    session = house.workspace / "inside"  # the session in the working folder is not copied into itself
    ran = house.json("orchestrator", "trial", "--session-dir", str(session))
    assert ran.code == 0, ran.stderr
    made = [json.loads(p.read_text()) for p in sorted(session.glob("artifacts/trial/01-each/*/made.json"))]
    assert len({place for place, _, _ in made}) == 3, "each in a folder of its own"
    assert {text for _, text, _ in made} == {"good\n"}, "each as the workspace is"
    assert all(names == ["code.py", "link"] for _, _, names in made)
    assert (house.workspace / "code.py").read_text() == "good\n"
    assert sorted(p.name for p in house.workspace.iterdir()) == ["code.py", "inside", "link"]
    assert not [*(session / "copies").iterdir()], "no copy stays behind"
    outcomes = [json.loads(p.read_text()) for p in session.glob("trial/stages/01-each/*/attempt-1/outcome.json")]
    assert [o["changes"] for o in outcomes] == [[], [], []], "what was thrown away is nobody's work"
    again = house.json("orchestrator", "trial", "--session-dir", str(session), "--explain")
    assert [e["does"] for e in again.document["explained"]] == ["SKIP"] * 3


def test_a_copy_that_was_left_behind_is_gone_before_the_next(house: House) -> None:
    house.tool("messy", MESSY)
    house.orchestrator(COPIES)
    (house.workspace / "code.py").write_text("good\n")
    left = house.folder / "s/copies/trial.01-each.a"
    left.mkdir(parents=True)
    (left / "old.txt").write_text("from a run that was killed")
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    names = [json.loads(p.read_text())[2] for p in house.folder.glob("s/artifacts/trial/01-each/*/made.json")]
    assert names == [["code.py"]] * 3


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("{name: one, tool: messy.py, isolation: copy, outputs: {made: {path: m, in: workspace}}}", "thrown away"),
        ("{name: one, tool: check.py, args: [ruff], isolation: copy}", "a check judges the folder itself"),
    ],
)
def test_what_makes_no_sense_in_a_copy_is_refused(house: House, stage: str, words: str) -> None:
    house.tool("messy", MESSY)
    house.orchestrator(f"version: 1\nname: trial\nstages:\n  - {stage}\n")
    assert words in house.json("orchestrator", "trial").error["message"]


def test_shells_of_agents_run_side_by_side_in_copies(house: House, model) -> None:
    """Verifiers that run commands, together: refused without a copy, and with one they change nothing."""
    house.agent("verifier", tools="Bash, Write", strata={"completion": "cluster", "sandbox": "off"})
    text = (
        "version: 1\nname: trial\nstages:\n  - name: look\n    members:\n      a: {agent: verifier}\n      b: {agent: verifier}\n"
    )
    house.orchestrator(text)
    assert "at the same time" in house.json("orchestrator", "trial").error["message"]
    house.orchestrator(f"{text}    isolation: copy\n")
    (house.workspace / "code.py").write_text("good\n")
    model(lambda r: say(tool("Bash", command="echo bad > code.py; pwd; cat code.py")) if r.turn == 0 else say("DONE: yes"))
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert (house.workspace / "code.py").read_text() == "good\n"
    assert log(house) == []
    assert not [*Path(house.folder / "s/copies").iterdir()]


# What was tried, and did not hold once


def one_item(house: House, **fields: Any) -> Any:
    house.orchestrator(
        EACH.replace("{from: item.agent, allow: [writer, reader]}", "writer").replace("max_budget_usd: 2", "max_uses: {Read: 1}")
    )
    given = json.dumps([{"id": "a", **fields}])
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), "--param", f"items={given}")


@pytest.mark.real_cli
def test_a_scope_that_would_be_two_rules_is_refused(each: House, model, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    model(lambda r: say(tool("Write", file_path=str(evil / "x.txt"), content="x")) if r.turn == 0 else say("DONE: yes"))
    ran = one_item(each, files=[f"src/a),Edit(/{evil}/**"])
    assert ran.code == 1 and "asks for scope" in ran.error["message"]
    assert not (evil / "x.txt").exists()


@pytest.mark.real_cli
def test_a_target_is_a_path_and_no_pattern(house: House, model) -> None:
    (house.workspace / "src").mkdir()
    outputs = {"doc": {"path": "{target}", "in": "workspace"}}
    house.agent("writer", tools="Read, Write", strata={"completion": "cluster", "outputs": outputs})

    def script(r: Request) -> Any:
        name = "src/*" if r.turn == 0 else "src/other.py"
        return say(tool("Write", file_path=str(house.workspace / name), content="x")) if r.turn < 2 else say("DONE: yes")

    model(script)
    house.json("agent", "writer", "DO", "src/*", "--session-dir", str(house.folder / "s"))
    assert not (house.workspace / "src/other.py").exists()


def test_the_caps_of_an_item_stand_beside_those_of_its_stage(each: House, model) -> None:
    (each.workspace / "a.txt").write_text("a\n")
    model(reads(each, 3))
    assert one_item(each, caps={"Write": 5}).code == 0
    assert outcome(each, "trial/stages/01-each/a")["tool_uses"] == {"Read": 1}


def test_an_empty_scope_is_nothing_and_not_everything(each: House, model) -> None:
    model(
        lambda r: say(tool("Write", file_path=str(each.workspace / "src/b.py"), content="x")) if r.turn == 0 else say("DONE: yes")
    )
    one_item(each, files=[])
    assert not (each.workspace / "src/b.py").exists()


def test_a_session_that_is_continued_has_its_calls_counted(house: House, model) -> None:
    """A kill in the middle gives nobody a second helping."""
    import os
    import signal
    import threading

    (house.workspace / "a.txt").write_text("the words of a\n")
    house.agent("reader", tools="Read", strata={"completion": "cluster", "max_uses": {"Read": 2}})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: one, agent: reader}\n")
    there, go_on = threading.Event(), threading.Event()

    def script(r: Request) -> Any:
        if not go_on.is_set() and r.turn == 2:
            there.set()
            go_on.wait(20)
        return say(tool("Read", file_path=str(house.workspace / "a.txt"))) if r.turn < 6 else say("DONE: yes")

    scripted = model(script)
    words = ("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    with house.start(*words) as child:
        assert there.wait(30)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(20)
    go_on.set()
    assert house.json(*words).code == 0
    assert json.dumps(scripted.requests[-1].body).count("the words of a") <= 2


LINKS = """
def work(task, out, call):
    here = Path(call.cwd)
    for name in ("absolute", "relative"):
        (here / name).write_text("changed")
    (out / "made.json").write_text(json.dumps([(here / "outside").read_text(), (here / "loop").is_symlink()]))
    here.chmod(0)
    return Verdict("done")
"""


def test_links_lead_into_the_copy_and_not_back(house: House, tmp_path: Path) -> None:
    house.tool("messy", LINKS)
    house.orchestrator(COPIES.replace("[a, b, c]", "[a]"))
    (house.workspace / "real.txt").write_text("real")
    (tmp_path / "elsewhere.txt").write_text("elsewhere")
    (house.workspace / "absolute").symlink_to(house.workspace / "real.txt")
    (house.workspace / "relative").symlink_to("real.txt")
    (house.workspace / "outside").symlink_to(tmp_path / "elsewhere.txt")
    (house.workspace / "loop").symlink_to("loop")
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert (house.workspace / "real.txt").read_text() == "real"
    made = next(house.folder.glob("s/artifacts/trial/01-each/a/made.json"))
    assert json.loads(made.read_text()) == ["elsewhere", True]
    assert not [*(house.folder / "s/copies").iterdir()]


def test_a_commit_in_the_copy_of_a_worktree_is_the_copys(house: House, tmp_path: Path) -> None:
    import subprocess

    def git(where: Path, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(where), "-c", "user.name=x", "-c", "user.email=x@x", *words], capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q")
    (main / "code.py").write_text("good\n")
    git(main, "add", ".")
    git(main, "commit", "-qm", "first")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    commit = "git -c user.name=x -c user.email=x@x commit -qam second"
    body = f"""
import subprocess
def work(task, out, call):
    (Path(call.cwd) / "code.py").write_text("changed")
    subprocess.run({commit.split()!r}, cwd=call.cwd, check=True)
    (out / "made.json").write_text("1")
    return Verdict("done")
"""
    house.tool("messy", body)
    house.orchestrator(COPIES.replace("[a, b, c]", "[a]"))
    there = House.at(house, tmp_path / "tree")
    ran = there.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    assert git(tmp_path / "tree", "log", "--format=%s") == "first"
    assert (tmp_path / "tree/code.py").read_text() == "good\n"
