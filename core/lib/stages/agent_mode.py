"""Agent mode: an agent takes the place of a tool above the executors. It decides; the files say what came of it.

The agent's only tool is Bash, and there only the tools of the layer below (`calls:` in its definition). It names a step, and the
tool it calls works out from the session what that step is: nothing an agent says becomes an input, a path or a result. What it
left out, did out of order or only claimed is found by walking the same files as in tool mode.
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any, cast

from lib import names
from lib.contract import CORE, DONE, NEVER_ABSORBED, ExitCode, Json, StrataError, part, usage
from lib.disk import files
from lib.plan import orchestrator_file
from lib.plan.orchestration import FanOut, Group, Orchestration, Question, Stage
from lib.plan.plan import Phase, Plan
from lib.plan.task import Limits, Task
from lib.process.tools import ToolResult
from lib.session.folder import Session
from lib.session.step import Step
from lib.session.trace import get_trace_id
from lib.stages import steps
from lib.stages.finished import Finished
from lib.stages.order import Order
from lib.stages.results import StageResult, StepResult
from lib.stages.run import Run
from lib.stages.words import Words, told
from lib.tool import depth
from lib.tool.call import AlreadyDone, Call, Tool

MODES = ("tool", "agent")
AGENT_STAGE = "00-agent"
TIMEOUT_SECONDS = 4 * 3600.0  # it waits for everything below it
RUN_FILE = "run.json"
PHASE_FILE = "phase.json"
NOTHING_TO_DO = ToolResult(ExitCode.SUCCESS, {"note": "there was nothing left to do"})
KEPT = ("model", "max_wait", "fixtures", "accept_drift", "inherit_settings")


class Missing(Exception):  # noqa: N818 - not an error: what the walk has come to
    """The next step that nothing on disk answers."""

    def __init__(self, stage: Stage, orders: list[Order]) -> None:
        super().__init__(stage.name)
        self.stage = stage
        self.orders = orders


class Standing(Run):
    """A walk over what has been done, that does nothing itself."""

    def keep(self, order: Order, word: StepResult) -> StepResult:
        return word

    def exhausted(self, stage: Stage, words: Words) -> StageResult | None:
        return None

    def perform(self, stage: Stage, words: Words) -> StageResult:
        done = list(words.known.values())
        ready = [o for o in words.orders if o.key not in words.known and all(d in words.known for d in words.after[o.key])]
        stuck = (
            stage.kind == FanOut.kind
            and stage.on_item_failure == "abort"
            and stage.min_success is None
            and any(not r.ok for r in done)
        )
        if ready and not stuck:
            raise Missing(stage, [words.ready(o.key) for o in ready])
        return self.sum_up(stage, tuple(done), len(words.orders)) if stage.fans_out else self.one(stage, done[0])


# The orchestrator's side


def orchestrate(call: Call, orchestration: Orchestration, params: dict[str, Any], base: Step) -> Json:
    """Has an agent sequence the stages, and builds the manifest from what is on disk afterwards."""
    home = call.session.folder / base.home
    keep_run(call, home, orchestration, params, base)
    before = standing(call, orchestration, params, base)
    if isinstance(before, dict):
        return before  # it had all been done
    reply = ask(call, "stage-sequencer", base, orchestration.name, commands(orchestration, base))
    after = standing(call, orchestration, params, base)
    return after if isinstance(after, dict) else ended_early(call, orchestration, params, base, after, reply)


def keep_run(call: Call, home: Path, orchestration: Orchestration, params: dict[str, Any], base: Step) -> None:
    """What a tool that the agent calls needs to know to find its step."""
    options = call.options
    source = getattr(options, "name", None) or orchestration.name
    source = str(Path(source).absolute()) if source.endswith((".yaml", ".yml")) else source
    document: Json = {
        "orchestrator": source,
        "modifier": getattr(options, "modifier", "") or "",
        "params": params,
        "step": str(base),
        "cwd": str(call.cwd),
        **{name: getattr(options, name, None) for name in KEPT},
        "checks": str(Path(options.checks).absolute()) if options.checks else None,
        "extra_context": [str(Path(p).absolute()) for p in options.extra_context],
    }
    files.write_json(home / RUN_FILE, document)


def standing(call: Call, orchestration: Orchestration, params: dict[str, Any], base: Step) -> Json | Missing:
    """The manifest of a run that has come to an end, or what is to be done next."""
    try:
        return Standing(call, orchestration, params, base).go()
    except Missing as missing:
        return missing


def commands(orchestration: Orchestration, base: Step) -> Json:
    """For each stage the command that does it, and what may follow from how it ends."""
    listed: Json = {}
    for stage in orchestration.stages:
        if isinstance(stage, Question):
            listed[stage.name] = "a person is asked here: end with `DONE: waiting for a person` when you come to it"
            continue
        tools = sorted({w.tool or "agent.py" for w in stage.workers})
        home = shlex.quote(str(base.home))
        words = [f"uv run {CORE / tool} --of {home} --stage {stage.name}" for tool in tools]
        notes: list[str] = []
        if isinstance(stage, Group):
            notes.append(f"once for each of {', '.join(stage.members)}, with `--item NAME`")
        if isinstance(stage, FanOut):
            notes.append("once for each item, with `--item KEY`; without `--item` it says which there are")
        notes += [f"on {event} it goes back to {orchestration.loops[loop].to}" for event, loop in stage.on.items()]
        notes += ["optional"] if not stage.required else []
        listed[stage.name] = " or ".join(words) + (f" ({'; '.join(notes)})" if notes else "")
    return listed


def ask(call: Call, definition: str, base: Step, target: str, listed: Json) -> ToolResult:
    """One agent session of the given definition. What it says is kept, and is not what decides."""
    step = Step(base.phase, base.orchestrator, AGENT_STAGE)
    folder = call.session.folder / step.folder
    task = folder / f"task-{len(call.session.attempts(step)) + 1}.json"
    told = tuple(str(Path(path).absolute()) for path in call.options.extra_context)
    asked = Task(action="RUN", target=target, inputs=listed, context=told, limits=Limits(timeout_seconds=TIMEOUT_SECONDS))
    files.write_json(task, asked.document())
    flags = ["--task", str(task), "--step", str(step)]
    return call.call("agent.py", [*flags, "--", definition, "RUN", target], judgement=call.tool.layer > 2)


def ended_early(
    call: Call, orchestration: Orchestration, params: dict[str, Any], base: Step, missing: Missing, reply: ToolResult
) -> Json:
    """The agent is done and the run is not: why, from the files where they say it, and from how the agent itself ended."""
    walk = Standing(call, orchestration, params, base)
    stage = missing.stage
    tries = [o for order in missing.orders for _, o in call.session.ended(order.step)]
    if reply.exit_code in NEVER_ABSORBED or reply.exit_code == ExitCode.TIMEOUT:
        code, error = reply.exit_code, reply.error
    elif tries:
        code, error = tries[-1].exit_code or ExitCode.FAILURE, tries[-1].error
    else:
        claimed = reply.said.note or reply.message or "nothing"
        message = f"the agent ended without running {stage.name}; it said: {claimed[:300]}"
        code, error = ExitCode.FAILURE, {"code": "STAGE_NOT_RUN", "message": message, "hint": "run it again, or in tool mode"}
    try:
        walk.go()
    except Missing:
        pass  # now it knows how the stages before this one stand
    result = StageResult(stage.name, code, "failed", error=error)
    walk.results[stage.name] = result
    return walk.tell(result)


def keep_phase(call: Call, folder: Path, plan: Plan, phase: Phase) -> None:
    options = call.options
    document: Json = {
        "plan": plan.document(),
        "phase": phase.name,
        "cwd": str(call.cwd),
        **{name: getattr(options, name, None) for name in KEPT},
        "extra_context": [str(Path(p).absolute()) for p in options.extra_context],
    }
    files.write_json(folder / PHASE_FILE, document)


def not_done(reply: ToolResult, code: str, what: str, left: list[str]) -> ToolResult:
    """What an agent left undone: by how it ended itself where that says it, otherwise a failure of its own."""
    if reply.exit_code in NEVER_ABSORBED or reply.exit_code == ExitCode.TIMEOUT:
        return reply
    claimed = reply.said.note or reply.message or "nothing"
    message = f"the agent ended before {what} was done ({', '.join(left[:5]) or 'it has not run'}); it said: {claimed[:300]}"
    error = {"code": code, "message": message, "hint": "run it again, or in tool mode"}
    return ToolResult(ExitCode.FAILURE, {"status": "failure", "exit_code": 1, "error": error})


# The side of the tools an agent calls


def call_from(known: Json, layer: int, tool: str, label: str) -> Call:
    """The view of the tool an agent stands for, from what that tool wrote down."""
    session = os.getenv(names.SESSION)
    options = argparse.Namespace(**{name: known.get(name) for name in (*KEPT, "checks")}, answer=[], mode="agent")
    options.extra_context = known["extra_context"]
    return Call(
        tool=Tool(tool, layer, "", ""),
        options=options,
        depth=depth.from_environment(layer, None, None),
        driver=os.getenv(names.DRIVER, "live"),
        cwd=Path(known["cwd"]),
        label=label,
        trace_id=get_trace_id() or "",
        grant=None,
        _session=Session(Path(session or ""), None),
    )


def words(tool: str, given: list[str]) -> list[str]:
    """The command line of an executor. With `--of`, an agent names the step, and the rest is known."""
    return expand(tool, given) if "--of" in given else given


def expand(tool: str, words: list[str]) -> list[str]:
    """The command line an orchestrator would have given for the step that is named. An agent names; it does not fill in."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--of", "--stage", "--item", "--output-format"):
        parser.add_argument(flag)
    try:
        named, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        usage(str(error))
    if rest or not named.stage:
        usage(f"--of takes --stage and --item only, not {' '.join(rest) or 'nothing'}", "the rest comes from the session")
    call, run = _call_of(named.of)
    orchestration = orchestrator_file.load(run["orchestrator"], run["modifier"])
    stage = next((s for s in orchestration.stages if s.name == named.stage), None)
    if not stage:
        usage(f"{orchestration.name} has no stage {named.stage!r}", f"it has: {', '.join(s.name for s in orchestration.stages)}")
    stands = standing(call, orchestration, run["params"], Step.parse(run["step"]))
    if isinstance(stands, dict) or stands.stage.name != stage.name:
        order_matters(call, orchestration, run, stage, stands)
    return _command(call, tool, cast(Missing, stands), named.item)


def _call_of(home: str) -> tuple[Call, Json]:
    """The orchestrator's own view of the session, from what it wrote down."""
    session = os.getenv(names.SESSION)
    folder = files.inside(Path(session), home, "--of") if session else None
    if not folder or not (folder / RUN_FILE).is_file():
        raise StrataError("NO_RUN", f"--of {home}: no agent runs an orchestrator there", "start orchestrator.py --mode agent")
    run = files.read_json(folder / RUN_FILE)
    return call_from(run, 2, "orchestrator", Step.parse(run["step"]).slug), run


def order_matters(call: Call, orchestration: Orchestration, run: Json, stage: Stage, stands: Json | Missing) -> None:
    """Raises: what was asked for is not what is next. What has been done is not done again."""
    if isinstance(stands, dict) and stands["exit_code"] not in DONE:
        why = part(stands.get("error"), "message") or stands["status"]
        raise StrataError("RUN_ENDED", f"nothing more is to be done: {why}", "end here")
    names = [s.name for s in orchestration.stages]
    following = stands.stage.name if isinstance(stands, Missing) else ""
    if not following or names.index(stage.name) < names.index(following):
        raise AlreadyDone(
            {"tool": "step", "status": "success", "exit_code": 0, "stage": stage.name, "skipped": True, "next": following or None}
        )
    raise StrataError("OUT_OF_ORDER", f"{stage.name} cannot run yet: {following} comes first", f"--stage {following}")


def _command(call: Call, tool: str, missing: Missing, item: str | None) -> list[str]:
    stage = missing.stage
    table = {o.key: o for o in missing.orders}
    if stage.fans_out and item is None:
        usage(f"{stage.name} has several: --item, one of {', '.join(list(table)[:50])}")
    order = table.get(item or "")
    if not order:
        raise StrataError(
            "OUT_OF_ORDER", f"{stage.name}: {item!r} is not to be done now", f"to be done: {', '.join(list(table)[:50])}"
        )
    wanted = order.worker.tool or "agent.py"
    if wanted != f"{tool}.py":
        usage(f"{stage.name} is done by {wanted}, not by {tool}.py")
    if stage.isolation:
        usage(f"{stage.name} works in a folder of its own ({stage.isolation})", "run this orchestrator in tool mode")
    finished = Finished(call.session, call.cwd, call.options.model or "", told(call))
    return [*call.child_flags(), *steps.command(call, stage, order, finished)]
