# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: puts the Strata skill into another project, or takes it out. `uv run core/install.py --into ~/my-project`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import HOUSE, Json, usage
from lib.disk import files
from lib.plan import agents
from lib.plan.agents import PROMPTS

TOOL = Tool(
    "install",
    layer=0,
    summary="Put the skill, and the agents people use, into another project's .claude/, without touching what is there.",
    example="uv run core/install.py --into ~/my-project",
)
SKILL = Path("skills/strata")
COMMANDS = Path("commands")
OURS = Path("agents")
REFERENCE = {
    "plan.schema.json": "config/schemas/plan.json",
    "orchestrator.schema.json": "config/schemas/orchestrator.json",
    "agent.schema.json": "config/schemas/agent.json",
    "review.yaml": "config/orchestrators/review.yaml",
    "guide.md": "config/README.md",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--into", metavar="PROJECT", required=True, help="the folder of the project")
    add("--skill-only", action="store_true", help="leave the subagents out")
    add("--all-agents", action="store_true", help="with the agents that only Strata itself calls, such as the sentinel's")
    add("--remove", action="store_true", help="remove the installed files; those that you changed stay")


def main(call: Call) -> Json:
    project = Path(call.options.into).resolve()
    if not project.is_dir():
        usage(f"--into {call.options.into}: there is no such folder")
    if project == HOUSE:
        usage("--into names Strata's own folder", "name another project")
    if (project / ".claude").resolve() == (HOUSE / ".claude").resolve():
        usage(f"{project}/.claude is Strata's own", "give the project a .claude of its own")
    texts = skill() | ({} if call.options.skill_only else subagents(everyone=call.options.all_agents or call.options.remove))
    if call.options.remove:
        return removed(project, texts)
    done: dict[str, list[str]] = {"written": [], "kept": [], "unchanged": []}
    for name, text in texts.items():
        done[put(project, name, text)].append(str(Path(".claude") / name))
    hint = "files under `kept` existed already and were left alone; move one aside to install ours" if done["kept"] else ""
    return {"tool": "install", "status": "success", "exit_code": 0, "project": str(project), **done, "hint": hint}


def skill() -> dict[Path, str]:
    """The skill, what it refers to, the commands, and where Strata is on this machine: that alone is not for git."""
    own = HOUSE / ".claude" / SKILL
    texts = {SKILL / name: (own / name).read_text(encoding="utf-8") for name in ("SKILL.md", "run")}
    texts |= {SKILL / "reference" / name: (HOUSE / path).read_text(encoding="utf-8") for name, path in REFERENCE.items()}
    texts |= {COMMANDS / p.name: p.read_text(encoding="utf-8") for p in sorted((HOUSE / ".claude" / COMMANDS).glob("*.md"))}
    return texts | {SKILL / "home": f"{HOUSE}\n", SKILL / ".gitignore": "home\n"}


def subagents(everyone: bool) -> dict[Path, str]:
    named = sorted((PROMPTS / "executors").glob("*.md"))
    chosen = [p for p in named if everyone or not agents.load(p.stem).internal]
    return {OURS / p.name: p.read_text(encoding="utf-8") for p in chosen}


def put(project: Path, name: Path, text: str) -> str:
    """Writes a file that is not there. What is there is somebody's, unless it is the very same."""
    target = files.inside(project / ".claude", str(name), "a file of the skill")
    if target.exists() or target.is_symlink():
        return "unchanged" if _same(target, text) else "kept"
    files.write_atomic(target, text, 0o755 if name.name == "run" else None)
    return "written"


def removed(project: Path, texts: dict[Path, str]) -> Json:
    """Takes out every file that is still ours to the letter, and the folders that are empty then."""
    done: dict[str, list[str]] = {"removed": [], "kept": []}
    for name, text in texts.items():
        target = files.inside(project / ".claude", str(name), "a file of the skill")
        if target.is_file() and (_same(target, text) or name == SKILL / "home"):
            target.unlink()
            done["removed"].append(str(Path(".claude") / name))
        elif target.exists():
            done["kept"].append(str(Path(".claude") / name))
    for folder in (SKILL / "reference", SKILL, SKILL.parent, COMMANDS, OURS, Path()):
        place = project / ".claude" / folder
        if done["removed"] and place.is_dir() and not place.is_symlink() and not any(place.iterdir()):
            place.rmdir()
    hint = "those under `kept` have been changed; remove them by hand if you want" if done["kept"] else ""
    return {"tool": "install", "status": "success", "exit_code": 0, "project": str(project), **done, "hint": hint}


def _same(target: Path, text: str) -> bool:
    return target.is_file() and target.read_text(encoding="utf-8", errors="replace") == text


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
