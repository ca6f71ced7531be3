# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: puts the Strata skill and agents into another project. `uv run core/install.py --into ~/my-project`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import CORE, HOUSE, Json, usage
from lib.disk import files
from lib.plan.agents import PROMPTS

TOOL = Tool(
    "install",
    layer=0,
    summary="Put the skill and the executors' subagents into another project's .claude/, without touching what is there.",
    example="uv run core/install.py --into ~/my-project",
)
SKILL = Path("skills/strata/SKILL.md")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--into", metavar="PROJECT", required=True, help="the folder of the project")
    parser.add_argument("--skill-only", action="store_true", help="leave the subagents out")


def main(call: Call) -> Json:
    project = Path(call.options.into).resolve()
    if not project.is_dir():
        usage(f"--into {call.options.into}: there is no such folder")
    if project == HOUSE:
        usage("--into names Strata's own folder", "name another project")
    texts = {SKILL: (HOUSE / ".claude" / SKILL).read_text(encoding="utf-8").replace("{core}", str(CORE))}
    if not call.options.skill_only:
        texts |= {Path("agents") / p.name: p.read_text(encoding="utf-8") for p in sorted((PROMPTS / "executors").glob("*.md"))}
    done: dict[str, list[str]] = {"written": [], "kept": [], "unchanged": []}
    for name, text in texts.items():
        done[put(project, name, text)].append(str(Path(".claude") / name))
    hint = "those under `kept` were there and are not ours to change; move one aside to get ours" if done["kept"] else ""
    return {"tool": "install", "status": "success", "exit_code": 0, "project": str(project), **done, "hint": hint}


def put(project: Path, name: Path, text: str) -> str:
    """Writes a file that is not there. What is there is somebody's, unless it is the very same."""
    target = files.inside(project / ".claude", str(name), "a file of the skill")
    if target.exists() or target.is_symlink():
        same = target.is_file() and target.read_text(encoding="utf-8", errors="replace") == text
        return "unchanged" if same else "kept"
    files.write_atomic(target, text)
    return "written"


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
