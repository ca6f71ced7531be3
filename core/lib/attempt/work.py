"""One try at a task, from its folder to its outcome: what it came to, what was published, and what was taken back."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lib.agent.drivers.paths import Names
from lib.attempt.verdicts import Verdict
from lib.contract import STATUS, ExitCode, Interrupted, Json, StrataError
from lib.disk import files
from lib.plan import agents
from lib.plan.agents import Agent
from lib.plan.task import Output, Task
from lib.process import keeper
from lib.session import events
from lib.session.events import Timer
from lib.session.folder import Attempt, Step, now
from lib.tool.call import Call
from lib.workspace import history
from lib.workspace.protected import Judge, literal
from lib.workspace.snapshot import Change, Snapshot


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


SHELF = "shelf.json"  # in an attempt's folder: where its outputs are while a sandboxed shell writes them
HELD = "before.json"  # in an attempt's folder, once all that stood in the place of its outputs is kept


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
    number: int  # of its beginning, among all beginnings and ends of the session
    timer: Timer
    before: dict[str, Path | None]  # what stood at the place of each output in the workspace
    workspace: Snapshot | None  # as it was when this began; None: the agent cannot write there
    beat: history.Beat

    @staticmethod
    def begin(call: Call, task: Task, step: Step, kind: str, agent: Agent | None = None, goes_on: bool = False) -> Try:
        """`goes_on`: the attempt that was cut short is continued. What it had written stays, and what stood there before it is
        still what a failure puts back."""
        earlier = call.session.cut_short(step)
        attempt = call.session.new_attempt(step)
        name, definition = (agent.name, agent.fingerprint) if agent else ("", "")
        may_write = _may_write(call, task, agent)
        begun = attempt.folder / history.BEGUN
        number = call.session.next_number()
        isolated = {"isolation": task.isolation} if task.isolation else {}
        files.write_json(begun, {"number": number, "step": str(step), "may_write": may_write, **isolated, "at": now()})
        beat = history.Beat(begun)
        for one in earlier:
            bring_in(one)
        cut_short = next((a for a in earlier if (a.folder / HELD).exists()), None)
        bribed = next((a for a in earlier if (a.folder / "judge" / "held.json").exists()), None)
        before: dict[str, Path | None] = {}
        for output in task.outputs:
            if output.place == "workspace":
                path = output.locate(attempt.out, call.cwd, task.target)
                held = cut_short.folder / "before" if cut_short and not task.isolation else None
                stood = path
                if held and held.is_dir() and goes_on:
                    stood = held / output.name
                    taken_back = held.parent / "rejected" / output.name / path.name  # where it was asked to stop, not killed
                    if taken_back.exists() and files.leads_inside(call.cwd, path):
                        files.copy_whole(taken_back, path)
                elif held and held.is_dir():
                    _put_back(call.cwd, path, held / output.name, held.parent / "rejected" / output.name)
                copy = attempt.folder / "before" / output.name
                copy.parent.mkdir(exist_ok=True)
                before[output.name] = copy if stood.exists() else None
                if stood.exists():
                    files.copy_whole(stood, copy)
        if before:  # last: an attempt that was cut off before this has not touched anything
            files.write_json(attempt.folder / HELD, {name: copy is not None for name, copy in before.items()})
        if task.protect:
            if bribed:
                _judge(call, task, bribed).put_back()
            _judge(call, task, attempt).hold()
        workspace = Snapshot({"workspace": call.cwd}, exclude=(call.session.folder,)) if may_write else None
        return Try(call, task, step, kind, name, definition, attempt, number, Timer(), before, workspace, beat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """A try that breaks has ended too, and says so; one that was interrupted was cut short and says nothing."""
        self.beat.stop()
        if isinstance(error, Interrupted):
            self.take_back()
            self.unbribed()
            record: Json = {"step": str(self.step), "number": self.call.session.next_number(), "artifacts": self._changes()}
            isolated = {"isolation": self.task.isolation} if self.task.isolation else {}
            files.write_json(self.attempt.folder / history.INTERRUPTED, record | isolated | {"at": now()})
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
        number = call.session.next_number()  # before the last look: what others with lower numbers did is seen by it
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
            "told": self.task.told,
            "begun": self.number,
            **({"isolation": self.task.isolation} if self.task.isolation else {}),
            "number": number,
            "finished_at": now(),
            "duration_seconds": round(self.timer.elapsed_seconds(), 3),
            **{k: v for k, v in work.said.items() if k not in _OWN_WORDS},
            "artifacts": [*self._elsewhere(work.said), *self._changes()],
        }
        names = Names(call.session.folder, call.cwd, self.attempt.folder)
        self.attempt.finish(names.hide_in(outcome) if call.driver == "record" else outcome, self._hand_over)
        outcome["outputs"] = [{**e, "path": str(self._root(e["in"]) / e["path"])} for e in published]
        call.artifact = next((Path(e["path"]) for e in outcome["outputs"]), None)
        return outcome | {"session_dir": str(call.session.folder), "attempt_dir": str(self.attempt.folder)}

    def _hand_over(self, sha256: str) -> None:
        """Tells the parent, on a pipe that only we hold, what is about to be on disk."""
        if keeper.leased:
            events.hand_over(self.attempt.folder.name, sha256)

    def unbribed(self) -> list[str]:
        """Puts back what judges this work, and says what had been done to it."""
        return _judge(self.call, self.task, self.attempt).put_back() if self.task.protect else []

    def _changes(self) -> list[Json]:
        """What is different in the workspace now. Caches and folders are not work, and what was put back is not changed."""
        found: list[Change] = self.workspace.changes() if self.workspace else []
        stood = {self._place(o): self.before[o.name] for o in self.task.outputs if o.name in self.before}
        kept = {path: files.fingerprint(copy) for path, copy in stood.items() if copy}
        same = {path for path, sha256 in kept.items() if files.fingerprint(self.call.cwd / path) == sha256}
        return [c.document() for c in found if c.kind != "folder" and c.path not in same]

    def _place(self, output: Output) -> str:
        return str(output.locate(self.attempt.out, self.call.cwd, self.task.target).relative_to(self.call.cwd))

    def _elsewhere(self, said: Json) -> list[Json]:
        listed: list[Json] = said.get("artifacts") or []
        return [c for c in listed if c["root"] != "workspace"]

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

    def untouched(self) -> frozenset[str]:
        """The outputs in the workspace that were there before, and that nobody has written since."""
        seen = {c.path for c in self.workspace.changes()} if self.workspace else set[str]()
        found: set[str] = set()
        for output in self.task.outputs:
            copy = self.before.get(output.name)
            place = self._place(output) if copy else ""
            written = any(path == place or path.startswith(f"{place}/") for path in seen)
            if copy and not written and files.fingerprint(self.call.cwd / place) == files.fingerprint(copy):
                found.add(output.name)
        return frozenset(found)

    def take_back(self) -> None:
        """A failed attempt leaves no partial artifact in place; what it wrote stays as evidence."""
        for output in self.task.outputs:
            if output.name in self.before:
                path = output.locate(self.attempt.out, self.call.cwd, self.task.target)
                _put_back(self.call.cwd, path, self.before[output.name], self.attempt.folder / "rejected" / output.name)


def _may_write(call: Call, task: Task, agent: Agent | None) -> tuple[str, ...]:
    """Globs of the workspace this work could change: a tool and a shell know no bounds, file tools know theirs."""
    options = call.options
    if not agent or agents.unconfined(agent) or options.inherit_settings or options.permission_mode:
        return history.EVERYTHING
    own = [literal(o.path.replace("{target}", task.target)) for o in task.outputs if o.place == "workspace"]
    return (*(task.scope or agent.scope), *own, *(f"{path}**" for path in own if path.endswith("/")))


def bring_in(attempt: Attempt) -> None:
    """What was written outside the session is the attempt's own from here on."""
    record = attempt.folder / SHELF
    shelf = Path(files.read_json(record)["folder"]) if record.exists() else None
    if shelf and shelf.is_dir():
        shutil.rmtree(attempt.out, ignore_errors=True)  # of an earlier time that was cut short; all of it is on the shelf
        shutil.copytree(shelf, attempt.out, symlinks=True)
        shutil.rmtree(shelf)


def _judge(call: Call, task: Task, attempt: Attempt) -> Judge:
    return Judge(call.cwd, task.protect, attempt.folder / "judge", call.session.folder)


def _put_back(cwd: Path, path: Path, before: Path | None, aside: Path) -> None:
    if not files.leads_inside(cwd, path):
        return  # a link was put in the way: what lies behind it is not ours to touch
    if path.exists():
        files.copy_whole(path, aside / path.name)
    if before and before.exists():
        files.copy_whole(before, path)  # in one step: there is no moment without the file
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
