"""What earlier runs of a session have finished, whether that is still so, and if not, why."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import cast

from lib import agents, config, files, snapshot
from lib.contract import ExitCode, Json, StrataError
from lib.order import Order
from lib.session import MERGED, Attempt, Session, Step, every_writer

AGAIN = "again.json"  # which steps a person asked for again


class Finished:
    """What earlier runs of this session have finished, and whether it is still so."""

    def __init__(self, session: Session, cwd: Path, model: str = "", told: bool = False) -> None:
        self.session = session
        self.cwd = cwd
        self.model = model  # asked for on the command line
        self.told = told  # there is something new to tell: only a success is finished then

    def outcome(self, order: Order, tier: str = "") -> Json | None:
        """The newest outcome of a step, if the step need not run again."""
        return self.look(order, tier)[0]

    def look(self, order: Order, tier: str = "") -> tuple[Json | None, str]:
        """The outcome that finished the step, and how that came about; or none, and why it has to run."""
        step = order.step
        ended = self.session.ended(step)
        if not ended:
            return None, "it was cut short" if self.session.attempts(step) else "it has not run yet"
        attempt, outcome = ended[-1]
        if attempt.number <= self.void.get(str(step), 0):
            return None, "it is to run again, on purpose"
        if outcome.get("fingerprint") != order.task.fingerprint:
            return None, changed(outcome.get("made_of", {}), order.task.made_of)
        if outcome.get("verdict") not in ("done", "needs_revision"):
            error: Json = outcome.get("error") or {}
            return None, f"attempt {attempt.number} failed with {error.get('code')}: {error.get('message')}"
        if self.told and outcome["exit_code"] != ExitCode.SUCCESS:
            return None, "there is something new to tell it"
        if "artifacts" not in outcome and outcome.get("number", 0) <= self._put_back_at(step.phase):
            return None, "the folder was put back since"  # what it did there is not known, and may have been undone
        why = self._another_agent(outcome, tier)
        if not why and outcome.get("isolation") and self._merged(step).get("attempt") != attempt.number:
            why = self._isolated(step, attempt)
            if not why:
                return outcome, f"attempt {attempt.number} finished it; it has still to be merged"
        why = why or self._damage(outcome)
        return (None, why) if why else (outcome, f"attempt {attempt.number} finished it")

    def _isolated(self, step: Step, attempt: Attempt) -> str:
        """Why what a step did in its worktree is of no use."""
        path = self.session.folder / step.folder / "worktree.json"
        known = files.read_json(path) if path.exists() else {}
        if not known.get("work") or attempt.number < known["attempt"]:  # a later worktree has been opened since
            return "what it did in its worktree was not merged, or not kept"
        return f"its changes conflicted with others: {', '.join(known['conflict'][:3])}" if known.get("conflict") else ""

    def _merged(self, step: Step) -> Json:
        path = self.session.folder / step.folder / MERGED
        return files.read_json(path) if path.exists() else {}

    @cached_property
    def void(self) -> dict[str, int]:
        """Steps that were asked for again, each with the last attempt from before: up to there nothing counts."""
        path = self.session.folder / AGAIN
        return cast(dict[str, int], files.read_json(path)) if path.exists() else {}

    def _put_back_at(self, phase: str) -> int:
        """The number of the last outcome from before the workspace was put back as it was before the phase."""
        path = self.session.folder / "phases" / phase / "before.json"
        return int(files.read_json(path).get("rolled_back_at_number", 0)) if phase and path.exists() else 0

    def judgement(self, order: Order) -> Json | None:
        """The newest judgement of a folder that has not changed since, whichever way it went."""
        ended = self.session.ended(order.step)
        attempt, outcome = ended[-1] if ended else (None, {})
        same = "judged" in outcome and outcome.get("fingerprint") == order.task.fingerprint
        asked_again = attempt and attempt.number <= self.void.get(str(order.step), 0)
        return outcome if same and not asked_again and not self._damage(outcome) else None

    def _another_agent(self, outcome: Json, tier: str) -> str:
        """How the definition that did it, or the model it would be given now, differ from those that did it."""
        name = outcome.get("agent")
        if not name:
            return ""
        try:
            agent = agents.load(name)
        except StrataError as error:
            return f"the agent {name}: {error.message}"  # it is gone, or no longer valid: running the step will say so
        if outcome.get("definition") != agent.fingerprint:
            return f"the definition of {name} changed"
        model = config.model_id(self.model or tier or agent.tier)
        return "" if outcome.get("kind") == "repair" or outcome.get("model") == model else f"its model is now {model}"

    def _damage(self, outcome: Json) -> str:
        """What of all it made, or was made from, is no longer as it was."""
        if "judged" in outcome and not self._stands_as(outcome["judged"]):
            return "the folder it judged changed"
        for entry in outcome.get("outputs", []):
            root = self.session.folder if entry["in"] == "session" else self.cwd
            path = root / entry["path"]
            if not path.exists():
                return f"its output {entry['path']} is gone"
            if not self._same(path, entry["in"], entry["path"], entry["sha256"]):
                return f"its output {entry['path']} was changed"
        for path, sha in outcome.get("consumed", {}).items():
            now = files.fingerprint(self.cwd / path)
            latest = self._latest.get(path) if now != sha else None
            # What it read may have been changed since by a stage that comes after it, not by one it was made from.
            if now != sha and not (latest and latest[0] == now and comes_after(latest[1], outcome.get("step", ""))):
                return f"{path}, which it read, changed"
        for change in changes(outcome):
            ours = change["root"] == "workspace" and change.get("kind", "file") == "file"
            if ours and not self._same(self.cwd / change["path"], "workspace", change["path"], change.get("sha256", "")):
                return f"{change['path']}, which it wrote, was changed"
        return ""

    def _stands_as(self, judged: Json) -> bool:
        """Whether the folder is the one that was judged: untouched, or, where it was copied or moved, of the same content."""
        apart = (self.session.folder,)
        if judged["state"] == snapshot.state(self.cwd, apart):
            return True
        return bool(judged["content"]) and judged["content"] == snapshot.content(self.cwd, apart)

    def _same(self, path: Path, place: str, name: str, sha: str) -> bool:
        """As it was left, or as its latest finished writer left it."""
        now = files.fingerprint(path)
        return now == sha or (place == "workspace" and self._latest.get(name, ("", ""))[0] == now and name in self._latest)

    @cached_property
    def _latest(self) -> dict[str, tuple[str, str]]:
        """For each file of the workspace: the hash its latest finished writer recorded ("" where it deleted it), and who."""
        latest: dict[str, tuple[str, str]] = {}
        for outcome in every_writer(self.session.folder):
            step = outcome.get("step", "")
            for change in changes(outcome):
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
    if theirs.round and ours.round:
        return (theirs.round, theirs.place) > (ours.round, ours.place)
    return theirs.place > ours.place


def changes(outcome: Json) -> list[Json]:
    return outcome.get("artifacts") or []


def changed(before: dict[str, str], after: dict[str, str]) -> str:
    """Which parts of the work are others than they were."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"{', '.join(names[:3])} changed" if names and before else "what it is made from changed"
