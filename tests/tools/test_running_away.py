"""What agents start by themselves is bounded, and an interrupted agent session is gone on with. Real SDK and CLI."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from scripted_model.server import Reply, Request, say, tool
from support import House, wait_for, with_marker

CLUSTER = {"completion": "cluster", "outputs": {"note": {"path": "note.md"}}}


def two_more(house: House) -> str:
    """What every agent does: start two more, and say what came of them."""
    spawn = f"{sys.executable} {house.folder}/core/spawn.py --allowed-tools Bash --sandbox off --output-format json --prompt more"
    return f"{spawn} | tail -c 300; {spawn} | tail -c 300"


def breeding(house: House):
    def script(request: Request) -> Reply:
        if not any(m["role"] == "assistant" for m in request.messages):
            return say(tool("Bash", command=two_more(house)))
        return say("they have ended")

    return script


def started(house: House) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (house.folder / "s/ledger.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "reserve"]


@pytest.mark.parametrize(("depth", "agents"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.long)])
def test_where_every_agent_starts_two_more_depth_ends_it(house: House, model, depth: int, agents: int) -> None:
    model(breeding(house))
    flags = ("--allowed-tools", "Bash", "--sandbox", "off", "--session-dir", str(house.folder / "s"))
    ran = house.json("spawn", "--prompt", "more", "--max-depth", str(depth), *flags)
    assert ran.code == 0, ran.stderr
    assert len(started(house)) == agents
    assert not [p for p in (house.folder / "s").glob("**/attempt-*") if not (p / "outcome.json").exists()]


def test_where_every_agent_starts_two_more_the_budget_ends_it(house: House, model) -> None:
    scripted = model(breeding(house))
    house.folder.joinpath("s").mkdir()
    (house.folder / "s/budget.json").write_text(json.dumps({"": {"agents": 4}}))
    flags = ("--allowed-tools", "Bash", "--sandbox", "off", "--session-dir", str(house.folder / "s"))
    ran = house.json("spawn", "--prompt", "more", "--max-depth", "6", *flags)
    assert ran.code == 0, ran.stderr
    assert len(started(house)) == 4
    assert "BUDGET_EXCEEDED" in "".join(r.heard for r in scripted.requests), "and those that were refused were told"


def test_one_agent_cannot_start_any_number_and_all_together_not_either(house: House, model) -> None:
    house.rewrite("budget", ("MAX_CHILDREN = 64 ", "MAX_CHILDREN = 1 "))
    scripted = model(breeding(house))
    flags = ("--allowed-tools", "Bash", "--sandbox", "off", "--session-dir", str(house.folder / "s"))
    assert house.json("spawn", "--prompt", "more", "--max-depth", "3", *flags).code == 0
    assert len(started(house)) == 3, "each of them one"
    assert "TOO_MANY_AGENTS" in "".join(r.heard for r in scripted.requests)
    house.rewrite("budget", ("MAX_CHILDREN = 1 ", "MAX_CHILDREN = 9 "), ("BY_AGENTS = 256 ", "BY_AGENTS = 2 "))
    (house.folder / "s/ledger.jsonl").unlink()
    assert house.json("spawn", "--prompt", "more", "--max-depth", "3", *flags).code == 0
    assert len(started(house)) == 3, "the outermost, and two in all"


@pytest.mark.parametrize("gone", [False, True], ids=["kept", "gone"])
def test_an_interrupted_agent_session_is_gone_on_with(house: House, model, gone: bool) -> None:
    house.agent("helper", tools="Bash, Write", strata={**CLUSTER, "scope": ["**"]})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: only, agent: helper, action: DO}\n")
    killed: list[str] = []
    continued: list[bool] = []

    def script(request: Request) -> Reply:
        words = json.dumps(request.messages)
        if "echo once" not in words:
            return say(tool("Bash", command="echo once >> ran"), tool("Write", file_path=request.path("note"), content="half"))
        if not killed:
            return say("too late", hang_seconds=300)
        continued.append("You were interrupted" in words)
        return say("DONE: yes")

    model(script)
    session = house.folder / "s"
    with house.start("orchestrator", "trial", "--session-dir", str(session)) as child:
        wait_for((house.workspace / "ran").exists, what="the first turn")
        places = (session, Path(house.env["TMPDIR"]))  # a sandboxed shell writes outside the session
        wait_for(lambda: [p for place in places for p in place.glob("**/note.md")], what="its output")
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=60)
    wait_for(lambda: not with_marker(str(house.folder)), what="the whole tree has ended")
    killed.append("yes")
    if gone:
        for path in (house.folder / "claude").rglob("*.jsonl"):
            path.unlink()
    ran = house.json("orchestrator", "--resume", str(session))
    assert ran.code == 0, ran.stderr
    assert (house.workspace / "ran").read_text() == "once\n" * (2 if gone else 1)
    assert continued[-1] is not gone
    attempts = sorted(p.name for p in session.glob("**/attempt-*"))
    assert attempts == ["attempt-1", "attempt-2"]
    assert not list(session.glob("**/attempt-1/outcome.json"))
    assert (session / "artifacts/trial/01-only/note.md").read_text() == "half"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_an_interrupted_session_had_written_in_the_workspace_is_there_when_it_goes_on(house: House, model, how: int) -> None:
    outputs = {"doc": {"path": "doc.md", "in": "workspace"}}
    house.agent("helper", tools="Bash", strata={"completion": "cluster", "outputs": outputs})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: only, agent: helper, action: DO, retry: {max: 0}}\n")
    (house.workspace / "doc.md").write_text("old")

    def script(request: Request) -> Reply:
        words = json.dumps(request.messages)
        if "new and whole" not in words:
            return say(tool("Bash", command="printf 'new and whole' > doc.md"))
        if "You were interrupted" not in words:
            return say("too late", hang_seconds=300)
        return say("DONE: yes")

    model(script)
    session = house.folder / "s"
    with house.start("orchestrator", "trial", "--session-dir", str(session)) as child:
        wait_for(lambda: (house.workspace / "doc.md").read_text() != "old", what="the first turn")
        os.kill(child.pid, how)
        child.communicate(timeout=60)
    wait_for(lambda: not with_marker(str(house.folder)), what="the whole tree has ended")
    ran = house.json("orchestrator", "--resume", str(session))
    assert ran.code == 0, ran.stderr
    assert (house.workspace / "doc.md").read_text() == "new and whole"
    before = session / "trial/stages/01-only/attempt-2/before/doc"
    assert before.read_text() == "old", "what a failure would put back is what stood there before either"
