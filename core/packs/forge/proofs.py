"""Tests as proof: one that is named as evidence is run again, and those of a task must fail without the code of that task.

Both run in a copy of the repository, which is thrown away.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.attempt import checks
from lib.disk import files
from lib.evidence.findings import Finding
from lib.plan.checks_file import Check
from msgspec import Struct
from msgspec.structs import replace

from packs.forge.changes import DELETED, Changes
from packs.forge.criteria import TEST
from packs.forge.tasks import Task

MOST_TESTS = 60  # that are run again
STEERS = re.compile(r"(^|/)(conftest\.py|pytest\.ini|\.pytest\.ini|tox\.ini|setup\.cfg|pyproject\.toml|sitecustomize\.py)$")
_PROSE = (".md", ".rst", ".txt")


class Suite(Struct, frozen=True):
    """The check that runs the tests, in a folder."""

    check: Check
    cwd: Path
    evidence: Path

    def again(self, test: str, number: int) -> str:
        """What is wrong with a test that was named as evidence; nothing where it runs and passes."""
        file = test.split("::", maxsplit=1)[0]
        if self.check.parser != "pytest":
            return f"the check {self.check.name} cannot run one test alone: name a file, a line and its words"
        if test.startswith("-") or not files.leads_inside(self.cwd, self.cwd / file) or not (self.cwd / file).is_file():
            return f"there is no test {test}"
        result = checks.run(self._only((test,), f"again-{number}"), self.cwd, self.evidence)
        if result.passed and not result.tests:
            return f"{test} runs no test"
        return "" if result.passed else f"{test} fails when it is run again: {result.count}"

    def idle(self, tasks: list[Task], changes: Changes) -> tuple[list[Finding], int]:
        """Tasks whose new tests do not run, or pass without their code: such tests never call it. And how many were looked at."""
        found: list[Finding] = []
        looked = 0
        table, touched = {task.id: task for task in tasks}, changes.touched
        for task in tasks:
            tests = tuple(f for f in task.files if f in touched and TEST.search(f) and _is_file(self.cwd / f))
            code = [f for f in _code_behind(task, table) if f in touched and not (self.cwd / f).is_symlink()]
            if not tests or not code:
                continue
            looked += 1
            names = f"{task.id}: its tests ({', '.join(tests)})"
            whole = checks.run(self._only(tests, f"with-{task.id}"), self.cwd, self.evidence)
            if not whole.passed or whole.tests == 0:
                found.append(Finding("major", f"{names} do not pass: {whole.count}", who=("forge",), task=task.id))
                continue
            with undone(self.cwd, code, changes):
                result = checks.run(self._only(tests, f"without-{task.id}"), self.cwd, self.evidence)
            if result.passed:
                claim = f"{names} pass without its code ({', '.join(code)})"
                found.append(Finding("major", claim, evidence=result.tail[-400:], who=("forge",), task=task.id))
        return found, looked

    def as_before(self, changes: Changes) -> list[Finding]:
        """Where what steers the tests has changed: the tests there were, steered as they were, on the code there is now."""
        steering = sorted(name for name in changes.touched if STEERS.search(name))
        if not steering:
            return []
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            changes.unpack(Path(folder))
            for name, what in changes.names().items():
                if not TEST.search(name) and not STEERS.search(name) and what != DELETED and _is_file(self.cwd / name):
                    _put(Path(folder) / name, (self.cwd / name).read_bytes(), None)
            result = checks.run(replace(self.check, name="as-before"), Path(folder), self.evidence)
        if result.passed or result.tests == 0:
            return []
        claim = f"{', '.join(steering)} steers the tests: steered as before, those there were do not pass ({result.count})"
        return [Finding("major", claim, evidence=result.tail[-400:], who=("forge",))]

    def fewer(self, now: int | None, changes: Changes) -> list[Finding]:
        """Fewer tests than there were."""
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            changes.unpack(Path(folder))
            before = checks.run(replace(self.check, name="at-the-beginning"), Path(folder), self.evidence).tests or 0
        if before and (now or 0) < before:
            return [Finding("critical", f"{now or 0} tests run, and {before} did before", who=("forge",))]
        return []

    def _only(self, tests: tuple[str, ...], name: str) -> Check:
        """Where the runner is known to take files, only these; else the whole suite."""
        words = tests if self.check.parser == "pytest" else ()
        return replace(self.check, name=name, command=(*self.check.command, *words))


def _code_behind(task: Task, table: dict[str, Task]) -> list[str]:
    """What the tests of a task are about: its own code, and that of the tasks it waits for, where it has none."""
    own = [file for file in task.files if not TEST.search(file) and not file.endswith(_PROSE)]
    if own:
        return own
    return [file for name in task.depends_on if name in table for file in _code_behind(table[name], table)]


@contextmanager
def undone(cwd: Path, paths: list[str], changes: Changes) -> Generator[None]:
    """The files as they were at the beginning, for a while."""
    now = {path: (cwd / path).read_bytes() for path in paths if _is_file(cwd / path)}
    try:
        for number, path in enumerate(paths):
            _put(cwd / path, changes.before(path), number + 1)
        yield
    finally:
        for path in paths:
            _put(cwd / path, now.get(path), None)


def _is_file(path: Path) -> bool:
    """A file of the folder itself: what a link leads to is not ours to change."""
    return path.is_file() and not path.is_symlink()


def _put(path: Path, content: bytes | None, at: int | None) -> None:
    """`at`: a time long ago, by which what was compiled of another version is known to be of another."""
    if path.is_dir() or path.is_symlink():
        return
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if at:
        os.utime(path, (at, at))
