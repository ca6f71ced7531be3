"""What is known of each step of a stage before anything is done about it: finished, given up, or nothing.

All tries are counted on disk: a resume adds none to what was given up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lib.contract import NEVER_ABSORBED, REPEATED, ExitCode
from lib.disk import files
from lib.plan.orchestration import Stage
from lib.process import fanout
from lib.session.attempts import Attempt
from lib.session.outcome import GOOD, Outcome
from lib.stages import asking
from lib.stages.finished import Finished
from lib.stages.order import Order
from lib.stages.orders import Orders
from lib.stages.results import StepResult
from lib.tool.call import Call


def told(call: Call) -> str:
    """A digest of what every step of this run is told besides."""
    texts = [Path(p).read_text(encoding="utf-8") for p in call.options.extra_context]
    return files.digest(texts)[:16] if texts else ""


def last_word(
    call: Call, stage: Stage, order: Order, finished: Finished, past: bool = False, rerun: int = 0
) -> StepResult | None:
    """The result of a step about which nothing more is to be done: finished, or given up. `past`: the run went on from here."""
    outcome, _ = finished.look(order, stage.limits.model, past)
    if outcome:
        return skipped(call, order, outcome)
    asked = _asked(call, order, finished)
    if asked:
        return skipped(call, order, asked)
    tries = tries_at(call, order, finished, stage.limits.model)
    if tries and (past or used_up(stage, tries, finished, rerun)):
        return skipped(call, order, tries[-1])
    return None


def _asked(call: Call, order: Order, finished: Finished) -> Outcome | None:
    """What the step asks a person, and nobody has answered: an answer makes it another work."""
    ended = call.session.ended(order.step)
    attempt, outcome = ended[-1] if ended else (None, None)
    if not attempt or not outcome or attempt.number <= finished.redo_before[str(order.step)]:
        return None
    same = outcome.exit_code == ExitCode.HUMAN_INPUT and outcome.fingerprint == order.task.fingerprint
    return outcome if same else None


def used_up(stage: Stage, tries: list[Outcome], finished: Finished, rerun: int) -> bool:
    """Whether a step that failed has had all the tries it is allowed: its retries, one more where its coordinator gives what had
    failed by then (`rerun`) another chance, one for everything new it is told. All are counted on disk: a resume adds none."""
    last = tries[-1]
    if finished.told and all(t.told != finished.told for t in tries):
        return False
    timeouts = sum(t.exit_code == ExitCode.TIMEOUT for t in tries)
    if last.exit_code not in REPEATED or timeouts > 1 or last.final:
        return True
    once_more = all(t.kind != "rerun" and t.number < rerun for t in tries)
    return len(tries) > stage.retry_max and not once_more


def tries_at(call: Call, order: Order, finished: Finished, tier: str) -> list[Outcome]:
    """The attempts at this very work that count against its retries; heals and repairs belong to the try they fix."""
    past = finished.redo_before[str(order.step)]
    counted: list[Outcome] = []
    last: tuple[Attempt, Outcome] | None = None
    for attempt, outcome in call.session.ended(order.step):
        same = outcome.fingerprint == order.task.fingerprint and not finished.another_agent(outcome, tier)
        stopped = outcome.exit_code in NEVER_ABSORBED or outcome.code == "CORRUPT_STATE"
        if attempt.number <= past or not same or stopped:
            continue
        last = (attempt, outcome)
        if outcome.kind in ("first", "retry", "rerun"):
            counted = [*(counted if outcome.kind != "first" else []), outcome]  # a first try begins the count anew
        elif counted:  # how the heals and repairs of a try ended is how it ended
            counted[-1] = replace(outcome, kind=counted[-1].kind, told=counted[-1].told)
        if counted and counted[-1].good:
            counted = []  # it had succeeded: if it has to run again, then as if for the first time
    return counted if last and not finished.read_changed(order, *last) else []  # what it read has changed: it is worth a try


def skipped(call: Call, order: Order, outcome: Outcome) -> StepResult:
    return result_of(call, order, outcome, len(call.session.attempts(order.step)), skipped=True)


def result_of(call: Call, order: Order, outcome: Outcome, attempts: int, skipped: bool) -> StepResult:
    roots = {"session": call.session.folder, "workspace": call.cwd}
    did = files.digest(sorted(outcome.made.items()))
    return StepResult(
        key=order.key,
        exit_code=outcome.exit_code,
        verdict=outcome.verdict if outcome.good or outcome.verdict not in GOOD else "failed",
        outputs={c.output: str(files.find(roots[c.root], c.path)) for c in outcome.outputs},
        error=outcome.error,
        attempts=attempts,
        skipped=skipped,
        note=outcome.note,
        did=did,
        came_to=files.digest([did, [[c.output, c.sha256] for c in outcome.outputs]]),
        item=order.task.item,
        warnings=outcome.warnings,
        outcome=outcome,
    )


class Words:
    """What is known of each step of a stage before anything is done: finished, given up, blocked by one it waits for, or nothing.
    A step that waits for others is made of what they came to, so its own word is known only when theirs are."""

    def __init__(self, stage: Stage, orders: list[Order], maker: Orders, finished: Finished, past: bool, rerun: int) -> None:
        """`past`: the run has gone on from this round of the stage. `rerun`: what had failed by then gets one more try."""
        self.stage = stage
        self.orders = orders
        self.maker = maker
        self.finished = finished
        self.past = past
        self.rerun = rerun
        self.table = {o.key: o for o in orders}
        self.after = {o.key: list(o.waits_for) for o in orders}
        fanout.check_graph(self.after, stage.name)
        self.known: dict[str, StepResult] = {}
        self._looked: dict[str, tuple[str, StepResult | None]] = {}
        for key in fanout.one_by_one(self.after):
            if all(other in self.known for other in self.after[key]):
                found = self.word(key, True)
                if found:
                    self.known[key] = found

    @property
    def complete(self) -> bool:
        return len(self.known) == len(self.orders)

    @property
    def all_ok(self) -> bool:
        return self.complete and all(s.ok for s in self.known.values())

    def ready(self, key: str) -> Order:
        """The order, made of what those it waits for came to."""
        before = {k: (self.table[k], self.known[k]) for k in self.after[key]}
        self.table[key] = self.maker.behind(self.table[key], before)
        return self.table[key]

    def word(self, key: str, given_up: bool = False) -> StepResult | None:
        """The result of a step whose predecessors are known. `given_up`: also where it failed and has had all its tries."""
        cause = next((o for o in self.after[key] if not self.known[o].ok), None)
        if cause:
            return blocked(key, cause, self.table[key].task.item)
        order = self.ready(key)
        if key not in self._looked or self._looked[key][0] != order.task.fingerprint:
            found = last_word(self.maker.call, self.stage, order, self.finished, self.past, self.rerun)
            self._looked[key] = (order.task.fingerprint, found)
        found = self._looked[key][1]
        return self.learn(key, found) if found and (found.ok or given_up or asking.waits(found)) else None

    def learn(self, key: str, result: StepResult) -> StepResult:
        self.known[key] = result
        return result


def blocked(key: str, cause: str, item: Any = None) -> StepResult:
    error = {"code": "BLOCKED", "message": f"{cause} did not succeed"}
    return StepResult(key, ExitCode.FAILURE, "blocked", error=error, item=item)
