"""Rate limits are waited out, visibly and within bounds; hung agents are stopped; silent ones are seen. Real SDK and CLI."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from lib.agent.drivers import Answer
from lib.agent.parking import Parking
from lib.contract import ExitCode
from lib.session import signals
from scripted_model.server import Reply, Request, Script, fail, say, tool, turns
from support import House, wait_for

QUICK = {"CLAUDE_CODE_MAX_RETRIES": "0"}


def shorter(house: House, module: str, **constants: float) -> None:
    """The house's own copy of a module, with less patience."""
    (path,) = (house.folder / "core/lib").rglob(f"{module}.py")
    for name, value in constants.items():
        (line,) = [x for x in path.read_text().splitlines() if x.startswith(f"{name} = ")]
        house.rewrite(module, (line, f"{name} = {value}"))


def first(*refusals: Reply, then: Script) -> Script:
    """The first requests of every agent session are refused."""
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def script(request: Request) -> Reply:
        with lock:
            key = request.prompt.splitlines()[0] if request.prompt else ""
            number = seen[key] = seen.get(key, 0) + 1
        return refusals[number - 1] if number <= len(refusals) else then(request)

    return script


@pytest.mark.parametrize("status", [429, 529])
def test_a_refused_agent_is_parked_and_goes_on(house: House, model, status: int) -> None:
    shorter(house, "parking", FIRST_SECONDS=3)
    model(first(fail(status), then=turns(say("there"))))
    session = house.folder / "s"
    with house.start("spawn", "--prompt", "x", "--session-dir", str(session), "--output-format", "json", **QUICK) as child:
        parked = wait_for(lambda: list((session / ".signals").glob("*.parked")), what="a .parked signal")[0]
        fields = yaml.safe_load(parked.read_text())
        assert fields["status"] == "parked"
        assert fields["until"] > fields["created_at"]
        wait_for(lambda: "parked" in (session / ".live-report").read_text(), what="a line for people")
        assert signals.wait(session, ["spawn-spawn"], 0)[1] == ["spawn-spawn"], "being parked is no end"
        out, _ = child.communicate(timeout=60)
    assert json.loads(out)["result"] == "there"
    assert [p.name for p in (session / ".signals").iterdir()] == ["spawn-spawn.done"]
    said = [json.loads(line)["status"] for line in (session / ".live-report").read_text().splitlines()]
    assert said.index("parked") < said.index("unparked") < said.index("success")


def test_a_session_that_had_got_somewhere_is_gone_on_with(house: House, model) -> None:
    shorter(house, "parking", FIRST_SECONDS=0.1)
    refused: list[str] = []

    def script(request: Request) -> Reply:
        if not any(m["role"] == "assistant" for m in request.messages):
            return say(tool("Bash", command="echo once >> ran"), tool("Write", file_path="/not/ours", content="x"))
        if not refused:
            refused.append("once")
            return fail(429)
        return say("all done")

    model(script)
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", **QUICK)
    assert ran.code == 0, ran.stderr
    assert ran.document["result"] == "all done"
    assert (house.workspace / "ran").read_text() == "once\n", "what it had done was not done again"
    assert [d["tool_name"] for d in ran.document["denials"]] == ["Write"], "and what it was refused before is not forgotten"


def test_waiting_has_a_bound_and_none_is_one(house: House, model) -> None:
    scripted = model(turns(fail(429)))
    ran = house.json("spawn", "--prompt", "x", "--max-wait", "0", **QUICK)
    assert (ran.code, ran.error["code"]) == (1, "RATE_LIMITED")
    asked = len(scripted.requests)
    shorter(house, "parking", FIRST_SECONDS=1)
    ran = house.json("spawn", "--prompt", "x", "--max-wait", "1.5", **QUICK)
    assert (ran.code, ran.error["code"]) == (1, "RATE_LIMITED")
    assert len(scripted.requests) == asked * 3, "once more, and the next wait would have been too long"
    assert not list(house.sessions.glob("*/.signals/*.parked"))


def parking(max_wait: float | None) -> Parking:
    call: Any = SimpleNamespace(options=SimpleNamespace(max_wait=max_wait))
    return Parking(call)


def refused(code: str = "RATE_LIMITED", **detail: Any) -> Answer:
    return Answer(exit_code=ExitCode.FAILURE, error={"code": code, **detail})


def test_the_reported_reset_is_what_is_waited_for() -> None:
    soon = int(time.time()) + 100
    assert 90 < parking(None).seconds(refused(resets_at=soon)) <= 100
    assert parking(50).seconds(refused(resets_at=soon)) == 0, "further away than it may wait"
    assert parking(None).seconds(refused(resets_at=soon + 7 * 3600)) == 0
    assert parking(None).seconds(refused(resets_at=1)) == 1, "a reset that has passed, or a clock that is wrong"
    assert parking(None).seconds(refused("API_ERROR")) == 0
    assert parking(None).seconds(refused("API_OVERLOADED")) > 0


def test_only_the_branch_that_met_the_limit_waits(house: House, model) -> None:
    shorter(house, "parking", FIRST_SECONDS=60)
    house.agent("helper", strata={"completion": "cluster"})
    house.orchestrator(
        "version: 1\nname: trial\nparams: {names: {about: who, type: list}}\nstages:\n"
        "  - {name: each, agent: helper, action: DO, target: '{item}', foreach: {items: param.names, cap: 2}}\n"
    )
    model(lambda r: fail(429) if " slow" in r.prompt else say("DONE: yes"))
    session = house.folder / "s"
    flags = ("--param", "names=slow,one,two,three", "--session-dir", str(session))
    with house.start("orchestrator", "trial", *flags, **QUICK) as child:
        wait_for(lambda: list((session / ".signals").glob("spawn-*slow*.parked")), what="slow is parked")
        done = wait_for(lambda: len(list((session / ".signals").glob("exec-*.done"))) == 3, what="the others are done")
        assert done
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 20
    assert not list((session / ".signals").glob("*.parked")), "what is stopped is not parked any more"


def test_a_hung_agent_is_stopped_and_tried_once_more_as_a_timeout(house: House, model) -> None:
    house.agent("helper", strata={"completion": "cluster"})
    house.orchestrator(
        "version: 1\nname: trial\nstages:\n  - {name: only, agent: helper, action: DO, stall_timeout: 3, retry: {max: 3}}\n"
    )
    model(lambda r: say("DONE: late", hang_seconds=300))
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 21, ran.stderr
    outcomes = sorted((house.folder / "s").glob("**/outcome.json"))
    assert [json.loads(p.read_text())["error"]["code"] for p in outcomes] == ["STALLED", "STALLED"]


def test_a_tool_that_takes_its_time_is_no_hung_agent_and_is_seen(house: House, model) -> None:
    shorter(house, "events", HEARTBEAT_SECONDS=1)
    shorter(house, "conversation", WATCH_SECONDS=0.3)
    model(turns(say(tool("Bash", command="sleep 6")), say("done")))
    ran = house.json("spawn", "--prompt", "x", "--allowed-tools", "Bash", "--stall-timeout", "3")
    assert ran.code == 0, ran.stderr
    waiting = [e["detail"] for e in ran.events if e.get("status") == "waiting"]
    assert waiting, "nothing was heard for a while, and that was said"
    assert waiting[-1]["for"] == "Bash"
    lines = (house.session / ".live-report").read_text()
    assert '"waiting"' in lines


def test_every_tool_has_a_heartbeat_and_a_silent_child_is_stopped(house: House) -> None:
    shorter(house, "events", HEARTBEAT_SECONDS=0.5)
    house.tool("slow", "def work(task, out, call):\n    time.sleep(2.5)\n    return Verdict('done')\n")
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: only, tool: slow.py, retry: {max: 0}}\n")
    ran = house.json("orchestrator", "trial")
    assert ran.code == 0
    beats = [e["layer"] for e in ran.events if e.get("event") == "heartbeat"]
    assert set(beats) == {"orch"}, "each layer speaks for those below it"
    assert len(beats) >= 3
    shorter(house, "tools", SILENT_SECONDS=2)
    freeze = "def work(task, out, call):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    house.tool("slow", freeze)
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "t"))
    assert (ran.code, ran.error["code"]) == (21, "SILENT")


def test_a_continued_session_is_charged_for_what_is_new(house: House, model) -> None:
    model(lambda r: say("hello", output_tokens=1000))
    flags = ("--session-dir", str(house.folder / "s"))
    one = house.json("spawn", "--prompt", "one", *flags).document
    two = house.json("spawn", "--prompt", "two", "--resume-id", one["agent_session_id"], *flags).document
    assert two["cost_usd"] == pytest.approx(one["cost_usd"]), "the CLI reports the sum of both"
    assert [u["outputTokens"] for u in two["usage"].values()] == [1000]
    lines = [json.loads(x) for x in (house.folder / "s/ledger.jsonl").read_text().splitlines()]
    assert lines[-1]["sums"][""]["usd"] == pytest.approx(2 * one["cost_usd"])


def test_a_wait_of_years_is_no_time(house: House) -> None:
    for text in ("-1", "nan", "inf", "soon"):
        assert house.json("spawn", "--prompt", "x", "--max-wait", text).error["code"] == "USAGE"
    assert not Path(house.sessions).exists()
