"""What a person decided: questions that wait, answers that are kept with who, when and what they were shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lib.contract import ExitCode, Json, usage
from lib.disk import files, lenient, schemas
from lib.plan.orchestration import Orchestration, Question, Stage
from lib.session import attempts, documents
from lib.session.attempts import every_attempt
from lib.session.signature import signature
from lib.session.step import Step
from lib.stages import asking
from lib.tool.arguments import read_text

DECISIONS = ("retry", "skip", "abort", "again", "continue", "fail")  # about failed items, and about a used-up loop


class Answers(Struct, frozen=True):
    """The `answers/` folder of an orchestrator. An answer waits under its stage's name until the walk takes it."""

    folder: Path
    session: Path

    def receive(self, orchestration: Orchestration, base: Step, given: dict[str, str]) -> None:
        """Answers from the command line, checked against what was asked. `STAGE/ITEM` is what one item asked."""
        known = {s.name: s for s in orchestration.stages}
        for name, text in given.items():
            stage = known.get(name.partition("/")[0])
            if not stage:
                usage(f"there is no stage {name!r} to answer", f"the stages are: {', '.join(known)}")
            raw = read_text(text[1:], "--answer") if text.startswith("@") else text
            try:
                answer = json.loads(raw)
            except ValueError:
                answer = raw.strip()
            who = signature()
            record: Json = {"answer": answer, "by": who["by"], "at": who["when"]}
            asking_step = self._asking(base, stage, name.partition("/")[2])
            if isinstance(stage, Question):
                if "/" in name:
                    usage(f"{stage.name} is one question, without items", f"--answer {stage.name}=…")
                _fits(name, answer, stage.answer_schema, ())
                _offered(name, answer, stage.choices)
                self._keep(name, record)
            elif asking_step:
                step, asked, made_of = asking_step
                _fits(name, answer, asked.answer_schema, asked.choices)
                asking.keep_answer(self.session, step, record | {"question": asked.message, "made_of": made_of})
            elif "/" in name or stage.name not in asking.waiting(self.folder.parent):
                usage(f"{name} asks nothing", "see `waiting` in the manifest for what does")
            elif answer not in DECISIONS:
                usage(f"{name} can be answered with {', '.join(DECISIONS)}, not with {answer!r}")
            else:
                self._keep(name, record)

    def _asking(self, base: Step, stage: Stage, item: str) -> tuple[Step, asking.Asked, dict[str, str]] | None:
        """The step of a stage that waits for a person, in its newest round."""
        key = files.safe_name(item) if item else ""
        steps = {
            a.step: a for a in every_attempt(self.session, base.phase) if (a.step.home, a.step.stage) == (base.home, stage.folder)
        }
        for step in sorted(steps, key=lambda s: -s.round):
            tried = attempts.ended(attempts.of_step(self.session, step)) if step.item == key else []
            if tried and tried[-1][1].exit_code == ExitCode.HUMAN_INPUT:
                return step, asking.asked_in(tried[-1][1].error), tried[-1][1].made_of
        return None

    def take(self, stage: str, keep: Callable[[Json], None], wanted: tuple[Any, ...] | None = None) -> Json | None:
        """The answer that waits for `stage`, once; with `wanted`, only if it is one of these words. What follows from it is
        kept before it is taken: a crash in between asks for nothing twice."""
        path = self.folder / f"{stage}.json"
        if not path.exists():
            return None
        record = files.read_json(path)
        if wanted is not None and record["answer"] not in wanted:
            return None
        keep(record)
        number = 1 + len(list(self.folder.glob(f"{stage}.taken-*.json")))
        path.replace(self.folder / f"{stage}.taken-{number}.json")
        return record

    def put_aside(self, stage: str) -> bool:
        """An answer that waits, and is of something else than is asked now. It stays on disk. Whether there was one."""
        path = self.folder / f"{stage}.json"
        if not path.exists():
            return False
        number = 1 + len(list(self.folder.glob(f"{stage}.stale-*.json")))
        path.replace(self.folder / f"{stage}.stale-{number}.json")
        return True

    def waits(self, stage: str, wanted: tuple[Any, ...]) -> bool:
        """Whether one of these words has been said and not been taken yet."""
        path = self.folder / f"{stage}.json"
        return path.exists() and files.read_json(path)["answer"] in wanted

    def decided(self, stage: str, occasion: str, choices: tuple[str, ...]) -> str:
        """A lasting decision for this occasion: a new answer, or the one taken for it in an earlier run."""
        self.take(stage, lambda record: self._keep(f"{stage}.{occasion}", record), choices)
        kept = self.folder / f"{stage}.{occasion}.json"
        return str(files.read_json(kept)["answer"]) if kept.exists() else ""

    def granted(self, stage: str, loop: str, used_up: bool) -> int:
        """Further rounds a person allowed to a loop. A new permission is taken only when the earlier ones are used up."""
        path = self.folder / f"{stage}.{loop}.rounds.json"
        rounds = int(files.read_json(path)["rounds"]) if path.exists() else 0
        if used_up and self.take(stage, lambda record: files.write_json(path, {"rounds": rounds + 1}), ("again",)):
            return rounds + 1
        return rounds

    def question(self, stage: str, text: str, choices: tuple[str, ...] = ()) -> Json:
        return asking.question(self.session, documents.Question(stage, text, choices=choices))

    def _keep(self, name: str, record: Json) -> None:
        files.write_json(self.folder / f"{name}.json", record)


def _fits(name: str, answer: Any, schema: str, choices: tuple[str, ...]) -> None:
    wrong = schemas.describe(answer, schemas.load(schema)) if schema else []
    if wrong:
        usage(f"the answer to {name} does not match the schema {schema}: {'; '.join(wrong)}")
    if not schema:
        _offered(name, answer, choices)


def _offered(name: str, answer: Any, choices: tuple[str, ...]) -> None:
    """A word that was not offered is no answer, however much it looks like one."""
    if choices and word_of(answer) not in choices:
        usage(f"{name} can be answered with {', '.join(choices)}, not with {answer!r}", "a document says it under `decision`")


def word_of(answer: Any) -> str:
    """The word by which an answer routes: itself, or what it says under `decision` or `answer`."""
    if not isinstance(answer, dict):
        return str(answer)
    said = lenient.of(cast(Json, answer), _Word)
    return str(said.decision or said.answer)


class _Word(Struct, frozen=True):
    decision: Any = ""
    answer: Any = ""
