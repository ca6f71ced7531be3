"""Tests as proof: one that is named as evidence is run again, and those of a task must fail without the code of that task.

Both run in a copy of the repository, which is thrown away.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.attempt import checks
from lib.contract import StrataError
from lib.disk import files
from lib.evidence.findings import Finding
from lib.plan.checks_file import Check
from lib.process import processes
from msgspec import Struct
from msgspec.structs import replace

from packs.forge.criteria import TEST
from packs.forge.tasks import Task

MOST_TESTS = 60  # that are run again
_PROSE = (".md", ".rst", ".txt")


class Suite(Struct, frozen=True):
    """The check that runs the tests, in a folder."""

    check: Check
    cwd: Path
    evidence: Path

    def again(self, test: str, number: int) -> str:
        """What is wrong with a test that was named as evidence; nothing where it runs and passes."""
        file = test.split("::", maxsplit=1)[0]
        if test.startswith("-") or not files.leads_inside(self.cwd, self.cwd / file) or not (self.cwd / file).is_file():
            return f"there is no test {test}"
        result = checks.run(self._only((test,), f"again-{number}"), self.cwd, self.evidence)
        if result.passed and result.tests == 0:
            return f"{test} runs no test"
        return "" if result.passed else f"{test} fails when it is run again: {result.count}"

    def idle(self, tasks: list[Task], touched: set[str], base: str) -> list[Finding]:
        """Tasks whose new tests pass without their code: such tests never call it."""
        found: list[Finding] = []
        table = {task.id: task for task in tasks}
        for task in tasks:
            tests = tuple(f for f in task.files if f in touched and TEST.search(f) and (self.cwd / f).is_file())
            code = [f for f in _code_behind(task, table) if f in touched]
            if not tests or not code:
                continue
            with undone(self.cwd, code, base):
                result = checks.run(self._only(tests, f"without-{task.id}"), self.cwd, self.evidence)
            if result.passed:
                claim = f"{task.id}: its tests ({', '.join(tests)}) pass without its code ({', '.join(code)})"
                found.append(Finding("major", claim, evidence=result.tail[-400:], who=("forge",), task=task.id))
        return found

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
def undone(cwd: Path, paths: list[str], base: str) -> Generator[None]:
    """The files as they were at the beginning, for a while."""
    now = {path: (cwd / path).read_bytes() if (cwd / path).is_file() else None for path in paths}
    try:
        for number, path in enumerate(paths):
            _put(cwd / path, _at(cwd, base, path), number + 1)
        yield
    finally:
        for path, content in now.items():
            _put(cwd / path, content, None)


def _at(cwd: Path, base: str, path: str) -> bytes | None:
    """A file as a commit has it; nothing where it has none."""
    listed = processes.ask(["git", "--literal-pathspecs", "-C", str(cwd), "ls-tree", "-z", base, "--", path])
    if listed.returncode:
        raise StrataError("GIT_FAILED", f"git ls-tree failed in {cwd}: {listed.stderr.decode('utf-8', 'replace').strip()}")
    if not listed.stdout:
        return None
    return processes.ask(["git", "-C", str(cwd), "cat-file", "blob", listed.stdout.split()[2].decode()]).stdout


def _put(path: Path, content: bytes | None, at: int | None) -> None:
    """`at`: a time long ago, by which what was compiled of another version is known to be of another."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if at:
        os.utime(path, (at, at))
