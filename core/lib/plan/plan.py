"""What a campaign is: its phases and what each runs and checks, as records that travel down as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from lib.contract import Json, StrataError


@dataclass(frozen=True)
class Run:
    """One orchestrator of a phase."""

    name: str
    orchestrator: str
    modifier: str = ""
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, str] = field(default_factory=dict[str, str])  # parameter → PHASE.RUN.OUTPUT
    depends_on: tuple[str, ...] = ()
    mode: str = "tool"  # agent: an agent sequences its stages


@dataclass(frozen=True)
class Checkpoint:
    """A person decides here."""

    at: str  # before or after the phase
    question: str = ""
    show: tuple[str, ...] = ()  # PHASE.RUN.OUTPUT
    answer_schema: str = ""


@dataclass(frozen=True)
class Phase:
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
    budget: dict[str, float] = field(default_factory=dict[str, float])
    mode: str = "tool"  # agent: an agent coordinates its runs


@dataclass(frozen=True)
class Plan:
    name: str
    description: str
    phases: tuple[Phase, ...]
    workspace: str = "."  # `session`: a fresh folder inside the session
    files: dict[str, str] = field(default_factory=dict[str, str])
    driver: str = ""
    fixtures: str = ""
    checks_file: str = ""
    max_parallel: int = 1
    max_depth: int = 3
    budget: dict[str, float] = field(default_factory=dict[str, float])
    goal: str = ""  # what it is all for: compared with what came of it, when it has ended
    rounds: int = 1  # how often what is missing then may be planned and run, the first time included
    round: int = 1
    written: bool = False  # by an agent, for the goal: a person has to say yes to it

    def document(self) -> Json:
        return asdict(self)

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
        found = _read(document)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise _corrupt(f"{type(error).__name__}: {error}") from None
    for record in (found, *found.phases, *(r for p in found.phases for r in p.runs)):
        hints = get_type_hints(type(record))
        for name, value in vars(record).items():
            kind = get_origin(hints[name]) or hints[name]
            kinds = get_args(hints[name]) if kind is UnionType else (kind,)
            plain = tuple(get_origin(k) or k for k in kinds)
            if Any not in plain and not isinstance(value, plain + ((int,) if float in plain else ())):
                raise _corrupt(f"{type(record).__name__.lower()}.{name} is {value!r}")
    return found


def _corrupt(what: str) -> StrataError:
    message = f"effective-config.json holds no plan that can be used: {what}"
    return StrataError("CORRUPT_STATE", message, "put it right, or give the plan again: campaign.py --resume SESSION PLAN")


def _read(document: Json) -> Plan:
    phases: list[Phase] = []
    for fields in document["phases"]:
        runs = tuple(_run(r) for r in fields["runs"])
        lists: Json = {name: tuple(fields[name]) for name in ("depends_on", "checks", "protect", "scope")}
        asked: Json | None = fields["checkpoint"]
        checkpoint = Checkpoint(asked["at"], asked["question"], tuple(asked["show"]), asked["answer_schema"]) if asked else None
        known: Json = fields | lists | {"runs": runs, "checkpoint": checkpoint}
        phases.append(Phase(**known))
    whole: Json = document | {"phases": tuple(phases)}
    return Plan(**whole)


def _run(document: Json) -> Run:
    known: Json = document | {"depends_on": tuple(document["depends_on"])}
    return Run(**known)
