"""What steps and stages came to, as the walk knows it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lib.contract import STATUS, ExitCode, Json, part
from lib.session.outcome import Outcome


class StepResult(Struct, frozen=True):
    """What a step came to. `key` is the member or item; a stage of one step has none."""

    key: str
    exit_code: ExitCode
    verdict: str = "failed"  # done, needs_revision, failed, blocked or waiting
    outputs: dict[str, str] = {}  # name → full path
    error: Json | None = None
    attempts: int = 0
    skipped: bool = False  # finished in an earlier run
    note: str = ""
    did: str = ""  # a digest of what it changed in the workspace
    came_to: str = ""  # a digest of that and of all it made
    item: Any = None  # what it was done for
    warnings: tuple[str, ...] = ()
    outcome: Outcome | None = None  # what it is made from

    @property
    def ok(self) -> bool:
        return self.verdict in ("done", "needs_revision")

    @property
    def code(self) -> str:
        return part(self.error, "code")

    @property
    def message(self) -> str:
        return part(self.error, "message") or STATUS[self.exit_code]

    @property
    def why(self) -> str:
        return part(self.error, "message") or self.note

    def document(self) -> Json:
        status = "blocked" if self.verdict == "blocked" else STATUS[self.exit_code]
        entry: Json = {"name": self.key, "status": status, "exit_code": int(self.exit_code), "verdict": self.verdict}
        entry |= {"artifact": next(iter(self.outputs.values()), None), "attempts": self.attempts, "skipped": self.skipped}
        if self.error:
            entry |= {"error": part(self.error, "message"), "code": self.code}
        if self.note:
            entry["note"] = self.note
        if self.warnings:
            entry["warnings"] = list(self.warnings)
        return entry


class StageResult(Struct, frozen=True):
    stage: str
    exit_code: ExitCode
    verdict: str
    steps: tuple[StepResult, ...] = ()
    error: Json | None = None
    note: str = ""
    round: int = 0
    elapsed_seconds: float = 0.0
    open: bool = False  # the run went on although something was left unresolved
    route: str = ""  # the loop that one of its members takes
    question: Json | None = None

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        return {s.key: s.outputs for s in self.steps if s.ok}

    @property
    def skipped(self) -> bool:
        return bool(self.steps) and all(s.skipped for s in self.steps)

    @property
    def warnings(self) -> list[str]:
        """What its steps warn of, and what failed in a stage that succeeded all the same: enough others did, or the run could do
        without."""
        said = [f"{self.stage}: {f'{s.key}: ' if s.key else ''}{warning}" for s in self.steps if s.ok for warning in s.warnings]
        if self.exit_code != ExitCode.SUCCESS:
            return said
        return [*said, *(f"{self.stage}: {s.key} did not succeed: {s.message}" for s in self.steps if not s.ok)]

    def document(self) -> Json:
        first = next((path for s in self.steps for path in s.outputs.values()), None)
        entry: Json = {
            "name": self.stage,
            "status": STATUS[self.exit_code],
            "exit_code": int(self.exit_code),
            "artifact": first,
            "verdict": self.verdict,
            "attempts": sum(s.attempts for s in self.steps),
            "skipped": self.skipped,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
        }
        if self.error:
            entry |= {"error": part(self.error, "message"), "code": part(self.error, "code")}
        optional: Json = {"round": self.round, "note": self.note, "question": self.question, "warnings": self.warnings}
        entry |= {key: value for key, value in optional.items() if value}
        if self.steps and not self.steps[0].key:
            entry["outputs"] = self.steps[0].outputs
        if any(s.key for s in self.steps):
            entry["items"] = [s.document() for s in self.steps]
        return entry
