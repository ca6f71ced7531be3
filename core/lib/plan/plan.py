"""What a campaign is: its phases and what each runs and checks, as records that travel down as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lib.contract import Json, StrataError
from lib.disk import records


class Run(Struct, frozen=True, forbid_unknown_fields=True):
    """One orchestrator of a phase."""

    name: str
    orchestrator: str
    modifier: str = ""
    params: dict[str, Any] = {}
    inputs: dict[str, str] = {}  # parameter → PHASE.RUN.OUTPUT
    depends_on: tuple[str, ...] = ()
    mode: str = "tool"  # agent: an agent sequences its stages


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A person decides here."""

    at: str  # before or after the phase
    question: str = ""
    show: tuple[str, ...] = ()  # PHASE.RUN.OUTPUT
    answer_schema: str = ""


class Phase(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    folder: str  # phase-nn-name
    runs: tuple[Run, ...]
    depends_on: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    unverified: str = ""  # why nothing is checked
    cap: int = 4
    audit: bool = False
    fix: bool = True
    protect: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    rollback: bool = False
    checkpoint: Checkpoint | None = None
    budget: dict[str, float] = {}
    mode: str = "tool"  # agent: an agent coordinates its runs


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    description: str
    phases: tuple[Phase, ...]
    workspace: str = "."  # `session`: a fresh folder inside the session
    repository: bool = False  # that fresh folder is a git repository, whose first commit has the files
    files: dict[str, str] = {}
    driver: str = ""
    backend: str = ""
    fixtures: str = ""
    checks_file: str = ""
    max_parallel: int = 1
    max_depth: int = 3
    budget: dict[str, float] = {}
    goal: str = ""  # what it is all for: compared with what came of it, when it has ended
    rounds: int = 1  # how often what is missing then may be planned and run, the first time included
    round: int = 1
    params: dict[str, Any] = {}  # the values it was filled with
    written: bool = False  # by an agent, for the goal: a person has to say yes to it

    def document(self) -> Json:
        return records.document(self)

    def depth_needed(self, mode: str = "tool") -> int:
        """The seed's table: two levels for an executor that can heal itself, one for every layer that is an agent, and in agent
        mode one more where a verification may ask agents."""
        layers = [(p.mode == "agent") + max(r.mode == "agent" for r in p.runs) for p in self.phases]
        above = max(layers) + (mode == "agent")
        return 2 + above + (above > 0 and any(p.checks and (p.fix or p.audit) for p in self.phases))

    def phase(self, name: str) -> Phase:
        return next(p for p in self.phases if p.name == name)


def read(document: Json) -> Plan:
    """A plan that was checked before and handed down. Whoever changed it since is told, not followed."""
    try:
        return records.of(document, Plan)
    except ValueError as error:
        message = f"effective-config.json holds no plan that can be used: {error}"
        hint = "put it right, or give the plan again: campaign.py --resume SESSION PLAN"
        raise StrataError("CORRUPT_STATE", message, hint) from None
