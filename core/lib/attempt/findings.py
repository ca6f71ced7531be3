"""What checks and auditors found, in grades and in words for people."""

from __future__ import annotations

from lib.contract import Json
from lib.session.documents import Results

GRADES = ("FAIL", "UNVERIFIABLE", "WARN", "PASS")  # the worst first


def worst(*grades: str) -> str:
    return min((g for g in grades if g), key=GRADES.index)


def plain_fixes(found: Results) -> list[Json]:
    return [
        {
            "id": n,
            "severity": "blocking",
            "file": check.evidence or ".",
            "issue": f"{check.name} failed: {check.count}",
            "suggested_fix": f"find the cause in the output of {check.name} and fix it",
        }
        for n, check in enumerate(found.failed, 1)
    ]


def plain_report(found: Results) -> str:
    lines = [f"# Audit: {found.overall}", "", "From the checks alone.", ""]
    lines += [f"- {check.name}: {'passed' if check.passed else 'failed'} ({check.count})" for check in found.checks]
    return "\n".join(lines) + "\n"


def audit_report(audit: Json, found: Results) -> str:
    rows = [[str(entry[k]) for k in ("requirement", "status", "evidence")] for entry in audit["requirements"]]
    lines = [f"# Audit: {worst(found.overall, audit['grade'])}", "", audit["summary"], ""]
    lines += ["| requirement | status | evidence |", "|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + f"\n\nThe checks themselves: {found.overall}.\n"
