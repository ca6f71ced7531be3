"""A person's decisions about phases: what is asked, what was answered by whom and when, and whether it still holds.

An approval is of something: the hash of what was shown is kept with it. When that changes, it is asked again.
"""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib import files, schemas
from lib.contract import ExitCode, Json, StrataError, usage
from lib.plan import Phase, Plan
from lib.session import now

EVERY = "*"


@dataclass(frozen=True)
class Asked:
    """What is waiting for a person."""

    phase: str
    at: str
    question: str
    show: tuple[str, ...]  # paths, relative to the session
    answer_schema: str
    digest: str

    def document(self) -> Json:
        return {
            "phase": self.phase,
            "at": self.at,
            "question": self.question,
            "show": list(self.show),
            "answer_schema": self.answer_schema,
        }


class Approvals:
    def __init__(self, session: Path, plan: Plan) -> None:
        self.session = session
        self.plan = plan
        self.folder = session / "approvals"

    def asked(self, phase: Phase) -> Asked:
        checkpoint = phase.checkpoint
        assert checkpoint
        shown = [p for text in checkpoint.show if (p := self._shown(text))]
        default = f"{'Start' if checkpoint.at == 'before' else 'Accept'} the phase {phase.name}?"
        content = {str(p.relative_to(self.session)): files.fingerprint(p) for p in shown}
        about: list[Any] = [phase.name, checkpoint.at, checkpoint.question, checkpoint.answer_schema, content]
        if checkpoint.at == "before":
            about.append([[r.orchestrator, r.params, r.modifier] for r in phase.runs])
        return Asked(
            phase.name,
            checkpoint.at,
            checkpoint.question or default,
            tuple(content),
            checkpoint.answer_schema,
            files.digest(about),
        )

    def _shown(self, text: str) -> Path | None:
        phase, run, output = text.split(".")
        manifest = self.session / "phases" / self.plan.phase(phase).folder / run / "manifest.json"
        stages: list[Json] = files.read_json(manifest)["stages"] if manifest.exists() else []
        found = [s["outputs"][output] for s in stages if output in s.get("outputs", {})]
        return self.session / found[-1] if found else None

    def decision(self, asked: Asked) -> Json | None:
        """What was decided about exactly this."""
        path = self._file(asked.phase, asked.at)
        known = files.read_json(path) if path.exists() else {}
        return known if known.get("digest") == asked.digest else None

    def record(self, asked: Asked, decision: str, why: str, answer: Any) -> Json:
        known: Json = {
            **asked.document(),
            "decision": decision,
            "why": why,
            **signature(),
            "digest": asked.digest,
        }
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


def signature() -> Json:
    """Who decides, and when."""
    return {"by": os.environ.get("STRATA_USER") or getpass.getuser(), "when": now()}


@dataclass(frozen=True)
class Said:
    """What the command line decides."""

    approve: str | None = None  # a phase, or every one that waits
    reject: str | None = None
    answers: dict[str, str] | None = None

    def about(self, asked: Asked) -> tuple[str, str, Any] | None:
        """The decision on what is asked, its reason and its answer; None when nothing was said about it."""
        text = (self.answers or {}).get(asked.phase)
        if self.reject is not None:
            return "reject", self.reject, None
        if text is not None:
            return "approve", "", _answer(asked, text)
        if self.approve in (EVERY, asked.phase):
            if asked.answer_schema:
                hint = f"--answer {asked.phase}=@FILE, JSON of the schema {asked.answer_schema}"
                raise StrataError("ANSWER_NEEDED", f"{asked.question}: an answer is needed, not only an approval", hint)
            return "approve", "", None
        return None


def _answer(asked: Asked, text: str) -> Any:
    raw = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
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
    """How a phase stands that waits for a person. It has not failed."""
    how = f"--answer {asked.phase}=@FILE" if asked.answer_schema else "--approve"
    hint = f'{command} {how}, or {command} --reject "why"'
    error = {"code": "HUMAN_INPUT", "message": asked.question, "hint": hint}
    return {"status": "waiting", "exit_code": int(ExitCode.HUMAN_INPUT), "waiting": asked.document(), "error": error}
