"""What tools leave for others to read, as records: manifests, reports, results of checks, events.

Whoever writes one says all of it; whoever reads one reads what it knows. Every field has a default, because a view reads what
anybody may have changed, or what is only half there yet (`lenient`).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lib.contract import Json


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why something did not succeed, in the words of whoever found it."""

    code: str = ""
    message: str = ""
    hint: str = ""
    evidence: str = ""


class Entry(Struct, frozen=True):
    """A stage in a manifest, or an item of one."""

    name: str = ""
    status: str = ""
    artifact: str | None = None
    outputs: dict[str, str] = {}
    items: tuple[Entry, ...] = ()
    error: str = ""
    note: str = ""
    round: int = 0


class Question(Struct, frozen=True):
    """What a stage, or one item of it, asks a person."""

    stage: str = ""
    question: str = ""
    item: str = ""
    choices: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    answer_schema: str = ""
    answer_with: str = ""

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.item}" if self.item else self.stage


class Waiting(Question, frozen=True):
    """The first question of a run, and all of them."""

    questions: tuple[Question, ...] = ()


class Manifest(Struct, frozen=True):
    """What an orchestrator came to."""

    status: str = ""
    exit_code: int | None = None
    stages: tuple[Entry, ...] = ()
    warnings: tuple[str, ...] = ()
    error: Problem | None = None
    waiting: Waiting | None = None


class RolledBack(Struct, frozen=True):
    ref: str = ""


class PhaseReport(Struct, frozen=True):
    """What a phase came to."""

    name: str = ""
    status: str = ""
    exit_code: int | None = None
    sentinel_grade: str = ""
    warnings: tuple[str, ...] = ()
    unverified: str = ""
    rolled_back: RolledBack | None = None
    error: Problem | None = None


class Requirement(Struct, frozen=True):
    requirement: str = ""
    status: str = ""
    evidence: str = ""


class Evaluation(Struct, frozen=True):
    """What was made of a goal."""

    met: str = ""
    summary: str = ""
    requirements: tuple[Requirement, ...] = ()
    gaps: tuple[str, ...] = ()


class CampaignManifest(Struct, frozen=True):
    """What a campaign came to."""

    campaign: str = ""
    status: str = ""
    exit_code: int | None = None
    grade: str = ""
    goal: str = ""
    round: int = 1
    rounds: int = 1
    evaluation: Evaluation | None = None
    warnings: tuple[str, ...] = ()
    error: Problem | None = None
    waiting: tuple[Json, ...] = ()
    started_at: str = ""


class CheckResult(Struct, frozen=True):
    """What one check found, and what was run where."""

    name: str = ""
    tool: str = ""
    passed: bool = False
    errors: int = 0
    blocking: bool = True
    note: str = ""
    ran: bool = True  # False: its command could not be started
    tests: int | None = None  # how many ran, where that is known
    skipped: int | None = None
    command: tuple[str, ...] = ()
    folder: str = ""
    exit_code: int = 0
    timed_out: bool = False
    started_at: str = ""
    duration_seconds: float = 0.0
    output: str = ""  # the file with all it said, below the evidence of its attempt
    output_sha256: str = ""
    evidence: str = ""  # the same, where it stays, seen from the session
    tail: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None

    @property
    def failed(self) -> bool:
        """Whether it stands in the way."""
        return self.blocking and not self.passed

    @property
    def count(self) -> str:
        return self.note or f"{self.errors} error{'s' if self.errors != 1 else ''}"


class AuditNote(Struct, frozen=True):
    grade: str = ""
    summary: str = ""


class Results(Struct, frozen=True):
    """What a verification found in one look."""

    checks: tuple[CheckResult, ...] = ()
    overall: str = ""
    blocking_count: int = 0
    audit: AuditNote | None = None

    @property
    def failed(self) -> list[CheckResult]:
        return [check for check in self.checks if check.failed]


class Fix(Struct, frozen=True):
    severity: str = ""
    file: str = ""
    issue: str = ""


class Fixes(Struct, frozen=True):
    fixes: tuple[Fix, ...] = ()


class Decision(Struct, frozen=True):
    """What a person decided at a checkpoint."""

    phase: str = ""
    question: str = ""
    decision: str = ""
    why: str = ""
    by: str = ""
    when: str = ""


class PlannedRun(Struct, frozen=True):
    name: str = ""
    depends_on: tuple[str, ...] = ()
    orchestrator: str = ""
    modifier: str = ""
    params: dict[str, Any] = {}
    inputs: dict[str, str] = {}


class PlannedCheckpoint(Struct, frozen=True):
    at: str = ""
    question: str = ""


class PlannedPhase(Struct, frozen=True):
    name: str = ""
    folder: str = ""
    runs: tuple[PlannedRun, ...] = ()
    depends_on: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    unverified: str = ""
    cap: int = 4
    checkpoint: PlannedCheckpoint | None = None


class PlannedCampaign(Struct, frozen=True):
    name: str = ""
    max_parallel: int = 1
    description: str = ""
    params: dict[str, Any] = {}
    goal: str = ""
    files: dict[str, str] = {}  # of a workspace that the plan brings along
    phases: tuple[PlannedPhase, ...] = ()


class Settings(Struct, frozen=True):
    driver: str = ""


class Part(Struct, frozen=True, omit_defaults=True):
    """Of a section: a text, a table, or both. All of it is plain text."""

    title: str = ""
    text: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Section(Struct, frozen=True, omit_defaults=True):
    """What a tool wants to be read in the report of its run: an output whose type is `section`."""

    title: str = ""
    parts: tuple[Part, ...] = ()


class Effective(Struct, frozen=True):
    """What was asked, and what it resolved to."""

    plan: PlannedCampaign = PlannedCampaign()
    settings: Settings = Settings()


class Places(Struct, frozen=True):
    """Where a run looked for what is named, and what it found that is not the house's own."""

    roots: tuple[str, ...] = ()
    found: dict[str, str] = {}


class Event(Struct, frozen=True):
    """A line of `.live-report`."""

    timestamp: str = ""
    layer: str = ""
    stage: str = ""
    status: str = ""
    detail: Json | str = ""

    def about(self, *names: str) -> str:
        """The first of these that its detail says anything about."""
        known = self.detail if isinstance(self.detail, dict) else {}
        return next((str(known[name]) for name in names if known.get(name)), "")
