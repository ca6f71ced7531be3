"""Layer 1's common story: make an attempt, have the work done, verify it, publish it, and write the outcome last.

The work is either an agent session (`run_agent`, through spawn) or a Python function (`run_function`, no model). Both end
in the same outcome, so an orchestrator cannot tell them apart.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lib import agents, checks, cli, files, grant, schemas, verify
from lib.agents import Agent
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Json, StrataError, usage
from lib.observability import Timer
from lib.process import ToolResult
from lib.session import Attempt, Step, bare_step, now
from lib.task import Output, Task, compose
from lib.verify import Verdict

SELF_HEAL_MAX = 2
# What more of the same cannot mend: a heal would only spend.
HOPELESS = {"LOGIN_MISSING", "LOGIN_REFUSED", "RATE_LIMITED", "API_REFUSED", "CLI_MISSING", "UNKNOWN_AGENT_TOOL"}
HOPELESS |= {"FIXTURE_MISSING", "FIXTURE_DRIFT", "WIDENING_REFUSED", "BAD_CONFIG", "CORRUPT_STATE", "USAGE", "BAD_ENVIRONMENT"}
HOPELESS |= {"MISSING_INPUT", "UNKNOWN_AGENT", "UNKNOWN_CHECK", "UNKNOWN_SCHEMA", "BAD_SCHEMA", "LAYER_VIOLATION"}
REPAIRABLE = {"NO_STRUCTURED_OUTPUT", "SCHEMA_RETRIES"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What every executor understands, besides its own words."""
    add = parser.add_argument
    add("--input", metavar="NAME=VALUE", action="append", default=[], help="a named input: a path or a text (repeatable)")
    add("--output", metavar="NAME=PATH[:SCHEMA]", action="append", default=[], help="a file that must be there afterwards")
    add("--extra-context", metavar="FILE", action="append", default=[], help="text added to the prompt (repeatable)")
    add("--timeout", type=cli.positive, metavar="SECONDS", default=600.0, help="of one attempt (default 600)")
    add("--max-turns", type=cli.count, metavar="N")
    add("--max-budget-usd", type=cli.positive, metavar="USD", help="of one attempt")
    add("--self-heal", action="store_true", help=f"up to {SELF_HEAL_MAX} further attempts, each told what was wrong")
    add("--checks", metavar="FILE", help="where named checks are defined (default: config/checks.yaml)")
    add("--inherit-settings", action="store_true", help="load CLAUDE.md, settings, hooks and MCP servers of the folder")
    add("--permission-mode", choices=grant.PERMISSION_MODES, help="instead of the definition's")
    add("--step", help=argparse.SUPPRESS)
    add("--task", metavar="FILE", help=argparse.SUPPRESS)


def read_task(call: Call, task: Task) -> Task:
    """The task from the command line, or, where an orchestrator sent one, its record with the command's words in it."""
    options = call.options
    if options.task:
        sent = Task.read(files.read_json(Path(options.task)))
        return replace(sent, action=task.action or sent.action, target=task.target or sent.target, extra=task.extra or sent.extra)
    outputs = [_read_output(text) for text in options.output]
    return replace(task, inputs=task.inputs | _paths(cli.keyword(options.input, "--input")), outputs=(*task.outputs, *outputs))


def _paths(inputs: dict[str, str]) -> dict[str, str]:
    """An input that names a file is given to the agent as a full path: it may work in another folder."""
    return {name: str(Path(value).absolute()) if Path(value).exists() else value for name, value in inputs.items()}


def _read_output(text: str) -> Output:
    name, equals, rest = text.partition("=")
    path, _, schema = rest.partition(":")
    if not (name and equals and path):
        usage(f"--output takes NAME=PATH or NAME=PATH:SCHEMA, not {text!r}")
    return Output(name, path, schema)


@dataclass
class Work:
    """What one attempt came to."""

    verdict: Verdict
    exit_code: ExitCode
    error: Json | None = None
    verified: list[Json] = field(default_factory=list[Json])
    document: Json = field(default_factory=dict[str, Any])  # what spawn, or the function, said
    wrong: list[str] = field(default_factory=list[str])


def run_agent(call: Call, agent: Agent, task: Task) -> Json:
    """The whole life of an executor that has an agent do the work."""
    prepared = _prepare(agent, task)
    call.depth.require(1)
    step = _step(call, agent.name)
    call.open_session(f"{agent.name}-{prepared.target}" if prepared.target else agent.name, step.slug)
    chosen = _definition_checks(call, agent)
    feedback: list[Path] = []
    tries = 0
    while True:
        attempt = call.session.new_attempt(step)
        kept = _keep_workspace_outputs(prepared, attempt, call.cwd)
        with Timer() as timer:
            reply = _ask(call, agent, prepared, step, attempt, feedback, heal=tries)
            work = _judge(agent, prepared, attempt, call.cwd, reply, chosen)
        kind = "heal" if tries else prepared.kind
        tries += 1
        heal, repair = _healable(call, work, tries), _repairable(work, agent)
        if call.options.self_heal and not heal and not repair and work.exit_code == ExitCode.FAILURE and work.wrong:
            work = _ask_parent(call, step, attempt, work, tries)
        document = _close(call, prepared, step, attempt, work, timer, kept, kind, agent)
        if repair and (repaired := _repair(call, agent, prepared, step, work, tries)):
            return repaired
        if not heal:
            return document
        feedback = [_write_feedback(attempt, work)]
        call.report("healing", {"attempt": tries + 1, "because": work.wrong[:3]})


def run_function(call: Call, name: str, task: Task, function: Callable[[Task, Path], Verdict | Json]) -> Json:
    """The life of an executor that needs no model. The function writes its outputs below the folder it is given and
    returns a verdict, or a document with `verdict` in it."""
    step = _step(call, name)
    call.open_session(name, step.slug)
    attempt = call.session.new_attempt(step)
    kept = _keep_workspace_outputs(task, attempt, call.cwd)
    with Timer() as timer:
        said: Json = {}
        try:
            answer = function(task, attempt.out)
            said = answer if isinstance(answer, dict) else {}
            verdict = verify.structured_verdict(said) if isinstance(answer, dict) else answer
            work = _conclude(verdict, *verify.artifacts(task, attempt.out, call.cwd))
        except StrataError as error:
            if error.exit_code == ExitCode.INTERRUPTED:
                raise
            work = Work(Verdict("failed", error.message), error.exit_code, error.document())
    work.document = said
    return _close(call, task, step, attempt, work, timer, kept, task.kind, None)


def _step(call: Call, name: str) -> Step:
    return Step.parse(call.options.step) if call.options.step else bare_step(name)


def _prepare(agent: Agent, task: Task) -> Task:
    """The task with the definition's own outputs in it, checked before anything is spent."""
    if agent.actions and task.action not in agent.actions:
        usage(f"{agent.name} does not know the action {task.action or '(none)'!r}", f"it knows: {', '.join(agent.actions)}")
    missing = [name for name in agent.inputs if name not in task.inputs and not agent.inputs[name].startswith("optional")]
    if missing:
        flags = " ".join(f"--input {name}=…" for name in missing)
        raise StrataError("MISSING_INPUT", f"{agent.name} needs the input {', '.join(missing)}", f"add {flags}")
    declared = {o.name: o for o in (*agent.outputs, *task.outputs)}
    return replace(task, outputs=tuple(declared.values()))


def _definition_checks(call: Call, agent: Agent) -> list[checks.Check]:
    if not agent.checks:
        return []
    path = Path(call.options.checks) if call.options.checks else checks.DEFAULT_FILE
    return checks.choose(checks.load(path), list(agent.checks), str(path))


def _ask(
    call: Call, agent: Agent, task: Task, step: Step, attempt: Attempt, feedback: list[Path], heal: int
) -> ToolResult:
    options = call.options
    prompt = compose(agent.name, task, attempt.out, call.cwd, agent.completion, agent.structured)
    system = attempt.folder / "system.md"
    files.write_atomic(system, agent.system_prompt + "\n")
    mode = options.permission_mode or agent.permission_mode
    if grant.PERMISSION_MODES.index(mode) > grant.PERMISSION_MODES.index(agent.permission_mode) and call.grant:
        raise StrataError("WIDENING_REFUSED", f"permission mode {mode} is wider than {agent.name}'s own", "leave it out")
    flags = ["--prompt-file", "-", "--system-prompt", str(system), "--name", agent.name, "--step", str(step)]
    flags += ["--attempt-dir", str(attempt.folder), "--allowed-tools", ",".join(agent.tools)]
    flags += ["--timeout", str(options.timeout), "--write-dir", str(attempt.out)]
    if agents.can_write_workspace(agent) or any(o.place == "workspace" for o in task.outputs):
        flags += ["--write-dir", str(call.cwd)]
    for folder in sorted(_input_folders(task, call.cwd)):
        flags += ["--read-dir", folder]
    turns = options.max_turns or agent.max_turns
    flags += ["--max-turns", str(turns)] if turns else []
    flags += ["--max-budget-usd", str(options.max_budget_usd)] if options.max_budget_usd else []
    flags += ["--model", agent.tier] if not options.model else []
    flags += ["--permission-mode", mode] if not options.permission_mode else []
    if agent.structured:
        schema = next(o.schema for o in task.outputs if o.name == agent.structured)
        path = attempt.folder / "schema.json"
        files.write_json(path, schemas.load(schema))
        flags += ["--schema", str(path)]
    for path in (*options.extra_context, *feedback):
        flags += ["--extra-context", str(path)]
    if heal:
        flags += ["--current-depth", str(call.depth.current + heal)]
    # The definition, not the caller, says what its agent may do: this is the grant spawn holds the flags against.
    given = grant.Grant(agent.tools, mode, ("/",), options.max_budget_usd)
    env = call.child_env(**({grant.GRANT_VARIABLE: given.text()} if call.grant else {}))
    return call.call("spawn.py", flags, env=env, stdin=prompt.encode())


def _input_folders(task: Task, cwd: Path) -> set[str]:
    """Folders outside the working folder that hold an input: the agent may read there, and nowhere else."""
    found: set[str] = set()
    for name in task.inputs:
        for path in task.input_paths(name):
            if path.is_absolute() and path.exists() and not path.is_relative_to(cwd):
                found.add(str(path if path.is_dir() else path.parent))
    return found


def _judge(
    agent: Agent, task: Task, attempt: Attempt, cwd: Path, reply: ToolResult, chosen: list[checks.Check]
) -> Work:
    """Believes nothing: the status line first, then the files, then the checks."""
    document = reply.document
    if reply.exit_code != ExitCode.SUCCESS:
        error = reply.error or {"code": "UNKNOWN", "message": "spawn gave no reason"}
        return Work(Verdict("failed", error["message"]), reply.exit_code, error, document=document, wrong=[error["message"]])
    if agent.structured:
        data = document["structured_output"]
        files.write_json(task.output_path(agent.structured, attempt.out, cwd), data)
        verdict = verify.structured_verdict(data)
    else:
        verdict = verify.status_line(document["result"], task.action, agent.completion)
    verified, wrong = verify.artifacts(task, attempt.out, cwd)
    if verdict.word != "failed":
        for check in chosen:
            result = checks.run(check, cwd, attempt.folder / "checks")
            verified.append({"check": check.name, "passed": result["passed"], "evidence": result})
            if not result["passed"] and check.blocking:
                wrong.append(f"check {check.name}: {result['note'] or str(result['errors']) + ' errors'}; see checks/{check.name}.log")
    work = _conclude(verdict, verified, wrong)
    work.document = document
    return work


def _conclude(verdict: Verdict, verified: list[Json], wrong: list[str]) -> Work:
    if verdict.word == "failed":
        error = {"code": "STAGE_FAILED", "message": verdict.note or "the work reported failure", "hint": "see output.md"}
        return Work(verdict, ExitCode.FAILURE, error, verified, wrong=[verdict.note, *wrong])
    if wrong:
        error = {"code": "NOT_VERIFIED", "message": "; ".join(wrong), "hint": "the attempt folder keeps what was written"}
        return Work(Verdict("failed", wrong[0]), ExitCode.FAILURE, error, verified, wrong=wrong)
    if verdict.word == "needs_revision":
        error = {"code": "NEEDS_REVISION", "message": verdict.note or "a revision was asked for"}
        return Work(verdict, ExitCode.NEEDS_REFINEMENT, error, verified)
    return Work(verdict, ExitCode.SUCCESS, None, verified)


def _close(
    call: Call,
    task: Task,
    step: Step,
    attempt: Attempt,
    work: Work,
    timer: Timer,
    kept: dict[str, Path | None],
    kind: str,
    agent: Agent | None,
) -> Json:
    """Publishes what was verified, takes back what was not, and only then says that the attempt ended."""
    published: list[Json] = []
    good = work.verdict.word != "failed"
    for output in task.outputs:
        path = output.locate(attempt.out, call.cwd, task.target)
        if good and path.exists():
            place = path
            if output.place == "session":
                place = call.session.folder / step.artifacts / output.path
                files.copy_whole(path, place)
            entry: Json = {"output": output.name, "in": output.place, "path": _shown(call, output, place)}
            if place.is_file():
                entry |= {"sha256": files.sha256(place), "size": place.stat().st_size}
            published.append(entry)
        elif not good and output.place == "workspace":
            _take_back(path, kept.get(output.name), attempt)
    outcome: Json = {
        "tool": call.tool.name,
        "agent": agent.name if agent else None,
        "step": str(step),
        "attempt": attempt.number,
        "kind": kind,
        "status": STATUS[work.exit_code],
        "exit_code": int(work.exit_code),
        "verdict": work.verdict.word,
        "note": work.verdict.note,
        "error": work.error,
        "verified": [{**v, "path": call.session.relative(Path(v["path"]))} if "path" in v else v for v in work.verified],
        "outputs": published,
        "fingerprint": task.fingerprint,
        "consumed": task.consumed,
        "finished_at": now(),
        "duration_seconds": round(timer.elapsed_seconds(), 3),
        **{k: v for k, v in work.document.items() if k not in _SPAWN_ONLY and k not in ("verdict", "reason")},
    }
    attempt.finish(outcome)
    call.artifact = call.session.folder / published[0]["path"] if published and published[0]["in"] == "session" else None
    outcome["outputs"] = [{**e, "path": str(_absolute(call, e))} for e in published]
    return outcome | {"session_dir": str(call.session.folder), "attempt_dir": str(attempt.folder)}


_SPAWN_ONLY = {"tool", "status", "exit_code", "error", "session_dir", "attempt_dir", "agent", "duration_seconds"}


def _shown(call: Call, output: Output, path: Path) -> str:
    return str(path.relative_to(call.session.folder if output.place == "session" else call.cwd))


def _absolute(call: Call, entry: Json) -> Path:
    return (call.session.folder if entry["in"] == "session" else call.cwd) / entry["path"]


def _keep_workspace_outputs(task: Task, attempt: Attempt, cwd: Path) -> dict[str, Path | None]:
    """What stood at the place of an output in the workspace before, so that a failed attempt can be taken back."""
    kept: dict[str, Path | None] = {}
    for output in task.outputs:
        if output.place == "workspace":
            path = output.locate(attempt.out, cwd, task.target)
            kept[output.name] = None
            if path.exists():
                copy = attempt.folder / "before" / output.name
                files.copy_whole(path, copy)
                kept[output.name] = copy
    return kept


def _take_back(path: Path, before: Path | None, attempt: Attempt) -> None:
    if path.exists():
        files.copy_whole(path, attempt.folder / "rejected" / path.name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if before:
        files.copy_whole(before, path)


# When it did not work out


def _healable(call: Call, work: Work, tries: int) -> bool:
    if not call.options.self_heal or work.exit_code not in (ExitCode.FAILURE, ExitCode.TIMEOUT):
        return False
    if tries > SELF_HEAL_MAX or (work.error or {}).get("code") in HOPELESS:
        return False
    if call.depth.remaining - tries < 1:
        call.report("cannot-heal", f"heal {tries} needs depth {call.depth.current + tries + 1} of {call.depth.maximum}")
        return False
    return True


def _write_feedback(attempt: Attempt, work: Work) -> Path:
    issues = "\n".join(f"{n}. {text}" for n, text in enumerate(work.wrong, 1))
    text = f"The previous attempt did not pass.\n\nWhat was found:\n\n{issues}\n\nMend exactly these, and keep what was right.\n"
    path = attempt.folder / "feedback.md"
    files.write_atomic(path, text)
    return path


def _repairable(work: Work, agent: Agent) -> bool:
    return bool(agent.structured) and (work.error or {}).get("code") in REPAIRABLE


def _repair(call: Call, agent: Agent, task: Task, step: Step, work: Work, tries: int) -> Json | None:
    """The answer was paid for and is only in the wrong shape: a small model is asked once to put it into the schema."""
    text = str(work.document.get("result", ""))
    if not text.strip() or call.depth.remaining < 1:
        return None
    attempt = call.session.new_attempt(step)
    schema = attempt.folder / "schema.json"
    files.write_json(schema, schemas.load(next(o.schema for o in task.outputs if o.name == agent.structured)))
    prompt = (
        "Put the text below into the required structure. Change nothing in its meaning and add nothing to it.\n\n"
        f"## Text\n\n{text}\n"
    )
    flags = ["--prompt-file", "-", "--name", agent.name, "--step", str(step), "--attempt-dir", str(attempt.folder)]
    flags += ["--schema", str(schema), "--timeout", str(call.options.timeout), "--write-dir", str(attempt.out)]
    flags += ["--model", "low-tier"] if not call.options.model else []
    call.report("repairing", {"attempt": tries + 1})
    with Timer() as timer:
        reply = call.call("spawn.py", flags, stdin=prompt.encode())
        repaired = _judge(agent, task, attempt, call.cwd, reply, [])
    document = _close(call, task, step, attempt, repaired, timer, {}, "repair", agent)
    return document if repaired.exit_code in (ExitCode.SUCCESS, ExitCode.NEEDS_REFINEMENT) else None


def _ask_parent(call: Call, step: Step, attempt: Attempt, work: Work, tries: int) -> Work:
    """Tier 2: what could not be healed here becomes a document the parent can answer."""
    path = call.session.folder / "refinements" / f"exec-{step.slug}.md"
    diagnostics = "\n".join(f"- {text}" for text in work.wrong)
    allowed = 1 + min(SELF_HEAL_MAX, max(call.depth.remaining - 1, 0))
    text = f"""# Refinement Request

## Summary
{work.wrong[0] or "the work did not pass"}

## Context
- Stage: {step}
- Artifact: {call.session.relative(attempt.folder)}
- Attempt: {tries} of {allowed} (self-heal exhausted)

## Issue
{(work.error or {}).get("message", "")}

## Diagnostics
{diagnostics}

## Suggested Resolution
Say how the issues above are to be resolved, or change what the stage is asked for; the answer comes back to it as
additional context.
"""
    files.write_atomic(path, text)
    error = {**(work.error or {}), "refinement": call.session.relative(path)}
    return replace(work, exit_code=ExitCode.NEEDS_REFINEMENT, error=error)
