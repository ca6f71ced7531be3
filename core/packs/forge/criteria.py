"""Whether what is said to be met is met: every criterion answered, evidence that can be looked up again, and no phantom work."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lib.disk import files, lenient
from lib.evidence.findings import Finding
from lib.process import processes
from msgspec import Struct

from packs.forge.tasks import Task

TEST = re.compile(r"(^|/)tests?/|(^|/)test_[^/]+$|_test\.[a-z]+$|\.(spec|test)\.[jt]sx?$")
OWN = "docs/feature/"  # where the artifacts of features stand


class Evidence(Struct, frozen=True):
    file: str = ""
    line: int = 0
    text: str = ""  # that stands in that line


class Answer(Struct, frozen=True):
    id: str = ""
    result: str = ""  # pass or fail
    evidence: Evidence = Evidence()
    why: str = ""


class Answers(Struct, frozen=True):
    criteria: tuple[Answer, ...] = ()


def answered(document: object) -> list[Answer]:
    return list(lenient.of(document, Answers).criteria)


def judge(wanted: dict[str, str], answers: Iterable[Answer], cwd: Path, who: str) -> list[Finding]:
    """`wanted`: by criterion, the task it belongs to. What nobody answered, what failed, and what was passed on no evidence."""
    said = {one.id: one for one in answers}
    found: list[Finding] = []
    for name, task in wanted.items():
        one = said.get(name)
        if one is None:
            found.append(Finding("critical", f"{name}: nobody has answered this criterion", who=(who,), task=task))
        elif one.result.strip().lower() != "pass":
            where = f"{one.evidence.file}:{one.evidence.line}" if one.evidence.file else ""
            found.append(Finding("critical", f"{name}: not met. {one.why}".strip(), where, who=(who,), task=task))
        elif why := _no_evidence(one.evidence, cwd):
            found.append(Finding("critical", f"{name}: passed without evidence: {why}", who=(who,), task=task))
    return found


def _no_evidence(evidence: Evidence, cwd: Path) -> str:
    if not evidence.file or not evidence.text.strip():
        return "a file, a line and the words that stand there are needed"
    if evidence.file.startswith(OWN):
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
    """Tasks that are marked done and are not there: no file of theirs has changed, or their test never speaks of their code."""
    touched = changed(cwd, base)
    found: list[Finding] = []
    for task in done:
        there = [file for file in task.files if file in touched]
        if not there:
            claim = f"{task.id} is marked done, and none of its files has changed: {', '.join(task.files)}"
            found.append(Finding("blocker", claim, who=("forge",), task=task.id))
            continue
        code = [file for file in there if not TEST.search(file) and file.endswith((".py", ".js", ".ts", ".go", ".rs"))]
        tests = [file for file in there if TEST.search(file) and (cwd / file).is_file()]
        words = [(cwd / file).read_text(encoding="utf-8", errors="replace") for file in tests]
        idle = [file for file in code if tests and not any(_speaks_of(text, file) for text in words)]
        if idle:
            claim = f"{task.id}: its tests ({', '.join(tests)}) never call {', '.join(idle)}"
            found.append(Finding("major", claim, who=("forge",), task=task.id))
    return found


def _speaks_of(test: str, file: str) -> bool:
    path = Path(file)
    name = path.parent.name if path.stem == "__init__" else path.stem
    return re.search(rf"\b{re.escape(name)}\b", test) is not None
