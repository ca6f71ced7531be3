"""How layer 2 goes from stage to stage, in the same way whether it runs the work, explains it or only counts it.

All that decides the way is on disk: outcomes say what is finished, loop records say which loops were taken and why, and
answers say what a person decided. Walking again from the start therefore ends up where the last walk stopped.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lib.contract import GRAVEST_FIRST, NEVER_ABSORBED, ExitCode, part
from lib.disk import files
from lib.plan.orchestration import Group, Orchestration, Question, Stage, Worker
from lib.plan.written import Loop
from lib.session.attempts import merge_of
from lib.session.step import Step
from lib.stages import asking, exhaustion, loops, rosters
from lib.stages.answers import Answers
from lib.stages.decisions import Decisions
from lib.stages.finished import Finished
from lib.stages.order import Order
from lib.stages.orders import Orders, Outputs
from lib.stages.results import StageResult, StepResult
from lib.stages.words import Words, skipped, told
from lib.tool.call import Call

EVENTS = {"needs_revision": "needs_revision", "failed": "failure"}  # by verdict: what `on:` calls it


class Walk(Decisions):
    """One order of questions, from stage to stage. What is done about a stage that is not finished is the policy of a subclass:
    `Run` has it done, `Look` says what would be done, `Standing` says what is missing."""

    def __init__(self, call: Call, orchestration: Orchestration, params: dict[str, Any], base: Step) -> None:
        self.call = call
        self.orchestration = orchestration
        self.base = base
        self.home = call.session.folder / base.home
        self.orders = Orders(call, params)
        self.answers = Answers(self.home / "answers", call.session.folder)
        self.finished = Finished(call.session, call.cwd, call.options.model or "", told(call))
        self.finished.passed = set()
        self.rounds: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()  # how often each loop was
        self.results: dict[str, StageResult] = {}
        self.compressed: dict[str, StageResult] = {}  # stages that were done as one
        self.position = 0
        self.until: str = getattr(call.options, "until", None) or ""  # the stage behind which it ends, on purpose

    # The policy

    def visit(self, stage: Stage) -> tuple[StageResult | None, str]:
        """What a stage comes to, and the stage a loop goes back to. No result: it is not known yet, and the walk goes on."""
        return self.route(stage, self.do(stage))

    def perform(self, stage: Stage, words: Words) -> StageResult:
        """A stage that is not finished."""
        raise NotImplementedError

    def keep(self, order: Order, word: StepResult) -> StepResult:
        """A step that is as an earlier run left it."""
        return word

    # The order of questions

    def walk(self) -> StageResult | None:
        """From stage to stage, and back where a loop says so. Returns the result that stopped it, if one did."""
        stages = self.orchestration.stages
        while self.position < len(stages):
            stage = stages[self.position]
            result, back_to = self.visit(stage)
            if result is not None:
                self.note(stage, result)
                if back_to:
                    self.position = stages.index(self.orchestration.stage(back_to))
                    continue
                self.forget_loops(stage)
                if result.exit_code != ExitCode.SUCCESS and not result.open:
                    return result
            self.position += 1
            if stage.name == self.until and not self.gone_over(stage):  # a round that was sent back is not where it ends
                break
        return None

    def note(self, stage: Stage, result: StageResult) -> None:
        """What later stages are made from."""
        self.results[stage.name] = result
        self.orders.outputs[stage.name] = result.outputs
        if stage.name in self.orchestration.rosters:
            self.orders.rosters[stage.name] = self.roster(stage, result)
        self.orders.did[stage.name] = files.digest([s.did for s in result.steps])

    def do(self, stage: Stage) -> StageResult:
        """One round of one stage, from disk where that is enough."""
        self.rounds[stage.name] += 1
        step = replace(self.base, stage=stage.folder, round=self.rounds[stage.name] if stage.in_loop else 0)
        return self.ask(stage, step) if isinstance(stage, Question) else self.work(stage, step)

    def work(self, stage: Stage, step: Step) -> StageResult:
        ended = self.done_as_one(stage)
        if ended:
            return ended
        rerun = 0 if self.answered_behind(stage) else getattr(self.call.options, "rerun", 0)
        orders = self.orders.of(stage, step)
        words = Words(stage, orders, self.orders, self.finished, self.gone_over(stage), rerun)
        ended = self.exhausted(stage, words) or self.as_it_stands(stage, words) or self.perform(stage, words)
        self.pass_by(words)
        return ended

    def exhausted(self, stage: Stage, words: Words) -> StageResult | None:
        """How the stage ends where there is not enough depth left for it."""
        return None

    def done_as_one(self, stage: Stage) -> StageResult | None:
        """What an earlier run, or an earlier stage of this one, made of it together with others: that is not done apart again."""
        if stage.on_depth == "compress" and stage.name not in self.compressed:
            tried = self.call.session.attempts(replace(self.base, stage=exhaustion.folder(stage)))
            stages = exhaustion.tail(self.orchestration, stage)
            whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base) if tried else (stage, None)
            outcome = self.finished.outcome(order, whole.limits.model) if order else None
            if order and outcome:
                self.compressed = exhaustion.apart(stages, skipped(self.call, order, outcome))
        return self.compressed.get(stage.name)

    def pass_by(self, words: Words) -> None:
        """What this walk has come by is upstream of all that follows."""
        if self.finished.passed is not None:
            self.finished.passed |= {str(o.step) for o in words.orders}

    def one(self, stage: Stage, done: StepResult) -> StageResult:
        if asking.waits(done):
            return self.waiting(stage, (done,), done.note)
        return StageResult(stage.name, done.exit_code, done.verdict, (done,), done.error, done.note)

    def together(self, stage: Stage, words: Words) -> StageResult:
        """What the stage comes to by the last words of all its steps."""
        steps = tuple(words.known[o.key] for o in words.orders)
        return self.sum_up(stage, steps, len(steps)) if stage.fans_out else self.one(stage, steps[0])

    def as_it_stands(self, stage: Stage, words: Words) -> StageResult | None:
        """What earlier runs made of the stage, if nothing more is to be done about it: it is finished, or the run went on without
        what had failed. Only a failure that stopped the run is tried again."""
        if not words.complete or any(self.unmerged(stage, order, words.known[order.key]) for order in words.orders):
            return None
        result = self.together(stage, words)
        waits = any(asking.waits(word) for word in words.known.values())  # nothing is tried again meanwhile
        if not waits and not words.past and not words.all_ok and not self.goes_on(stage, result):
            return None
        for order in words.orders:
            self.keep(order, words.known[order.key])
        return result

    def unmerged(self, stage: Stage, order: Order, word: StepResult) -> bool:
        """Whether what a step finished in a worktree of its own is still to be brought into the workspace."""
        merged = merge_of(self.call.session.folder, order.step) if word.ok and stage.isolation == "worktree" else None
        return word.ok and stage.isolation == "worktree" and (not merged or merged.attempt != word.attempts)

    def goes_on(self, stage: Stage, result: StageResult) -> bool:
        """Whether the run goes on, or back, or asks, with such a result."""
        if result.exit_code == ExitCode.SUCCESS or result.open:
            return True
        if stage.on_item_failure == "ask":  # a person has decided, or is to decide
            return not self.answers.waits(stage.name, ("retry",))
        if result.exit_code in NEVER_ABSORBED:
            return False
        loop = self.loop_for(stage, result)
        if loop:
            return self.taken[loop.name] < loop.max or loop.then != "fail"
        return not stage.required

    def absorbs_items(self, stage: Stage) -> bool:
        """Whether the run may go on although some of the stage's steps failed."""
        loop = self.orchestration.loops.get(stage.on.get("failure", ""))
        goes_back = loop is not None and (self.taken[loop.name] < loop.max or loop.then != "fail")
        policy = stage.on_item_failure in ("skip", "ask")
        return policy or stage.min_success is not None or not stage.required or goes_back

    def sum_up(self, stage: Stage, steps: tuple[StepResult, ...], wanted: int) -> StageResult:
        """Many results as one: what must not be absorbed first, then whether there is enough, then the policy."""
        good = [s for s in steps if s.ok]
        bad = sorted((s for s in steps if not s.ok), key=lambda s: GRAVEST_FIRST.index(s.exit_code))
        note = f"{len(good)} of {wanted} succeeded"
        if bad and asking.waits(bad[0]):  # and nothing graver
            return self.waiting(stage, steps, note)
        if bad and bad[0].exit_code in NEVER_ABSORBED:
            return StageResult(stage.name, bad[0].exit_code, "failed", steps, bad[0].error, note)
        routed = self.routed(stage, steps)
        if routed:
            return routed
        if len(good) >= (wanted if stage.min_success is None else stage.min_success):
            revise = next((s for s in good if s.verdict == "needs_revision"), None)
            if revise:
                return StageResult(stage.name, revise.exit_code, "needs_revision", steps, revise.error, revise.note)
            return StageResult(stage.name, ExitCode.SUCCESS, "done", steps, note=note)
        hints = {part(s.error, "hint") for s in bad if s.verdict != "blocked"}
        hint = hints.pop() if len(hints) == 1 else ""
        error = {"code": "ITEMS_FAILED", "message": f"{note}: {_reasons(bad)}", "hint": hint or "see `items` in the manifest"}
        if stage.on_item_failure == "ask":
            return self.ask_about_items(stage, steps, error, note)
        if stage.on_item_failure == "skip" and good and stage.min_success is None:
            return StageResult(stage.name, ExitCode.PARTIAL_SUCCESS, "done", steps, error, note, open=True)
        return StageResult(stage.name, bad[0].exit_code, "failed", steps, error, note)

    # Where to go next

    def route(self, stage: Stage, result: StageResult) -> tuple[StageResult, str]:
        """The result, marked `open` where the run goes on in spite of it, and the stage a loop goes back to, if one does."""
        if result.exit_code == ExitCode.SUCCESS or result.exit_code in NEVER_ABSORBED:
            return result, ""
        loop = self.loop_for(stage, result)
        if loop:
            used_up = self.taken[loop.name] >= loop.max
            more = self.answers.granted(stage.name, loop.name, used_up) if loop.then == "ask" else 0
            if self.taken[loop.name] < loop.max + more:
                self.take(loop, stage, result)
                return result, loop.to
            return self.used_up(loop, stage, result), ""
        if not stage.required:
            return replace(result, open=True, note=result.note or "optional: the run went on without it"), ""
        return result, ""

    def loop_for(self, stage: Stage, result: StageResult) -> Loop | None:
        name = result.route or stage.on.get(EVENTS.get(result.verdict, ""), "")
        return self.orchestration.loops.get(name)

    def routed(self, stage: Stage, steps: tuple[StepResult, ...]) -> StageResult | None:
        """What the stage comes to where the verdict of one of its members takes a loop of the member's own."""
        for step in steps:
            worker = self.workers_of(stage).get(step.key)
            name = worker.on.get(EVENTS.get(step.verdict, ""), "") if worker else ""
            if name:
                return StageResult(stage.name, step.exit_code, step.verdict, steps, step.error, step.note, route=name)
        return None

    def workers_of(self, stage: Stage) -> dict[str, Worker]:
        return stage.members if isinstance(stage, Group) else {}

    def take(self, loop: Loop, stage: Stage, result: StageResult) -> None:
        """Writes down that and why: the counter survives a crash, and the cause is handed to the loop's target."""
        self.taken[loop.name] += 1
        number = self.taken[loop.name]
        said = part(result.error, "message")
        reason = (said if result.verdict == "failed" else result.note) or result.note or said or "none given"
        lines = [f"The stage `{stage.name}` sent the work back to `{loop.to}`, time {number} of {loop.max}.", ""]
        lines += [f"Reason: {reason}", ""]
        results = self.results | {stage.name: result}
        for name in dict.fromkeys((stage.name, loop.to)):
            found = [f"- {s.key or name}, {output}: {path}" for s in results[name].steps for output, path in s.outputs.items()]
            lines += [f"What `{name}` produced last time:", "", *found, ""] if found else []
        names = [s.name for s in self.orchestration.stages]
        span = names[names.index(loop.to) : names.index(stage.name) + 1]
        rounds = {name: self.rounds[name] for name in span}
        failed = [{"key": s.key, "code": s.code, "message": s.message} for s in result.steps if not s.ok]
        taken = loops.Taken(loop.name, number, stage.name, rounds, str(self.call.session.folder), str(reason), tuple(failed))
        cause = loops.write_down(self.home, taken, "\n".join(lines).rstrip() + "\n")
        self.orders.handed[loop.name] = self.hand_back(stage, result, cause)
        for name in span:
            self.orders.causes.pop(name, None)  # an inner loop's cause is not news any more
        self.orders.causes[loop.to] = cause
        detail = {"from": stage.name, "to": loop.to, "time": number, "of": loop.max}
        self.call.event(f"{self.base.slug}.{loop.name}", "loop", detail)

    def hand_back(self, stage: Stage, result: StageResult, cause: Path) -> Outputs:
        """What a stage that takes a loop hands to those it goes back over: all it produced, its roster, and why."""
        known = {"cause": str(cause.with_suffix(".json")), "roster": self.roster(stage, result)}
        outputs = result.outputs
        return outputs | {"": {**known, **outputs.get("", {})}}

    def roster(self, stage: Stage, result: StageResult) -> str:
        """The file that says who was asked in a stage, and what came of each."""
        step = replace(self.base, stage=stage.folder, round=self.rounds[stage.name] if stage.in_loop else 0)
        return str(rosters.publish(self.call, step, stage.name, result, self.orders.labels))

    def forget_loops(self, stage: Stage) -> None:
        """This round takes no loop. One that it took in an earlier run, with other results, is not history any more."""
        loops.forget(self.home, stage.name, self.rounds[stage.name])

    def answered_behind(self, stage: Stage) -> bool:
        """Whether a person has answered a question that comes after the stage: what was given up by then stays so, or the same
        question would be asked again."""
        later = [s for s in self.orchestration.behind(stage) if isinstance(s, Question)]
        folder = self.call.session.folder / self.base.home / "stages"
        return any(any((folder / s.folder).glob("**/answer.json")) for s in later)

    def gone_over(self, stage: Stage) -> bool:
        """Whether a loop has gone back over this round of the stage: it is history then."""
        return any(taken.rounds.get(stage.name) == self.rounds[stage.name] for _, taken in loops.every(self.home))


def _reasons(bad: list[StepResult]) -> str:
    texts = [f"{s.key} ({s.message[:120]})" for s in bad[:5]]
    return ", ".join(texts) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
