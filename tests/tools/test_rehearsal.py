"""What tests above layer 0 rely on: an agent in rehearsal comes to the same as one of the real CLI with the same script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Reply, Request, Script, say, scripted, tool
from skeletons.scripts import returns
from support import House, some

WORDS = {"type": "object", "required": ["word"], "properties": {"word": {"type": "string"}}, "additionalProperties": False}


def steps(*replies: Any) -> Script:
    def script(request: Request) -> Reply:
        reply = replies[min(request.turn, len(replies) - 1)]
        return reply(request) if callable(reply) else reply

    return script


def write(name: str, text: str, place: str = "") -> Any:
    return lambda r: say(tool("Write", file_path=place or r.path(name), content=text))


DONE = say("There.\n\nSTAGE_TASK_COMPLETE")
CASES: dict[str, tuple[dict[str, Any], Script]] = {
    "writes its output": ({}, steps(write("report", "# Found"), DONE)),
    "forgets its output": ({}, steps(DONE)),
    "writes where it may not": ({}, steps(write("", "x", "/tmp/strata-elsewhere.md"), write("report", "# Found"), DONE)),
    "asks for a tool it has not": ({}, steps(say(tool("Bash", command="ls")), write("report", "# Found"), DONE)),
    "edits the working folder": (
        {"tools": "Read, Write, Edit", "scope": ["*.py"]},
        steps(
            lambda r: say(tool("Read", file_path=f"{folder(r)}/a.py")),
            lambda r: say(tool("Edit", file_path=f"{folder(r)}/a.py", old_string="1", new_string="2")),
            write("report", "# Edited"),
            DONE,
        ),
    ),
    "uses a shell": (
        {"tools": "Bash, Write", "sandbox": "off"},
        steps(say(tool("Bash", command="echo hello > said.txt; exit 3")), write("report", "# Ran"), DONE),
    ),
    "returns data": ({"structured": True}, lambda r: returns(r, word="yes")),
    "returns other data": ({"structured": True}, lambda r: returns(r, other=1)),
    "answers in prose instead of data": ({"structured": True}, steps(say("yes"))),
    "is refused by the model": ({}, steps(Reply(status=400))),
}


def folder(request: Request) -> str:
    return request.prompt.split("Working folder: ")[1].splitlines()[0]


def outcomes(house: House, settings: dict[str, Any], script: Script) -> list[dict[str, Any]]:
    shape: dict[str, Any] = {"outputs": {"report": {"path": "report.md"}}}
    tools = settings.get("tools", "Read, Write")
    if settings.get("structured"):
        (house.folder / "config/schemas/words.json").write_text(json.dumps(WORDS))
        shape = {"outputs": {"report": {"path": "report.json", "schema": "words"}}, "structured": "report"}
        tools = "Read"
    shape |= {k: settings[k] for k in ("scope", "sandbox") if k in settings}
    house.agent("trial", tools=tools, strata=shape)
    (house.workspace / "a.py").write_text("x = 1\n")
    with scripted(script) as model:
        env = model.environment(str(house.folder / "claude"))
        house.run("agent", "trial", "--session-dir", str(house.folder / "s"), **env)
    kept = [json.loads(p.read_text()) for p in sorted((house.folder / "s").rglob("outcome.json"))]
    same = ("verdict", "exit_code", "turns", "cost_usd", "confinement", "result", "structured_output")
    found: list[dict[str, Any]] = []
    for k in kept:
        entry = {key: k[key] for key in same}
        entry["code"] = (k["error"] or {}).get("code")
        entry["denied"] = [d["tool_name"] for d in k["denials"]]
        entry["changed"] = sorted((c["root"], c["path"], c["change"]) for c in k["changes"] or ())
        entry["outputs"] = [(c["output"], c["sha256"]) for c in k["outputs"]]
        entry["cost_usd"] = round(entry["cost_usd"], 9)
        if entry["exit_code"]:  # the words of a failure, and what it counts of one, are the CLI's own
            entry = {key: v for key, v in entry.items() if key not in ("result", "turns", "cost_usd")}
        found.append(entry)
    return found


@pytest.mark.parametrize("case", some(CASES, 2))
def test_a_rehearsed_agent_comes_to_the_same_as_one_of_the_real_cli(tmp_path: Path, case: str) -> None:
    settings, script = CASES[case]
    real = outcomes(House(tmp_path / "real"), settings, script)
    rehearsed = outcomes(House(tmp_path / "rehearsed", rehearsed=True), settings, script)
    assert rehearsed == real
