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
    skill = (folder / ".claude/skills/strata/SKILL.md").read_text()
    assert f"uv run {house.folder}/core/campaign.py" in skill
    assert "{core}" not in skill
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


def test_a_plain_claude_finds_and_follows_the_skill(house: House, model) -> None:
    furnish(house)
    folder = project(house)
    assert house.json("install", "--into", str(folder)).code == 0

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return say(tool("Skill", skill="strata"))
        if request.turn == 1:
            assert "Which tool" in request.heard, request.heard
            return say(tool("Bash", command=f"uv run {house.folder}/core/campaign.py --list --output-format json"))
        return say("there are none yet")

    scripted = model(script)
    import claude_agent_sdk

    package = str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")
    rules = f"Skill,Bash(uv run {house.folder}/core/campaign.py:*)"
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
    assert "Run multi-agent workflows as programs" in listed, "its description is what it is found by"
    assert '"sessions": []' in scripted.requests[-1].heard.replace('\\"', '"')
