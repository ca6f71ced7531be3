"""A fresh workspace that is a git repository: the same files are the same commit, and what is there stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lib.workspace import trees
from support import House

PLAN = """version: 1
name: trial
workspace: session
repository: true
files: {a.md: "one\\n"}
phases:
  - {name: p, run: [{orchestrator: trial}], verify: {none: a trial}, on_failure: rollback}
"""
BREAKER = """
def work(task, out, call):
    (call.cwd / "a.md").write_text("two")
    return Verdict("failed", "no")
"""


def head(folder: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_same_files_are_the_same_commit_and_a_repository_stays(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("one\n")
        trees.make_repository(tmp_path / name, "trial")
    assert head(tmp_path / "one") == head(tmp_path / "two")
    (tmp_path / "one/a.md").write_text("two\n")
    before = head(tmp_path / "one")
    trees.make_repository(tmp_path / "one", "trial")
    assert head(tmp_path / "one") == before


def test_a_plan_makes_it_and_can_roll_it_back(house: House) -> None:
    house.tool("breaker", BREAKER)
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: s, tool: breaker.py, retry: {max: 0}}\n")
    (house.workspace / "plan.yaml").write_text(PLAN)
    ran = house.json("campaign", "plan.yaml", "--session-dir", str(house.folder / "s"))
    assert ran.code != 0 and (house.folder / "s/workspace/a.md").read_text() == "one\n"
    assert (house.folder / "s/workspace/.git").is_dir()


def test_only_a_fresh_workspace_is_made_a_repository(house: House) -> None:
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: s, tool: check.py, args: [artifacts]}\n")
    (house.workspace / "plan.yaml").write_text(PLAN.replace("workspace: session\n", "").replace('files: {a.md: "one\\n"}\n', ""))
    ran = house.json("campaign", "plan.yaml", "--dry-run")
    assert "only a fresh workspace" in ran.error["message"] and ran.error["hint"] == "workspace: session"
