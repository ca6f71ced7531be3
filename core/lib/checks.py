"""Checks that Python itself runs: named commands, with evidence on disk of what was run where and what came out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from lib import config, environment, files, process
from lib.contract import Json, StrataError
from lib.observability import Timer
from lib.redact import redact
from lib.session import every_writer, now

DEFAULT_FILE = config.CONFIG / "checks.yaml"
# A command that is not an agent has no use for the agents' login.
_SUMMARY = re.compile(r"\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.:]+")


@dataclass(frozen=True)
class Check:
    name: str
    command: tuple[str, ...]
    timeout_seconds: float = 600.0
    env: tuple[str, ...] = ()  # variables it gets although they look like secrets
    blocking: bool = True
    parser: str = "exit-code"
    report: str = ""  # of the junit parser: the XML file the command writes, in the folder it runs in


def load(path: Path) -> dict[str, Check]:
    document = config.read(path)
    data = document.check("checks")
    table: dict[str, Check] = {}
    for name, spec in cast(Json, data["checks"]).items():
        command: Any = spec["command"]
        words = cast(list[str], command) if isinstance(command, list) else ["sh", "-c", str(command)]
        if spec.get("parser") == "junit" and not spec.get("report"):
            raise document.error(["checks", name], "the junit parser needs `report`, the XML file", "report: junit.xml")
        table[name] = Check(
            name,
            tuple(w.replace("{python}", sys.executable) for w in words),
            float(spec.get("timeout_seconds", 600)),
            tuple(spec.get("env", ())),
            spec.get("blocking", True),
            spec.get("parser", "exit-code"),
            spec.get("report", ""),
        )
    return table


def choose(table: dict[str, Check], names: list[str], where: str) -> list[Check]:
    for name in names:
        if name == ARTIFACTS:
            continue
        if name not in table:
            raise StrataError("UNKNOWN_CHECK", f"there is no check {name!r} in {where}", f"it has: {', '.join(table)}")
    return [table[name] for name in names if name != ARTIFACTS]


def run(check: Check, cwd: Path, evidence: Path) -> Json:
    """Runs one check and returns its record; the full output stays in `evidence`."""
    output = evidence / f"{check.name}.log"
    evidence.mkdir(parents=True, exist_ok=True)
    report = cwd / check.report if check.report else None
    if report:
        report.unlink(missing_ok=True)  # an old report must not speak for this run
    env = environment.for_command(os.environ, check.env)
    proof = _proof(check, evidence, env)
    started = now()
    with Timer() as timer:
        finished = process.run_command(check.command, env=env, cwd=cwd, timeout_seconds=check.timeout_seconds, stdout_file=output)
    text = redact(output.read_text(encoding="utf-8", errors="replace"))
    files.write_atomic(output, text)
    errors, note, tests = count_errors(check, finished.exit_code, text, report)
    skipped = _skipped(text) if check.parser == "pytest" else None
    if proof and finished.exit_code == 0 and not errors and _junit(0, proof)[0]:
        errors, note = 1, "pytest left no report of its own that says so: it did not come to its end"
    if finished.timed_out:
        errors, note = max(errors, 1), f"still running after {check.timeout_seconds:g} s"
    return {
        "name": check.name,
        "tool": check.parser if check.parser != "exit-code" else check.command[0],
        "passed": errors == 0,
        "errors": errors,
        "blocking": check.blocking,
        "note": note,
        "tests": tests,
        "skipped": skipped,
        "command": list(check.command),
        "folder": str(cwd),
        "exit_code": finished.exit_code,
        "timed_out": finished.timed_out,
        "started_at": started,
        "duration_seconds": round(timer.elapsed_seconds(), 3),
        "output": output.name,
        "tail": "\n".join(text.strip().splitlines()[-12:])[-1500:],
        "output_sha256": files.sha256(output),
        **git_state(cwd),
    }


def _proof(check: Check, evidence: Path, env: dict[str, str]) -> Path | None:
    """Where pytest itself is asked to write a report, out of reach of what it tests: a line that looks like its summary is not
    one. Only where the command is pytest for all to see; what another runner does with its environment is not known."""
    words = [Path(w).name for part in check.command for w in part.split()]
    if check.parser != "pytest" or "pytest" not in words or words[0] in ("echo", "printf"):
        return None
    path = evidence / f"{check.name}.xml"
    path.unlink(missing_ok=True)
    env["PYTEST_ADDOPTS"] = f"{env.get('PYTEST_ADDOPTS', '')} --junitxml={shlex.quote(str(path))}".strip()
    return path


def _skipped(text: str) -> int:
    ends = [line for line in text.splitlines() if _SUMMARY.search(line)]
    return sum(int(n) for n, _ in re.findall(r"(\d+) (skipped|xfailed|deselected)", ends[-1] if ends else ""))


ARTIFACTS = "artifacts"  # the check that needs no command: what a phase says it produced is there, as it was produced


def run_artifacts(session: Path, phase: str, cwd: Path) -> Json:
    """Holds every output of a phase against the hash its attempt recorded. A phase that produced nothing proves nothing."""
    wrong: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for outcome in every_writer(session, phase):
        for entry in outcome.get("outputs", []):
            seen[entry["in"], entry["path"]] = entry["sha256"]
        changes: list[Json] = outcome.get("artifacts") or []
        for change in changes:  # a later writer, a fix or a merge among them, has the last word
            if (change["root"], change["path"]) in seen:
                seen[change["root"], change["path"]] = change.get("sha256", "")
    for (place, name), sha in seen.items():
        found = (session if place == "session" else cwd) / name
        if files.fingerprint(found) != sha:
            wrong.append(f"{name} is {'not there' if not found.exists() else 'not what was produced'}")
    if not seen:
        wrong.append("the phase produced no output")
    note = "; ".join(wrong[:5]) or f"{len(seen)} artifacts"
    record: Json = {
        "name": ARTIFACTS,
        "tool": "strata",
        "passed": not wrong,
        "errors": len(wrong),
        "blocking": True,
        "note": note,
    }
    return record | {"command": [], "folder": str(cwd), "exit_code": int(bool(wrong)), "tail": note, **git_state(cwd)}


Counted = tuple[int, str, int | None]  # what is wrong, a word on it, and how many tests ran where that is known


def count_errors(check: Check, exit_code: int, text: str, report: Path | None) -> Counted:
    """How many things are wrong. A test run that ran no test proves nothing and is not a pass."""
    if exit_code == 127:
        return 1, "the command could not be started", None
    if check.parser == "pytest":
        return _pytest(exit_code, text)
    if check.parser == "junit":
        return _junit(exit_code, report)
    if exit_code == 0 and re.search(r"No Python files found|No source files found|no files to check", text, re.I):
        return 1, "it found no file to check", None
    if check.parser == "ruff":
        found = re.search(r"Found (\d+) errors?", text)
        return (int(found[1]), "", None) if found and exit_code else (int(exit_code != 0), "", None)
    if check.parser == "pyright":
        found = re.search(r"^(\d+) errors?,", text, re.M)
        if not found:
            return 1, "no summary line in pyright's output", None
        return max(int(found[1]), int(exit_code != 0)), "", None
    return int(exit_code != 0), "", None


def _pytest(exit_code: int, text: str) -> Counted:
    if exit_code == 5 or "no tests ran" in text:
        return 1, "no test ran", 0
    # Only the last summary line is pytest's own; a test may print anything above it.
    ends = [line for line in text.splitlines() if _SUMMARY.search(line)]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)", ends[-1] if ends else "")}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    passed = counts.get("passed", 0)
    if exit_code != 0:
        return (
            max(failed, 1),
            "" if failed else f"pytest ended with {exit_code}",
            passed + counts.get("failed", 0),
        )  # an error is no test
    return (0, f"{passed} passed", passed) if passed else (1, "no test ran: nothing passed", 0)


def _junit(exit_code: int, report: Path | None) -> Counted:
    try:
        root = ElementTree.parse(cast(Path, report)).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return 1, f"no readable JUnit report: {error}", None
    suites = [root] if root.tag == "testsuite" else list(root.iter("testsuite"))
    try:
        total = {k: sum(int(s.get(k) or 0) for s in suites) for k in ("tests", "failures", "errors", "skipped")}
    except ValueError as error:
        return 1, f"no readable JUnit report: {error}", None
    ran = total["tests"] - total["skipped"]
    if ran <= 0:
        return 1, "no test ran", 0
    return max(total["failures"] + total["errors"], int(exit_code != 0)), f"{total['tests']} tests", ran


def git_state(cwd: Path) -> Json:
    """Which state of the work a check judged. Asks git without its locks, so that a user's own git is never blocked."""

    def git(*words: str) -> str | None:
        try:
            done = process.ask(["git", "--no-optional-locks", "-C", str(cwd), *words], timeout_seconds=60)
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git here: the record then says so with a null
        return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None

    status = git("status", "--porcelain")
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": bool(status) if status is not None else None}


def summary(records: list[Json]) -> Json:
    """The seed's `verification-results.json`."""
    blocking = sum(r["errors"] for r in records if r["blocking"])
    warned = any(not r["passed"] for r in records)
    overall = "FAIL" if blocking else ("WARN" if warned else "PASS")
    return {"checks": records, "overall": overall if records else "UNVERIFIABLE", "blocking_count": blocking}
