"""Whether what is said to be met is met: every criterion answered, evidence that can be looked up again, and no phantom work."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

from lib.disk import files, lenient
from lib.evidence.findings import Finding
from msgspec import Struct

from packs.forge.tasks import ARTIFACTS, Task

LEAST = 8  # letters of evidence
TEST = re.compile(r"(^|/)tests?/|(^|/)test_[^/]+$|_test\.[a-z]+$|\.(spec|test)\.[jt]sx?$")


class Evidence(Struct, frozen=True):
    """A place in the repository and the words that stand there; or a test of the suite, which Python runs again."""

    file: str = ""
    line: int = 0
    text: str = ""
    test: str = ""

    @property
    def shown(self) -> str:
        return f"test {self.test}" if self.test else f"{self.file}:{self.line}" if self.file else ""


class Answer(Struct, frozen=True):
    id: str = ""
    result: str = ""  # pass or fail
    evidence: Evidence = Evidence()
    why: str = ""

    @property
    def passed(self) -> bool:
        return self.result.strip().lower() == "pass"


class Answers(Struct, frozen=True):
    criteria: tuple[Answer, ...] = ()


class Judged(Struct, frozen=True):
    """A criterion, and what Python found of what was said about it."""

    id: str
    task: str
    who: str
    met: bool
    evidence: str = ""
    why: str = ""  # it is not met

    @property
    def finding(self) -> Finding:
        return Finding("critical", f"{self.id}: {self.why}", self.evidence, who=(self.who,), task=self.task)


def answered(document: object) -> list[Answer]:
    return list(lenient.of(document, Answers).criteria)


def judge(
    wanted: dict[str, str], answers: Iterable[Answer], cwd: Path, who: str, reran: dict[str, str], owned: dict[str, set[str]]
) -> list[Judged]:
    """`wanted`: by criterion, the task it belongs to. `reran`: by test, what was wrong when it was run again. `owned`: the files
    of each task, in which alone its criteria can be seen."""
    said: dict[str, Answer] = {}
    for one in answers:
        if one.id not in said or not one.passed:  # of two answers the worse
            said[one.id] = one
    found: list[Judged] = []
    for name, task in wanted.items():
        one = said.get(name)
        if one is None:
            found.append(Judged(name, task, who, False, why="nobody has answered this criterion"))
        elif not one.passed:
            found.append(Judged(name, task, who, False, one.evidence.shown, f"not met. {one.why}".strip()))
        else:
            why = _no_evidence(one.evidence, cwd, reran) or _elsewhere(one.evidence, owned.get(task, set()))
            why = f"passed without evidence: {why}" if why else ""
            found.append(Judged(name, task, who, not why, one.evidence.shown, why))
    return found


def _no_evidence(evidence: Evidence, cwd: Path, reran: dict[str, str]) -> str:
    if evidence.test:
        return reran.get(evidence.test, f"the test {evidence.test} was not run again")
    if not evidence.file or not evidence.text.strip():
        return "a file, a line and the words that stand there are needed, or a test"
    if posixpath.normpath(evidence.file) != evidence.file or evidence.file.split("/")[0] == ".git":
        return f"{evidence.file} is no plain path in the repository"
    if evidence.file.startswith(ARTIFACTS):
        return f"{evidence.file} is what agents wrote about it, not the thing"
    place = cwd / evidence.file
    if not files.leads_inside(cwd, place) or not place.is_file():
        return f"{evidence.file} is not there"
    lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    if not 1 <= evidence.line <= len(lines):
        return f"{evidence.file} has {len(lines)} lines, not {evidence.line}"
    wanted = " ".join(evidence.text.split())
    if len(wanted) < LEAST and wanted != " ".join(lines[evidence.line - 1].split()):
        return f"{wanted!r} could stand anywhere: at least {LEAST} letters, or the whole line"
    near = " ".join(" ".join(lines[max(0, evidence.line - 3) : evidence.line + 2]).split())
    return f"{evidence.file}:{evidence.line} does not say {wanted[:80]!r}" if wanted not in near else ""


def _elsewhere(evidence: Evidence, owned: set[str]) -> str:
    """What a task promised is seen in what it owns."""
    file = evidence.test.split("::")[0] if evidence.test else evidence.file
    return f"{file} is no file of its task" if owned and file not in owned else ""


def phantoms(done: list[Task], wrote: dict[str, set[str]], touched: set[str]) -> list[Finding]:
    """Tasks that are marked done and are not there. `wrote`: of those done in this round, what each changed in its worktree."""
    found: list[Finding] = []
    for task in done:
        if task.id in wrote and not wrote[task.id] & set(task.files):
            claim = f"{task.id} is marked done, and it changed none of its files: {', '.join(task.files)}"
        elif not touched & set(task.files):
            claim = f"{task.id} is marked done, and none of its files has changed: {', '.join(task.files)}"
        else:
            continue
        found.append(Finding("blocker", claim, who=("forge",), task=task.id))
    return found


def lost_tests(names: dict[str, str]) -> list[Finding]:
    """Tests that were there and are not any more."""
    gone = sorted(name for name, what in names.items() if what == "deleted" and TEST.search(name))
    return [Finding("critical", f"the tests in {name} were deleted", name, who=("forge",)) for name in gone]
