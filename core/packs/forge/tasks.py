"""Tasks and waves: what a plan must hold to, and which tasks run together."""

from __future__ import annotations

import posixpath
from graphlib import CycleError, TopologicalSorter
from typing import Any

from lib.disk import lenient
from msgspec import Struct
from msgspec.structs import replace

MOST_FILES, MOST_DEPENDENCIES, MOST_LINES = 3, 2, 500
ARTIFACTS = "docs/feature/"  # where those of features stand
AGENTS = ("implementer", "documentation-writer")


class Criterion(Struct, frozen=True):
    id: str = ""
    text: str = ""


class Task(Struct, frozen=True):
    id: str = ""
    title: str = ""
    goal: str = ""
    agent: str = "implementer"
    depends_on: tuple[str, ...] = ()
    in_scope: tuple[str, ...] = ()
    out_of_scope: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    tests: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    effort: str = ""
    lines: int = 0


class Tasks(Struct, frozen=True):
    tasks: tuple[Task, ...] = ()


def read(document: Any) -> list[Task]:
    return list(lenient.of(document, Tasks).tasks)


class _Spec(Struct, frozen=True):
    criteria: tuple[Criterion, ...] = ()


def read_criteria(document: Any) -> list[Criterion]:
    """The acceptance criteria of a specification."""
    return list(lenient.of(document, _Spec).criteria)


def kept(now: list[Task], earlier: list[Task]) -> list[Task]:
    """All tasks there have been. One that is planned again keeps the criteria it had: nobody plans them away."""
    before = {task.id: task for task in earlier}
    again = [
        replace(
            task, criteria=(*task.criteria, *(c for c in before[task.id].criteria if c.id not in {n.id for n in task.criteria}))
        )
        if task.id in before
        else task
        for task in now
    ]
    return [*(task for task in earlier if task.id not in {n.id for n in now}), *again]


def reworded(now: list[Task], earlier: list[Task]) -> list[str]:
    """A criterion keeps its words and its task: another one has another id."""
    before = {c.id: (task.id, c.text) for task in earlier for c in task.criteria}
    return [
        f"{task.id}: the criterion {c.id} was {before[c.id][1]!r} of {before[c.id][0]}; give this one another id"
        for task in now
        for c in task.criteria
        if c.id in before and (before[c.id][0] != task.id or " ".join(before[c.id][1].split()) != " ".join(c.text.split()))
    ]


def complaints(tasks: list[Task]) -> list[str]:
    """What is wrong with a plan; nothing where it can be carried out."""
    found: list[str] = []
    names = [t.id for t in tasks]
    if not tasks:
        return ["there is no task"]
    found += [f"two tasks are called {name}" for name in sorted({n for n in names if names.count(n) > 1})]
    seen: dict[str, str] = {}
    for task in tasks:
        found += [f"{task.id}: {text}" for text in _of_one(task, names)]
        for criterion in task.criteria:
            if criterion.id in seen:
                found.append(f"{task.id}: the criterion {criterion.id} is also one of {seen[criterion.id]}")
            seen[criterion.id] = task.id
    if found:
        return found
    try:
        grouped = waves(tasks)
    except CycleError as error:
        return [f"tasks wait for each other in a circle: {' → '.join(error.args[1])}"]
    for number, wave in enumerate(grouped, 1):
        owners: dict[str, str] = {}
        for task in wave:
            for file in task.files:
                if file in owners:
                    found.append(f"wave {number}: {owners[file]} and {task.id} both own {file}; let one depend on the other")
                owners[file] = task.id
    return found


def _of_one(task: Task, names: list[str]) -> list[str]:
    found: list[str] = []
    found += [f"it owns {len(task.files)} files, at most {MOST_FILES}"] if len(task.files) > MOST_FILES else []
    found += [] if task.files else ["it owns no file: nobody could tell whether it was done"]
    found += (
        [f"{len(task.depends_on)} dependencies, at most {MOST_DEPENDENCIES}"] if len(task.depends_on) > MOST_DEPENDENCIES else []
    )
    found += [f"{task.lines} lines, at most {MOST_LINES}"] if task.lines > MOST_LINES else []
    found += [f"it depends on {other}, which is no task" for other in task.depends_on if other not in names]
    found += [f"the agent {task.agent!r} is none of {', '.join(AGENTS)}"] if task.agent not in AGENTS else []
    found += [] if task.criteria else ["it has no acceptance criterion"]
    wild = [f for f in task.files if any(letter in f for letter in "*?[\\\0\n") or f.startswith(("/", "-")) or not _is_plain(f)]
    found += [
        f"{file} tells agents how to work, or is git's own: a person changes that" for file in task.files if is_guarded(file)
    ]
    found += [f"{file} is an artifact of a feature: Forge writes those" for file in task.files if file.startswith(ARTIFACTS)]
    return found + [f"{file} is no plain path in the repository" for file in wild]


GUARDED = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")  # what tells agents how to work, wherever it stands
GUARDED_FOLDERS = (".claude", ".cursor", ".strata", ".git")


def is_guarded(path: str) -> bool:
    parts = path.split("/")
    return parts[-1] in GUARDED or parts[0] in GUARDED_FOLDERS or path.startswith(".github/instructions/")


def _is_plain(path: str) -> bool:
    return posixpath.normpath(path) == path and path != "." and not path.startswith("../")


def waves(tasks: list[Task]) -> list[list[Task]]:
    """Tasks that wait for nobody of the same wave, in the order they are listed."""
    table = {t.id: t for t in tasks}
    sorter = TopologicalSorter({t.id: t.depends_on for t in tasks})
    sorter.prepare()
    found: list[list[Task]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=list(table).index)
        found.append([table[name] for name in ready])
        sorter.done(*ready)
    return found


def markdown(task: Task) -> str:
    """A task as a file that its implementer, and a person, reads."""
    listed = {
        "In scope": task.in_scope,
        "Out of scope": task.out_of_scope,
        "Files": tuple(f"`{file}`" for file in task.files),
        "Acceptance criteria": tuple(f"{c.id}: {c.text}" for c in task.criteria),
        "Tests": task.tests,
        "Steps": task.steps,
    }
    waits = ", ".join(task.depends_on) or "nothing"
    lines = [f"# {task.id}: {task.title or task.goal}", "", task.goal, "", f"Agent: {task.agent}. Depends on: {waits}."]
    lines += [f"Effort: {task.effort}." if task.effort else "", ""]
    for title, entries in listed.items():
        lines += [f"## {title}", "", *(f"- {entry}" for entry in entries), ""] if entries else []
    return "\n".join(lines).rstrip() + "\n"
