"""Scanners that rest on no model: secrets in what was added, always; bandit for Python, where it can be had."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from lib.disk.redact import redact
from lib.evidence.findings import Finding
from lib.process import processes

from packs.forge.changes import added
from packs.forge.criteria import TEST

_SEVERITY = {"HIGH": "critical", "MEDIUM": "major", "LOW": "minor"}


def scan(cwd: Path, diff: str) -> tuple[list[Finding], list[str]]:
    """What was found, and what was run and what was not."""
    secret = secrets(diff)
    found, note = bandit(cwd, diff)
    known, audit = dependencies(cwd, diff)
    return [*secret, *found, *known], [f"secret scan: {len(secret)} found", note, audit]


def secrets(diff: str) -> list[Finding]:
    """Line by line, and file by file together: a key may go over many lines."""
    lines = added(diff)
    found = [
        Finding("blocker", "what was added looks like a secret", f"{file}:{number}", redact(text)[:200], ("r-scan",))
        for file, number, text in lines
        if redact(text) != text
    ]
    for file in dict.fromkeys(file for file, _, _ in lines):
        whole = "\n".join(text for name, _, text in lines if name == file)
        if redact(whole) != whole and not any(one.where.startswith(f"{file}:") for one in found):
            found.append(Finding("blocker", "what was added looks like a secret over several lines", file, who=("r-scan",)))
    return found


def bandit(cwd: Path, diff: str) -> tuple[list[Finding], str]:
    """What was not looked at is a finding, too."""
    changed = sorted({name for name, _, _ in added(diff) if name.endswith(".py") and (cwd / name).is_file()})
    if not changed:
        return [], "bandit: no Python was changed"
    argv = [sys.executable, "-m", "bandit", "-q", "--ignore-nosec", "-f", "json", *(f"./{name}" for name in changed)]
    done = processes.ask(argv, cwd=cwd, timeout_seconds=300)
    try:
        document = json.loads(done.stdout)
        results, errors = document["results"], document["errors"]
    except (ValueError, KeyError):
        said = done.stderr.decode("utf-8", "replace").strip()[-200:] or "it said nothing"
        return [Finding("major", f"bandit could not look at the change ({said})", who=("r-scan",))], f"bandit: not run ({said})"
    broken = [Finding("major", f"bandit could not read {e.get('filename')}: {e.get('reason')}", who=("r-scan",)) for e in errors]
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
    return [*found, *broken], f"bandit: {len(found)} found in {len(changed)} files"


_MANIFESTS = re.compile(r"^\+\+\+ b/(?:.*/)?(pyproject\.toml|requirements[^/]*\.txt|package\.json|package-lock\.json)$", re.M)


def dependencies(cwd: Path, diff: str) -> tuple[list[Finding], str]:
    """Known holes in what the feature depends on: asked only where dependencies changed, of the auditor that is installed."""
    changed = _MANIFESTS.search(diff)
    if not changed:
        return [], "dependency audit: not run, no dependency has changed"
    program, *words = ("npm", "audit", "--json") if changed[1].startswith("package") else ("pip-audit", "--format", "json", ".")
    if not shutil.which(program):
        return [], f"dependency audit: not run, {program} is not installed"
    done = processes.ask([program, *words], cwd=cwd, timeout_seconds=300)
    try:
        document = json.loads(done.stdout)
        named = [d["name"] for d in document.get("dependencies", []) if d.get("vulns")] or list(
            document.get("vulnerabilities", {})
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-200:]
        return [], f"dependency audit: {program} could not do it ({said or 'it said nothing'})"
    found = [Finding("major", f"{name} has known vulnerabilities", changed[1], who=("r-scan",)) for name in named]
    return found, f"dependency audit: {program} found {len(found)}"
