"""Layer 2's runtime: walks an orchestration's stages, routes on what came back, and writes the manifest as it goes.

All that decides the way is on disk: outcomes say what is finished, loop records say which loops were taken and why, and
answers say what a person decided. Walking again from the start therefore ends up where the last walk stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from lib.contract import GRAVEST_FIRST, NEVER_ABSORBED, STATUS, ExitCode, Interrupted, Json, StrataError
from lib.disk import files
from lib.disk.redact import redact
from lib.plan.orchestration import Loop, Orchestration, Stage
from lib.process import fanout
from lib.session.events import Timer
from lib.session.step import Step
from lib.stages import exhaustion, loops, manifest, worktrees
from lib.stages.answers import Answers
from lib.stages.finished import Finished
from lib.stages.order import Order
from lib.stages.orders import Orders
from lib.stages.results import StageResult, StepResult
from lib.stages.steps import keep_word, last_word, perform, skipped, told
from lib.tool.call import Call


class Walk:
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

    def go(self) -> Json:
        stages = self.orchestration.stages
        position = 0
        while position < len(stages):
            stage = stages[position]
            self.tell(running=True)
            try:
                result, back_to = self.route(stage, self.do(stage))
            except Interrupted as error:
                self.results[stage.name] = StageResult(stage.name, error.exit_code, "failed", error=error.document())
                self.tell(self.results[stage.name])
                raise
            self.note(stage, result)
            if not back_to:
                self.forget_loops(stage)
            if back_to:
                position = stages.index(self.orchestration.stage(back_to))
            elif result.exit_code == ExitCode.SUCCESS or result.open:
                position += 1
            else:
                return self.tell(result)
        return self.tell()

    def note(self, stage: Stage, result: StageResult) -> None:
        """What later stages are made from."""
        self.results[stage.name] = result
        self.orders.outputs[stage.name] = result.outputs
        self.orders.did[stage.name] = files.digest([s.did for s in result.steps])

    def tell(self, stopped_by: StageResult | None = None, running: bool = False) -> Json:
        names = [s.name for s in self.orchestration.stages]
        document = manifest.build(self.orchestration.name, names, self.results, stopped_by)
        path = self.home / "manifest.json"
        manifest.write(manifest.while_running(document) if running else document, path, self.call.session)
        self.call.artifact = path
        return document | {"trace_id": self.call.trace_id, "session_dir": str(self.call.session.folder), "manifest": str(path)}

    # Doing a stage

    def do(self, stage: Stage) -> StageResult:
        """One round of one stage, from disk where that is enough."""
        self.rounds[stage.name] += 1
        step = replace(self.base, stage=stage.folder, round=self.rounds[stage.name] if stage.in_loop else 0)
        with Timer() as timer:
            try:
                result = self.ask(stage, step) if stage.ask else self.work(stage, step)
            except StrataError as error:
                if error.exit_code == ExitCode.INTERRUPTED:
                    raise
                result = StageResult(stage.name, error.exit_code, "failed", error=error.document())
        result = replace(result, elapsed_seconds=timer.elapsed_seconds(), round=step.round)
        if not result.skipped:
            label = f"{self.base.slug}.{stage.name}"
            self.call.event(label, STATUS[result.exit_code], result.note or None, timer.elapsed_ms())
        return result

    def exhausted(self, stage: Stage, words: Words) -> StageResult | None:
        """How the stage ends where there is not enough depth left for it."""
        if not exhaustion.short(self.call, stage) or words.all_ok:
            return None  # or it was done when there was depth enough
        if stage.on_depth != "compress":
            return exhaustion.stopped(self.call, stage)
        stages = exhaustion.tail(self.orchestration, stage)
        whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base)
        self.call.event(order.step.slug, "compressing", {"stages": [s.name for s in stages]})
        self.compressed = exhaustion.apart(stages, perform(self.call, whole, order, self.finished))
        return self.compressed[stage.name]

    def done_as_one(self, stage: Stage) -> StageResult | None:
        """What an earlier run, or an earlier stage of this one, made of it together with others: that is not done apart again."""
        if stage.on_depth == "compress" and stage.name not in self.compressed:
            tried = self.call.session.attempts(replace(self.base, stage=exhaustion.folder(stage)))
            stages = exhaustion.tail(self.orchestration, stage)
            whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base) if tried else (stage, None)
            outcome = self.finished.outcome(order, whole.model) if order else None
            if order and outcome:
                self.compressed = exhaustion.apart(stages, skipped(self.call, order, outcome))
        return self.compressed.get(stage.name)

    def work(self, stage: Stage, step: Step) -> StageResult:
        ended = self.done_as_one(stage)
        if ended:
            return ended
        words = Words(self, stage, self.orders.of(stage, step))
        ended = self.exhausted(stage, words) or self.as_it_stands(stage, words)
        if not ended:
            ended = self.fan_out(stage, words) if stage.fans_out else self.one(stage, self.alone(stage, words))
        self.pass_by(words)
        return ended

    def pass_by(self, words: Words) -> None:
        """What this walk has come by is upstream of all that follows."""
        if self.finished.passed is not None:
            self.finished.passed |= {str(o.step) for o in words.orders}

    def one(self, stage: Stage, done: StepResult) -> StageResult:
        return StageResult(stage.name, done.exit_code, done.verdict, (done,), done.error, done.note)

    def together(self, stage: Stage, words: Words) -> StageResult:
        """What the stage comes to by the last words of all its steps."""
        steps = tuple(words.known[o.key] for o in words.orders)
        return self.sum_up(stage, steps, len(steps)) if stage.fans_out else self.one(stage, steps[0])

    def as_it_stands(self, stage: Stage, words: Words) -> StageResult | None:
        """What earlier runs made of the stage, if nothing more is to be done about it: it is finished, or the run went on without
        what had failed. Only a failure that stopped the run is tried again."""
        if not words.complete:
            return None
        result = self.together(stage, words)
        if not words.past and not words.all_ok and not self.goes_on(stage, result):
            return None
        for order in words.orders:
            keep_word(self.call, order, words.known[order.key])
        return result

    def goes_on(self, stage: Stage, result: StageResult) -> bool:
        """Whether the run goes on, or back, or asks, with such a result."""
        if result.exit_code == ExitCode.SUCCESS or result.open:
            return True
        if stage.on_item_failure == "ask" and stage.foreach:  # a person has decided, or is to decide
            return not self.answers.waits(stage.name, ("retry",))
        if result.exit_code in NEVER_ABSORBED:
            return False
        loop = self.loop_for(stage, result)
        if loop:
            return self.taken[loop.name] < loop.max or loop.then != "fail"
        return not stage.required

    def fan_out(self, stage: Stage, words: Words) -> StageResult:
        orders, after = words.orders, words.after
        absorbs = stage.on_item_failure == "skip" or bool(stage.members)
        final = self.absorbs_items(stage) and not words.complete  # what was given up while others were still to be done stays so
        self.call.event(f"{self.base.slug}.{stage.name}", "fan-out", {"items": len(orders), "together": stage.cap})

        def go_on(step: StepResult) -> bool:
            return step.ok or (absorbs and step.exit_code not in NEVER_ABSORBED)

        def known(key: str) -> StepResult | None:
            before = words.word(key, final)
            return keep_word(self.call, words.table[key], before) if before else None

        def work(key: str) -> StepResult:
            return words.learn(key, perform(self.call, stage, words.ready(key), self.finished, words.rerun))

        if stage.isolation:
            steps = self.in_worktrees(stage, words, go_on)
        else:
            steps = fanout.run(after, stage.cap, work, succeeded=lambda s: s.ok, blocked=_blocked, go_on=go_on, known=known)
        self.answers.take(stage.name, lambda record: None, ("retry",))  # that is what has just been done
        return self.sum_up(stage, tuple(steps.values()), len(orders))

    def absorbs_items(self, stage: Stage) -> bool:
        """Whether the run may go on although some of the stage's steps failed."""
        loop = self.orchestration.loops.get(stage.on.get("failure", ""))
        goes_back = bool(loop) and (self.taken[loop.name] < loop.max or loop.then != "fail") if loop else False
        policy = stage.on_item_failure in ("skip", "ask") if stage.foreach else False
        return policy or stage.min_success is not None or not stage.required or goes_back

    def alone(self, stage: Stage, words: Words) -> StepResult:
        """A stage of one step."""
        order = words.orders[0]
        if not stage.isolation:
            before = words.word(order.key)
            if before:
                return keep_word(self.call, order, before)
            return perform(self.call, stage, order, self.finished, words.rerun)
        return self.in_worktrees(stage, words, lambda s: True)[order.key]

    def in_worktrees(self, stage: Stage, words: Words, go_on: Callable[[StepResult], bool]) -> dict[str, StepResult]:
        cap = stage.cap if stage.fans_out else 1
        return worktrees.run(
            self.call, words.orders, words.after, cap, lambda key: self.isolated(stage, words, key), _blocked, go_on
        )

    def isolated(self, stage: Stage, words: Words, key: str) -> StepResult:
        """A step in a worktree of its own: not merged yet."""
        before, order = words.word(key), words.ready(key)
        if before:
            return keep_word(self.call, order, before)
        placed = replace(order, place=lambda: worktrees.opened(self.call, order))
        return words.learn(key, perform(self.call, stage, placed, self.finished, words.rerun))

    def sum_up(self, stage: Stage, steps: tuple[StepResult, ...], wanted: int) -> StageResult:
        """Many results as one: what must not be absorbed first, then whether there is enough, then the policy."""
        good = [s for s in steps if s.ok]
        bad = [s for s in steps if not s.ok]
        note = f"{len(good)} of {wanted} succeeded"
        bad.sort(key=lambda s: GRAVEST_FIRST.index(s.exit_code))
        if bad and bad[0].exit_code in NEVER_ABSORBED:
            return StageResult(stage.name, bad[0].exit_code, "failed", steps, bad[0].error, note)
        if len(good) >= (wanted if stage.min_success is None else stage.min_success):
            revise = next((s for s in good if s.verdict == "needs_revision"), None)
            if revise:
                return StageResult(stage.name, revise.exit_code, "needs_revision", steps, revise.error, revise.note)
            return StageResult(stage.name, ExitCode.SUCCESS, "done", steps, note=note)
        error = {"code": "ITEMS_FAILED", "message": f"{note}: {_reasons(bad)}", "hint": "see `items` in the manifest"}
        policy = stage.on_item_failure if stage.foreach else "abort"
        if policy == "ask":
            return self.ask_about_items(stage, steps, error, note)
        if policy == "skip" and good and stage.min_success is None:
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
        event = {"needs_revision": "needs_revision", "failed": "failure"}.get(result.verdict, "")
        return self.orchestration.loops.get(stage.on.get(event, ""))

    def take(self, loop: Loop, stage: Stage, result: StageResult) -> None:
        """Writes down that and why: the counter survives a crash, and the cause is handed to the loop's target."""
        self.taken[loop.name] += 1
        number = self.taken[loop.name]
        reason = result.note or (result.error or {}).get("message", "none given")
        lines = [f"The stage `{stage.name}` sent the work back to `{loop.to}`, time {number} of {loop.max}.", ""]
        lines += [f"Reason: {reason}", ""]
        results = self.results | {stage.name: result}
        for name in dict.fromkeys((stage.name, loop.to)):
            found = [f"- {s.key or name}, {output}: {path}" for s in results[name].steps for output, path in s.outputs.items()]
            lines += [f"What `{name}` produced last time:", "", *found, ""] if found else []
        cause = self.home / "loops" / f"{loop.name}-{number}.md"
        names = [s.name for s in self.orchestration.stages]
        span = names[names.index(loop.to) : names.index(stage.name) + 1]
        record: Json = {"loop": loop.name, "number": number, "from": stage.name, "rounds": {}}
        record["session"] = str(self.call.session.folder)  # where its cause speaks of: the session may be moved
        for name in span:
            record["rounds"][name] = {"round": self.rounds[name]}
        self.write_down(cause, "\n".join(lines).rstrip() + "\n", record)
        for name in span:
            self.orders.causes.pop(name, None)  # an inner loop's cause is not news any more
        self.orders.causes[loop.to] = cause
        detail = {"from": stage.name, "to": loop.to, "time": number, "of": loop.max}
        self.call.event(f"{self.base.slug}.{loop.name}", "loop", detail)

    def write_down(self, cause: Path, text: str, record: Json) -> None:
        """The record last: with it, the loop has been taken. A walk that comes by again finds it as it is."""
        known = cause.with_suffix(".json")
        if known.exists() and cause.exists() and cause.read_text(encoding="utf-8") == redact(text):
            return
        files.write_atomic(cause, text)
        files.write_json(known, record)

    def forget_loops(self, stage: Stage) -> None:
        """This round takes no loop. One that it took in an earlier run, with other results, is not history any more."""
        for path in sorted((self.home / "loops").glob("*.json")):
            record = files.read_json(path)
            if record["from"] == stage.name and record["rounds"][stage.name]["round"] == self.rounds[stage.name]:
                loops.set_aside(path)

    def answered_behind(self, stage: Stage) -> bool:
        """Whether a person has answered a question that comes after the stage: what was given up by then stays so, or the same
        question would be asked again."""
        stages = self.orchestration.stages
        later = [s for s in stages[stages.index(stage) :] if s.ask]
        folder = self.call.session.folder / self.base.home / "stages"
        return any(any((folder / s.folder).glob("**/answer.json")) for s in later)

    def gone_over(self, stage: Stage) -> bool:
        """Whether a loop has gone back over this round of the stage: it is history then."""
        for path in (self.home / "loops").glob("*.json"):
            past = files.read_json(path)["rounds"].get(stage.name)
            if past and past["round"] == self.rounds[stage.name]:
                return True
        return False

    def used_up(self, loop: Loop, stage: Stage, result: StageResult) -> StageResult:
        note = f"the loop {loop.name} was taken {self.taken[loop.name]} times and is used up"
        if loop.then == "fail":
            return replace(result, note=note)
        if loop.then == "continue":
            return replace(result, open=True, note=note)
        occasion = f"{loop.name}-{self.taken[loop.name]}"
        decision = self.answers.decided(stage.name, occasion, ("continue", "fail"))
        if decision == "continue":
            return replace(result, open=True, note=f"{note}; a person decided to go on")
        if decision == "fail":
            return replace(result, note=f"{note}; a person decided to stop")
        why = (result.error or {}).get("message", "")
        question = self.answers.question(stage.name, f"{note}: {why}", ("again", "continue", "fail"))
        return replace(result, exit_code=ExitCode.HUMAN_INPUT, verdict="waiting", note=note, question=question)

    # Asking a person

    def ask(self, stage: Stage, step: Step) -> StageResult:
        """A stage that is a question."""
        ask = stage.ask
        assert ask
        answered = self.answered(stage, step)
        if answered:
            return answered
        details = {"show": [str(p) for p in self.shown(stage)], "answer_schema": ask.answer_schema}
        question = self.answers.question(stage.name, ask.question) | details
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", note=ask.question, question=question)

    def shown(self, stage: Stage) -> list[Path]:
        assert stage.ask
        values = [self.orders.resolve(text, None) for text in stage.ask.show]
        return [Path(p) for value in values if value for p in _each(value)]

    def answered(self, stage: Stage, step: Step) -> StageResult | None:
        """What a person said. What was shown is kept by its hash: if it changed, the question is asked again."""
        assert stage.ask
        session = self.call.session
        shown = {session.relative(p): files.sha256(p) for p in self.shown(stage) if p.is_file()}
        kept = session.folder / step.folder / "answer.json"
        record = files.read_json(kept) if kept.exists() else None
        if not (record and record["shown"] == shown and record["question"] == stage.ask.question):
            told = {"question": stage.ask.question, "shown": shown}
            record = self.answers.take(stage.name, lambda waiting: files.write_json(kept, waiting | told))
            record = record | told if record else None
        if not record:
            return None
        place = session.folder / step.artifacts / "answer.json"
        self.publish(place, record["answer"])
        note = f"answered by {record['by']} at {record['at']}"
        answered = StepResult("", ExitCode.SUCCESS, "done", {"answer": str(place)}, note=note)
        return StageResult(stage.name, ExitCode.SUCCESS, "done", (answered,), note=note)

    def publish(self, place: Path, answer: Any) -> None:
        files.write_json(place, answer)

    def ask_about_items(self, stage: Stage, steps: tuple[StepResult, ...], error: Json, note: str) -> StageResult:
        decision = self.answers.decided(stage.name, f"items-{self.rounds[stage.name]}", ("skip", "abort"))
        if decision == "skip":
            note = f"{note}; a person decided to go on without the rest"
            return StageResult(stage.name, ExitCode.PARTIAL_SUCCESS, "done", steps, error, note, open=True)
        if decision == "abort":
            return StageResult(stage.name, ExitCode.FAILURE, "failed", steps, error, f"{note}; a person decided to stop")
        question = self.answers.question(stage.name, error["message"], ("retry", "skip", "abort"))
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", steps, error, note, question=question)


class Words:
    """What is known of each step of a stage before anything is done: finished, given up, blocked by one it waits for, or nothing.
    A step that waits for others is made of what they came to, so its own word is known only when theirs are."""

    def __init__(self, walk: Walk, stage: Stage, orders: list[Order]) -> None:
        self.walk = walk
        self.stage = stage
        self.orders = orders
        self.table = {o.key: o for o in orders}
        self.after = {o.key: walk.orders.waits_for(stage, o) for o in orders}
        fanout.check_graph(self.after, stage.name)
        self.past = walk.gone_over(stage)
        self.rerun = 0 if walk.answered_behind(stage) else getattr(walk.call.options, "rerun", 0)
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
        before = {k: (self.table[k], self.known[k].came_to) for k in self.after[key]}
        self.table[key] = self.walk.orders.behind(self.table[key], before)
        return self.table[key]

    def word(self, key: str, given_up: bool = False) -> StepResult | None:
        """How a step stands whose predecessors are known. `given_up`: also where it failed and has had all its tries."""
        cause = next((o for o in self.after[key] if not self.known[o].ok), None)
        if cause:
            return _blocked(key, cause)
        order = self.ready(key)
        if key not in self._looked or self._looked[key][0] != order.task.fingerprint:
            found = last_word(self.walk.call, self.stage, order, self.walk.finished, self.past, self.rerun)
            self._looked[key] = (order.task.fingerprint, found)
        found = self._looked[key][1]
        return self.learn(key, found) if found and (found.ok or given_up) else None

    def learn(self, key: str, result: StepResult) -> StepResult:
        self.known[key] = result
        return result


def _each(value: Any) -> list[str]:
    return cast(list[str], value) if isinstance(value, list) else [str(value)]


def _blocked(key: str, cause: str) -> StepResult:
    return StepResult(key, ExitCode.FAILURE, "blocked", error={"code": "BLOCKED", "message": f"{cause} did not succeed"})


def _reasons(bad: list[StepResult]) -> str:
    texts = [f"{s.key} ({(s.error or {}).get('message', STATUS[s.exit_code])[:120]})" for s in bad[:5]]
    return ", ".join(texts) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
