"""What checks and auditors found, in grades and in words for people."""

from __future__ import annotations

from lib.contract import Json

GRADES = ("FAIL", "UNVERIFIABLE", "WARN", "PASS")  # the worst first


def worst(*grades: str) -> str:
    return min((g for g in grades if g), key=GRADES.index)


def count(record: Json) -> str:
    return record["note"] or f"{record['errors']} errors"


def plain_fixes(found: Json) -> list[Json]:
    failed = [r for r in found["checks"] if not r["passed"] and r["blocking"]]
    return [
        {
            "id": n,
            "severity": "blocking",
            "file": str(r.get("evidence") or "."),
            "issue": f"{r['name']} failed: {count(r)}",
            "suggested_fix": f"find the cause in the output of {r['name']} and fix it",
        }
        for n, r in enumerate(failed, 1)
    ]


def plain_report(found: Json) -> str:
    lines = [f"# Audit: {found['overall']}", "", "From the checks alone.", ""]
    lines += [f"- {r['name']}: {'passed' if r['passed'] else 'failed'} ({count(r)})" for r in found["checks"]]
    return "\n".join(lines) + "\n"


def audit_report(audit: Json, found: Json) -> str:
    lines = [
        f"# Audit: {worst(found['overall'], audit['grade'])}",
        "",
        audit["summary"],
        "",
        "| requirement | status | evidence |",
        "|---|---|---|",
    ]
    for entry in audit["requirements"]:
        lines.append(
            "| "
            + " | ".join(str(entry[k]).replace("|", "\\|").replace("\n", " ") for k in ("requirement", "status", "evidence"))
            + " |"
        )
    return "\n".join(lines) + f"\n\nThe checks themselves: {found['overall']}.\n"
