"""What earlier runs of a session have finished, whether that is still valid, and if not, why.

Two things make finished work run again: something outside the session changed what it is made from, or a step it depends on
ran again with a different result. Changes by later work of the session to the files it read or left are no reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from lib.contract import ExitCode, StrataError
from lib.disk import config, files, records
from lib.plan import agents
from lib.process import fanout
from lib.session import attempts
from lib.session.attempts import Attempt, merge_of
from lib.session.documents import Effective, PlannedCampaign
from lib.session.folder import ENDED, Session
from lib.session.outcome import Outcome
from lib.session.step import Step
from lib.stages.order import Order, words_for
from lib.workspace import snapshot
from lib.workspace.history import History, stands_as

BEFORE = "before.json"  # in a phase: what the workspace was like before it, and whether it was put back
WORKTREE = "worktree.json"  # beside the attempts of a step that works in a worktree of its own
JUDGED = "judged.json"  # beside the outcome of a check: every file of the folder it judged, with its hash


class Failed(Struct, frozen=True):
    """Where the work that was rolled back is kept."""

    ref: str
    commit: str


class Before(Struct, frozen=True):
    """What the workspace was like before a phase that can be rolled back, and what became of that."""

    commit: str = ""
    ref: str = ""
    at: str = ""
    rollbacks: int = 0
    paused: str = ""  # what it was like when the phase began to wait for a person
    rolling_back: Failed | None = None  # begun, and not finished yet
    rolled_back: bool = False
    rolled_back_at: str = ""
    rolled_back_at_number: int = 0


class Worktree(Struct, frozen=True):
    """A worktree that was opened for an attempt: what it began with, and what came of it."""

    attempt: int
    base: str
    at: str = ""
    work: str = ""
    conflict: tuple[str, ...] = ()


class Finished:
    """What earlier runs of this session have finished, and whether it is still so."""

    def __init__(self, session: Session, cwd: Path, model: str = "", told: str = "") -> None:
        self.session = session
        self.cwd = cwd
        self.model = model  # asked for on the command line
        self.told = told  # a digest of what there is to tell besides: only a success is finished then
        self.history = History(session.folder)
        self.passed: set[str] | None = None  # the steps this walk has come by; None: rounds are the same for all stages

    def outcome(self, order: Order, tier: str = "") -> Outcome | None:
        """The newest outcome of a step, if the step need not run again."""
        return self.look(order, tier)[0]

    def look(self, order: Order, tier: str = "", past: bool = False) -> tuple[Outcome | None, str]:
        """The outcome that finished the step, and how that came about; or none, and why it has to run. `past`: the run has gone
        on from here, and nobody will be told anything any more."""
        step = order.step
        tried = self.session.attempts(step)
        ended = attempts.ended(tried)
        if not ended:
            return None, "it was cut short" if tried else "it has not run yet"
        attempt, outcome = ended[-1]
        if attempt.number <= self.redo_before[str(step)]:
            return None, "it is to run again, on purpose"
        if outcome.fingerprint != order.task.fingerprint:
            return None, changed(outcome.made_of, order.task.made_of)
        if not outcome.good:
            return None, f"attempt {attempt.number} failed with {outcome.code}: {outcome.message}"
        if self.told and outcome.exit_code != ExitCode.SUCCESS and not past:
            return None, "there is something new to tell it"
        if self._undone(step, outcome):
            return None, "the folder was put back since"
        why = self.another_agent(outcome, tier)
        apart = outcome.isolation == "worktree"
        merged = merge_of(self.session.folder, step) if apart and not why else None
        if not why and apart and (not merged or merged.attempt != attempt.number):
            why = self._isolated(step, attempt)
            if not why:
                return outcome, f"attempt {attempt.number} finished it; it has still to be merged"
        why = why or self._damage(order, attempt, outcome)
        return (None, why) if why else (outcome, f"attempt {attempt.number} finished it")

    def _isolated(self, step: Step, attempt: Attempt) -> str:
        """Why what a step did in its worktree is of no use."""
        path = self.session.folder / step.folder / WORKTREE
        known = records.read(path, Worktree) if path.exists() else None
        there = (self.session.folder / "worktrees" / step.slug).exists()  # only keeping it was cut short: that is made good for
        if not known or not (known.work or there) or attempt.number < known.attempt:  # or another was opened since
            return "what it did in its worktree was not merged, or not kept"
        return f"its changes conflicted with others: {', '.join(known.conflict[:3])}" if known.conflict else ""

    def _work(self, step: Step, outcome: Outcome) -> dict[str, str]:
        """What a step left in the workspace, by itself or by a merge."""
        if not outcome.isolation:
            return outcome.left
        merged = merge_of(self.session.folder, step)
        return merged.left if merged else {}

    @cached_property
    def redo_before(self) -> Counter[str]:
        """Steps that were asked for again, each with the last attempt from before: up to there nothing counts."""
        return attempts.redo_before(self.session.folder)

    @cached_property
    def reported(self) -> int:
        """The number at which the last run of this session came to an end of its own: what had failed by then has been said."""
        path = self.session.folder / ENDED
        return int(files.read_json(path)["number"]) if path.exists() else 0

    def _undone(self, step: Step, outcome: Outcome) -> bool:
        """Whether the workspace was put back as it was before the phase, after this step had changed it."""
        path = self.session.folder / "phases" / step.phase / BEFORE
        back = records.read(path, Before).rolled_back_at_number if step.phase and path.exists() else 0
        return outcome.number <= back and bool(self._work(step, outcome))

    def judgement(self, order: Order) -> Outcome | None:
        """The newest judgement of a folder that is still the one that was judged, whichever way it went."""
        ended = self.session.ended(order.step)
        if not ended:
            return None
        attempt, outcome = ended[-1]
        same = bool(outcome.judged) and outcome.fingerprint == order.task.fingerprint
        asked_again = attempt.number <= self.redo_before[str(order.step)]
        return outcome if same and not asked_again and not self._damage(order, attempt, outcome) else None

    def another_agent(self, outcome: Outcome, tier: str) -> str:
        """How the definition that did it, or the model it would be given now, differ from those that did it."""
        if not outcome.agent:
            return ""
        try:
            agent = agents.load(outcome.agent)
        except StrataError as error:
            return f"the agent {outcome.agent}: {error.message}"  # it is gone, or no longer valid: running the step will say so
        if outcome.definition != agent.fingerprint:
            return f"the definition of {outcome.agent} changed"
        model = config.model_id(self.model or tier or agent.tier)
        return "" if outcome.kind == "repair" or outcome.model == model else f"its model is now {model}"

    # Files

    def _damage(self, order: Order, attempt: Attempt, outcome: Outcome) -> str:
        """What of all it made, or was made from, is no longer as it was, for another reason than later work."""
        for name, sha256 in outcome.published.items():
            path = files.find(self.session.folder, name)
            if files.fingerprint(path) != sha256:
                return f"its output {name} {'was changed' if path.exists() else 'is gone'}"
        work = self._work(order.step, outcome) if outcome.isolation else outcome.made
        for path, sha256 in work.items():
            why = self._differs(order, path, sha256, outcome.number, made=True)
            if why:
                return f"{path}, which it wrote, {why}"
        return self.read_changed(order, attempt, outcome)

    def read_changed(self, order: Order, attempt: Attempt, outcome: Outcome) -> str:
        """What of all it read is no longer as it was, for another reason than later work."""
        for path, sha256 in outcome.consumed.items():
            why = self._differs(order, path, sha256, outcome.begun or outcome.number, made=False)
            if why:
                return f"{path}, which it read, {why}"
        return self._tree_changed(order, attempt, outcome) if outcome.judged else ""

    def _differs(self, order: Order, path: str, sha256: str, number: int, made: bool) -> str:
        """Why a file that this step read or left (as `sha256`, at the moment `number`) makes it run again."""
        place = files.find(self.cwd, snapshot.real_name(path))
        if stands_as(place, sha256):
            return ""
        writes = self.history.writes(path)
        before = [w for w in writes if w.number > number and self.upstream(w.step, order)]
        if before and (made or before[-1].sha256 != sha256):
            return f"was changed by {before[-1].step}, which comes before it"
        own = [w for w in writes[-1:] if (w.number > number or w.step == str(order.step)) and stands_as(place, w.sha256)]
        cut = [c for c in self.history.cut_off() if c.number > number and not self.upstream(c.step, order)]
        if own or any(c.explains(self.cwd, snapshot.real_name(path)) for c in cut):
            return ""
        return "was changed" if place.exists() else "is gone"

    def _tree_changed(self, order: Order, attempt: Attempt, outcome: Outcome) -> str:
        """Whether the folder is the one that was judged: untouched, or changed only by later work."""
        apart = (self.session.folder,)
        if outcome.judged == snapshot.state(self.cwd, apart):
            return ""
        path = attempt.folder / JUDGED
        if not path.exists():
            return "the folder changed while it was judged"
        table = records.read(path, dict[str, str])
        now = snapshot.table(self.cwd, apart, like=table)
        number = outcome.number
        for name in sorted(table.keys() | now.keys()):
            then, is_now = table.get(name, ""), now.get(name, "")
            if then != is_now:
                why = self._differs(order, name, _content(then), number, made=False)
                mode = not why and _content(then) == _content(is_now) and not self._written_since(name, number)
                if why or mode:
                    return f"the folder it judged changed: {name} {why or 'has another mode'}"
        return ""

    def _written_since(self, path: str, number: int) -> bool:
        cut = any(c.number > number and c.explains(self.cwd, snapshot.real_name(path)) for c in self.history.cut_off())
        return cut or any(w.number > number for w in self.history.writes(path))

    # Order

    def upstream(self, writer: str, order: Order) -> bool:
        """Whether a step comes before this one: what it does, this one is made from. All others come later, or beside it."""
        if writer in order.waited:
            return True
        ours, theirs = order.step, Step.parse(writer)
        if theirs.phase != ours.phase:
            return self._order.phases(theirs.phase, ours.phase)
        if theirs.orchestrator != ours.orchestrator:
            return ours.orchestrator == "sentinel" or self._order.runs(ours.phase, theirs.orchestrator, ours.orchestrator)
        if self.passed is not None:
            return writer in self.passed
        return (theirs.round, theirs.place) < (ours.round, ours.place)

    @cached_property
    def _order(self) -> PlanOrder:
        path = self.session.folder / "effective-config.json"
        return PlanOrder(records.read(path, Effective).plan if path.exists() else PlannedCampaign())


class PlanOrder:
    """Which phases, and which runs of a phase, come before others: by dependency, and where only one runs at a time, by turn."""

    def __init__(self, plan: PlannedCampaign) -> None:
        folders = {p.name: p.folder for p in plan.phases}
        after = {p.folder: [folders[d] for d in p.depends_on] for p in plan.phases}
        self.phases = _comes_before(after, plan.max_parallel == 1)
        self._runs = {p.folder: _comes_before({r.name: list(r.depends_on) for r in p.runs}, p.cap == 1) for p in plan.phases}

    def runs(self, phase: str, one: str, other: str) -> bool:
        return phase in self._runs and self._runs[phase](one, other)


def _comes_before(after: dict[str, list[str]], by_turn: bool) -> Callable[[str, str], bool]:
    turns = {name: place for place, name in enumerate(fanout.one_by_one(after))}

    def before(one: str, other: str) -> bool:
        if one not in after or other not in after:
            return False
        return turns[one] < turns[other] if by_turn else one in fanout.all_before(after, other)

    return before


def _content(recorded: str) -> str:
    """The hash of an entry of a judged folder, which also knows the mode."""
    return recorded.partition(" ")[2]


def changed(before: dict[str, str], after: dict[str, str]) -> str:
    """Which parts of the work are others than they were."""
    names = [words_for(key) for key in {**before, **after} if before.get(key) != after.get(key)]
    return f"{', '.join(names[:3])} changed" if names and before else "what it is made from changed"
