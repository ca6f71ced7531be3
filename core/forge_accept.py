# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: accepts a plan or a specification of Forge, or says what is wrong with it. `uv run core/forge_accept.py --help`"""

from __future__ import annotations

from pathlib import Path

from lib import cli
from lib.attempt import judging
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files
from packs.forge import tasks

TOOL = Tool(
    "forge_accept",
    layer=1,
    summary="Accept what an agent of Forge made. Its orchestrator calls it.",
    example="uv run core/forge_accept.py plan --made made.json",
)


def plan(made: judging.Made) -> list[str]:
    now = tasks.read(made.json("data"))
    before = made.task.inputs.get("before")
    earlier = tasks.read(files.read_json(Path(str(before)))) if before else []
    return [*tasks.complaints(now), *tasks.reworded(now, earlier)]


def spec(made: judging.Made) -> list[str]:
    names = [c.id for c in tasks.read_criteria(made.json("data"))]
    found = [] if names else ["there is no acceptance criterion"]
    text = made.text("report")
    found += [f"two criteria are called {name}" for name in sorted({n for n in names if names.count(n) > 1})]
    return found + [f"the criterion {name} is not in feature.md" for name in names if name not in text]


LOOKS = {"plan": plan, "spec": spec}


def main(call: Call) -> Json:
    what = call.options.words[0] if call.options.words else ""
    if what not in LOOKS:
        usage(f"what is to be accepted? {what!r} is none of {', '.join(LOOKS)}")
    return judging.answer(TOOL.name, call.options.made, LOOKS[what])


if __name__ == "__main__":
    cli.run(TOOL, judging.arguments, main)
