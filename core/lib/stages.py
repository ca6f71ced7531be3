"""Layer 2's runtime: walks an orchestration's stages, routes on what came back, and writes the manifest as it goes.

All that decides the way is on disk: outcomes say what is finished, loop records say which loops were taken and why, and
answers say what a person decided. Walking again from the start therefore ends up where the last walk stopped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from lib import exhaustion, fanout, files, manifest, worktrees
from lib.answers import Answers
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Interrupted, Json, StrataError
from lib.finished import Finished
from lib.manifest import StageResult
from lib.observability import Timer
from lib.orchestration import Loop, Orchestration, Stage
from lib.order import Order
from lib.orders import Orders
from lib.session import Step
from lib.steps import StepResult, last_word, perform, skip, skipped

# Neither an optional stage nor a policy for failed items makes these go away; the gravest first.
NEVER_ABSORBED = (ExitCode.INTERRUPTED, ExitCode.DEPTH_EXCEEDED, ExitCode.HUMAN_INPUT, ExitCode.NEEDS_ESCALATION)
GRAVEST_FIRST = (*NEVER_ABSORBED, ExitCode.NEEDS_REFINEMENT, ExitCode.TIMEOUT, ExitCode.FAILURE)


class Walk:
    def __init__(self, call: Call, orchestration: Orchestration, params: dict[str, Any], base: Step) -> None:
        self.call = call
        self.orchestration = orchestration
        self.base = base
        self.home = call.session.folder / base.home
        self.orders = Orders(call, params)
        self.answers = Answers(self.home / "answers", call.session.folder)
        self.finished = Finished(call.session, call.cwd, call.options.model or "", bool(call.options.extra_context))
        self.rounds: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()  # how often each loop was
        self.results: dict[str, StageResult] = {}
        self.digests: dict[str, str] = {}  # of each stage's orders in its present round
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
        self.digests[stage.name] = ""
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

    def exhausted(self, stage: Stage, step: Step) -> StageResult | None:
        """How the stage ends where there is not enough depth left for it. What was once done as one is not done apart again."""
        together = self.done_as_one(stage)
        if together or not exhaustion.short(self.call, stage):
            return together
        if all(self.finished.outcome(order, stage.model) for order in self.orders.of(stage, step)):
            return None  # it was done when there was depth enough
        if stage.on_depth != "compress":
            return exhaustion.stopped(self.call, stage)
        stages = exhaustion.tail(self.orchestration, stage)
        whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base)
        self.call.event(order.step.slug, "compressing", {"stages": [s.name for s in stages]})
        self.compressed = exhaustion.apart(stages, perform(self.call, whole, order, self.finished))
        return self.compressed[stage.name]

    def done_as_one(self, stage: Stage) -> StageResult | None:
        """What an earlier run, or an earlier stage of this one, made of it together with others."""
        if stage.on_depth == "compress" and stage.name not in self.compressed:
            tried = self.call.session.attempts(replace(self.base, stage=exhaustion.folder(stage)))
            stages = exhaustion.tail(self.orchestration, stage)
            whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base) if tried else (stage, None)
            outcome = self.finished.outcome(order, whole.model) if order else None
            if order and outcome:
                self.compressed = exhaustion.apart(stages, skipped(self.call, order, outcome))
        return self.compressed.get(stage.name)

    def work(self, stage: Stage, step: Step) -> StageResult:
        ended = self.exhausted(stage, step)
        if ended:
            return ended
        orders = self.orders.of(stage, step)
        routed = self.already_routed(stage, orders)
        if routed:
            return routed
        if not stage.fans_out:
            done = self.alone(stage, orders[0])
            return StageResult(stage.name, done.exit_code, done.verdict, (done,), done.error, done.note)
        table = {o.key: o for o in orders}
        after = {o.key: self.orders.waits_for(stage, o) for o in orders}
        fanout.check_graph(after, stage.name)
        settled = self.settled(stage, orders, after)
        if settled:
            return self.sum_up(stage, settled, len(orders))
        goes_on = stage.on_item_failure == "skip" or bool(stage.members)
        self.call.event(f"{self.base.slug}.{stage.name}", "fan-out", {"items": len(orders), "together": stage.cap})

        def go_on(step: StepResult) -> bool:
            return step.ok or (goes_on and step.exit_code not in NEVER_ABSORBED)

        if stage.isolation:
            steps = worktrees.run(self.call, orders, after, stage.cap, lambda o: self.isolated(stage, o), _blocked, go_on)
            return self.sum_up(stage, tuple(steps.values()), len(orders))
        steps = fanout.run(
            after,
            stage.cap,
            lambda key: perform(self.call, stage, table[key], self.finished),
            succeeded=lambda s: s.ok,
            blocked=_blocked,
            go_on=go_on,
            known=lambda key: skip(self.call, stage, table[key], self.finished),
        )
        return self.sum_up(stage, tuple(steps.values()), len(orders))

    def alone(self, stage: Stage, order: Order) -> StepResult:
        """A stage of one step."""
        if not stage.isolation:
            return skip(self.call, stage, order, self.finished) or perform(self.call, stage, order, self.finished)
        only = worktrees.run(self.call, [order], {order.key: []}, 1, lambda o: self.isolated(stage, o), _blocked, lambda s: True)
        return only[order.key]

    def isolated(self, stage: Stage, order: Order) -> StepResult:
        """A step in a worktree of its own: not merged yet."""
        known = skip(self.call, stage, order, self.finished)
        placed = replace(order, place=lambda: worktrees.opened(self.call, order))
        return known or perform(self.call, stage, placed, self.finished)

    def settled(self, stage: Stage, orders: list[Order], after: dict[str, list[str]]) -> tuple[StepResult, ...]:
        """Of a stage that needs only some to succeed and has them: its results, failures included. It is finished as a whole."""
        if stage.min_success is None:
            return ()
        known: dict[str, StepResult] = {}
        for order in orders:
            before = last_word(self.call, stage, order, self.finished)
            if before:
                known[order.key] = before
        for order in orders:
            cause = next((o for o in after[order.key] if o not in known or not known[o].ok), None)
            if order.key not in known and cause:
                known[order.key] = _blocked(order.key, cause)
        enough = sum(s.ok for s in known.values()) >= stage.min_success
        return tuple(known[o.key] for o in orders) if enough and len(known) == len(orders) else ()

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
        if result.exit_code in (ExitCode.SUCCESS, *NEVER_ABSORBED):
            return result, ""
        event = {"needs_revision": "needs_revision", "failed": "failure"}.get(result.verdict, "")
        loop = self.orchestration.loops.get(stage.on.get(event, ""))
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
        for name in span:
            stored = results[name].stored(self.call.session)
            record["rounds"][name] = {"round": self.rounds[name], "orders": self.digests[name], "result": stored}
        files.write_atomic(cause, "\n".join(lines).rstrip() + "\n")
        files.write_json(cause.with_suffix(".json"), record)
        for name in span:
            self.orders.causes.pop(name, None)  # an inner loop's cause is not news any more
        self.orders.causes[loop.to] = cause
        detail = {"from": stage.name, "to": loop.to, "time": number, "of": loop.max}
        self.call.event(f"{self.base.slug}.{loop.name}", "loop", detail)

    def already_routed(self, stage: Stage, orders: list[Order]) -> StageResult | None:
        """How this round ended, if a loop has gone back over it since: that is history, and a failure in it is not run again."""
        self.digests[stage.name] = files.digest([o.task.fingerprint for o in orders])
        for path in sorted((self.home / "loops").glob("*.json")):
            record = files.read_json(path)
            past = record["rounds"].get(stage.name)
            if past and (past["round"], past["orders"]) == (self.rounds[stage.name], self.digests[stage.name]):
                return manifest.restored(past["result"], self.call.session)  # None where its outputs are damaged
        return None

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
        self.answers.take(stage.name, lambda record: None, ("retry",))  # trying again is what has just been done
        decision = self.answers.decided(stage.name, f"items-{self.rounds[stage.name]}", ("skip", "abort"))
        if decision == "skip":
            note = f"{note}; a person decided to go on without the rest"
            return StageResult(stage.name, ExitCode.PARTIAL_SUCCESS, "done", steps, error, note, open=True)
        if decision == "abort":
            return StageResult(stage.name, ExitCode.FAILURE, "failed", steps, error, f"{note}; a person decided to stop")
        question = self.answers.question(stage.name, error["message"], ("retry", "skip", "abort"))
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", steps, error, note, question=question)


def _each(value: Any) -> list[str]:
    return cast(list[str], value) if isinstance(value, list) else [str(value)]


def _blocked(key: str, cause: str) -> StepResult:
    return StepResult(key, ExitCode.FAILURE, "blocked", error={"code": "BLOCKED", "message": f"{cause} did not succeed"})


def _reasons(bad: list[StepResult]) -> str:
    texts = [f"{s.key} ({(s.error or {}).get('message', STATUS[s.exit_code])[:120]})" for s in bad[:5]]
    return ", ".join(texts) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
