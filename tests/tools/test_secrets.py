"""Secrets that pass through a whole recorded run are in nothing that Strata writes; names from outside do not lead out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from scripted_model.server import Reply, Request, say, tool
from support import House, some

IN_ENVIRONMENT = {"DEPLOY_TOKEN": "correct-horse-battery-staple", "DB_PASSWORD": 'with "quotes" and \\ in it'}
# Made up here, of the shapes real ones have; joined so that nobody takes this file for a leak.
SHAPES = [
    "sk-ant-" + "api03-" + "A1b2C3d4" * 6,
    "ghp_" + "a1B2" * 9,
    "AKIA" + "ABCDEFGH12345678"[:16],
    "xoxb-" + "1234567890-abcdefghij",
    "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]
SECRETS = [*IN_ENVIRONMENT.values(), *SHAPES]


def leaks(folder: Path) -> list[str]:
    found: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes().decode("utf-8", "replace")
            for secret in SECRETS:
                if secret in data or json.dumps(secret)[1:-1] in data:
                    found.append(f"{path.relative_to(folder)}: {secret[:12]}…")
    return found


def test_nothing_of_a_recorded_run_holds_a_secret(house: House, model) -> None:
    strata = {"completion": "cluster", "outputs": {"note": {"path": "note.md"}}, "env": list(IN_ENVIRONMENT), "sandbox": "off"}
    house.agent("helper", tools="Bash, Write, Read", strata=strata)
    house.orchestrator(
        "version: 1\nname: trial\nparams: {what: {about: x}}\nstages:\n"
        "  - {name: one, agent: helper, action: DO, inputs: {what: param.what}, self_heal: true}\n"
        "  - {name: look, tool: check.py, args: [leak]}\n"
    )
    checks = "version: 1\nchecks: {leak: {command: [cat, leaked.txt]}}\n"
    (house.folder / "checks.yaml").write_text(checks)
    (house.folder / "plan.yaml").write_text(
        "version: 1\nname: trial\nchecks: checks.yaml\nphases:\n"
        f"  - name: one\n    run: [{{orchestrator: trial, params: {{what: {json.dumps(SHAPES[0])}}}}}]\n"
        "    verify: {checks: [leak]}\n"
    )
    (house.workspace / "leaked.txt").write_text("\n".join(SECRETS))
    told = " | ".join(SECRETS)

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return say(f"I found {told}", tool("Bash", command="env; cat leaked.txt"))
        if request.turn == 1:
            return say("now", tool("Write", file_path=request.path("note"), content=f"It is {told}\n"))
        return say(f"It is {told}\n\nDONE: with {told}")

    model(script)
    ran = house.json("campaign", str(house.folder / "plan.yaml"), "--driver", "record", **IN_ENVIRONMENT)
    assert ran.code == 0, ran.stderr[-3000:]
    session = house.session
    assert "[redacted]" in (session / "phases/phase-01-one/artifacts/trial/01-one/note.md").read_text()
    assert list(session.glob("**/transcript.jsonl"))
    assert leaks(session) == []
    assert not [s for s in SECRETS if s in ran.stdout + ran.stderr]


def test_what_a_tool_prints_holds_none_either(house: House, model) -> None:
    model(lambda r: say(f"It is {' | '.join(SECRETS)}"))
    ran = house.json("spawn", "--prompt", "x", **IN_ENVIRONMENT)
    assert ran.code == 0
    assert "[redacted]" in ran.document["result"]
    assert not [s for s in SECRETS if s in ran.stdout or json.dumps(s)[1:-1] in ran.stdout]


NAMES = {
    "traversal": "../../../escape",
    "absolute": "/tmp/strata-escape",
    "a newline": "one\ntwo",
    "control characters": "a\x1b[2Jb\x07",
    "right to left": "\u202egpj.exe",
    "300 characters": "x" * 300,
    "300 letters of three bytes": "語" * 300,
    "reserved": "attempt-1",
    "a device": "CON",
    "dots": "..",
    "a dot": ".",
    "hidden": ".signals",
    "spaces": "   ",
    "a flag": "--cwd=/",
    "a glob": "*",
    "placeholder": "{param.names}",
}
TOOL = """
def work(task, out, call):
    (out / "made.json").write_text(json.dumps(task.item))
    return Verdict("done")
"""


def tree(folder: Path) -> set[str]:
    return {str(p) for p in folder.rglob("*")}


OFTEN = ("traversal", "absolute", "a newline", "right to left", "300 characters", "reserved")


@pytest.mark.parametrize("what", [w if w in OFTEN else pytest.param(w, marks=pytest.mark.long) for w in NAMES])
def test_a_name_from_outside_stays_inside_the_session(house: House, what: str, tmp_path: Path) -> None:
    name = NAMES[what]
    house.tool("worker", TOOL)
    house.orchestrator(
        "version: 1\nname: trial\nparams: {items: {about: x, type: list}}\nstages:\n"
        "  - {name: each, tool: worker.py, foreach: {items: param.items, key: id}, outputs: {made: {path: made.json}}}\n"
    )
    (house.folder / "params.json").write_text(json.dumps({"items": [{"id": name}, {"id": "plain"}]}))
    before = tree(tmp_path)
    ran = house.json("orchestrator", "trial", "--params", str(house.folder / "params.json"))
    new = {p for p in tree(tmp_path) - before if not p.startswith(str(house.session)) and "__pycache__" not in p}
    assert new <= {str(house.sessions)}, new
    assert not Path("/tmp/strata-escape").exists()
    assert ran.code == 0, ran.stderr
    items = {i["name"]: i for i in ran.document["stages"][0]["items"]}
    assert set(items) == {name, "plain"}
    assert all(Path(i["artifact"]).is_relative_to(house.session) for i in items.values())
    for path in house.session.rglob("*"):
        assert path.name.isascii()
        assert path.name.isprintable()
        assert len(path.name) < 250


@pytest.mark.parametrize("what", some(NAMES, 3))
def test_a_topic_from_outside_names_one_plain_folder(house: House, what: str) -> None:
    name = [f"--name={NAMES[what]}"] if NAMES[what].strip() else []
    replay = ("--driver", "replay", "--fixtures", str(house.workspace))  # which has nothing to answer with
    ran = house.json("spawn", f"--prompt={NAMES[what]} x", *name, *replay)
    assert (ran.code, ran.error["code"]) == (1, "FIXTURE_MISSING"), ran.stderr
    (session,) = house.sessions.iterdir()
    assert session.name.isascii()
    assert len(session.name) < 100


@pytest.mark.parametrize("what", some([w for w in NAMES if NAMES[w].strip()], 3))
def test_signals_do_not_leave_their_folder(house: House, what: str) -> None:
    session = house.folder / "s"
    session.mkdir()
    flags = ("--session-dir", str(session), "--layer", "exec", f"--name={NAMES[what]}", "--status", "success")
    ran = house.json("signals", "write", *flags)
    assert ran.code in (0, 1)
    assert {p.parent for p in session.rglob("*") if p.is_file()} <= {session / ".signals"}


def test_a_link_in_the_place_of_an_output_is_not_followed(house: House) -> None:
    outside = house.folder / "outside.txt"
    outside.write_text("precious")
    house.tool(
        "worker",
        f"""
def work(task, out, call):
    (out / "made.json").symlink_to({str(outside)!r})
    return Verdict("done")
""",
    )
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, tool: worker.py, outputs: {made: {path: made.json}}}\n")
    ran = house.json("orchestrator", "trial")
    assert ran.code == 1, ran.stdout
    assert outside.read_text() == "precious"


def test_a_fixture_cannot_write_outside_of_what_is_replayed(house: House, model, tmp_path: Path) -> None:
    model(lambda r: say(tool("Write", file_path=f"{house.workspace}/a.txt", content="x")) if r.turn == 0 else say("done"))
    recorded = tmp_path / "recorded"
    flags = ("--prompt", "write a file", "--allowed-tools", "Write")
    assert house.json("spawn", *flags, "--driver", "record", "--session-dir", str(recorded)).code == 0
    meta = next(recorded.glob("**/meta.json"))
    for evil in ("../escaped.txt", "/tmp/strata-escaped.txt", "sub/../../escaped.txt"):
        meta.write_text(meta.read_text().replace('"path": "a.txt"', f'"path": "{evil}"'))
        ran = house.json("spawn", *flags, "--driver", "replay", "--fixtures", str(recorded), "--accept-drift")
        assert (ran.code, ran.error["code"]) == (1, "UNSAFE_PATH"), evil
        meta.write_text(meta.read_text().replace(f'"path": "{evil}"', '"path": "a.txt"'))
    assert not Path("/tmp/strata-escaped.txt").exists()
    assert not subprocess.run(["find", str(tmp_path), "-name", "escaped.txt"], capture_output=True, text=True, check=True).stdout
