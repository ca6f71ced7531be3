"""What is named is found: a user's own first, beside the plan or under .strata/, then packs and the house; and it says where."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lib.process import tool_code
from scripted_model.server import Request, say, tool
from support import CORE, WORKER, House

pytestmark = pytest.mark.rehearsed
TOOL_BLOCK = (CORE / "check.py").read_text().split('"""')[0]
OWN_TOOL = '''"""Layer 1: a tool of a user's own."""
import sys
from pathlib import Path
from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Tool
from lib.plan.task import Task
import shared

TOOL = Tool("own", layer=1, summary="A tool of a user.", example="own.py")

def arguments(parser):
    parser.add_argument("words", nargs="*")
    executor.arguments(parser)

def main(call):
    def work(task, out):
        (out / "made.txt").write_text(shared.WORD)
        return Verdict("done")
    return executor.run_function(call, "own", executor.read_task(call, Task(action="TRY")), work)

if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
'''


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def agent(folder: Path, name: str, words: str = "You do the task.", front: str = "") -> Path:
    return write(folder / f"{name}.md", f"---\nname: {name}\ndescription: The {name} of {folder.name}.\n{front}---\n{words}\n")


def orchestrator(folder: Path, name: str, stages: str) -> Path:
    return write(
        folder / f"{name}.yaml", f"version: 1\nname: {name}\ndescription: One of {folder.parent.name}.\nstages:\n{stages}"
    )


def listed(house: House, tool: str) -> dict[str, str]:
    ran = house.json(tool, "--list")
    assert ran.code == 0, ran.stderr
    return {row["name"]: row["where"] for row in ran.document["listed"]}


def test_a_users_own_agent_is_found_first_and_it_is_said_where(house: House, model) -> None:
    agent(house.workspace / ".strata/agents", "evaluator", "You are mine.")
    agent(house.workspace / ".strata/agents", "poet", "You are a poet.")
    assert listed(house, "agent")["poet"].startswith(".strata of ")
    assert listed(house, "agent")["evaluator"].startswith(".strata of ")
    heard: list[str] = []

    def script(request: Request):
        heard.append(request.system)
        return say("STAGE_TASK_COMPLETE")

    model(script)
    assert house.json("agent", "evaluator", "--session-dir", "s").code == 0
    assert "You are mine." in heard[0]
    known = json.loads((house.workspace / "s/places.json").read_text())
    assert known["found"]["agent evaluator"].endswith(".strata/agents/evaluator.md")


def test_a_pack_is_found_by_its_name_and_its_files_find_their_own(house: House, model) -> None:
    """A schema, an agent and an orchestrator of one pack name each other plainly; from outside they have the pack's name."""
    pack = house.folder / "config/packs/poems"
    write(pack / "schemas/verse.json", json.dumps({"type": "object", "required": ["line"]}))
    front = "tools: Write\nstrata: {outputs: {verse: {path: verse.json, schema: verse}}}\n"
    agent(house.folder / "prompts/poems", "poet", "You are a poet.", front)
    orchestrator(pack / "orchestrators", "poems", "  - {name: write, agent: poet}\n")
    orchestrator(pack / "orchestrators", "more", "  - {name: write, agent: poems/poet}\n")
    assert listed(house, "agent")["poems/poet"] == "the pack poems"
    assert {"poems/poems", "poems/more"} <= set(listed(house, "orchestrator"))

    def script(request: Request):
        content = '{"line": "the sea"}' if request.prompt.startswith("/poet") else "{}"
        text = say(tool("Write", file_path=request.path("verse"), content=content))
        return text if request.turn == 0 else say("STAGE_TASK_COMPLETE")

    model(script)
    for name in ("poems", "poems/more"):
        ran = house.json("orchestrator", name, "--session-dir", str(house.folder / name.replace("/", "-")))
        assert ran.code == 0, ran.stderr
    outcome = json.loads(next((house.folder / "poems").rglob("outcome.json")).read_text())
    assert outcome["agent"] == "poems/poet"
    assert outcome["outputs"][0]["checks"][-1] == "matches schema poems/verse"
    assert house.json("orchestrator", "poems", "--session-dir", str(house.folder / "poems"), "--explain").document["skip"] == 1


def test_what_stands_beside_a_plan_is_found_in_every_layer_and_is_closed_to_agents(house: House, model) -> None:
    beside = house.folder / "mine"
    front = "tools: Write\nstrata: {scope: ['**'], outputs: {note: {path: note.md}}}\n"
    own = agent(beside / "agents", "scribe", "You are a scribe.", front)
    orchestrator(beside / "orchestrators", "letters", "  - {name: write, agent: scribe}\n")
    write(beside / "checks.yaml", "version: 1\nchecks: {always: {command: [test, -f, made.txt]}}\n")
    phase = "{name: one, run: [{orchestrator: letters}], verify: {checks: [always], fix: false}}"
    plan = f"version: 1\nname: mine\nphases:\n  - {phase}\n"
    write(beside / "plan.yaml", plan)
    house.workspace = beside

    def script(request: Request):
        if request.turn == 0:
            return say(
                tool("Write", file_path=str(own), content="You are somebody else."),
                tool("Write", file_path=str(beside / "made.txt"), content="yes"),
                tool("Write", file_path=request.path("note"), content="done"),
            )
        return say("STAGE_TASK_COMPLETE")

    model(script)
    ran = house.json("campaign", "plan.yaml", "--session-dir", str(house.folder / "s"))
    assert (ran.code, ran.document["grade"]) == (0, "PASS"), ran.stderr
    assert "You are a scribe." in own.read_text(), "what the user brings is as closed to agents as the house"
    outcome = json.loads(next((house.folder / "s/phases").rglob("01-write/attempt-1/outcome.json")).read_text())
    assert [d["tool_name"] for d in outcome["denials"]] == ["Write"]
    shown = house.run("session", "show", str(house.folder / "s"))
    assert "scribe" in shown.stdout and str(own) in shown.stdout, "where things were found is said"


def test_a_tool_of_a_users_own_runs_with_the_library_and_never_in_the_place_of_ours(house: House) -> None:
    own = house.workspace / ".strata"
    write(own / "tools/own.py", TOOL_BLOCK + OWN_TOOL)
    write(own / "tools/shared.py", "WORD = 'made by mine'\n")
    write(own / "tools/check.py", "raise SystemExit('I am not the check you know')\n")
    stages = "  - {name: make, tool: own.py, outputs: {made: {path: made.txt}}}\n  - {name: look, tool: check.py, args: [ok]}\n"
    orchestrator(own / "orchestrators", "trial", stages)
    write(own / "checks.yaml", "version: 1\nchecks: {ok: {command: [test, -d, .strata]}}\n")
    ran = house.json("orchestrator", "trial", "--session-dir", "s")
    assert ran.code == 0, ran.stderr
    made = house.workspace / "s/artifacts/trial/01-make/made.txt"
    assert made.read_text() == "made by mine"
    # What a step is made of includes the modules its tool runs, and no comments.

    def explained() -> list[str]:
        lines = house.json("orchestrator", "trial", "--session-dir", "s", "--explain").document["explained"]
        return [line["does"] for line in lines]

    write(own / "tools/own.py", TOOL_BLOCK + "# a comment\n" + OWN_TOOL.replace("A tool of a user.", "A tool of a user."))
    assert explained()[0] == "SKIP"
    write(own / "tools/shared.py", "WORD = 'made anew'\n")
    assert explained()[0] == "RUN"


def test_the_code_of_a_pack_counts_and_its_comments_do_not(tmp_path: Path) -> None:
    script = write(tmp_path / "tool.py", "from packs.poems import verse\nprint(verse.LINE)\n")
    module = write(tmp_path / "packs/poems/verse.py", '"""A verse."""\nLINE = 1\n')
    write(tmp_path / "packs/poems/__init__.py", "")
    before = tool_code.digest(script)
    tool_code.digest.cache_clear()
    module.write_text('"""Another docstring."""\n# and a comment\nLINE = 1\n')
    assert tool_code.digest(script) == before
    tool_code.digest.cache_clear()
    module.write_text('"""A verse."""\nLINE = 2\n')
    assert tool_code.digest(script) != before
    tool_code.digest.cache_clear()


def test_a_run_without_a_pack_neither_installs_nor_imports_what_the_pack_needs(house: House) -> None:
    """A pack's tool brings dependencies in its own block; nobody else resolves or imports them."""
    block = TOOL_BLOCK.replace('"rich>=14,<16",', '"rich>=14,<16", "no-such-package-anywhere==1",')
    write(house.folder / "core/poems.py", block + OWN_TOOL.replace("import shared", "import no_such_package_anywhere"))
    write(house.folder / "core/packs/poems/verse.py", "import no_such_package_anywhere\n")
    house.tool("worker", WORKER)
    orchestrator(house.folder / "config/orchestrators", "trial", "  - {name: a, tool: worker.py, args: [a]}\n")
    ran = house.json("orchestrator", "trial")
    assert ran.code == 0, ran.stderr
    loaded = subprocess.run(
        [sys.executable, "-c", "from lib.process import forking; forking._load(); import sys; print(sorted(sys.modules))"],
        cwd=house.folder / "core",
        env=house.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "no_such_package_anywhere" not in loaded
    assert "lib.attempt.executor" in loaded
