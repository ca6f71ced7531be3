"""Having an agent do a task: what of the task and of the definition becomes the command line of spawn."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lib import names
from lib.agent import sandbox
from lib.attempt.underway import SHELF, Underway, bring_in
from lib.contract import StrataError
from lib.disk import files, schemas
from lib.plan.agents import Agent
from lib.plan.task import Task, compose
from lib.process.tools import ToolResult
from lib.session import ledger
from lib.tool import grant
from lib.workspace.protected import literal

REPAIR_TIER = "low-tier"


def ask(
    this: Underway,
    agent: Agent,
    context: list[Path],
    reads: list[Path],
    heal: int,
    session: str,
    spent: Mapping[str, int] = {},
) -> ToolResult:
    call, task, options = this.call, this.task, this.call.options
    shelf = _shelf(this, agent)
    out = shelf or this.attempt.out
    prompt = compose(agent.name, task, out, call.cwd, agent.completion, agent.structured)
    system = this.attempt.folder / "system.md"
    files.write_atomic(system, agent.system_prompt + "\n")
    mode = options.permission_mode or agent.permission_mode
    if call.grant and grant.PERMISSION_MODES.index(mode) > grant.PERMISSION_MODES.index(agent.permission_mode):
        raise StrataError("WIDENING_REFUSED", f"permission mode {mode} is wider than {agent.name}'s own", "leave it out")
    flags = ["--system-prompt", str(system), "--allowed-tools", ",".join(agent.tools)]
    own = [literal(o.path.replace("{target}", task.target)) for o in task.outputs if o.place == "workspace"]
    may_write = agent.scope if task.scope is None else task.scope
    if may_write or own:
        flags += ["--write-dir", str(call.cwd)]
    for glob in (*may_write, *own):
        flags += ["--write-glob", glob]
    for folder in sorted({*_input_folders(task, call.cwd), *map(str, reads)}):
        flags += ["--read-dir", folder]
    flags += ["--disallowed-tools", ",".join(agent.disallowed)] if agent.disallowed else []
    turns = task.limits.max_turns or agent.max_turns
    flags += ["--max-turns", str(turns)] if turns else []
    for tool, most in caps(agent, task).items():
        flags += ["--max-uses", f"{tool}={max(most - (spent.get(tool, 0)), 0)}"]
    flags += ["--max-budget-usd", str(task.limits.max_budget_usd)] if task.limits.max_budget_usd else []
    flags += ["--permission-mode", mode] if not options.permission_mode else []
    flags += ["--sandbox", agent.sandbox]
    for domain in agent.domains:
        flags += ["--domain", domain]
    for name in agent.env:
        flags += ["--env", name]
    for path in (*task.context, *context):
        flags += ["--extra-context", str(path)]
    if heal:
        flags += ["--current-depth", str(call.depth.current + heal)]
    flags += ["--resume-id", session] if session and call.driver != "replay" else []
    # The definition, not the caller, says what its agent may do: this is the grant spawn checks the flags against.
    folders = (*(call.grant.folders if call.grant else ()), *([str(shelf)] if shelf else []))
    given = grant.Grant(agent.tools, mode, folders, task.limits.max_budget_usd, options.inherit_settings)
    env = call.child_env(**({names.GRANT: given.text()} if call.grant else {}))
    for glob in (*(task.scope or ()), *agent.scope):
        flags += ["--open", glob]
    flags += ["--out-dir", str(out), "--write-dir", str(out)]
    try:
        return spawn(this, agent, prompt, flags, task.limits.model or agent.tier, env)
    finally:
        if shelf:
            bring_in(this.attempt)


def caps(agent: Agent, task: Task) -> dict[str, int]:
    """How often each tool may be called: what the definition says, and what the stage or the item says, whichever is less."""
    both = (agent.max_uses, task.limits.max_uses)
    return {tool: min(given[tool] for given in both if tool in given) for tool in {**agent.max_uses, **task.limits.max_uses}}


def _shelf(this: Underway, agent: Agent) -> Path | None:
    """A folder outside the session for what a sandboxed shell writes, where the session lies in the working folder: there it is
    closed to the shell as a whole."""
    call = this.call
    shell = any(grant.tool_name(t) == "Bash" for t in agent.tools)
    needed = shell and not agent.calls and call.driver != "replay" and sandbox.within((call.session.folder,), (call.cwd,))
    if not needed or not sandbox.wanted(agent.sandbox, shell):
        return None
    shelf = Path(tempfile.mkdtemp(prefix="strata-out-")).resolve()
    files.write_json(this.attempt.folder / SHELF, {"folder": str(shelf)})
    shutil.copytree(this.attempt.out, shelf, dirs_exist_ok=True)
    return shelf


def spawn(this: Underway, agent: Agent, prompt: str, flags: list[str], tier: str, env: dict[str, str]) -> ToolResult:
    call = this.call
    flags = [*flags, "--prompt-file", "-", "--name", agent.id, "--step", str(this.step)]
    flags += ["--attempt-dir", str(this.attempt.folder)]
    limits = this.task.limits
    flags += ["--timeout", str(limits.timeout_seconds)]
    flags += ["--stall-timeout", str(limits.stall_timeout)] if limits.stall_timeout else []
    flags += ["--model", tier] if tier == REPAIR_TIER or not call.options.model else []
    if agent.structured:
        schema = next(o.schema for o in this.task.outputs if o.name == agent.structured)
        path = this.attempt.folder / "schema.json"
        files.write_json(path, schemas.load(schema))
        flags += ["--schema", str(path)]
    try:
        return call.call("spawn.py", flags, env=env, stdin=prompt.encode())
    finally:  # one that was killed has settled nothing, and others may be waiting for what it held
        ledger.Ledger(call.session.folder).close_open(call.session.relative(this.attempt.folder))


def _input_folders(task: Task, cwd: Path) -> set[str]:
    """Folders outside the working folder that hold an input: the agent may read there, and nowhere else."""
    found: set[str] = set()
    for name in task.inputs:
        for path in (Path(p) for p in _texts(task.inputs[name])):
            if path.is_absolute() and files.exists(path) and not path.is_relative_to(cwd):
                found.add(str(path if path.is_dir() else path.parent))
    return found


def _texts(value: Any) -> list[str]:
    values = cast(list[Any], value) if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and "\n" not in v and len(v) < 4000]
