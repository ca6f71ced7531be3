"""Checks that Python itself runs: named commands, with evidence on disk of what was run where and what came out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from lib.disk import files
from lib.disk.clock import now
from lib.disk.redact import redact
from lib.plan import checks_file
from lib.process import environment, processes, running
from lib.session.attempts import finished, merge_of
from lib.session.documents import CheckResult, Results
from lib.session.events import Timer
from lib.session.step import Step
from lib.workspace import snapshot
from lib.workspace.history import History

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")  # colours, titles and the like
_WHOLE_SUMMARY = re.compile(r"=*\s*(?:\d+ [a-z]+(?:, )?)+ in [\d.:]+s?(?: \([\d:]+\))?\s*=*")
_SUMMARY = re.compile(r"\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.:]+")


def run(check: checks_file.Check, cwd: Path, evidence: Path) -> CheckResult:
    """Runs one check and returns its record; the full output stays in `evidence`."""
    output = evidence / f"{check.name.replace('/', '.')}.log"
    check = replace(check, command=tuple(word.replace("{python}", sys.executable) for word in check.command))
    evidence.mkdir(parents=True, exist_ok=True)
    report = cwd / check.report if check.report else None
    if report:
        report.unlink(missing_ok=True)  # an old report must not speak for this run
    env = environment.for_command(os.environ, check.env)
    proof = _proof(check, evidence, env)
    started = now()
    with Timer() as timer, _nothing_left(cwd, env):
        finished = running.run_kept(check.command, env=env, cwd=cwd, timeout_seconds=check.timeout_seconds, stdout_file=output)
    text = redact(_ESCAPES.sub("", output.read_text(encoding="utf-8", errors="replace")))
    files.write_atomic(output, text)
    errors, note, tests = count_errors(check, finished.exit_code, text, report)
    skipped = _skipped(text) if check.parser == "pytest" else None
    if proof and finished.exit_code == 0 and not errors and _junit(0, proof)[0]:
        errors, note = 1, "pytest left no report of its own that says so: it did not come to its end"
    if finished.timed_out:
        errors, note = max(errors, 1), f"still running after {check.timeout_seconds:g} s"
    commit, dirty = git_state(cwd)
    return CheckResult(
        name=check.name,
        tool=check.parser if check.parser != "exit-code" else check.command[0],
        passed=errors == 0,
        errors=errors,
        blocking=check.blocking,
        note=note,
        ran=finished.exit_code != NOT_STARTED,
        tests=tests,
        skipped=skipped,
        command=check.command,
        folder=str(cwd),
        exit_code=finished.exit_code,
        timed_out=finished.timed_out,
        started_at=started,
        duration_seconds=round(timer.elapsed_seconds(), 3),
        output=output.name,
        tail="\n".join(text.strip().splitlines()[-12:])[-1500:],
        output_sha256=files.sha256(output),
        git_commit=commit,
        git_dirty=dirty,
    )


@contextmanager
def _nothing_left(cwd: Path, env: dict[str, str]) -> Generator[None]:
    """`uv run` makes an environment and a lock file in the project it runs in. The environment is made beside the session, and a
    lock file that was not there before is taken away."""
    lock = cwd / "uv.lock"
    was_there = lock.exists()
    if not (cwd / ".venv").exists() and files.works_in:
        env.setdefault("UV_PROJECT_ENVIRONMENT", str(files.works_in / "environments" / files.sha256_text(str(cwd))[:12]))
    try:
        yield
    finally:
        if not was_there:
            lock.unlink(missing_ok=True)


def _proof(check: checks_file.Check, evidence: Path, env: dict[str, str]) -> Path | None:
    """Where pytest itself is asked to write a report, out of reach of what it tests: a line that looks like its summary is not
    one. Only where the command is pytest for all to see; what another runner does with its environment is not known."""
    words = [Path(w).name for part in check.command for w in part.split()]
    if check.parser != "pytest" or "pytest" not in words or words[0] in ("echo", "printf"):
        return None
    path = evidence / f"{check.name.replace('/', '.')}.xml"
    path.unlink(missing_ok=True)
    env["PYTEST_ADDOPTS"] = f"{env.get('PYTEST_ADDOPTS', '')} --junitxml={shlex.quote(str(path))}".strip()
    return path


def _skipped(text: str) -> int:
    ends = [line for line in text.splitlines() if _SUMMARY.search(line)]
    return sum(int(n) for n, _ in re.findall(r"(\d+) (skipped|xfailed|deselected)", ends[-1] if ends else ""))


NOT_STARTED = 127  # the exit code of a shell, and of the keeper, for a command that is not there


def run_artifacts(session: Path, phase: str, cwd: Path) -> CheckResult:
    """Compares every output of a phase with the hash its attempt recorded. A phase that produced nothing proves nothing."""
    wrong: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for _, outputs, left in sorted(_written(session, phase), key=lambda entry: entry[0]):
        seen |= outputs
        for path, sha in left.items():  # a later writer, a fix or a merge among them, has the last word
            if ("workspace", path) in seen:
                seen["workspace", path] = sha
    for (place, name), sha in seen.items():
        found = (session if place == "session" else cwd) / name
        if files.fingerprint(found) != sha:
            wrong.append(f"{name} is {'not there' if not found.exists() else 'not what was produced'}")
    if not seen:
        wrong.append("the phase produced no output")
    note = "; ".join(wrong[:5]) or f"{len(seen)} artifacts"
    commit, dirty = git_state(cwd)
    found = CheckResult(checks_file.ARTIFACTS, "strata", passed=not wrong, errors=len(wrong), note=note, tail=note)
    return replace(found, folder=str(cwd), exit_code=int(bool(wrong)), git_commit=commit, git_dirty=dirty)


Written = tuple[int, dict[tuple[str, str], str], dict[str, str]]  # when, the outputs by place and path, and what was left


def _written(session: Path, phase: str) -> list[Written]:
    """What finished steps, and merges of what was done in worktrees, wrote: what was done there counts when it is merged."""
    done = finished(session, phase)
    apart = [(o.number, {(c.root, c.path): c.sha256 for c in o.outputs}, o.left) for _, o in done if not o.isolation]
    merges = [m for step in dict.fromkeys(a.step for a, _ in done) if (m := merge_of(session, step))]
    return [*apart, *((m.number, dict[tuple[str, str], str](), m.left) for m in merges)]


def run_steadily(
    chosen: list[checks_file.Check], cwd: Path, evidence: Path, session: Path
) -> tuple[list[CheckResult], dict[str, str], bool]:
    """Runs checks on a folder, and returns the state of the folder afterwards and whether that is what they judged. Where files
    changed while they ran, they run once more: what they write themselves changes again, and what somebody else wrote is seen."""
    own = {path for path, writes in History(session).all_writes().items() if _is_check(writes[-1].step)}
    records, after, changed = _run_and_look(chosen, cwd, evidence, session)
    if changed <= own or not all(r.passed for r in records):
        return records, after, changed <= own  # what has failed has failed: a second run makes nothing good
    own |= changed
    records, after, changed = _run_and_look(chosen, cwd, evidence, session)
    return records, after, changed <= own


def _run_and_look(
    chosen: list[checks_file.Check], cwd: Path, evidence: Path, session: Path
) -> tuple[list[CheckResult], dict[str, str], set[str]]:
    before = snapshot.table(cwd, (session,))
    records = [run(check, cwd, evidence) for check in chosen]
    after = snapshot.table(cwd, (session,))
    return records, after, {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _is_check(step: str) -> bool:
    return Step.parse(step).stage in ("check", "02-checks")


Counted = tuple[int, str, int | None]  # what is wrong, a word on it, and how many tests ran where that is known


def count_errors(check: checks_file.Check, exit_code: int, text: str, report: Path | None) -> Counted:
    """How many things are wrong. A test run that ran no test proves nothing and is not a pass."""
    if exit_code == NOT_STARTED:
        return 1, "the command could not be started", None
    if check.parser == "pytest":
        return _pytest(exit_code, text)
    if check.parser == "junit":
        return _junit(exit_code, report)
    if exit_code == 0 and re.search(r"No Python files found|No source files found|no files to check", text, re.I):
        return 1, "it found no file to check", None
    if check.parser == "ruff":
        found = re.findall(r"^Found (\d+) errors?(?: \((\d+) fixed)?", text, re.M)
        left = max((int(all_) - int(fixed or 0) for all_, fixed in found), default=0)
        return max(left, int(exit_code != 0)), "", None  # what it counted wins over how a script around it ended
    if check.parser == "pyright":
        found = re.search(r"^(\d+) errors?,", text, re.M)
        if not found:
            return 1, "no summary line in pyright's output", None
        return max(int(found[1]), int(exit_code != 0)), "", None
    return int(exit_code != 0), "", None


def _pytest(exit_code: int, text: str) -> Counted:
    if exit_code == 5 or "no tests ran" in text:
        return 1, "no test ran", 0
    # The last summary line is the run's; a script may have run pytest before, and what failed there has failed.
    ends = [line for line in text.splitlines() if _SUMMARY.search(line)]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?)", ends[-1] if ends else "")}
    whole = [line for line in text.splitlines() if _WHOLE_SUMMARY.fullmatch(line.strip())]
    failed = max([_failed(line) for line in [*whole, *ends[-1:]]], default=0)
    passed = counts.get("passed", 0)
    if exit_code != 0 or failed:  # what it counted wins over how a script around it ended
        note = "" if failed else f"pytest ended with {exit_code}"
        return max(failed, 1), note, passed + counts.get("failed", 0)  # an error is no test
    return (0, f"{passed} passed", passed) if passed else (1, "no test ran: nothing passed", 0)


def _failed(summary: str) -> int:
    return sum(int(n) for n in re.findall(r"(\d+) (?:failed|errors?)\b", summary))


def _junit(exit_code: int, report: Path | None) -> Counted:
    from xml.etree import ElementTree

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


def git_state(cwd: Path) -> tuple[str | None, bool | None]:
    """Which state of the work a check judged: its commit, and whether there is more. Asks git without its locks, so that a
    user's own git is never blocked."""

    def git(*words: str) -> str | None:
        try:
            done = processes.ask(["git", "--no-optional-locks", "-C", str(cwd), *words], timeout_seconds=60)
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git here: the record then says so with a null
        return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None

    status = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), bool(status) if status is not None else None


def summary(records: list[CheckResult]) -> Results:
    """The seed's `verification-results.json`."""
    blocking = sum(r.errors for r in records if r.blocking)
    overall = "FAIL" if blocking else ("PASS" if all(r.passed for r in records) else "WARN")
    nothing_ran = not any(r.ran for r in records)  # no record at all says as little
    return Results(tuple(records), overall if blocking or not nothing_ran else "UNVERIFIABLE", blocking)
