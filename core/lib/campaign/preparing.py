"""What a plan says about where and how it runs, where neither the command line nor an earlier run does."""

from __future__ import annotations

from pathlib import Path

from lib.contract import usage
from lib.disk import files
from lib.plan.plan import Plan
from lib.tool import depth
from lib.tool.call import Call
from lib.workspace import trees


def apply_settings(call: Call, plan: Plan, layer: int) -> None:
    """What the plan says, where neither the command line nor an earlier run does."""
    options = call.options
    resumed = bool(getattr(options, "resume", None))
    if plan.driver and not options.driver and not resumed:
        call.driver = plan.driver
    options.backend = options.backend or plan.backend or call.backend or None  # a resume goes where this one went
    if call.driver == "replay" and not options.fixtures:
        options.fixtures = plan.fixtures or None
    if call.driver == "replay" and not (options.fixtures and Path(options.fixtures).is_dir()):
        usage(f"--driver replay needs the folder of a recorded session, not {options.fixtures!r}", "--fixtures DIR")
    if plan.workspace not in ("session", ".") and not options.cwd and not resumed:
        call.cwd = Path(plan.workspace).resolve()
        if not call.cwd.is_dir():
            usage(f"the workspace {plan.workspace} is not there", "stand where it is, or give --cwd")
    for phase in plan.phases:
        if phase.rollback and not plan.repository:
            trees.require_repository(call.cwd, f"{phase.name}: `on_failure: rollback`")
    maximum = plan.max_depth if options.max_depth is None else options.max_depth
    call.depth = depth.from_environment(layer, options.current_depth, maximum)


def enter_workspace(call: Call, plan: Plan) -> None:
    """Where the plan's agents work, without making anything."""
    if plan.workspace == "session":
        call.cwd = call.session.folder / "workspace"


def make_workspace(call: Call, plan: Plan) -> None:
    """The fresh workspace of a plan that wants one, with its files in it."""
    if plan.workspace != "session":
        return
    workspace = call.session.folder / "workspace"
    workspace.mkdir(exist_ok=True)
    for name, text in plan.files.items():
        target = files.inside(workspace, name, "a file of the plan")
        if not target.exists():
            files.write_atomic(target, text)
    if plan.repository:
        trees.make_repository(workspace, plan.name)
    enter_workspace(call, plan)
