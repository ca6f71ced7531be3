"""Whether what is said to be met is met: every criterion answered, evidence that can be looked up again, and no phantom work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lib.disk import files, lenient
from lib.evidence.findings import Finding
from lib.process import processes
from msgspec import Struct

from packs.forge.tasks import ARTIFACTS, Task

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


def judge(wanted: dict[str, str], answers: Iterable[Answer], cwd: Path, who: str, reran: dict[str, str]) -> list[Judged]:
    """`wanted`: by criterion, the task it belongs to. `reran`: by test, what was wrong when it was run again."""
    said = {one.id: one for one in answers}
    found: list[Judged] = []
    for name, task in wanted.items():
        one = said.get(name)
        if one is None:
            found.append(Judged(name, task, who, False, why="nobody has answered this criterion"))
        elif not one.passed:
            found.append(Judged(name, task, who, False, one.evidence.shown, f"not met. {one.why}".strip()))
        else:
            why = _no_evidence(one.evidence, cwd, reran)
            why = f"passed without evidence: {why}" if why else ""
            found.append(Judged(name, task, who, not why, one.evidence.shown, why))
    return found


def _no_evidence(evidence: Evidence, cwd: Path, reran: dict[str, str]) -> str:
    if evidence.test:
        return reran.get(evidence.test, f"the test {evidence.test} was not run again")
    if not evidence.file or not evidence.text.strip():
        return "a file, a line and the words that stand there are needed, or a test"
    if evidence.file.startswith(ARTIFACTS):
        return f"{evidence.file} is what agents wrote about it, not the thing"
    place = cwd / evidence.file
    if not files.leads_inside(cwd, place) or not place.is_file():
        return f"{evidence.file} is not there"
    lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    if not 1 <= evidence.line <= len(lines):
        return f"{evidence.file} has {len(lines)} lines, not {evidence.line}"
    wanted = " ".join(evidence.text.split())
    near = " ".join(" ".join(lines[max(0, evidence.line - 3) : evidence.line + 2]).split())
    return f"{evidence.file}:{evidence.line} does not say {wanted[:80]!r}" if wanted not in near else ""


def changed(cwd: Path, base: str) -> set[str]:
    """The files that differ from the commit the work began at, new ones included."""
    tracked = processes.ask(["git", "-C", str(cwd), "diff", "--relative", "--name-only", "-z", base]) if base else None
    new = processes.ask(["git", "-C", str(cwd), "ls-files", "--others", "--exclude-standard", "-z"])
    found = (tracked.stdout if tracked else b"") + new.stdout
    return {name.decode("utf-8", "replace") for name in found.split(b"\0") if name}


def phantoms(done: list[Task], cwd: Path, base: str) -> list[Finding]:
    """Tasks that are marked done and are not there: no file of theirs has changed."""
    touched = changed(cwd, base)
    return [
        Finding(
            "blocker",
            f"{task.id} is marked done, and none of its files has changed: {', '.join(task.files)}",
            who=("forge",),
            task=task.id,
        )
        for task in done
        if not touched & set(task.files)
    ]
