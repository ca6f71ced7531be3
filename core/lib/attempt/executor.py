"""What all executors (layer 1) share: begin a try, run the work, verify it, and end the try with an outcome.

The work is either an agent session (`run_agent`, through spawn) or a Python function (`run_function`, no model). Both end
in the same outcome, so an orchestrator cannot tell them apart.
"""

from __future__ import annotations

import argparse
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from lib.attempt import acceptance, checks, healing, judging, spawning, verdicts
from lib.attempt.underway import NOTHING_SAID, Underway, conclude, failed
from lib.attempt.verdicts import Verdict
from lib.contract import ExitCode, Json, StrataError, usage
from lib.disk import files, globs, records, schemas
from lib.plan import agents, checks_file
from lib.plan.agents import Agent
from lib.plan.task import Output, Task
from lib.process.tools import ToolResult
from lib.session.outcome import Outcome
from lib.session.step import Step, bare_step
from lib.tool import grant
from lib.tool.arguments import count, keyword, positive
from lib.tool.call import Call
from lib.workspace.protected import literal

READ = "read"  # by this name a function says which files and folders it looked at that its task does not name
# Of what a function says, what the outcome has in words of its own.
_OWN_WORDS = frozenset({*Outcome.__struct_fields__, READ, "status", "reason", "session_dir", "attempt_dir"})


def arguments(parser: argparse.ArgumentParser) -> None:
    """What every executor understands, besides its own words."""
    add = parser.add_argument
    add("--input", metavar="NAME=VALUE", action="append", default=[], help="a named input: a path or a text (repeatable)")
    add("--output", metavar="NAME=PATH[:SCHEMA]", action="append", default=[], help="a file that must exist afterwards")
    add("--extra-context", metavar="FILE", action="append", default=[], help="text added to the prompt (repeatable)")
    add("--timeout", type=positive, metavar="SECONDS", help="time limit of one attempt (default 600)")
    add("--stall-timeout", type=positive, metavar="SECONDS", help="stop an agent that is silent for this long")
    add("--max-turns", type=count, metavar="N")
    add("--max-budget-usd", type=positive, metavar="USD", help="spending limit of one attempt")
    add("--self-heal", action="store_true", help=f"up to {healing.SELF_HEAL_MAX} further attempts, each told what was wrong")
    add("--checks", metavar="FILE", help="where named checks are defined (default: config/checks.yaml)")
    add("--inherit-settings", action="store_true", help="load CLAUDE.md, settings, hooks and MCP servers of the folder")
    add("--permission-mode", choices=grant.PERMISSION_MODES, help="use this mode, not the definition's")
    add("--read-dir", action="append", default=[], help=argparse.SUPPRESS)
    add("--step", help=argparse.SUPPRESS)
    add("--task", metavar="FILE", help=argparse.SUPPRESS)


def read_task(call: Call, task: Task) -> Task:
    """The task from the command line, or, where an orchestrator sent one, its record with the command's words in it."""
    options = call.options
    sent = Task.read(Path(options.task)) if options.task else Task()
    given = {"timeout_seconds": options.timeout, "stall_timeout": options.stall_timeout, "max_turns": options.max_turns}
    given |= {"max_budget_usd": options.max_budget_usd, "self_heal": options.self_heal or None}
    limits = replace(sent.limits, **{name: value for name, value in given.items() if value is not None})
    sent = replace(
        sent,
        limits=limits,
        context=(*sent.context, *options.extra_context),
        reads=(*sent.reads, *options.read_dir),
        checks=options.checks or sent.checks,
    )
    if options.task:
        return replace(sent, action=task.action or sent.action, target=task.target or sent.target, extra=task.extra or sent.extra)
    outputs = (*task.outputs, *(_read_output(text) for text in options.output))
    inputs = task.inputs | _inputs(options.input)
    return replace(sent, action=task.action, target=task.target, extra=task.extra, inputs=inputs, outputs=outputs)


def _inputs(pairs: list[str]) -> Json:
    """A name that is given twice is a list. What names a file is given as a full path: the agent may work in another folder."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        for name, value in keyword([pair], "--input").items():
            found.setdefault(name, []).append(str(Path(value).absolute()) if files.exists(value) else value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _read_output(text: str) -> Output:
    name, equals, rest = text.partition("=")
    path, _, schema = rest.partition(":")
    if not (name and equals and path):
        usage(f"--output takes NAME=PATH or NAME=PATH:SCHEMA, not {text!r}")
    return Output(name, path, schema)


def run_agent(call: Call, agent: Agent, task: Task) -> Json:
    """The whole life of an executor that has an agent do the work."""
    task = _prepare(agent, task)
    call.depth.require(1)
    step = _step(call, agent.name)
    call.open_session(f"{agent.name}-{task.target}" if task.target else agent.name, step.slug)
    chosen = _definition_checks(agent, task)
    context: list[Path] = []
    reads = [Path(p) for p in task.reads]
    tries = 0
    spent: Counter[str] = Counter()  # tool calls of the session that is continued
    session = ""  # the agent session to continue: an interrupted one, or where a heal is cheaper that way
    cut_short = healing.interrupted(call, step, task)
    while True:
        with Underway.begin(call, task, step, "heal" if tries else task.kind, agent, goes_on=bool(cut_short)) as this:
            if cut_short:
                told, session = healing.go_on(cut_short, this.attempt.out)
                spent = healing.used(cut_short)
                context, cut_short = [told], None
                call.report("continuing", {"agent_session_id": session})
            reply = spawning.ask(this, agent, context, reads, tries, session, spent)
            spent = Counter()
            if session and reply.code == "UNKNOWN_AGENT_SESSION":
                this.take_back()
                reply = spawning.ask(this, agent, context if tries else [], reads, tries, "")  # it is gone: from the beginning
            work = _judge(this, agent, chosen, reply)
            tries += 1
            heal = healing.can_heal(call, task, work, tries)
            repair = bool(agent.structured) and work.code in healing.REPAIRABLE
            if not heal and not repair and healing.must_ask_parent(task, work):
                work = healing.ask_parent(this, work, tries)
            document = this.end(work)
        if repair and (repaired := _repair(this, agent, chosen, work)):
            return repaired
        if not heal:
            return document
        context, reads = [healing.feedback(this, work)], [this.attempt.out]
        session = healing.worth_continuing(work)
        call.report("healing", {"attempt": tries + 1, "because": work.wrong[:3]})


def run_function(call: Call, name: str, task: Task, function: Callable[[Task, Path], Verdict | Json], clock: bool = True) -> Json:
    """The life of an executor that needs no model. The function writes its outputs below the folder it is given and
    returns a verdict, or a document with `verdict` in it."""
    step = _step(call, name)
    call.open_session(name, step.slug)
    with Underway.begin(call, task, step, task.kind) as this:
        with _clock(task.limits.timeout_seconds) if clock else nullcontext():
            answer = function(task, this.attempt.out)
        if not isinstance(answer, dict | Verdict):  # type: ignore[reportUnnecessaryIsInstance] - people write tools
            hint = 'return Verdict("done"), or a document with `verdict` in it'
            raise StrataError("NO_VERDICT", f"{name} returned {type(answer).__name__}, and no verdict", hint, final=True)
        said = answer if isinstance(answer, dict) else {}
        verdict = verdicts.of(said) if isinstance(answer, dict) else answer
        judged = str(said.get("judged") or "")
        read = {str(p): files.fingerprint(call.cwd / p) for p in said.get(READ) or ()}
        known = replace(NOTHING_SAID, judged=judged, consumed=read, data={k: v for k, v in said.items() if k not in _OWN_WORDS})
        verified, wrong = acceptance.outputs(task, this.attempt.out, call.cwd, this.untouched())
        if verdict.word == "done" and task.accept and not wrong:
            record, complaints = judging.ask(call, task, this.attempt.folder, this.attempt.out, "", said or None)
            known = replace(known, checks=(records.document(record),))
            wrong = [f"not accepted: {complaint}" for complaint in complaints]
        return this.end(conclude(verdict, verified, wrong, known))


@contextmanager
def _clock(seconds: float) -> Generator[None]:
    """An attempt has a clock, also where no agent keeps it."""

    def late(*_: object) -> None:
        raise StrataError("TIMEOUT", f"not done after {seconds:g} s", "give it more with --timeout", ExitCode.TIMEOUT)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _step(call: Call, name: str) -> Step:
    return Step.parse(call.options.step) if call.options.step else bare_step(name)


def _prepare(agent: Agent, task: Task) -> Task:
    """The task with the definition's own outputs in it, checked before anything is spent."""
    if agent.actions and task.action not in agent.actions:
        usage(f"{agent.name} does not know the action {task.action or '(none)'!r}", f"it knows: {', '.join(agent.actions)}")
    missing = [name for name in agent.required_inputs if name not in task.inputs]
    if missing:
        flags = " ".join(f"--input {name}=…" for name in missing)
        raise StrataError("MISSING_INPUT", f"{agent.name} needs the input {', '.join(missing)}", f"add {flags}")
    declared = {o.name: o for o in (*agent.outputs, *task.outputs)}
    if why := agents.cannot_leave(agent, list(declared.values())):
        raise StrataError("CANNOT_LEAVE_OUTPUT", why, "give it the tool Write, or leave the output out")
    for output in declared.values():
        if output.schema:
            schemas.load(output.schema)
    return replace(task, outputs=tuple(declared.values()))


def _definition_checks(agent: Agent, task: Task) -> list[checks_file.Check]:
    if not agent.checks:
        return []
    return checks_file.known(task.checks).choose(agent.checks)


def _repair(first: Underway, agent: Agent, chosen: list[checks_file.Check], work: Outcome) -> Json | None:
    """The answer was paid for and is only in the wrong shape: a small model is asked once to put it into the schema."""
    if not work.result.strip():
        return None
    first.call.report("repairing")
    prompt = (
        "Put the text below into the required structure. Change nothing in its meaning and add nothing to it.\n\n"
        f"## Text\n\n{work.result}\n"
    )
    with Underway.begin(first.call, first.task, first.step, "repair", agent) as this:
        shutil.copytree(first.attempt.out, this.attempt.out, dirs_exist_ok=True)  # what else it made is still good
        system = ["--system-prompt", str(first.attempt.folder / "system.md"), "--write-dir", str(this.attempt.out)]
        reply = spawning.spawn(this, agent, prompt, system, spawning.REPAIR_TIER, first.call.child_env())
        repaired = _judge(this, agent, chosen, reply)
        document = this.end(repaired)
    return document if repaired.good else None


def _outside_scope(agent: Agent, task: Task, said: Outcome) -> list[str]:
    """What it changed in the working folder although its definition does not let it. Caches are not work."""
    own = [literal(o.path.replace("{target}", task.target)) for o in task.outputs if o.place == "workspace"]
    own += [f"{path}**" for path in own if path.endswith("/")]
    limits = [agent.scope, *([task.scope] if task.scope is not None else [])]
    changed = [c.path for c in said.changes or () if c.root in ("workspace", "hidden") and c.kind != "folder"]
    paths = [p for p in changed if not globs.matches(p, own) and not all(globs.matches(p, limit) for limit in limits)]
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return [f"changed outside its scope: {', '.join(paths[:5])}{more}"] if paths else []


def _judge(this: Underway, agent: Agent, chosen: list[checks_file.Check], reply: ToolResult) -> Outcome:
    """Believes nothing: the status line first, then the files, then the checks."""
    task, out, cwd = this.task, this.attempt.out, this.call.cwd
    said = _said(reply)
    if reply.exit_code != ExitCode.SUCCESS:
        this.restore_protected()
        return failed(said, reply.error or {"code": "UNKNOWN", "message": "spawn gave no reason"}, reply.exit_code)
    if agent.structured:
        files.write_json(task.output_path(agent.structured, out, cwd), said.structured_output)
        verdict = verdicts.of(said.structured_output)
    else:
        verdict = acceptance.status_line(said.result, task.action, agent.completion)
    verified, wrong = acceptance.outputs(task, out, cwd, this.untouched())
    undone = this.restore_protected()
    if undone:
        wrong.append(f"it touched what judges it, which was undone: {'; '.join(undone[:8])}")
    wrong += _outside_scope(agent, task, said) if task.isolation != "copy" else []  # nothing of it stays
    if wrong and said.denials:
        refused = sorted({str(denial.get("tool_name")) for denial in said.denials})
        wrong.append(f"the agent was denied: {', '.join(refused)}; see `denials`")
    if verdict.word == "done" and task.accept and not wrong:
        record, complaints = judging.ask(this.call, task, this.attempt.folder, out, said.result, said.structured_output)
        said = replace(said, checks=(*said.checks, records.document(record)))
        wrong += [f"not accepted: {complaint}" for complaint in complaints]
    if verdict.word != "failed":
        for check in chosen:
            record = checks.run(check, cwd, this.attempt.folder / "checks")
            said = replace(said, checks=(*said.checks, records.document(record)))
            if record.failed:
                wrong.append(f"check {check.name}: {record.count}; its output ends: {record.tail}")
    return conclude(verdict, verified, wrong, said)


def _said(reply: ToolResult) -> Outcome:
    """What spawn says of the agent session. A child that died, or printed something else, has said nothing."""
    try:
        return replace(records.of(reply.document, Outcome), error=None)
    except ValueError:
        return NOTHING_SAID
