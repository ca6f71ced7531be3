"""What an agent's data says, all of it: where it contradicts itself, the worse of its statements counts.

The one place that reads a structured verdict. A word at the top (`verdict`, `grade`, `met`, `decision`) is a statement, and so is
each requirement that is not met, each blocking finding, each gap, each check that did not pass.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from lib.attempt.audits import worst
from lib.contract import Json
from lib.disk import lenient
from lib.evidence import findings as scale

WORDS = ("failed", "needs_revision", "done")  # the worst first
_GRADE_OF = {"met": "PASS", "unproven": "WARN", "unmet": "FAIL"}
_OPEN = ("unmet", "fail", "failed", "failing", "no")


class Verdict(Struct, frozen=True):
    """done, needs_revision or failed, and why."""

    word: str
    note: str = ""
    warnings: tuple[str, ...] = ()  # of work that is done: what others should know all the same


class _Entry(Struct, frozen=True):
    """A requirement, a finding or a check in an agent's data."""

    status: Any = ""
    requirement: str = "a requirement"
    severity: Any = None
    resolved: Any = False
    issue: str = ""
    title: str = ""
    name: str = "?"
    passed: Any = True
    blocking: Any = True


class _Statements(Struct, frozen=True):
    """All that an agent's data says about whether the work is done."""

    verdict: str | None = None
    reason: str = ""
    grade: Any = "PASS"
    met: Any = "yes"
    passed: Any = True
    requirements: tuple[_Entry, ...] = ()
    findings: tuple[_Entry, ...] = ()
    checks: tuple[_Entry, ...] = ()
    gaps: tuple[Any, ...] = ()
    warnings: tuple[Any, ...] = ()


def of(data: object) -> Verdict:
    """Of any structured answer. Data that says nothing about itself is simply done: an audit that finds fault is a good audit."""
    fields = cast(Json, data) if isinstance(data, dict) else {}
    if "verdict" not in fields:
        return Verdict("done", warnings=_warnings(fields))
    said = lenient.of(fields, _Statements)
    if said.verdict not in WORDS:
        word = fields["verdict"]
        return Verdict("failed", f"its verdict is {word!r}, which is none of done, needs_revision, failed")
    against = contradictions(fields)
    if said.verdict == "done" and against:
        return Verdict("needs_revision", f"it says done, and also: {'; '.join(against[:3])}")
    return Verdict(said.verdict, said.reason, _warnings(fields))


def _warnings(fields: Json) -> tuple[str, ...]:
    found = (str(one).strip() for one in lenient.of(fields, _Statements).warnings)
    return tuple(one for one in found if one)


def contradictions(fields: Json) -> list[str]:
    """The statements in an answer that speak against its being done."""
    said = lenient.of(fields, _Statements)
    found: list[str] = []
    if str(said.grade) in ("FAIL", "UNVERIFIABLE"):
        found.append(f"grade {said.grade}")
    if str(said.met) not in ("yes", "True", "true"):
        found.append(f"met: {said.met}")
    if said.passed is False:
        found.append("passed: false")
    found += [f"{r.requirement} is {r.status}" for r in said.requirements if str(r.status).lower() in _OPEN]
    rated = [f for f in said.findings if f.severity is not None and not f.resolved]
    blocking = [f for f in rated if scale.at_least(scale.severity(f.severity), "critical")]
    found += [f.issue or f.title or "a blocking finding" for f in blocking]
    found += [f"the check {c.name} did not pass" for c in said.checks if c.passed is False and c.blocking]
    return [*found, *map(str, said.gaps)]


def grade(audit: Json) -> str:
    """Of an auditor: the worst of its grade and of what it says of each requirement."""
    return worst(audit["grade"], *(_GRADE_OF[r["status"]] for r in audit["requirements"]))


def met(evaluation: Json) -> str:
    """Of an evaluator: `yes` only where nothing is open."""
    open_ones = evaluation["gaps"] or any(r["status"] != "met" for r in evaluation["requirements"])
    return "partly" if evaluation["met"] == "yes" and open_ones else str(evaluation["met"])


def resolves(resolution: Json) -> bool:
    """Of a refinement's evaluator: it resolves where it says how, and leaves no question to a person."""
    return resolution["decision"] == "resolve" and bool(resolution["guidance"].strip()) and not resolution["question"].strip()


def plans(roadmap: Json) -> bool:
    """Of a planner: there is a plan where it says so and gives one."""
    return roadmap["decision"] == "plan" and bool(roadmap["plan"])
