"""The README does not lie: its tree, its commands and its exit codes are those of the house."""

from __future__ import annotations

import re
import shlex

import pytest
from lib.contract import ExitCode
from support import CORE, ROOT, House

README = (ROOT / "README.md").read_text()
TREE = README.split("## What is where")[1].split("```")[1]
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines() if line.strip()]


def test_the_tree_names_every_tool_and_folder_and_nothing_else() -> None:
    named = set(re.findall(r"^  (\w+\.py)\s", TREE, re.M))
    assert named == {p.name for p in CORE.glob("*.py")}
    for line in re.findall(r"^(\w+)/", TREE, re.M):
        assert line == "sessions" or (ROOT / line).is_dir(), line


def test_each_tool_is_described_by_its_layer() -> None:
    from lib.process import tools

    for name, layer in re.findall(r"^  (\w+\.py)\s+layer (\d)", TREE, re.M):
        assert tools.layer_of(CORE / name) == int(layer), name


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("uv run core/")])
def test_every_command_is_understood_by_its_tool(house: House, command: str) -> None:
    """Run as written, but with a driver that cannot spend; what must not happen is a usage error about the words."""
    words = shlex.split(command.replace("<session>", "somewhere").split(" > ")[0].rstrip(" &"))
    tool = words[2].removeprefix("core/").removesuffix(".py")
    (house.workspace / "docs").mkdir()
    for name in ("spec.md", "feature.md", "answer.md"):
        (house.workspace / "docs" / name).write_text("# Spec")
    (house.workspace / "path/to/project/docs").mkdir(parents=True)
    (house.workspace / "path/to/project/docs/spec.md").write_text("# Spec")
    (house.workspace / "somewhere").mkdir()
    flags = (
        [] if "--driver" in words or tool == "signals" or "--list" in words else ["--driver", "replay", "--fixtures", "somewhere"]
    )
    flags += ["--timeout", "1"] if tool == "signals" else []
    arguments = [w for w in words[3:] if w not in ("3600", "record")]
    arguments = [w for w in arguments if w != "--timeout"]
    if "record" in words:
        arguments.insert(arguments.index("--driver") + 1, "replay")
        arguments += ["--fixtures", "somewhere"]
    ran = house.json(tool, *(w for w in arguments if w != "--detach"), *flags)
    assert ran.code == 0 or ran.error["code"] != "USAGE", ran.error


def test_the_exit_codes_are_all_there() -> None:
    table = README.split("## Exit codes")[1].split("##")[0]
    assert {int(c) for c in re.findall(r"^\| (\d+) \|", table, re.M)} == {int(c) for c in ExitCode}


def test_ci_runs_the_readmes_test_command() -> None:
    assert "pip install uv && uv run pytest" in COMMANDS
    assert "pip install uv && uv run pytest" in (ROOT / ".ci/run").read_text()
