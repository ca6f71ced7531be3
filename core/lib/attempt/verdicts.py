"""What an agent's data says, all of it: where it contradicts itself, the worse of its statements counts.

The one place that reads a structured verdict. A word at the top (`verdict`, `grade`, `met`, `decision`) is a statement, and so is
each requirement that is not met, each blocking finding, each gap, each check that did not pass.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from lib.attempt.findings import worst
from lib.contract import Json

WORDS = ("failed", "needs_revision", "done")  # the worst first
_GRADE_OF = {"met": "PASS", "unproven": "WARN", "unmet": "FAIL"}
_OPEN = ("unmet", "fail", "failed", "failing", "no")
_BLOCKING = ("blocking", "blocker", "critical")


class Verdict(Struct, frozen=True):
    """done, needs_revision or failed, and why."""

    word: str
    note: str = ""


def of(data: object) -> Verdict:
    """Of any structured answer. Data that says nothing about itself is simply done: an audit that finds fault is a good audit."""
    fields = cast(Json, data) if isinstance(data, dict) else {}
    if "verdict" not in fields:
        return Verdict("done")
    said = fields["verdict"]
    reason = str(fields.get("reason", ""))
    if said not in WORDS:
        return Verdict("failed", f"its verdict is {said!r}, which is none of done, needs_revision, failed")
    against = contradictions(fields)
    if said == "done" and against:
        return Verdict("needs_revision", f"it says done, and also: {'; '.join(against[:3])}")
    return Verdict(str(said), reason)


def contradictions(fields: Json) -> list[str]:
    """The statements in an answer that speak against its being done."""
    found: list[str] = []
    if str(fields.get("grade", "PASS")) in ("FAIL", "UNVERIFIABLE"):
        found.append(f"grade {fields['grade']}")
    if str(fields.get("met", "yes")) not in ("yes", "True", "true"):
        found.append(f"met: {fields['met']}")
    if fields.get("passed") is False:
        found.append("passed: false")
    for entry in _entries(fields.get("requirements")):
        if str(entry.get("status", "")).lower() in _OPEN:
            found.append(f"{entry.get('requirement', 'a requirement')} is {entry['status']}")
    for entry in _entries(fields.get("findings")):
        if str(entry.get("severity", "")).lower() in _BLOCKING and not entry.get("resolved"):
            found.append(str(entry.get("issue") or entry.get("title") or "a blocking finding"))
    for entry in _entries(fields.get("checks")):
        if entry.get("passed") is False and entry.get("blocking", True):
            found.append(f"the check {entry.get('name', '?')} did not pass")
    gaps = fields.get("gaps")
    found += [str(gap) for gap in cast(list[Any], gaps)] if isinstance(gaps, list) else []
    return found


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


def _entries(value: object) -> list[Json]:
    return [cast(Json, v) for v in cast(list[Any], value) if isinstance(v, dict)] if isinstance(value, list) else []
