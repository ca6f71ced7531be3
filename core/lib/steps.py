"""One step of a stage: whether it is already finished, and if not, having an executor do it, with retries that learn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from lib import agents, checks, config, files, observability, process, schemas, snapshot
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Interrupted, Json, StrataError
from lib.healing import HOPELESS
from lib.orchestration import Stage, Worker
from lib.session import Session, Step, now
from lib.task import Task


@dataclass(frozen=True)
class StepResult:
    """How a step stands. `key` is the member or item; a stage of one step has none."""

    key: str
    exit_code: ExitCode
    verdict: str = "failed"  # done, needs_revision, failed, blocked or waiting
    outputs: dict[str, str] = field(default_factory=dict[str, str])  # name → full path
    error: Json | None = None
    attempts: int = 0
    skipped: bool = False  # finished in an earlier run
    note: str = ""
    did: str = ""  # a digest of what it changed in the workspace

    @property
    def ok(self) -> bool:
        return self.verdict in ("done", "needs_revision")

    def document(self) -> Json:
        status = "blocked" if self.verdict == "blocked" else STATUS[self.exit_code]
        entry: Json = {"name": self.key, "status": status, "exit_code": int(self.exit_code), "verdict": self.verdict}
        entry |= {"artifact": next(iter(self.outputs.values()), None), "attempts": self.attempts, "skipped": self.skipped}
        if self.error:
            entry["error"] = self.error.get("message", "")
            entry["code"] = self.error.get("code", "")
        if self.note:
            entry["note"] = self.note
        return entry


@dataclass(frozen=True)
class Order:
    """A step to be done: who, what, and what it must be told besides."""

    step: Step
    key: str
    worker: Worker
    agent: str
    args: tuple[str, ...]
    task: Task
    context: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()  # folders the context speaks of
    made_from: tuple[str, ...] = ()  # what the stages it consumes did to the workspace


def fingerprint(call: Call, stage: Stage, order: Order) -> str:
    """Everything that, changed, makes the work another work: not the attempt, not the place on this machine. The agent's
    definition and model are compared with the outcome's own, because a tool may choose its agent itself."""
    judges = order.worker.tool == "check.py" or (order.agent and agents.load(order.agent).checks)
    parts: list[Any] = [
        order.agent or [order.worker.tool, files.sha256(process.find_tool(order.worker.tool))],
        files.sha256(Path(call.options.checks or checks.DEFAULT_FILE)) if judges else "",
        order.args,
        order.task.action,
        order.task.target,
        order.task.extra,
        order.task.item,
        [o.document() | {"schema": schemas.load(o.schema) if o.schema else ""} for o in order.task.outputs],
        {name: _content(value, call) for name, value in order.task.inputs.items()},
        [files.sha256_text(path.read_text(encoding="utf-8").replace(str(call.session.folder), "")) for path in order.context],
        order.made_from,
        *([[order.task.scope, order.task.protect]] if order.task.scope or order.task.protect else []),
    ]
    return files.digest(parts)


def _content(value: Any, call: Call) -> Any:
    """An input counts by its content; a file of the workspace is in `consumed` instead: later writers may change it."""
    if isinstance(value, list):
        return [_content(v, call) for v in cast(list[Any], value)]
    if not isinstance(value, str) or "\n" in value or len(value) > 4000:
        return value
    path = Path(value)
    ours = path.is_relative_to(call.session.folder) or not path.is_relative_to(call.cwd)
    return files.fingerprint(path) if path.is_absolute() and ours and files.exists(path) else value


class Finished:
    """What earlier runs of this session have finished, and whether it is still so."""

    def __init__(self, session: Session, cwd: Path, model: str = "", told: bool = False) -> None:
        self.session = session
        self.cwd = cwd
        self.model = model  # asked for on the command line
        self.told = told  # there is something new to tell: only a success is finished then

    def outcome(self, step: Step, wanted: str, tier: str = "") -> Json | None:
        """The newest outcome of `step`, if the step need not run again."""
        ended = self.session.ended(step)
        if not ended:
            return None
        outcome = ended[-1][1]
        if outcome.get("verdict") not in ("done", "needs_revision") or outcome.get("fingerprint") != wanted:
            return None
        if self.told and outcome["exit_code"] != ExitCode.SUCCESS:
            return None
        if "artifacts" not in outcome and outcome.get("finished_at", "") < self._put_back_at(step.phase):
            return None  # what it did to the workspace is not known, and may have been undone
        return outcome if self._same_agent(outcome, tier) and self._still_there(outcome) else None

    def _put_back_at(self, phase: str) -> str:
        """When the workspace was last put back as it was before the phase."""
        path = self.session.folder / "phases" / phase / "before.json"
        return str(files.read_json(path).get("rolled_back_at", "")) if phase and path.exists() else ""

    def judgement(self, step: Step, wanted: str) -> Json | None:
        """The newest judgement of a folder that has not changed since, whichever way it went."""
        ended = self.session.ended(step)
        outcome = ended[-1][1] if ended else {}
        same = "judged" in outcome and outcome.get("fingerprint") == wanted
        return outcome if same and self._still_there(outcome) else None

    def _same_agent(self, outcome: Json, tier: str) -> bool:
        """The definition that did it, and the model it would be given now, are still the ones that did it."""
        if not outcome.get("agent"):
            return True
        try:
            agent = agents.load(outcome["agent"])
        except StrataError:
            return False  # it is gone, or no longer valid: running the step will say so
        model = config.model_id(self.model or tier or agent.tier)
        return outcome.get("definition") == agent.fingerprint and (
            outcome.get("kind") == "repair" or outcome.get("model") == model
        )

    def _still_there(self, outcome: Json) -> bool:
        if "judged" in outcome and outcome["judged"] != snapshot.state(self.cwd, exclude=(self.session.folder,)):
            return False
        for entry in outcome.get("outputs", []):
            root = self.session.folder if entry["in"] == "session" else self.cwd
            path = root / entry["path"]
            if not path.exists() or not self._same(path, entry["in"], entry["path"], entry["sha256"]):
                return False
        for path, sha in outcome.get("consumed", {}).items():
            now = files.fingerprint(self.cwd / path)
            latest = self._latest.get(path) if now != sha else None
            # What it read may have been changed since by a stage that comes after it, not by one it was made from.
            if now != sha and not (latest and latest[0] == now and comes_after(latest[1], outcome.get("step", ""))):
                return False
        for change in _changes(outcome):
            ours = change["root"] == "workspace" and change.get("kind", "file") == "file"
            if ours and not self._same(self.cwd / change["path"], "workspace", change["path"], change.get("sha256", "")):
                return False
        return True

    def _same(self, path: Path, place: str, name: str, sha: str) -> bool:
        """As it was left, or as its latest finished writer left it."""
        now = files.fingerprint(path)
        return now == sha or (place == "workspace" and self._latest.get(name, ("", ""))[0] == now and name in self._latest)

    @cached_property
    def _latest(self) -> dict[str, tuple[str, str]]:
        """For each file of the workspace: the hash its latest finished writer recorded ("" where it deleted it), and who."""
        writers: list[tuple[str, Json]] = []
        for path in self.session.folder.glob("**/attempt-*/outcome.json"):
            outcome = files.read_json(path)
            if outcome.get("verdict") in ("done", "needs_revision"):
                writers.append((outcome.get("finished_at", ""), outcome))
        latest: dict[str, tuple[str, str]] = {}
        for _, outcome in sorted(writers, key=lambda pair: pair[0]):
            step = outcome.get("step", "")
            for change in _changes(outcome):
                if change["root"] == "workspace":
                    latest[change["path"]] = (change.get("sha256", ""), step)
            for entry in outcome.get("outputs", []):
                if entry["in"] == "workspace":
                    latest[entry["path"]] = (entry["sha256"], step)
        return latest


def comes_after(writer: str, reader: str) -> bool:
    """Whether one step stands behind another: a later phase, a later round, a later stage."""
    if not writer or not reader:
        return False
    ours, theirs = Step.parse(reader), Step.parse(writer)
    if ours.orchestrator != theirs.orchestrator or ours.phase != theirs.phase:
        return theirs.phase > ours.phase
    return (theirs.round, theirs.stage) > (ours.round, ours.stage) if theirs.round and ours.round else theirs.stage > ours.stage


def _changes(outcome: Json) -> list[Json]:
    return outcome.get("artifacts") or []


def last_word(call: Call, stage: Stage, order: Order, finished: Finished) -> StepResult | None:
    """How the step stands if nothing more is to be done about it: finished, or failed with no retry left."""
    attempts = len(call.session.attempts(order.step))
    outcome = finished.outcome(order.step, order.task.fingerprint, stage.model)
    if outcome:
        return _result(call, order, outcome, attempts, skipped=True)
    tries = _tries(call, order)
    error: Json = (tries[-1].get("error") if tries else None) or {}
    if tries and (len(tries) > stage.retry_max or error.get("code") in HOPELESS):
        return _result(call, order, tries[-1], attempts, skipped=True)
    return None


def _tries(call: Call, order: Order) -> list[Json]:
    """The attempts at this very work that count against its retries; heals and repairs belong to the try they mend."""
    ended = [outcome for _, outcome in call.session.ended(order.step)]
    return [o for o in ended if o.get("kind") in ("first", "retry", "rerun") and o.get("fingerprint") == order.task.fingerprint]


def skip(call: Call, stage: Stage, order: Order, finished: Finished) -> StepResult | None:
    """What an earlier run of this session made of the step, if it is finished."""
    outcome = finished.outcome(order.step, order.task.fingerprint, stage.model)
    if not outcome:
        return None
    call.event(order.step.slug, "skipped", "finished in an earlier run")
    return _result(call, order, outcome, len(call.session.attempts(order.step)), skipped=True)


def judged(call: Call, order: Order, finished: Finished) -> StepResult | None:
    """What a check said of the folder as it still is. Asking it again would only give the same answer another time."""
    outcome = finished.judgement(order.step, order.task.fingerprint)
    return _result(call, order, outcome, len(call.session.attempts(order.step)), skipped=True) if outcome else None


def perform(call: Call, stage: Stage, order: Order, finished: Finished) -> StepResult:
    """Has the step done, with as many retries as are left to it."""
    wanted = order.task.fingerprint
    outcome: Json | None = None
    tries = _tries(call, order)
    left = 1 + stage.retry_max - len(tries)
    kind = "first" if not tries else ("retry" if left > 0 else "rerun")
    last: Json | None = tries[-1].get("error") if tries else None
    timeouts = sum(o.get("exit_code") == ExitCode.TIMEOUT for o in tries)
    for number in range(max(left, 1)):
        if number:
            _wait(stage, len(tries) + number - 1)
            kind = "retry"
            outcome = finished.outcome(order.step, wanted, stage.model)
            if outcome:  # it had finished before it died: what it could not say any more is on disk
                break
        outcome = _attempt(call, stage, order, kind, last)
        code = ExitCode(outcome["exit_code"])
        last = outcome.get("error")
        timeouts += code == ExitCode.TIMEOUT
        hopeless = (last or {}).get("code") in HOPELESS
        # The table: 1 is retried, 21 once; 2, 3, 10, 11 and 20 are never ours to repeat.
        if code not in (ExitCode.FAILURE, ExitCode.TIMEOUT) or hopeless or timeouts > 1:
            break
    return _result(call, order, outcome or {}, len(call.session.attempts(order.step)), skipped=False)


def _wait(stage: Stage, retries_done: int) -> None:
    if stage.backoff_seconds:
        seconds = stage.backoff_seconds[min(retries_done, len(stage.backoff_seconds) - 1)]
        if process.stopping.wait(seconds):
            raise Interrupted()


def _attempt(call: Call, stage: Stage, order: Order, kind: str, last: Json | None) -> Json:
    folder = call.session.folder / order.step.folder
    number = max((a.number for a in call.session.attempts(order.step)), default=0) + 1
    task_file = folder / f"task-{number}.json"
    files.write_json(task_file, replace(order.task, kind=kind).document())
    flags = ["--task", str(task_file), "--step", str(order.step), "--timeout", str(stage.timeout_seconds)]
    flags += ["--self-heal"] if stage.self_heal else []
    flags += ["--model", stage.model] if stage.model and not call.options.model else []
    flags += ["--max-turns", str(stage.max_turns)] if stage.max_turns else []
    flags += ["--max-budget-usd", str(stage.max_budget_usd)] if stage.max_budget_usd else []
    flags += ["--checks", str(Path(call.options.checks).absolute())] if call.options.checks else []
    for path in (*order.context, *(Path(p) for p in call.options.extra_context)):
        flags += ["--extra-context", str(path)]
    for path in order.reads:
        flags += ["--read-dir", str(path)]
    if last:
        lesson = folder / f"lesson-{number}.md"
        files.write_atomic(lesson, f"An earlier attempt at this failed with {last.get('code')}: {last.get('message')}\n")
        flags += ["--extra-context", str(lesson)]
    words = [order.agent] if order.agent else [*order.args, *([order.task.target] if order.task.target else [])]
    tool = order.worker.tool or "agent.py"
    # The executor keeps the clock of each attempt, and each check its own. This only catches one that hangs itself.
    backstop = stage.timeout_seconds * 4 + 3600
    try:
        reply = call.call(tool, [*flags, *(["--", *words] if words else [])], timeout_seconds=backstop)
    except (ValueError, OSError) as error:  # a NUL, a lone surrogate or too many bytes in an argument
        problem = {"code": "CHILD_NOT_STARTED", "message": f"{tool}: {error}", "hint": "large or odd texts belong in files"}
        reply = process.ToolResult(ExitCode.FAILURE, {"status": "failure", "exit_code": 1, "error": problem})
    document = _without_empty_claims(tool, reply.document, order)
    if "verdict" in document:
        return document
    # It ended before it could judge: a usage error, a crash. Whatever attempt it had begun has then ended too.
    document = {**document, "verdict": "failed", "kind": kind, "fingerprint": order.task.fingerprint, "finished_at": now()}
    begun = [a for a in call.session.attempts(order.step) if a.number >= number and a.outcome is None]
    if begun and reply.exit_code != ExitCode.INTERRUPTED:
        begun[-1].finish(document)
    observability.signal_completion(call.session.folder, "exec", order.step.slug, "fail", None, call.trace_id)
    return document


def _without_empty_claims(tool: str, document: Json, order: Order) -> Json:
    """A success counts only with its verdict and every output it was asked for: a tool may say more than it did."""
    if document.get("exit_code") != ExitCode.SUCCESS:
        return document
    entries = document.get("outputs")
    listed = [cast(Json, e) for e in cast(list[Any], entries) if isinstance(e, dict)] if isinstance(entries, list) else []
    there = {e.get("output") for e in listed if files.exists(str(e.get("path", ""))) and e.get("in") in ("session", "workspace")}
    missing = [o.name for o in order.task.outputs if not o.optional and o.name not in there]
    if document.get("verdict") == "done" and not missing and len(listed) == len(there):
        return document
    reason = f"without {', '.join(missing)}" if missing else f"with the verdict {document.get('verdict')!r}"
    error = {"code": "CHILD_CRASHED", "message": f"{tool} claimed success {reason}", "hint": "look at its attempt folder"}
    return {"status": "failure", "exit_code": int(ExitCode.FAILURE), "error": error}


def _result(call: Call, order: Order, outcome: Json, attempts: int, skipped: bool) -> StepResult:
    outputs: dict[str, str] = {}
    for entry in outcome.get("outputs", []):
        root = call.session.folder if entry["in"] == "session" else call.cwd
        outputs[entry["output"]] = str(root / entry["path"])
    return StepResult(
        key=order.key,
        exit_code=ExitCode(outcome["exit_code"]),
        verdict=outcome.get("verdict", "failed"),
        outputs=outputs,
        error=outcome.get("error"),
        attempts=attempts,
        skipped=skipped,
        note=outcome.get("note") or "",
        did=files.digest([[c["path"], c.get("sha256", "")] for c in _changes(outcome) if c["root"] == "workspace"]),
    )
