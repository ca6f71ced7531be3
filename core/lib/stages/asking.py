"""Questions that a step asks a person: a tool cannot go on without an answer, and the answer goes to exactly that step."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import ExitCode, Json
from lib.disk import files, lenient, records
from lib.session import attempts
from lib.session.attempts import ANSWER
from lib.session.documents import Manifest, Question, Waiting
from lib.session.step import Step
from lib.stages.results import StepResult


class Asked(Struct, frozen=True):
    """Of the error of a tool that asks."""

    message: str = ""
    choices: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    answer_schema: str = ""


def waits(step: StepResult) -> bool:
    return step.exit_code == ExitCode.HUMAN_INPUT and not step.ok


def questions(session: Path, stage: str, steps: Iterable[StepResult]) -> list[Json]:
    """What the steps of a stage ask, each with how it is answered."""
    found: list[Json] = []
    for step in (s for s in steps if waits(s)):
        asked = asked_in(step.error)
        found.append(question(session, Question(stage, asked.message, step.key, asked.choices, asked.show, asked.answer_schema)))
    return found


def question(session: Path, asked: Question) -> Json:
    """With how it is answered."""
    return records.document(replace(asked, answer_with=f"--resume {shlex.quote(str(session))} {_flag(asked)}"))


def flag(waiting: Json | None) -> str:
    """How the first question of a run is answered; nothing where it is no stage's."""
    asked = lenient.of(waiting, Question)
    return _flag(asked) if asked.stage else ""


def _flag(asked: Question) -> str:
    word = asked.choices[0] if asked.choices else "@answer.json"
    return f"--answer {shlex.quote(f'{asked.name}={word}')}"


def together(asked: list[Json]) -> Json | None:
    """Several questions as one document: the first, and all of them."""
    return {**asked[0], "questions": asked} if asked else None


def each(waiting: Json) -> list[Json]:
    """The questions of a run that waits."""
    known = lenient.of(waiting, Waiting)
    return [records.document(question) for question in known.questions] or ([waiting] if waiting else [])


def waiting(folder: Path) -> set[str]:
    """What an orchestrator's run waits for, as it is answered: STAGE, or STAGE/ITEM."""
    manifest = lenient.read(folder / "manifest.json", Manifest)
    return {q.name for q in manifest.waiting.questions or (manifest.waiting,)} if manifest.waiting else set()


def answer_to(session: Path, step: Step, made_of: dict[str, str]) -> Any:
    """What a person answered to what this step asked; nothing where it is another work by now, and so another question."""
    path = session / step.folder / ANSWER
    record = files.read_json(path) if path.exists() else {"made_of": None}
    then: dict[str, str] | None = record["made_of"]
    same = then is not None and all(name in then and then[name] == part for name, part in made_of.items())
    asked_again = attempts.redo_before(session)[str(step)] != record.get("redo_before", 0)
    return record["answer"] if same and not asked_again else None


def keep_answer(session: Path, step: Step, record: Json) -> None:
    """It holds until the step is to run again on purpose: then a person is asked again."""
    files.write_json(session / step.folder / ANSWER, record | {"redo_before": attempts.redo_before(session)[str(step)]})


def asked_in(error: Json | None) -> Asked:
    """What the error of a tool asks."""
    return lenient.of(error, Asked)
