"""The skill and the agents in another project: put there without touching anything, and found by a plain `claude -p`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from scripted_model.server import Reply, Request, say, tool
from support import House


def project(house: House) -> Path:
    folder = house.folder / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("mine")
    return folder


def furnish(house: House) -> None:
    """The house is a copy of core, config and prompts; the skill lies beside them."""
    import shutil

    from support import ROOT

    shutil.copytree(ROOT / ".claude", house.folder / ".claude")


def test_it_is_put_there_and_what_was_there_stays(house: House) -> None:
    furnish(house)
    folder = project(house)
    own = folder / ".claude/agents/spec-plan.md"
    own.parent.mkdir(parents=True)
    own.write_text("my own planner")
    (folder / ".claude/settings.json").write_text("{}")
    ran = house.json("install", "--into", str(folder))
    assert ran.code == 0, ran.stderr
    assert ran.document["kept"] == [".claude/agents/spec-plan.md"]
    assert own.read_text() == "my own planner"
    assert (folder / ".claude/settings.json").read_text() == "{}"
    put = [folder / name for name in ran.document["written"]]
    assert [p.name for p in put if str(house.folder) in p.read_text()] == ["home"], "what is for git has no path of this machine"
    assert (folder / ".claude/skills/strata/.gitignore").read_text() == "home\n"
    names = {p.stem for p in put if p.parent.name == "agents"}
    assert "researcher-tech" in names and not names & {"evaluator", "sentinel-fixer", "stage-compressor"}, "none of our own"
    assert (folder / ".claude/agents/researcher-tech.md").read_text() == (
        house.folder / "prompts/executors/researcher-tech.md"
    ).read_text()
    again = house.json("install", "--into", str(folder)).document
    assert again["written"] == []
    assert len(again["unchanged"]) == len(ran.document["written"])


def test_a_link_that_leads_out_and_a_wrong_folder_are_refused(house: House) -> None:
    furnish(house)
    folder = project(house)
    (house.folder / "elsewhere").mkdir()
    (folder / ".claude").mkdir()
    (folder / ".claude/skills").symlink_to(house.folder / "elsewhere")
    assert house.json("install", "--into", str(folder)).error["code"] == "UNSAFE_PATH"
    assert not list((house.folder / "elsewhere").iterdir())
    assert house.json("install", "--into", str(house.folder / "nowhere")).error["code"] == "USAGE"
    assert house.json("install", "--into", str(house.folder)).error["code"] == "USAGE"


def test_it_is_taken_out_again_and_what_was_changed_stays(house: House) -> None:
    furnish(house)
    folder = project(house)
    assert house.json("install", "--into", str(folder), "--all-agents").code == 0
    assert (folder / ".claude/agents/sentinel-fixer.md").exists()
    (folder / ".claude/agents/spec-plan.md").write_text("my own planner")
    (folder / ".claude/settings.json").write_text("{}")
    gone = house.json("install", "--into", str(folder), "--remove")
    assert gone.code == 0, gone.stderr
    left = sorted(str(p.relative_to(folder)) for p in (folder / ".claude").rglob("*") if p.is_file())
    assert left == [".claude/agents/spec-plan.md", ".claude/settings.json"]
    assert gone.document["kept"] == [".claude/agents/spec-plan.md"]
    assert not (folder / ".claude/skills").exists()
    assert house.json("install", "--into", str(folder), "--remove").document["removed"] == []


def test_the_skill_runs_strata_wherever_it_is(house: House) -> None:
    furnish(house)
    folder = project(house)
    house.json("install", "--into", str(folder))
    run = [str(folder / ".claude/skills/strata/run"), "check", "--list", "--output-format", "json"]
    done = subprocess.run(run, cwd=folder, env=house.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "pytest" in done.stdout, done.stderr
    (folder / ".claude/skills/strata/home").unlink()  # a colleague's machine
    lost = subprocess.run(run, cwd=folder, env=house.env, capture_output=True, text=True, check=False)
    assert lost.returncode == 1 and "set STRATA_HOME" in lost.stderr
    there = house.env | {"STRATA_HOME": str(house.folder)}
    done = subprocess.run(run, cwd=folder, env=there, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_plan_of_the_skill_is_one(house: House) -> None:
    """What the skill shows as an example is checked by the tool it is for."""
    import re

    from support import ROOT

    text = (ROOT / ".claude/skills/strata/SKILL.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (house.workspace / "plan.yaml").write_text(example)
    (house.workspace / "docs").mkdir()
    (house.workspace / "docs/spec.md").write_text("# Spec")
    ran = house.json("campaign", "plan.yaml", "--dry-run")
    assert ran.code == 0, ran.stderr


def test_a_plain_claude_finds_and_follows_the_skill(house: House, model) -> None:
    furnish(house)
    folder = project(house)
    assert house.json("install", "--into", str(folder)).code == 0

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return say(tool("Skill", skill="strata"))
        if request.turn == 1:
            assert "Which tool" in request.heard, request.heard
            return say(tool("Bash", command=".claude/skills/strata/run campaign --list --output-format json"))
        return say("there are none yet")

    scripted = model(script)
    import claude_agent_sdk

    package = str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")
    rules = "Skill,Bash(.claude/skills/strata/run campaign:*)"
    words = [
        package,
        "-p",
        "what has Strata run here?",
        "--output-format",
        "json",
        "--allowedTools",
        rules,
        "--permission-mode",
        "dontAsk",
    ]
    done = subprocess.run(words, cwd=folder, env=house.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"] == "there are none yet"
    listed = json.dumps([r.body.get("messages") for r in scripted.requests[:1]]) + json.dumps(
        scripted.requests[0].body.get("tools")
    )
    assert "multi-agent workflows as programs" in listed, "its description is what it is found by"
    assert '"sessions": []' in scripted.requests[-1].heard.replace('\\"', '"')
