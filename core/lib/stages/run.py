"""The policy of a real run: what is not finished is done, by executors, in worktrees where the stage says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from lib.contract import NEVER_ABSORBED, STATUS, ExitCode, Interrupted, Json, StrataError
from lib.disk import files
from lib.plan.orchestration import Stage
from lib.process import fanout
from lib.session.events import Timer
from lib.session.produced import FILE as OUTPUTS
from lib.session.produced import write as write_outputs
from lib.stages import asking, copies, exhaustion, manifest, produced, worktrees
from lib.stages.order import Order
from lib.stages.results import StageResult, StepResult
from lib.stages.steps import keep_word, perform
from lib.stages.walk import Walk
from lib.stages.words import Words, blocked


class Run(Walk):
    """Has every stage done that is not finished, and writes the manifest as it goes."""

    def go(self) -> Json:
        said = self.tell(self.walk())
        self.list_outputs(said["outputs"])
        return said

    def list_outputs(self, found: list[Json]) -> None:
        """What the run has produced, where that is news; one that ends early on purpose takes nothing from the list."""
        path = self.home / OUTPUTS
        nothing_done = all(result.skipped for result in self.results.values()) and path.exists()
        if nothing_done and (self.until or files.read_json(path)["outputs"] == found):
            return
        files.write_json(path, {"outputs": found})
        if self.call.session.outermost:
            write_outputs(self.call.session.folder, self.orchestration.name)

    def visit(self, stage: Stage) -> tuple[StageResult | None, str]:
        self.tell(running=True)
        try:
            return super().visit(stage)
        except Interrupted as error:
            self.results[stage.name] = StageResult(stage.name, error.exit_code, "failed", error=error.document())
            self.tell(self.results[stage.name])
            raise

    def tell(self, stopped_by: StageResult | None = None, running: bool = False) -> Json:
        names = [s.name for s in self.orchestration.stages]
        document = manifest.build(self.orchestration.name, names, self.results, stopped_by, self.until)
        path = self.home / "manifest.json"
        manifest.write(manifest.while_running(document) if running else document, path, self.call.session)
        self.call.artifact = path
        if not running:
            document["outputs"] = produced.listed(self.call, self.orchestration, self.base, self.results, self.orders.labels)
        return document | {"trace_id": self.call.trace_id, "session_dir": str(self.call.session.folder), "manifest": str(path)}

    def do(self, stage: Stage) -> StageResult:
        with Timer() as timer:
            try:
                result = super().do(stage)
            except StrataError as error:
                if error.exit_code == ExitCode.INTERRUPTED:
                    raise
                result = StageResult(stage.name, error.exit_code, "failed", error=error.document())
        number = self.rounds[stage.name] if stage.in_loop else 0
        result = replace(result, elapsed_seconds=timer.elapsed_seconds(), round=number)
        if not result.skipped:
            label = f"{self.base.slug}.{stage.name}"
            self.call.event(label, STATUS[result.exit_code], result.note or None, timer.elapsed_ms())
        return result

    def keep(self, order: Order, word: StepResult) -> StepResult:
        return keep_word(self.call, order, word)

    def exhausted(self, stage: Stage, words: Words) -> StageResult | None:
        if not exhaustion.short(self.call, stage) or words.all_ok:
            return None  # or it was done when there was depth enough
        if stage.on_depth != "compress":
            return exhaustion.stopped(self.call, stage)
        stages = exhaustion.tail(self.orchestration, stage)
        whole, order = exhaustion.as_one(self.call, self.orders, stages, self.base)
        self.call.event(order.step.slug, "compressing", {"stages": [s.name for s in stages]})
        self.compressed = exhaustion.apart(stages, perform(self.call, whole, order, self.finished))
        return self.compressed[stage.name]

    def perform(self, stage: Stage, words: Words) -> StageResult:
        if not stage.fans_out:
            return self.one(stage, self.alone(stage, words))
        orders, after = words.orders, words.after
        final = self.absorbs_items(stage) and not words.complete  # what was given up while others were still to be done stays so
        self.call.event(f"{self.base.slug}.{stage.name}", "fan-out", {"items": len(orders), "together": stage.cap})

        def go_on(step: StepResult) -> bool:
            return step.ok or asking.waits(step) or (stage.goes_on_after_a_failure and step.exit_code not in NEVER_ABSORBED)

        def known(key: str) -> StepResult | None:
            before = words.word(key, final)
            return self.keep(words.table[key], before) if before else None

        def work(key: str) -> StepResult:
            return words.learn(key, self.done(stage, words.ready(key), words.rerun))

        if stage.isolation == "worktree":
            steps = self.in_worktrees(stage, words, go_on)
        else:
            steps = fanout.run(after, stage.cap, work, lambda s: s.ok, partial(_blocked, words), go_on, known)
        self.answers.take(stage.name, lambda record: None, ("retry",))  # that is what has just been done
        return self.sum_up(stage, tuple(steps.values()), len(orders))

    def alone(self, stage: Stage, words: Words) -> StepResult:
        """A stage of one step."""
        order = words.orders[0]
        if stage.isolation == "worktree":
            return self.in_worktrees(stage, words, lambda s: True)[order.key]
        before = words.word(order.key)
        return self.keep(order, before) if before else self.done(stage, order, words.rerun)

    def done(self, stage: Stage, order: Order, rerun: int) -> StepResult:
        """A step that works in the workspace, or in a copy that is thrown away."""
        copied = stage.isolation == "copy"
        placed = replace(order, place=lambda: copies.opened(self.call, order.step)) if copied else order
        return perform(self.call, stage, placed, self.finished, rerun)

    def in_worktrees(self, stage: Stage, words: Words, go_on: Callable[[StepResult], bool]) -> dict[str, StepResult]:
        return worktrees.run(
            self.call,
            words.orders,
            words.after,
            stage.cap,
            lambda key: self.isolated(stage, words, key),
            partial(_blocked, words),
            go_on,
        )

    def isolated(self, stage: Stage, words: Words, key: str) -> StepResult:
        """A step in a worktree of its own: not merged yet."""
        before, order = words.word(key), words.ready(key)
        if before:
            return self.keep(order, before)
        placed = replace(order, place=lambda: worktrees.opened(self.call, order))
        return words.learn(key, perform(self.call, stage, placed, self.finished, words.rerun))


def _blocked(words: Words, key: str, cause: str) -> StepResult:
    return blocked(key, cause, words.table[key].task.item)
