"""One step of a stage: whether it is already finished, and if not, having an executor do it, with retries that learn."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from lib.contract import REPEATED, ExitCode, Interrupted, Json
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan.orchestration import Stage
from lib.process import processes, tools
from lib.session import signals
from lib.session.attempts import OUTCOME, read_outcome
from lib.session.memory import Memory
from lib.session.outcome import Outcome
from lib.stages.finished import Finished
from lib.stages.order import Order, consumed
from lib.stages.results import StepResult
from lib.stages.words import result_of, skipped, told, tries_at, used_up
from lib.tool.call import Call

LONG_WORD = 16 * 1024  # bytes; Linux takes 128 KiB in one argument, and a person reads none of that


def skip(call: Call, stage: Stage, order: Order, finished: Finished) -> StepResult | None:
    """What an earlier run of this session made of the step, if it is finished."""
    outcome = finished.outcome(order, stage.limits.model)
    if not outcome:
        return None
    return keep_word(call, order, skipped(call, order, outcome))


def keep_word(call: Call, order: Order, done: StepResult) -> StepResult:
    """Says that a step stands as an earlier run left it, and sees to it that its signal is there."""
    if not done.ok:
        return done
    call.event(order.step.slug, "skipped", "finished in an earlier run")
    if not signals.stands(call.session.folder, "exec", order.step.slug):  # it was deleted, or a crash came before it
        status = "success" if done.exit_code == ExitCode.SUCCESS else "needs-refinement"
        artifact = next(iter(done.outputs.values()), None)
        signals.write(call.session.folder, "exec", order.step.slug, status, artifact, call.trace_id)
    return done


def judged(call: Call, order: Order, finished: Finished) -> StepResult | None:
    """What a check said of the folder as it still is. Asking it again would only give the same answer another time."""
    outcome = finished.judgement(order)
    return skipped(call, order, outcome) if outcome else None


def perform(call: Call, stage: Stage, order: Order, finished: Finished, rerun: int = 0) -> StepResult:
    """Has the step done, with as many retries as are left to it. One that had none left, and by that stopped a run, gets one more
    when a person runs it again; who only resumes a run that was cut off has not been told yet that it failed."""
    tries = tries_at(call, order, finished, stage.limits.model)
    left, kind = _next_try(stage, tries)
    told_of = all(t.number < finished.reported for t in tries)
    if tries and used_up(stage, tries, finished, rerun) and not told_of:
        return skipped(call, order, tries[-1])
    last = tries[-1] if tries else None
    timeouts = sum(t.exit_code == ExitCode.TIMEOUT for t in tries)
    for number in range(max(left, 1)):
        if number:
            _wait(stage, len(tries) + number - 1)
            kind = "retry"
        with order.place() if order.place else nullcontext(call.cwd) as cwd:
            last = _attempt(call, stage, order, kind, last, cwd)
        timeouts += last.exit_code == ExitCode.TIMEOUT
        if last.exit_code not in REPEATED or last.final or timeouts > 1:
            break
    assert last
    return result_of(call, order, last, len(call.session.attempts(order.step)), skipped=False)


def _next_try(stage: Stage, tries: list[Outcome]) -> tuple[int, str]:
    """How many tries are left, and what the next one is called."""
    left = 1 + stage.retry_max - len(tries)
    return left, "first" if not tries else ("retry" if left > 0 else "rerun")


def _wait(stage: Stage, retries_done: int) -> None:
    if stage.backoff_seconds:
        seconds = stage.backoff_seconds[min(retries_done, len(stage.backoff_seconds) - 1)]
        if processes.stopping.wait(seconds):
            raise Interrupted()


def command(call: Call, stage: Stage, order: Order, finished: Finished) -> list[str]:
    """The command line for one more attempt, for whoever is to call it. It is the next try, whoever made those before."""
    tries = tries_at(call, order, finished, stage.limits.model)
    _, kind = _next_try(stage, tries)
    return _command(call, stage, order, kind, tries[-1] if tries else None, call.cwd)


def _command(call: Call, stage: Stage, order: Order, kind: str, last: Outcome | None, cwd: Path) -> list[str]:
    folder = call.session.folder / order.step.folder
    number = max((a.number for a in call.session.attempts(order.step)), default=0) + 1
    task_file = folder / f"task-{number}.json"
    inputs = {name: _seen_from(value, call.cwd, cwd) for name, value in order.task.inputs.items()}
    context = [*order.context, *(Path(p).absolute() for p in call.options.extra_context)]
    if last and last.error:
        lesson = folder / f"lesson-{number}.md"
        files.write_atomic(lesson, f"An earlier attempt at this failed with {last.code}: {last.message}\n")
        context.append(lesson)
    # What it reads is looked at now: while it waited for others, they may have written it.
    task = replace(order.task, kind=kind, inputs=inputs, told=told(call), consumed=consumed(call, order.task))
    task = replace(task, context=tuple(map(str, context)), reads=tuple(map(str, order.reads)))
    task = replace(task, memory=Memory(call.session.folder).render() if stage.memory else "")
    task = replace(task, checks=str(Path(call.options.checks).absolute()) if call.options.checks else "")
    files.write_json(task_file, task.document())
    flags = ["--task", str(task_file), "--step", str(order.step), *(["--cwd", str(cwd)] if cwd != call.cwd else [])]
    # A long target is in the task file; the empty word stands in its place.
    target = order.task.target if len(order.task.target.encode()) < LONG_WORD else ""
    words = [order.agent] if order.agent else [*order.args, *([target] if order.task.target else [])]
    return [*flags, *(["--", *words] if words else [])]


def _attempt(call: Call, stage: Stage, order: Order, kind: str, last: Outcome | None, cwd: Path) -> Outcome:
    tool = order.worker.tool or "agent.py"
    number = max((a.number for a in call.session.attempts(order.step)), default=0) + 1
    arguments = _command(call, stage, order, kind, last, cwd)
    try:
        # The executor keeps the clock of each attempt, and each check its own: a second one here would end what is parked.
        reply = call.call(tool, arguments, needs=order.task.limits.needs)
    except (ValueError, OSError) as error:  # a NUL, a lone surrogate or too many bytes in an argument
        problem = {"code": "CHILD_NOT_STARTED", "message": f"{tool}: {error}", "hint": "large or odd texts belong in files"}
        reply = tools.ToolResult(ExitCode.FAILURE, {"status": "failure", "exit_code": 1, "error": problem})
    handed = _handed(call, order, number, reply.handed)
    roots = {"session": call.session.folder, "workspace": cwd}
    said, error = _said(reply, roots), reply.error
    if said is None and handed:  # it had handed its outcome over before it died, and could only not say so any more
        said = handed[-1]
    empty = _empty_claim(tool, reply, said, order, roots)
    if empty:  # what claims more than there is counts for nothing, now or later
        _handed(call, order, number, {})
        said, error = None, empty
    if said:
        return said
    # It ended before it could judge: a usage error, a crash. Whatever attempt it had begun has then ended too.
    code = ExitCode.FAILURE if empty else reply.exit_code
    known = Outcome(code, error=error, kind=kind, fingerprint=order.task.fingerprint, told=told(call))
    known = replace(known, step=str(order.step), number=call.session.next_number(), finished_at=now())
    begun = [a for a in call.session.attempts(order.step) if a.number >= number and a.outcome is None]
    if begun and code != ExitCode.INTERRUPTED:
        begun[-1].finish(known.document())
    signals.write(call.session.folder, "exec", order.step.slug, "fail", None, call.trace_id)
    return known


def _said(reply: tools.ToolResult, roots: dict[str, Path]) -> Outcome | None:
    """What an executor printed, with the paths of its outputs as on disk; None where it came to no verdict."""
    if "verdict" not in reply.document:
        return None
    try:
        said = records.of(reply.document, Outcome)
    except ValueError:
        return None
    placed = [replace(c, path=_below(roots[c.root], c.path)) if c.root in roots else c for c in said.outputs]
    return replace(said, outputs=tuple(placed))


def _handed(call: Call, order: Order, number: int, handed: dict[str, str]) -> list[Outcome]:
    """The outcomes that the executor itself said it was about to write. One that merely appeared on disk is not believed, now or
    later: it is set aside."""
    found: list[Outcome] = []
    for attempt in call.session.attempts(order.step):
        path = attempt.folder / OUTCOME
        if attempt.number < number or not path.exists():
            continue
        if handed.get(attempt.folder.name) == files.sha256(path):
            found.append(read_outcome(path))
        else:
            call.event(order.step.slug, "planted", {"set_aside": call.session.relative(path)})
            path.replace(path.with_name("planted-outcome.json"))
    return found


def _below(root: Path, path: str) -> str:
    """A path as an outcome on disk has it."""
    return str(Path(path).relative_to(root)) if Path(path).is_relative_to(root) else path


def _seen_from(value: Any, here: Path, there: Path) -> Any:
    """A path below one folder as the same path below another; anything else as it is."""
    if isinstance(value, list):
        return [_seen_from(v, here, there) for v in cast(list[Any], value)]
    if here == there or not isinstance(value, str) or not value.startswith(f"{here}/"):
        return value
    return f"{there}{value[len(str(here)) :]}"


def _empty_claim(tool: str, reply: tools.ToolResult, said: Outcome | None, order: Order, roots: dict[str, Path]) -> Json | None:
    """A success counts only with its verdict and every output it was asked for: a tool may say more than it did."""
    if (said.exit_code if said else reply.exit_code) != ExitCode.SUCCESS:
        return None
    there = {c.output for c in said.outputs if c.root in roots and files.exists(roots[c.root] / c.path)} if said else set[str]()
    missing = [o.name for o in order.task.outputs if not o.optional and o.name not in there]
    if said and said.verdict == "done" and not missing and len(said.outputs) == len(there):
        return None
    reason = f"without {', '.join(missing)}" if missing else f"with the verdict {said.verdict if said else None!r}"
    return {"code": "CHILD_CRASHED", "message": f"{tool} claimed success {reason}", "hint": "look at its attempt folder"}
