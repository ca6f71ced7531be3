"""Agent definitions: the same file works in Claude Code; what we cannot honour is refused by name; prompts keep to their half."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lib.disk import places
from lib.plan import agents
from support import ROOT, House

DEFINITIONS = sorted((ROOT / "prompts").glob("*/*.md"))


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda p: p.stem)
def test_every_definition_in_the_house_is_valid_and_says_who_the_agent_is(path: Path) -> None:
    pack = path.parent.name if path.parent.name not in places.LAYERS else ""
    agent = agents.load(f"{pack}/{path.stem}" if pack else path.stem)
    assert "You are" in agent.system_prompt
    assert 15 <= len(path.read_text().splitlines()) <= 120


def test_no_task_text_says_who_the_agent_is() -> None:
    assert not re.search(r"\byou are\b", (ROOT / "core/lib/plan/task.py").read_text(), re.I)


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ({"tols": "Read"}, "unknown key 'tols' (did you mean 'tools'?)"),
        ({"hooks": {}}, "'hooks' is not supported"),
        ({"mcpServers": {}}, "'mcpServers' is not supported"),
        ({"tools": "Read, Wirte"}, "no tool 'Wirte'"),
        ({"model": "gpt"}, "is not one of"),
        ({"strata": {"tear": "x"}}, "did you mean 'tier'?"),
        ({"strata": {"outputs": {"x": {}}}}, "missing key 'path'"),
        ({"strata": {"structured": "x"}}, "no output with a schema"),
        ({"description": ""}, "should be non-empty"),
    ],
)
def test_a_bad_definition_is_an_error_before_anything_is_spent(house: House, front: dict, words: str) -> None:
    house.agent("trial", **front)
    ran = house.json("agent", "trial", "--driver", "replay", "--fixtures", "x")
    assert ran.code == 1
    assert words in ran.error["message"], ran.error
    assert not house.sessions.exists()


def test_a_name_that_differs_from_its_file_is_refused(house: House) -> None:
    house.agent("trial")
    (house.folder / "prompts/executors/trial.md").rename(house.folder / "prompts/executors/renamed.md")
    assert "differs from the file's" in house.json("agent", "renamed").error["message"]


def test_a_path_in_a_system_prompt_is_refused_with_its_line(house: House) -> None:
    house.agent("trial", body="You are good.\nLook into /home/me/project first.")
    message = house.json("agent", "trial", "--driver", "replay", "--fixtures", "x").error["message"]
    assert "a path in a system prompt" in message
    assert "trial.md:6" in message


def test_a_missing_definition_suggests_the_nearest(house: House) -> None:
    assert house.json("agent", "spec-paln").error["hint"] == "did you mean spec-plan?"


def test_rules_with_commas_in_parentheses_stay_whole() -> None:
    assert agents.split_rules("Read, Bash(git log:*, x), Edit(//a/**)") == ("Read", "Bash(git log:*, x)", "Edit(//a/**)")


def test_claudes_words_for_models_are_tiers(house: House) -> None:
    house.agent("trial", model="opus")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from lib.plan import agents; print(agents.load('trial').tier)"
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code, str(house.folder / "core")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "high-tier"
