"""One stage and stop, stopping from another terminal, done with warnings, what a run remembers, and tools that serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from lib.session import memory as kept
from lib.session.memory import Memory
from scripted_model.server import Request, say
from support import CORE, WORKER, House, log, plan

pytestmark = pytest.mark.rehearsed
THREE = """version: 1
name: trial
stages:
  - {name: one, tool: worker.py, args: [one], outputs: {made: {path: made.json}}}
  - {name: two, tool: worker.py, args: [two], outputs: {made: {path: made.json}}}
  - {name: three, tool: worker.py, args: [three], outputs: {made: {path: made.json}}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER)
    house.orchestrator(THREE)
    plan(house)
    return house


def run(house: House, *flags: str) -> Any:
    return house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"), *flags)


def test_it_ends_behind_the_stage_that_is_named_and_a_resume_runs_the_rest(trial: House) -> None:
    first = run(trial, "--until", "two")
    assert (first.code, log(trial)) == (12, ["one", "two"]), "not all of it is done, and it says so"
    assert first.error["message"] == "it stopped after two, as asked; not run: three"
    explained = [e["does"] for e in run(trial, "--explain", "--until", "two").document["explained"]]
    assert explained == ["SKIP", "SKIP"]
    assert "has no such stage" in run(trial, "--until", "tow").error["message"]
    rest = trial.json("orchestrator", "--resume", str(trial.folder / "s"))
    assert (rest.code, log(trial)) == (0, ["one", "two", "three"]), "a resume does not remember where to end"
    assert run(trial, "--until", "three").code == 0, "nothing is left"


def test_a_run_of_an_orchestrator_is_stopped_from_another_terminal_and_goes_on(trial: House) -> None:
    trial.tool("slow", "def work(task, out, call):\n    (Path(call.cwd) / 'begun').touch()\n    time.sleep(600)\n")
    trial.orchestrator(THREE.replace("worker.py, args: [two]", "slow.py"))
    session = str(trial.folder / "s")
    with trial.start("orchestrator", "trial", "--session-dir", session) as child:
        while not (trial.workspace / "begun").exists():
            time.sleep(0.05)
        stopped = trial.json("orchestrator", "--stop", session)
        assert stopped.code == 0, stopped.stderr
        assert child.wait(20) == 20
    assert stopped.document["next"].endswith(f"orchestrator.py --resume {session}")
    trial.orchestrator(THREE)
    assert run(trial).code == 0
    assert log(trial) == ["one", "two", "three"], "what was finished is not done twice"
    assert trial.json("session", "stop", session).error["code"] == "NOT_RUNNING"


WARNS = """
from lib.attempt.verdicts import Verdict as V

def work(task, out, call):
    (out / "made.json").write_text("1")
    return V("done", warnings=("two sources have no date",))
"""


def test_done_with_warnings_is_a_success_that_says_so(house: House, model) -> None:
    house.tool("warns", WARNS)
    house.tool("worker", WORKER)
    house.agent("careful", strata={"completion": "cluster"})
    one = "members: {a: {tool: warns.py, outputs: {made: {path: made.json}}}}"
    text = f"version: 1\nname: trial\nstages:\n  - name: one\n    {one}\n"
    text += "  - {name: two, agent: careful}\n"
    text += "  - {name: all, tool: worker.py, args: [all], inputs: {who: one.roster}, outputs: {made: {path: made.json}}}\n"
    house.orchestrator(text)
    plan(house)
    model(lambda r: say("I looked.\n\nWARNING: The figures are from 2019.\n\nDONE: yes"))
    ran = run(house)
    assert ran.code == 0, ran.stderr
    assert ran.document["warnings"] == ["one: a: two sources have no date", "two: The figures are from 2019."]
    assert ran.document["summary"]["warnings"] == 2
    roster = json.loads((house.folder / "s/artifacts/trial/01-one/roster.json").read_text())
    assert roster["entries"][0]["warnings"] == ["two sources have no date"]
    assert run(house).document["warnings"] == ran.document["warnings"], "a second run says the same"


# What a run remembers


def test_memory_is_bounded_and_what_does_not_hold_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_NOTES", 50)
    memory = Memory(tmp_path)
    for number in range(60):
        memory.note("fact", f"number {number}, which is a fact", "me")
    notes = memory.notes()
    assert len(notes) == 50 and notes[-1].text.startswith("number 59")
    assert memory.note("fact", notes[-1].text, "me").id == notes[-1].id, "the same is noted once"
    assert memory.invalidate(lambda n: n.text.startswith("number 58"), "it was wrong") == 1
    memory.note("fact", "one more", "me")
    assert [n.text[:9] for n in memory.notes()][-2:] == ["number 59", "one more"], "what does not hold gave way"
    assert "number 58" not in memory.render()
    shown = memory.render(500)
    assert len(shown) < 700 and "one more" in shown and "older notes are left out" in shown
    assert memory.prune(10) == 40 and len(memory.notes()) == 10
    with pytest.raises(Exception, match="at most 2000"):
        memory.note("fact", "x" * 2001)


def test_many_write_at_once_and_none_is_lost(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from lib.session.memory import Memory\n"
    code += "[Memory(Path(sys.argv[1])).note('fact', f'{sys.argv[2]}-{n}') for n in range(20)]"
    env = os.environ | {"PYTHONPATH": str(CORE)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)], env=env) for n in range(4)]
    assert [child.wait(60) for child in running] == [0] * 4
    notes = Memory(tmp_path).notes()
    assert len({n.id for n in notes}) == len({n.text for n in notes}) == 80


def test_agents_read_it_first_and_a_new_note_makes_nothing_another_work(house: House, model) -> None:
    house.agent("reader", strata={"completion": "cluster"})
    text = "version: 1\nname: trial\nmemory: true\nstages:\n"
    text += '  - {name: note, tool: memory.py, args: [note, decision, "We use SQLite"]}\n'
    text += "  - {name: read, agent: reader, inputs: {x: param.x}}\n  - {name: blind, agent: reader, memory: false}\n"
    house.orchestrator(text)
    prompts: list[str] = []

    def script(r: Request) -> Any:
        prompts.append(r.prompt)
        return say("DONE: yes")

    model(script)
    assert run(house, "--param", "x=1").code == 0
    assert "## Memory" in prompts[0] and "- We use SQLite (note)" in prompts[0]
    assert prompts[0].index("## Memory") < prompts[0].index("## Inputs"), "first"
    assert "## Memory" not in prompts[1]
    noted = house.json("memory", "note", "lesson", "Tests are slow", "--session-dir", str(house.folder / "s"))
    assert noted.code == 0 and "Tests are slow" in noted.document["memory"]
    assert run(house, "--param", "x=1").code == 0
    assert len(prompts) == 2, "nothing is done again for a note"
    gone = house.json("memory", "invalidate", "decision", "we use files now", "--session-dir", str(house.folder / "s"))
    assert gone.document["invalidated"] == 1 and "SQLite" not in gone.document["memory"]
    assert "takes two words" in house.json("memory", "note", "x").error["message"]


# Tools that serve

SERVICE = '''"""Layer 1: a service of a test."""
import json
from lib import cli
from lib.cli import Tool
from lib.tool import service

TOOL = Tool("serve", layer=1, summary="Serves.", example="serve.py", serves=True)

def arguments(parser):
    parser.add_argument("how", choices=("http", "lines"))

def main(call):
    call.open_session("serve", "serve")
    if call.options.how == "http":
        return service.http(call, lambda method, path, body: (200, "text/plain", f"{method} {path}".encode()))
    def answer(line):
        asked = json.loads(line)
        return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": asked["method"]}) if "id" in asked else None
    return service.lines(call, answer)

if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
'''


@pytest.fixture
def server(house: House) -> House:
    block = (CORE / "check.py").read_text().split('"""')[0]
    (house.folder / "core/serve.py").write_text(block + SERVICE)
    return house


def test_lines_are_answered_on_stdout_and_nothing_else_is_there(server: House) -> None:
    asked = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n{"method": "note"}\n\n{"jsonrpc": "2.0", "id": 2, "method": "list"}\n'
    done = server.run("serve", "lines", "--session-dir", str(server.folder / "s"), stdin=asked.encode())
    assert done.code == 0, done.stderr
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == ["ping", "list"], "one line for each, and no more"
    assert not (server.folder / "s/service.json").exists()


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stop"])
def test_a_service_ends_well_when_it_is_stopped(server: House, how: str) -> None:
    session = server.folder / "s"
    with server.start("serve", "http", "--session-dir", str(session)) as child:
        while not (session / "service.json").exists():
            time.sleep(0.05)
        address = json.loads((session / "service.json").read_text())["address"]
        assert urllib.request.urlopen(f"{address}/a").read() == b"GET /a"
        assert urllib.request.urlopen(urllib.request.Request(f"{address}/b", data=b"x")).read() == b"POST /b"
        elsewhere = urllib.request.Request(f"{address}/a", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(elsewhere)
        if how == "stop":
            assert server.json("session", "stop", str(session)).code == 0
        else:
            child.send_signal(getattr(signal, how))
        assert child.wait(20) == 0, "being stopped is how it ends well"
    assert not (session / "service.json").exists()
    report = (session / ".live-report").read_text()
    assert "serving" in report and "GET /a" in report and "success" in report


def test_a_service_ends_with_whoever_started_it(server: House) -> None:
    """Killed with -9, the starter says nothing any more; the service goes all the same."""
    session = server.folder / "s"
    starter = f"import subprocess, sys; subprocess.run({server.argv('serve', 'lines', '--session-dir', str(session))!r})"
    outer = subprocess.Popen([sys.executable, "-c", starter], env=server.env, cwd=server.workspace, stdin=subprocess.PIPE)
    while not (session / "service.json").exists():
        time.sleep(0.05)
    outer.kill()
    outer.wait()
    assert outer.stdin
    outer.stdin.close()  # whoever asked is gone, too
    deadline = time.monotonic() + 20
    while (session / "service.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (session / "service.json").exists()


ODD = {
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n": 400,
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: abc\r\n": 400,
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n": 413,
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n": 411,
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n": 403,
    "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\nContent-Length: 0\r\n": 403,
    "GET / HTTP/1.1\r\nHost: [::1]\r\n": 200,
    "GET /boom HTTP/1.1\r\nHost: localhost\r\n": 500,
    "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n": 200,
}


def test_a_service_answers_what_is_wrong_and_goes_on(server: House) -> None:
    import socket

    text = (server.folder / "core/serve.py").read_text()
    fine = '(200, "text/plain", f"{method} {path}"'
    booms = '(1 // (path != "/boom") * 200, "text/plain", f"{method} {path}"'
    (server.folder / "core/serve.py").write_text(text.replace(fine, booms))
    session = server.folder / "s"
    with server.start("serve", "http", "--session-dir", str(session)) as child:
        while not (session / "service.json").exists():
            time.sleep(0.05)
        port = int(json.loads((session / "service.json").read_text())["address"].rpartition(":")[2])
        for line, wanted in ODD.items():
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(f"{line}Connection: close\r\n\r\n".encode())
                assert int(client.recv(100).split()[1]) == wanted, line
        child.terminate()
        assert child.wait(20) == 0


def test_a_byte_that_is_no_letter_does_not_end_a_service(server: House) -> None:
    asked = b'{"id": 1, "method": "ping"}\n{"id": 2, "method": "\xff\xfe"}\n{"id": 3, "method": "list"}'
    done = server.run("serve", "lines", "--session-dir", str(server.folder / "s"), stdin=asked, PYTHONIOENCODING="utf-8:strict")
    assert done.code == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2, 3]


def test_a_service_on_http_ends_with_whoever_started_it(server: House) -> None:
    session = server.folder / "s"
    starter = f"import subprocess, sys; subprocess.run({server.argv('serve', 'http', '--session-dir', str(session))!r})"
    outer = subprocess.Popen([sys.executable, "-c", starter], env=server.env, cwd=server.workspace, stdin=subprocess.DEVNULL)
    while not (session / "service.json").exists():
        time.sleep(0.05)
    outer.kill()
    outer.wait()
    deadline = time.monotonic() + 20
    while (session / "service.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (session / "service.json").exists()


def test_until_ends_at_the_last_round_and_not_at_one_that_was_sent_back(house: House) -> None:
    house.tool("worker", WORKER)
    text = "version: 1\nname: trial\nloops: {again: {to: one, max: 1, then: fail}}\nstages:\n"
    text += "  - {name: one, tool: worker.py, args: [one], outputs: {made: {path: made.json}}}\n"
    text += "  - {name: two, tool: worker.py, args: [two], on: {needs_revision: again}, outputs: {made: {path: made.json}}}\n"
    house.orchestrator(text)
    plan(house, two="revise ok")
    assert run(house).code == 0
    before = [o["path"] for o in json.loads((house.folder / "s/outputs.json").read_text())["outputs"]]
    run(house, "--until", "one")
    after = [o["path"] for o in json.loads((house.folder / "s/outputs.json").read_text())["outputs"]]
    assert after[0] == before[0]
