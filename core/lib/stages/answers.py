"""What a person decided: questions that wait, answers that are kept with who, when and what they were shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import Json, usage
from lib.disk import files, schemas
from lib.plan.orchestration import Orchestration, Question
from lib.session.signature import signature
from lib.tool.arguments import read_text

DECISIONS = ("retry", "skip", "abort", "again", "continue", "fail")  # about failed items, and about a used-up loop


class Answers(Struct, frozen=True):
    """The `answers/` folder of an orchestrator. An answer waits under its stage's name until the walk takes it."""

    folder: Path
    session: Path

    def receive(self, orchestration: Orchestration, given: dict[str, str]) -> None:
        """Answers from the command line, checked against what was asked."""
        known = {s.name: s for s in orchestration.stages}
        for name, text in given.items():
            if name not in known:
                usage(f"there is no stage {name!r} to answer", f"the stages are: {', '.join(known)}")
            raw = read_text(text[1:], "--answer") if text.startswith("@") else text
            try:
                answer = json.loads(raw)
            except ValueError:
                answer = raw.strip()
            stage = known[name]
            ask = stage if isinstance(stage, Question) else None
            wrong = schemas.describe(answer, schemas.load(ask.answer_schema)) if ask and ask.answer_schema else []
            if ask and wrong:
                usage(f"the answer to {name} does not match the schema {ask.answer_schema}: {'; '.join(wrong)}")
            elif not ask and answer not in DECISIONS:
                usage(f"{name} can be answered with {', '.join(DECISIONS)}, not with {answer!r}")
            who = signature()
            self._keep(name, {"answer": answer, "by": who["by"], "at": who["when"]})

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
        shown = choices[0] if choices else "@answer.json"
        command = f"--session-dir {shlex.quote(str(self.session))} --answer {stage}={shown}"
        return {"stage": stage, "question": text, "choices": list(choices), "answer_with": command}

    def _keep(self, name: str, record: Json) -> None:
        files.write_json(self.folder / f"{name}.json", record)
