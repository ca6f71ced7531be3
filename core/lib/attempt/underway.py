"""One attempt, from its folder to its outcome: what stood there before, what was published, and what was taken back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from lib import names
from lib.agent.drivers.paths import Names
from lib.attempt.verdicts import Verdict
from lib.contract import ExitCode, Interrupted, Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan import agents
from lib.plan.agents import Agent
from lib.plan.task import Output, Task
from lib.process import processes
from lib.session import events
from lib.session.attempts import OUTCOME, Attempt
from lib.session.events import Timer
from lib.session.outcome import Begun, FileChange, Left, Outcome
from lib.session.step import Step
from lib.tool.call import Call
from lib.workspace import history
from lib.workspace.protected import Judge, literal
from lib.workspace.snapshot import Snapshot

Verified = dict[str, tuple[str, ...]]  # by output: what was verified of it
NOTHING_SAID = Outcome(ExitCode.FAILURE)
SHELF = "shelf.json"  # in an attempt's folder: where its outputs are while a sandboxed shell writes them
HELD = "before.json"  # in an attempt's folder, once all that stood in the place of its outputs is kept


def conclude(verdict: Verdict, verified: Verified, wrong: list[str], said: Outcome) -> Outcome:
    """Only work that says it is done and was found to be done is a success. `said`: what is known of it besides."""
    if verdict.word == "failed":
        error = {"code": "STAGE_FAILED", "message": verdict.note or "the work reported failure", "hint": "see output.md"}
        return failed(said, error, ExitCode.FAILURE, verdict.note, [error["message"], *wrong])
    if wrong:
        error = {"code": "NOT_VERIFIED", "message": "; ".join(wrong), "hint": "the attempt folder keeps what was written"}
        return failed(said, error, ExitCode.FAILURE, wrong[0], wrong)
    known = tuple(FileChange("", "", output=name, checks=checks) for name, checks in verified.items())
    said = replace(said, verdict=verdict.word, note=verdict.note, outputs=known, error=None, wrong=(), warnings=verdict.warnings)
    if verdict.word == "needs_revision":
        error = {"code": "NEEDS_REVISION", "message": verdict.note or "a revision was asked for"}
        return replace(said, exit_code=ExitCode.NEEDS_REFINEMENT, error=error)
    return replace(said, exit_code=ExitCode.SUCCESS)


def failed(said: Outcome, error: Json, code: ExitCode, note: str = "", wrong: list[str] | None = None) -> Outcome:
    reasons = tuple(wrong or [str(error["message"])])
    return replace(said, verdict="failed", exit_code=code, error=error, note=note or str(error["message"]), wrong=reasons)


class Underway(Struct, frozen=True):
    """An attempt that is being made: what stood there when it began, and how it ends."""

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
    def begin(call: Call, task: Task, step: Step, kind: str, agent: Agent | None = None, goes_on: bool = False) -> Underway:
        """`goes_on`: the attempt that was cut short is continued. What it had written stays, and what stood there before it is
        still what a failure puts back."""
        earlier = call.session.cut_short(step)
        attempt = call.session.new_attempt(step)
        name, definition = (agent.id, agent.fingerprint) if agent else ("", "")
        may_write = _may_write(call, task, agent)
        begun = attempt.folder / history.BEGUN
        number = call.session.next_number()
        files.write_json(begun, records.document(Begun(number, str(step), may_write, now(), task.isolation, names.worker())))
        beat = history.Beat(begun)
        for one in earlier:
            bring_in(one)
        cut_short = next((a for a in earlier if (a.folder / HELD).exists()), None)
        touched = next((a for a in earlier if (a.folder / "judge" / "held.json").exists()), None)
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
            if touched:
                _protected(call, task, touched).put_back()
            _protected(call, task, attempt).hold()
        workspace = Snapshot({"workspace": call.cwd}, exclude=(call.session.folder,)) if may_write else None
        return Underway(call, task, step, kind, name, definition, attempt, number, Timer(), before, workspace, beat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """An attempt that breaks has ended too, and says so; one that was interrupted was cut short and says nothing."""
        self.beat.stop()
        if isinstance(error, Interrupted):
            self.take_back()
            self.restore_protected()
            number = self.call.session.next_number()
            left = Left(number, str(self.step), self._changes(), now(), self.task.isolation)
            files.write_json(self.attempt.folder / history.INTERRUPTED, left.document())
        elif isinstance(error, Exception):
            hint = "the traceback is in strata.log of the session"
            known = error if isinstance(error, StrataError) else StrataError("INTERNAL", f"{type(error).__name__}: {error}", hint)
            self.end(failed(NOTHING_SAID, self._shown(known.document()), known.exit_code))

    def _shown(self, error: Json) -> Json:
        """What a person is to look at is kept where it stays, if it lies in a folder that is thrown away."""
        if not self.task.isolation or not isinstance(error.get("show"), list):
            return error
        places: list[str] = []
        for number, text in enumerate(error["show"], 1):
            path = Path(str(text))
            if path.is_relative_to(self.call.cwd) and path.is_file():
                kept = self.attempt.folder / "shown" / f"{number}-{path.name}"
                files.copy_whole(path, kept)
                path = kept
            places.append(str(path))
        return {**error, "show": places}

    def end(self, came_to: Outcome) -> Json:
        """Publishes what was verified, takes back what was not, and only then says that the attempt ended."""
        call = self.call
        files.redact_below(self.attempt.out)  # an agent may have written down what it should not have seen
        verified = {c.output: c.checks for c in came_to.outputs}
        published: list[FileChange] = []
        for output in self.task.outputs:
            path = output.locate(self.attempt.out, call.cwd, self.task.target)
            if came_to.good:
                published += [self._publish(output, path, verified.get(output.name, ()))] if path.exists() else []
        if not came_to.good:
            self.take_back()
        number = call.session.next_number()  # before the last look: what others with lower numbers did is seen by it
        declared = {(c.root, c.path) for c in published}
        elsewhere = [c for c in came_to.changes or () if c.root != "workspace" and not self._published(c, published)]
        changes = [c for c in (*elsewhere, *self._changes()) if (c.root, c.path) not in declared]
        outcome = replace(
            came_to,
            tool=call.tool.name,
            agent=self.agent,
            definition=self.definition,
            step=str(self.step),
            attempt=self.attempt.number,
            kind=self.kind,
            outputs=tuple(published),
            changes=tuple(changes),
            fingerprint=self.task.fingerprint,
            made_of=self.task.made_of,
            consumed=self.task.consumed | came_to.consumed,
            told=self.task.told,
            isolation=self.task.isolation,
            begun=self.number,
            number=number,
            finished_at=now(),
            duration_seconds=round(self.timer.elapsed_seconds(), 3),
            worker=names.worker(),
        ).document()
        kept = outcome
        if call.driver == "record":
            kept = Names(call.session.folder, call.cwd, self.attempt.folder).hide_in(outcome)
        self.attempt.finish(kept, self._hand_over)
        outcome["outputs"] = [{**c.document(), "path": str(self._root(c.root) / c.path)} for c in published]
        call.artifact = next((self._root(c.root) / c.path for c in published), None)
        return outcome | {"session_dir": str(call.session.folder), "attempt_dir": str(self.attempt.folder)}

    def _hand_over(self, sha256: str) -> None:
        """Tells the parent, on a pipe that only we hold, what is about to be on disk."""
        if processes.called_by_tool:
            events.hand_over(self.attempt.folder.name, sha256, self.call.session.relative(self.attempt.folder / OUTCOME))
            if not processes.wait_until_heard():
                self.call.event(self.step.slug, "unheard", "nobody has noted its outcome: if it is cut off now, it is done again")

    def restore_protected(self) -> list[str]:
        """Puts back what judges this work, and returns what had been done to it."""
        return _protected(self.call, self.task, self.attempt).put_back() if self.task.protect else []

    def _changes(self) -> tuple[FileChange, ...]:
        """What is different in the workspace now. Caches and folders are not work, and what was put back is not changed."""
        thrown_away = self.task.isolation == "copy"
        found = self.workspace.changes() if self.workspace and not thrown_away else []
        stood = {self._place(o): self.before[o.name] for o in self.task.outputs if o.name in self.before}
        kept = {path: files.fingerprint(copy) for path, copy in stood.items() if copy}
        same = {path for path, sha256 in kept.items() if files.fingerprint(self.call.cwd / path) == sha256}
        return tuple(c for c in found if c.kind != "folder" and c.path not in same)

    def _place(self, output: Output) -> str:
        return str(output.locate(self.attempt.out, self.call.cwd, self.task.target).relative_to(self.call.cwd))

    def _root(self, place: str) -> Path:
        return self.call.session.folder if place == "session" else self.call.cwd

    def _publish(self, output: Output, path: Path, checks: tuple[str, ...]) -> FileChange:
        if output.place == "session":
            source, path = path, self.call.session.folder / self.step.artifacts / output.path
            files.copy_whole(source, path)
        change = "changed" if self.before.get(output.name) else "created"
        kind = "folder" if path.is_dir() else "file"
        place = str(path.relative_to(self._root(output.place)))
        size = path.stat().st_size
        return FileChange(output.place, place, change, kind, files.fingerprint(path), size, output=output.name, checks=checks)

    def _published(self, change: FileChange, published: list[FileChange]) -> bool:
        """Whether a file the agent wrote into its `out` is one of the outputs, which are listed as published."""
        names = {c.output for c in published if c.root == "session"}
        places = [o.path.rstrip("/") for o in self.task.outputs if o.name in names]
        return change.root == "out" and any(change.path == p or change.path.startswith(f"{p}/") for p in places)

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
    return (*(agent.scope if task.scope is None else task.scope), *own, *(f"{path}**" for path in own if path.endswith("/")))


def bring_in(attempt: Attempt) -> None:
    """What was written outside the session is the attempt's own from here on."""
    record = attempt.folder / SHELF
    shelf = Path(files.read_json(record)["folder"]) if record.exists() else None
    if shelf and shelf.is_dir():
        shutil.rmtree(attempt.out, ignore_errors=True)  # of an earlier time that was cut short; all of it is on the shelf
        shutil.copytree(shelf, attempt.out, symlinks=True)
        shutil.rmtree(shelf)


def _protected(call: Call, task: Task, attempt: Attempt) -> Judge:
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
