"""Scanners that rest on no model: secrets in what was added, always; bandit for Python, where it can be had."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from lib.disk.redact import redact
from lib.evidence.findings import Finding
from lib.process import processes

from packs.forge.criteria import TEST

_SEVERITY = {"HIGH": "critical", "MEDIUM": "major", "LOW": "minor"}


def scan(cwd: Path, diff: str) -> tuple[list[Finding], list[str]]:
    """What was found, and what was run and what was not."""
    secret = secrets(diff)
    found, note = bandit(cwd, diff)
    return [*secret, *found], [f"secret scan: {len(secret)} found", note, "dependency audit: not run, it needs the network"]


def secrets(diff: str) -> list[Finding]:
    found: list[Finding] = []
    here, number = "", 0
    for line in diff.splitlines():
        named = re.match(r"\+\+\+ b/(.+)$", line)
        at = re.match(r"@@ -\S+ \+(\d+)", line)
        if named:
            here = named[1]
        elif at:
            number = int(at[1]) - 1
        elif line.startswith("+"):
            number += 1
            if redact(line[1:]) != line[1:]:
                claim = "what was added looks like a secret"
                found.append(Finding("blocker", claim, f"{here}:{number}", redact(line[1:])[:200], ("r-scan",)))
        elif not line.startswith("-"):
            number += 1
    return found


def bandit(cwd: Path, diff: str) -> tuple[list[Finding], str]:
    changed = sorted({name for name in re.findall(r"^\+\+\+ b/(.+\.py)$", diff, re.M) if (cwd / name).is_file()})
    if not changed:
        return [], "bandit: no Python was changed"
    program = shutil.which("bandit")
    argv = [program] if program else ([shutil.which("uvx") or "", "--quiet", "bandit"] if shutil.which("uvx") else [])
    if not argv:
        return [], "bandit: not run, it is not installed"
    done = processes.ask([*argv, "-q", "-f", "json", *changed], cwd=cwd, timeout_seconds=300)
    try:
        results = json.loads(done.stdout)["results"]
    except (ValueError, KeyError):
        return [], f"bandit: not run ({done.stderr.decode('utf-8', 'replace').strip()[-200:] or 'it said nothing'})"
    found = [
        Finding(
            _SEVERITY.get(str(r.get("issue_severity")), "blocker"),
            f"{r.get('test_id')}: {r.get('issue_text')}",
            f"{r.get('filename', '')}:{r.get('line_number', 0)}".removeprefix("./"),
            who=("r-scan",),
        )
        for r in results
        if not TEST.search(str(r.get("filename", "")))  # an assert in a test is what a test is
    ]
    return found, f"bandit: {len(found)} found in {len(changed)} files"
