"""Where a walk needs a person: stages that are questions, steps that ask, loops that are used up, items that failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from lib.contract import ExitCode, Json, part
from lib.disk import files
from lib.plan.orchestration import FAIL, Question, Stage
from lib.plan.written import Loop
from lib.session.step import Step
from lib.stages import asking
from lib.stages.answers import Answers, word_of
from lib.stages.orders import NOBODY, Orders
from lib.stages.results import StageResult, StepResult
from lib.tool.call import Call

ASKED = "asked.json"  # beside a question's answer: what a person was last shown


class Decisions:
    """The part of a walk that asks. What a person decided is on disk, so that walking again asks nobody twice."""

    call: Call
    orders: Orders
    answers: Answers
    rounds: Counter[str]
    taken: Counter[str]

    def gone_over(self, stage: Stage) -> bool:
        """Whether a loop has gone back over this round of the stage."""
        raise NotImplementedError

    def waiting(self, stage: Stage, steps: tuple[StepResult, ...], note: str) -> StageResult:
        """Some of its steps ask a person. The others have gone on."""
        asked = asking.questions(self.call.session.folder, stage.name, steps)
        first = next(s for s in steps if asking.waits(s))
        question = asking.together(asked)
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", steps, first.error, note, question=question)

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
        why = part(result.error, "message")
        question = self.answers.question(stage.name, f"{note}: {why}", ("again", "continue", "fail"))
        return replace(result, exit_code=ExitCode.HUMAN_INPUT, verdict="waiting", note=note, question=question)

    def ask(self, stage: Question, step: Step) -> StageResult:
        """A stage that is a question."""
        answered = self.answered(stage, step)
        if answered:
            return answered
        self.remember_asked(step, stage, self.digests(stage))
        details = {"show": [str(p) for p in self.shown(stage)], "answer_schema": stage.answer_schema}
        question = self.answers.question(stage.name, stage.question, stage.choices) | details
        return StageResult(stage.name, ExitCode.HUMAN_INPUT, "waiting", note=stage.question, question=question)

    def shown(self, stage: Question) -> list[Path]:
        values = [self.orders.resolve(text, NOBODY) for text in stage.show]
        return [Path(p) for value in values if value for p in _each(value)]

    def answered(self, stage: Question, step: Step) -> StageResult | None:
        """What a person said. What was shown is kept by its hash: if it changed, the question is asked again."""
        session, shown = self.call.session, self.digests(stage)
        kept = session.folder / step.folder / "answer.json"
        record = files.read_json(kept) if kept.exists() else None
        stands = record is not None and record["shown"] == shown and record["question"] == stage.question
        if not stands or not self.gone_over(stage):  # who answers once more has thought again
            about = {"question": stage.question, "shown": shown}
            asked = kept.with_name(ASKED)
            changed = asked.exists() and files.read_json(asked) != about  # what was answered is not what would be asked now
            if changed and self.answers.put_aside(stage.name):
                self.call.event(stage.name, "answer-put-aside", "what it was an answer to has changed since")
            new = self.answers.take(stage.name, lambda waiting: files.write_json(kept, waiting | about))
            record = new | about if new else (record if stands else None)
        if not record:
            return None
        place = session.folder / step.artifacts / "answer.json"
        self.publish(place, record["answer"])
        word = word_of(record["answer"])
        note = f"answered by {record['by']} at {record['at']}"
        answered = StepResult("", ExitCode.SUCCESS, "done", {"answer": str(place)}, note=note)
        result = StageResult(stage.name, ExitCode.SUCCESS, "done", (answered,), note=note)
        route = stage.routes.get(word, "")
        if route == FAIL:
            error = {"code": "REJECTED", "message": f"{record['by']} answered {word} to {stage.name}", "hint": "answer it again"}
            return replace(result, exit_code=ExitCode.FAILURE, verdict="failed", error=error)
        if route:
            words = f"{record['by']} answered {word}"
            return replace(result, exit_code=ExitCode.NEEDS_REFINEMENT, verdict="needs_revision", route=route, note=words)
        return result

    def digests(self, stage: Question) -> dict[str, str]:
        """What a person is shown, by its content."""
        return {self.call.session.relative(p): files.sha256(p) for p in self.shown(stage) if p.is_file()}

    def remember_asked(self, step: Step, stage: Question, shown: dict[str, str]) -> None:
        """What exactly is asked: an answer that comes later is of this."""
        if not self.call.looking:
            files.write_json(self.call.session.folder / step.folder / ASKED, {"question": stage.question, "shown": shown})

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


def _each(value: Any) -> list[str]:
    return cast(list[str], value) if isinstance(value, list) else [str(value)]
