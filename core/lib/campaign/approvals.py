"""A person's decisions about phases: what is asked, what was answered by whom and when, and whether it still holds.

An approval is of something: the hash of what was shown is kept with it. When that changes, it is asked again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import ExitCode, Json, StrataError, usage
from lib.disk import files, records, schemas
from lib.disk.clock import now
from lib.plan import outputs
from lib.plan.plan import Phase, Plan
from lib.session.attempts import finished
from lib.session.signature import signature

EVERY = "*"


class Asked(Struct, frozen=True):
    """What is waiting for a person."""

    phase: str
    at: str
    question: str
    show: tuple[str, ...]  # paths, relative to the session
    answer_schema: str
    digest: str
    params: Json = {}  # the values the plan was filled with

    def document(self) -> Json:
        return {
            "phase": self.phase,
            "at": self.at,
            "question": self.question,
            "show": list(self.show),
            "answer_schema": self.answer_schema,
            "digest": self.digest,
            **({"params": self.params} if self.params else {}),
        }


class Approvals:
    def __init__(self, session: Path, plan: Plan) -> None:
        self.session = session
        self.plan = plan
        self.folder = session / "approvals"

    def asked(self, phase: Phase) -> Asked:
        checkpoint = phase.checkpoint
        assert checkpoint
        shown = [p for text in checkpoint.show if (p := outputs.of(self.session, self.plan, text))]
        default = f"{'Start' if checkpoint.at == 'before' else 'Accept'} the phase {phase.name}?"
        content = {outputs.place(self.session, p): files.fingerprint(p) for p in shown}
        about = records.document(phase) if checkpoint.at == "before" else self.work(phase)
        digest = files.digest([checkpoint.question, checkpoint.answer_schema, content, about])
        words = checkpoint.question or default
        return Asked(phase.name, checkpoint.at, words, tuple(content), checkpoint.answer_schema, digest, self.plan.params)

    def work(self, phase: Phase) -> list[Any]:
        """What a phase has come to: everything its finished steps produced or changed."""
        found: dict[str, Any] = {}
        for attempt, outcome in finished(self.session, phase.folder):
            if not outcome.judged:
                # Of each step the last: the same thing once more is the same thing.
                found[str(attempt.step)] = [sorted(map(list, outcome.published.items())), sorted(outcome.made.items())]
        return [list(pair) for pair in sorted(found.items())]

    def decision(self, asked: Asked) -> Json | None:
        """What was decided about exactly this."""
        path = self._file(asked.phase, asked.at)
        known = files.read_json(path) if path.exists() else {}
        return known if known.get("digest") == asked.digest else None

    def record(self, asked: Asked, decision: str, why: str, answer: Any) -> Json:
        known: Json = {**asked.document(), "decision": decision, "why": why, **signature()}
        path = self._file(asked.phase, asked.at)
        if path.exists():  # an earlier decision was about something else, and stays on record
            path.replace(path.with_name(f"{path.stem}.{now().replace(':', '')}.json"))
        if answer is not None:
            files.write_json(self.answer_file(asked.phase), {"answer": answer})
            known["answer"] = answer
        files.write_json(path, known)
        return known

    def answer_file(self, phase: str) -> Path:
        return self.folder / f"{phase}.answer.json"

    def _file(self, phase: str, at: str) -> Path:
        return self.folder / f"{phase}-{at}.json"


Decision = tuple[str, str, Any]  # approve or reject, why, and the answer


class Said(Struct, frozen=True):
    """What the command line decides, about exactly what was waiting when the last run ended."""

    decisions: dict[str, Decision] = {}  # by the digest of what was asked

    def about(self, asked: Asked) -> Decision | None:
        return self.decisions.get(asked.digest)


def hear(waited: list[Json], approve: str | None, reject: str | None, answers: dict[str, str]) -> Said:
    """Compares what is said with what is waiting, before anything runs."""
    waiting = {
        w["phase"]: Asked(w["phase"], w["at"], w["question"], tuple(w["show"]), w["answer_schema"], w["digest"]) for w in waited
    }
    if approve not in (None, EVERY) and approve not in waiting:
        usage(f"--approve {approve}: that phase is not waiting", f"waiting: {', '.join(waiting) or 'nothing'}")
    if approve is not None and not waiting:
        usage("--approve: nothing waits for an approval", "answer an escalation, if there is one, with --resolution FILE")
    decisions: dict[str, Decision] = {}
    for asked in waiting.values():
        if reject is not None:
            decisions[asked.digest] = ("reject", reject, None)
        elif asked.phase in answers:
            decisions[asked.digest] = ("approve", "", read_answer(asked, answers[asked.phase]))
        elif approve in (EVERY, asked.phase):
            if asked.answer_schema:
                hint = f"--answer {asked.phase}=@FILE, JSON of the schema {asked.answer_schema}"
                raise StrataError("ANSWER_NEEDED", f"{asked.question}: an answer is needed, not only an approval", hint)
            decisions[asked.digest] = ("approve", "", None)
    return Said(decisions)


def read_answer(asked: Asked, text: str) -> Any:
    try:
        raw = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
    except OSError as error:
        raise StrataError("FILE_UNREADABLE", f"{text[1:]}: {error.strerror}", "check the path") from None
    if not asked.answer_schema:
        return raw
    try:
        answer = json.loads(raw)
    except ValueError as error:
        usage(f"the answer for {asked.phase} is not JSON: {error}")
    wrong = schemas.describe(answer, schemas.load(asked.answer_schema))
    if wrong:
        raise StrataError("BAD_ANSWER", f"the answer for {asked.phase}: {'; '.join(wrong)}", f"schema: {asked.answer_schema}")
    return answer


def waiting(asked: Asked, command: str) -> Json:
    """The document of a phase that waits for a person. It has not failed."""
    how = f"--answer {asked.phase}=@FILE" if asked.answer_schema else "--approve"
    hint = f'{command} {how}, or {command} --reject "why"'
    error = {"code": "HUMAN_INPUT", "message": asked.question, "hint": hint}
    return {"status": "waiting", "exit_code": int(ExitCode.HUMAN_INPUT), "waiting": asked.document(), "error": error}
