"""What checks and auditors came to, in grades and in words for people."""

from __future__ import annotations

from msgspec.structs import replace

from lib.contract import Json
from lib.evidence.findings import Finding
from lib.session.documents import CheckResult, Results

GRADES = ("FAIL", "UNVERIFIABLE", "WARN", "PASS")  # the worst first


def worst(*grades: str) -> str:
    return min((g for g in grades if g), key=GRADES.index)


def plain_fixes(found: Results) -> list[Finding]:
    """What the checks alone say has to change."""
    return [
        Finding(
            "blocker",
            f"{check.name} failed: {check.count}",
            where=check.evidence,
            who=(check.name,),
            fix=f"find the cause in the output of {check.name} and fix it",
        )
        for check in found.failed
    ]


def fix_list(found: list[Finding]) -> Json:
    """As it is handed to who fixes, the worst first."""
    fixes: list[Json] = [
        {
            "id": number,
            "severity": "blocking" if one.blocks else "warning",
            "file": one.where or ".",
            "issue": one.claim,
            "suggested_fix": one.fix or "find the cause and fix it",
        }
        for number, one in enumerate(found, 1)
    ]
    return {"fixes": fixes}


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


def no_fewer_tests(record: CheckResult, ran: int, skipped: int) -> CheckResult:
    """Tests that ran once and do not run any more, or are skipped now, have not passed."""
    fewer = record.tests is not None and record.tests < ran
    skips = bool(ran) and (record.skipped or 0) > skipped
    if not fewer and not skips:
        return record
    note = f"{record.tests} tests ran, where there were {ran}" if fewer else f"{record.skipped} tests are skipped now"
    return replace(record, passed=False, errors=record.errors + 1, note=note)


def reasons(found: Results) -> str:
    failed = [f"{check.name}: {check.count}" for check in found.failed]
    audited = [f"audit: {found.audit.summary}"] if found.audit and found.audit.grade == "FAIL" else []
    return "; ".join(failed or audited)
