"""One try at a task, from its folder to its outcome: what it came to, what was published, and what was taken back."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lib import files
from lib.agents import Agent
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Interrupted, Json, StrataError
from lib.drivers.paths import Names
from lib.judge import Judge
from lib.observability import Timer
from lib.session import Attempt, Step, now
from lib.task import Output, Task
from lib.verify import Verdict


@dataclass(frozen=True)
class Work:
    """What an attempt came to."""

    verdict: Verdict
    exit_code: ExitCode
    error: Json | None = None
    verified: list[Json] = field(default_factory=list[Json])
    wrong: list[str] = field(default_factory=list[str])
    said: Json = field(default_factory=dict[str, Any])  # the document of spawn, or of the function that did it

    @property
    def code(self) -> str:
        return (self.error or {}).get("code", "")


def conclude(verdict: Verdict, verified: list[Json], wrong: list[str], said: Json) -> Work:
    """Only work that says it is done and was found to be done is a success."""
    if verdict.word == "failed":
        error = {"code": "STAGE_FAILED", "message": verdict.note or "the work reported failure", "hint": "see output.md"}
        return Work(verdict, ExitCode.FAILURE, error, verified, [error["message"], *wrong], said)
    if wrong:
        error = {"code": "NOT_VERIFIED", "message": "; ".join(wrong), "hint": "the attempt folder keeps what was written"}
        return Work(Verdict("failed", wrong[0]), ExitCode.FAILURE, error, verified, wrong, said)
    if verdict.word == "needs_revision":
        error = {"code": "NEEDS_REVISION", "message": verdict.note or "a revision was asked for"}
        return Work(verdict, ExitCode.NEEDS_REFINEMENT, error, verified, [], said)
    return Work(verdict, ExitCode.SUCCESS, None, verified, [], said)


# Of spawn's document, what an executor says in its own words.
_OWN_WORDS = frozenset(
    {
        *("tool", "status", "exit_code", "error", "agent", "duration_seconds", "session_dir", "attempt_dir"),
        *("verdict", "reason"),
    }
)


@dataclass(frozen=True)
class Try:
    call: Call
    task: Task
    step: Step
    kind: str  # first, retry, rerun, heal or repair
    agent: str
    definition: str  # the fingerprint of the agent's definition
    attempt: Attempt
    timer: Timer
    before: dict[str, Path | None]  # what stood at the place of each output in the workspace

    @staticmethod
    def begin(call: Call, task: Task, step: Step, kind: str, agent: Agent | None = None, goes_on: bool = False) -> Try:
        """`goes_on`: the attempt that was cut short is continued. What it had written stays, and what stood there before it is
        still what a failure puts back."""
        earlier = call.session.attempts(step)
        attempt = call.session.new_attempt(step)
        name, definition = (agent.name, agent.fingerprint) if agent else ("", "")
        cut_short = earlier[-1] if earlier and earlier[-1].outcome is None else None
        before: dict[str, Path | None] = {}
        for output in task.outputs:
            if output.place == "workspace":
                path = output.locate(attempt.out, call.cwd, task.target)
                held = cut_short.folder / "before" if cut_short and not task.isolation else None
                stood = path
                if held and held.is_dir() and goes_on:
                    stood = held / output.name
                    taken_back = held.parent / "rejected" / path.name  # where it was asked to stop, not killed
                    if taken_back.exists() and files.leads_inside(call.cwd, path):
                        files.copy_whole(taken_back, path)
                elif held and held.is_dir():
                    _put_back(call.cwd, path, held / output.name, held.parent)
                copy = attempt.folder / "before" / output.name
                copy.parent.mkdir(exist_ok=True)
                before[output.name] = copy if stood.exists() else None
                if stood.exists():
                    files.copy_whole(stood, copy)
        if task.protect:
            if cut_short and (cut_short.folder / "judge" / "held.json").exists():
                _judge(call, task, cut_short).put_back()
            _judge(call, task, attempt).hold()
        return Try(call, task, step, kind, name, definition, attempt, Timer(), before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """A try that breaks has ended too, and says so; one that was interrupted was cut short and says nothing."""
        if isinstance(error, Interrupted):
            self.take_back()
            self.unbribed()
        elif isinstance(error, Exception):
            known = error if isinstance(error, StrataError) else StrataError("INTERNAL", f"{type(error).__name__}: {error}")
            self.end(Work(Verdict("failed", known.message), known.exit_code, known.document(), wrong=[known.message]))

    def end(self, work: Work) -> Json:
        """Publishes what was verified, takes back what was not, and only then says that the attempt ended."""
        call = self.call
        files.redact_below(self.attempt.out)  # an agent may have written down what it should not have seen
        published: list[Json] = []
        for output in self.task.outputs:
            path = output.locate(self.attempt.out, call.cwd, self.task.target)
            if work.verdict.word != "failed":
                published += [self._publish(output, path)] if path.exists() else []
        if work.verdict.word == "failed":
            self.take_back()
        outcome: Json = {
            "tool": call.tool.name,
            "agent": self.agent,
            "definition": self.definition,
            "step": str(self.step),
            "attempt": self.attempt.number,
            "kind": self.kind,
            "status": STATUS[work.exit_code],
            "exit_code": int(work.exit_code),
            "verdict": work.verdict.word,
            "note": work.verdict.note,
            "error": work.error,
            "verified": [self._relative(v) for v in work.verified],
            "outputs": published,
            "fingerprint": self.task.fingerprint,
            "made_of": self.task.made_of,
            "consumed": self.task.consumed,
            **({"isolation": self.task.isolation} if self.task.isolation else {}),
            "number": call.session.next_number(),
            "finished_at": now(),
            "duration_seconds": round(self.timer.elapsed_seconds(), 3),
            **{k: v for k, v in work.said.items() if k not in _OWN_WORDS},
        }
        names = Names(call.session.folder, call.cwd, self.attempt.folder)
        self.attempt.finish(names.hide_in(outcome) if call.driver == "record" else outcome)
        outcome["outputs"] = [{**e, "path": str(self._root(e["in"]) / e["path"])} for e in published]
        call.artifact = next((Path(e["path"]) for e in outcome["outputs"]), None)
        return outcome | {"session_dir": str(call.session.folder), "attempt_dir": str(self.attempt.folder)}

    def unbribed(self) -> list[str]:
        """Puts back what judges this work, and says what had been done to it."""
        return _judge(self.call, self.task, self.attempt).put_back() if self.task.protect else []

    def _root(self, place: str) -> Path:
        return self.call.session.folder if place == "session" else self.call.cwd

    def _relative(self, entry: Json) -> Json:
        return {**entry, "path": self.call.session.relative(Path(entry["path"]))} if "path" in entry else entry

    def _publish(self, output: Output, path: Path) -> Json:
        if output.place == "session":
            source, path = path, self.call.session.folder / self.step.artifacts / output.path
            files.copy_whole(source, path)
        entry: Json = {"output": output.name, "in": output.place, "path": str(path.relative_to(self._root(output.place)))}
        return entry | {"sha256": files.fingerprint(path), "size": path.stat().st_size}

    def take_back(self) -> None:
        """A failed attempt leaves no partial artifact in place; what it wrote stays as evidence."""
        for output in self.task.outputs:
            if output.name in self.before:
                path = output.locate(self.attempt.out, self.call.cwd, self.task.target)
                _put_back(self.call.cwd, path, self.before[output.name], self.attempt.folder)


def _judge(call: Call, task: Task, attempt: Attempt) -> Judge:
    return Judge(call.cwd, task.protect, attempt.folder / "judge", call.session.folder)


def _put_back(cwd: Path, path: Path, before: Path | None, attempt: Path) -> None:
    if not files.leads_inside(cwd, path):
        return  # a link was put in the way: what lies behind it is not ours to touch
    if path.exists():
        files.copy_whole(path, attempt / "rejected" / path.name)
    if before and before.exists():
        files.copy_whole(before, path)  # in one step: there is no moment without the file
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
