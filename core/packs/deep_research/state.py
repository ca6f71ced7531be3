"""A run on disk, and nothing else: its manifest, its gates, its audit log. This module alone writes the first two.

Every write raises a revision by one; who says which revision they saw, and saw an older one, is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lib.contract import StrataError
from lib.disk import files, locks, records
from lib.evidence.gates import Decision
from msgspec import Struct
from msgspec.structs import replace

from packs.deep_research.gating import NAMES
from packs.deep_research.serving import Served

STAGES = ("init", "perspectives", "wave1", "pivot", "wave2", "citations", "summaries", "synthesis", "review", "finalize")
CREATED, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED = STATUSES = (
    "created",
    "running",
    "paused",
    "completed",
    "failed",
    "cancelled",
)
NOT_RUN, PASS, FAIL = "not_run", "pass", "fail"
DIRECTORIES = ("wave-1", "wave-2", "citations", "summaries", "synthesis", "review", "retry", "evidence", "logs")
KINDS = (
    "tick_start", "tick_end", "stage_handler_start", "stage_handler_end", "artifact_written", "artifact_skipped",
    "artifact_invalid", "tool_call_start", "tool_call_end", "gate_write_requested", "gate_write_applied",
    "stage_advance_requested", "stage_advance_result", "retry_directives_written", "retry_directives_consumed", "run_halted",
)  # fmt: skip


class Query(Struct, frozen=True):
    text: str
    sensitivity: str = "normal"
    effort: str = "standard"


class Limits(Struct, frozen=True):
    max_wave1_agents: int = 6
    max_wave2_agents: int = 6
    max_summary_kb: int = 5
    max_total_summary_kb: int = 60
    max_review_iterations: int = 4
    max_attempts_per_perspective: int = 2
    max_stage_retry_directives: int = 4
    scope_minutes: int = 45
    watchdog_seconds: int = 0  # for every stage; 0: as usual for each


class Moved(Struct, frozen=True):
    """One step from a stage to the next, with what was decided on."""

    frm: str
    to: str
    at: str
    reason: str
    inputs_digest: str
    gates_revision: int
    evaluated: tuple[dict[str, Any], ...] = ()


class Stage(Struct, frozen=True):
    current: str = "init"
    started_at: str = ""
    last_progress_at: str = ""
    history: tuple[Moved, ...] = ()


class Retry(Struct, frozen=True):
    at: str
    stage: str
    perspective_id: str
    attempt: int
    reason: str
    event: str  # created or consumed


class Manifest(Struct, frozen=True):
    run_id: str
    query: Query
    created_at: str
    schema_version: str = "manifest.v1"
    mode: str = "live"  # plan, fixture or live
    revision: int = 1
    updated_at: str = ""
    status: str = CREATED
    stage: Stage = Stage()
    limits: Limits = Limits()
    served: Served = Served()
    review_iterations: int = 0
    retries: tuple[Retry, ...] = ()
    notes: tuple[str, ...] = ()


class Gate(Struct, frozen=True):
    id: str
    name: str
    hard: bool = True
    status: str = NOT_RUN
    checked_at: str = ""
    inputs_digest: str = ""
    metrics: dict[str, Any] = {}
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Gates(Struct, frozen=True):
    run_id: str
    gates: dict[str, Gate]
    schema_version: str = "gates.v1"
    revision: int = 1
    updated_at: str = ""


class Run(Struct, frozen=True):
    root: Path

    @property
    def manifest_path(self) -> Path:
        return self.root / "manifest.json"

    @property
    def gates_path(self) -> Path:
        return self.root / "gates.json"

    @property
    def audit_path(self) -> Path:
        return self.root / "logs/audit.jsonl"

    def manifest(self) -> Manifest:
        found = self._read(self.manifest_path, Manifest)
        if found.stage.current not in STAGES or found.status not in STATUSES:
            raise StrataError("INVALID_STATE", f"{self.manifest_path}: {found.status} in {found.stage.current}", "it was edited")
        return found

    def gates(self) -> Gates:
        found = self._read(self.gates_path, Gates)
        if set(found.gates) != set(NAMES):
            raise StrataError("INVALID_STATE", f"{self.gates_path} has the gates {sorted(found.gates)}", "it was edited")
        return found

    def _read(self, path: Path, kind: Any) -> Any:
        if not path.is_file():
            raise StrataError("NOT_FOUND", f"{path} is not there", "deep_research.py plan QUERY begins a run")
        try:
            return records.of(files.read_json(path), kind)
        except ValueError as error:
            raise StrataError("SCHEMA_VALIDATION_FAILED", f"{path}: {error}", "it was edited, or is of another version") from None

    def begin(self, manifest: Manifest) -> bool:
        """Makes the run, unless it is there. Whether it was made."""
        if self.manifest_path.exists() and self.gates_path.exists():
            self.manifest()
            self.gates()
            return False
        for name in DIRECTORIES:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        table = {name: Gate(name, words) for name, words in NAMES.items()}
        files.write_json(self.gates_path, records.document(Gates(manifest.run_id, table, updated_at=manifest.created_at)))
        files.write_json(self.manifest_path, records.document(manifest))  # last: with it, the run is there
        return True

    def write_manifest(self, at: str, expected_revision: int | None = None, **fields: Any) -> Manifest:
        """All but the stage, which only `advance` moves."""
        if "stage" in fields or "revision" in fields or "run_id" in fields:
            raise StrataError("INVALID_STATE", f"{', '.join(sorted(fields))}: a stage is left by stage_advance alone", "")
        return self._write_manifest(at, expected_revision, fields)

    def move(self, at: str, moved: Moved, expected_revision: int) -> Manifest:
        """For `advance`: the next stage, and what it was decided on."""
        stage = self.manifest().stage
        after = Stage(moved.to, at, at, (*stage.history, moved))
        ended = {"status": COMPLETED} if moved.to == "finalize" else {"status": RUNNING}
        again = (
            {"review_iterations": self.manifest().review_iterations + 1}
            if (moved.frm, moved.to) == ("review", "synthesis")
            else {}
        )
        return self._write_manifest(at, expected_revision, {"stage": after, **ended, **again})

    def progress(self, at: str) -> Manifest:
        """A sign of life, by which the watchdog knows a slow run from a dead one."""
        return self._write_manifest(at, None, {"stage": replace(self.manifest().stage, last_progress_at=at)})

    def _write_manifest(self, at: str, expected: int | None, fields: dict[str, Any]) -> Manifest:
        with locks.held(self.root / "logs/.manifest.lock"):
            known = self.manifest()
            _require(self.manifest_path, expected, known.revision)
            made = replace(known, **fields, revision=known.revision + 1, updated_at=at)
            files.write_json(self.manifest_path, records.document(made))
            return made

    def write_gate(self, decision: Decision, metrics: dict[str, Any], at: str, expected_revision: int | None = None) -> Gates:
        """What a gate came to. A hard gate passes or fails; there is nothing between."""
        if not at:
            raise StrataError("SCHEMA_VALIDATION_FAILED", f"gate {decision.gate}: when was it checked?", "checked_at")
        with locks.held(self.root / "logs/.gates.lock"):
            known = self.gates()
            _require(self.gates_path, expected_revision, known.revision)
            if decision.gate not in known.gates:
                raise StrataError("NOT_FOUND", f"there is no gate {decision.gate}", f"one of {', '.join(NAMES)}")
            gate = replace(
                known.gates[decision.gate],
                status=PASS if decision.passed else FAIL,
                checked_at=at,
                inputs_digest=decision.inputs_digest,
                metrics=metrics,
                reasons=decision.reasons,
                warnings=decision.warnings,
            )
            made = replace(known, gates={**known.gates, gate.id: gate}, revision=known.revision + 1, updated_at=at)
            files.write_json(self.gates_path, records.document(made))
            return made

    def log(self, at: str, kind: str, tick_id: str, reason: str, **payload: Any) -> None:
        if kind not in KINDS:
            raise ValueError(f"no kind of event: {kind}")
        known = records.look(self.manifest_path, Manifest)
        head = {
            "ts": at,
            "run_id": known.run_id if known else "",
            "tick_id": tick_id,
            "stage": known.stage.current if known else "",
        }
        files.append_line(self.audit_path, {**head, "kind": kind, "reason": reason, **payload})


def _require(path: Path, expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        message = f"{path.name} is at revision {actual}, not {expected}"
        raise StrataError("REVISION_MISMATCH", message, "somebody else has written it: read it again")
