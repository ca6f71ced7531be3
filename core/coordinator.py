# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 3: one phase: its orchestrators by dependency, then verification. `uv run core/coordinator.py plan.yaml --phase build`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.campaign import named, outlook, phases, preparing, redo_plan
from lib.cli import Call, Tool
from lib.contract import Json, nearest, usage
from lib.disk import files
from lib.plan import plan, plan_file
from lib.plan.plan import Phase, Plan
from lib.stages import look, redo
from lib.tool.arguments import keyword
from msgspec.structs import replace

TOOL = Tool(
    "coordinator",
    layer=3,
    summary="Run one phase: its orchestrators by dependency, then its checks.",
    example="uv run core/coordinator.py config/plans/research.yaml --phase research",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="FILE", help="a phase file, or a plan of which --phase names one phase")
    parser.add_argument("--phase", metavar="NAME", help="which phase of a plan")
    parser.add_argument("--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter of the plan (repeatable)")
    parser.add_argument("--roll-back", action="store_true", help="only put the workspace back as it was before the phase")
    parser.add_argument("--keep-failed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", metavar="SESSION", help="resume a session as it was started")
    phases.arguments(parser)


def main(call: Call) -> Json:
    chosen = read_plan(call.options.plan, keyword(call.options.param, "--param"))
    phase = choose(chosen, call.options.phase)
    handed_down = call.options.plan.endswith(".json")
    if not handed_down:
        preparing.apply_settings(call, chosen, 3)
    needed = replace(chosen, phases=(phase,)).depth_needed(call.options.mode) if call.options.mode == "agent" else 2
    call.depth.require(needed if call.depth.current == 0 else needed - 1)
    folder = Path(call.options.session_dir) if call.options.session_dir else None
    asked = redo_plan.from_run(phase, call.options.start_from, folder) if call.options.start_from else None
    if call.options.explain:
        call.look_at_session()
        preparing.enter_workspace(call, chosen)
        return outlook.plan(look.begin(call, asked), chosen, (phase,)).document()
    call.open_session(f"{chosen.name}-{phase.name}", phase.folder)
    if not handed_down:
        preparing.make_workspace(call, chosen)
    if asked:
        redo.mark(call.session.folder, asked)
    return phases.run(call, chosen, phase)


def read_plan(path: str, given: dict[str, str]) -> Plan:
    """A file of the user's is checked; the JSON a campaign hands down has been."""
    if path.endswith(".json"):
        return plan.read(files.read_json(Path(path))["plan"])
    return plan_file.load(path, given)


def choose(chosen: Plan, name: str | None) -> Phase:
    names = [p.name for p in chosen.phases]
    if name is None and len(names) > 1:
        usage(f"the plan has {len(names)} phases", f"--phase, one of: {', '.join(names)}")
    if name is not None and name not in names:
        usage(f"there is no phase {name!r}", nearest(name, names))
    return chosen.phase(name or names[0])


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
