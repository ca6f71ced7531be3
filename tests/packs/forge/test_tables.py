"""The verdict tables and the rules of a plan, against small models of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.evidence.findings import SEVERITIES, Finding
from packs.forge import tables, tasks
from packs.forge.tables import CRITICS, REVIEWERS, VERIFIERS, Member
from packs.forge.tasks import Criterion, Task

severities = st.lists(st.sampled_from(SEVERITIES), max_size=2)


def members(names: tuple[str, ...]) -> st.SearchStrategy[list[Member]]:
    def made(states: list[tuple[bool, list[str]]]) -> list[Member]:
        return [
            Member(name, ok, tuple(Finding(s, f"{name} {s}") for s in found) if ok else (), "" if ok else "it broke")
            for name, (ok, found) in zip(names, states, strict=True)
        ]

    return st.lists(st.tuples(st.booleans(), severities), min_size=len(names), max_size=len(names)).map(made)


def rank(member: Member) -> int:
    return min((SEVERITIES.index(f.severity) for f in member.findings), default=9)


@given(members(CRITICS))
def test_the_table_of_the_critics(found: list[Member]) -> None:
    failed = sum(not m.ok for m in found)
    grave = any(rank(m) <= 1 for m in found)
    said = tables.critique(found)
    assert said.word == ("ERROR" if failed >= 2 else "NEEDS_REVISION" if grave else "DONE")
    assert len(said.warnings) == failed, "who is missing is named"


@given(st.booleans(), members(VERIFIERS))
def test_the_table_of_the_verifiers(built: bool, found: list[Member]) -> None:
    error = not built or any(not m.ok for m in found)
    assert tables.verification(built, found).word == (
        "ERROR" if error else "NEEDS_REVISION" if any(rank(m) <= 2 for m in found) else "DONE"
    )


@given(members(REVIEWERS))
def test_the_table_of_the_reviewers(found: list[Member]) -> None:
    quality, security, testing, _ = found
    blocked = not security.ok or rank(security) <= 1 or sum(m.ok for m in (quality, security, testing)) < 2
    wanted = any(rank(m) <= 2 for m in (quality, security, testing))
    assert tables.review(found).word == ("ERROR" if blocked else "NEEDS_REVISION" if wanted else "DONE")


def test_knowledge_never_blocks() -> None:
    good = [Member(name, True) for name in REVIEWERS[:3]]
    for worst in (Member("r-knowledge", False, why="it broke"), Member("r-knowledge", True, (Finding("blocker", "x"),))):
        assert tables.review([*good, worst]).word == "DONE"
    assert tables.review(good).warnings == ("r-knowledge: it is missing (it did not succeed)",)


def task(name: str, **fields: object) -> Task:
    known = {"goal": "g", "files": (f"{name}.py",), "criteria": (Criterion(f"{name}-1", "it holds"),)}
    return Task(name, **(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ([], "there is no task"),
        ([task("a", files=("a", "b", "c", "d"))], "4 files, at most 3"),
        ([task("a", files=())], "owns no file"),
        ([task("a", files=("../x",))], "no plain path"),
        ([task("a", files=("**",))], "no plain path"),
        ([task("a", files=("./a.py",))], "no plain path"),
        ([task("a", files=("-q9.py",))], "no plain path"),
        ([task("a", files=("docs/feature/x/plan.md",))], "is an artifact of a feature"),
        ([task("a", files=("sub/AGENTS.md",))], "tells agents how to work"),
        ([task("a", files=(".claude/settings.json",))], "tells agents how to work"),
        ([task("a", files=(".git/hooks/pre-commit",))], "tells agents how to work"),
        ([task("a", depends_on=("b",))], "depends on b, which is no task"),
        ([task("a", agent="boss")], "none of implementer"),
        ([task("a", criteria=())], "no acceptance criterion"),
        ([task("a", lines=501)], "501 lines, at most 500"),
        ([task("a"), task("a")], "two tasks are called a"),
        ([task("a"), task("b", criteria=(Criterion("a-1", "x"),))], "also one of a"),
        ([task("a", depends_on=("b",)), task("b", depends_on=("a",))], "in a circle"),
        ([task("a", files=("x.py",)), task("b", files=("x.py",))], "a and b both own x.py"),
        ([task(n) for n in "abc"] + [task("d", depends_on=("a", "b", "c"))], "3 dependencies, at most 2"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: list[Task], words: str) -> None:
    assert any(words in complaint for complaint in tasks.complaints(plan)), tasks.complaints(plan)


@given(st.integers(1, 7), st.data())
def test_waves_keep_to_the_order_and_share_no_file(count: int, data: st.DataObject) -> None:
    names = [f"t{n}" for n in range(count)]
    plan = []
    for place, name in enumerate(names):
        before = data.draw(st.lists(st.sampled_from(names[:place]), max_size=2, unique=True)) if place else []
        files = data.draw(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=2, unique=True))
        plan.append(task(name, depends_on=tuple(before), files=tuple(files)))
    grouped = tasks.waves(plan)
    at = {t.id: number for number, wave in enumerate(grouped) for t in wave}
    assert all(at[other] < at[t.id] for t in plan for other in t.depends_on)
    clash = any(set(a.files) & set(b.files) for wave in grouped for a, b in itertools.combinations(wave, 2))
    assert bool(tasks.complaints(plan)) == clash


def test_a_file_that_two_own_one_after_the_other_is_fine() -> None:
    assert tasks.complaints([task("a", files=("x.py",)), task("b", files=("x.py",), depends_on=("a",))]) == []
    text = tasks.markdown(task("a", steps=("one", "two")))
    assert text.startswith("# a: g") and "- a-1: it holds" in text


def test_a_task_that_is_planned_again_keeps_the_criteria_it_had() -> None:
    first = task("a", criteria=(Criterion("a-1", "it is loud"), Criterion("a-2", "it is short")))
    easy = task("a", criteria=(Criterion("a-3", "it exists"),))
    (kept,) = tasks.kept([easy], [first])
    assert [c.id for c in kept.criteria] == ["a-3", "a-1", "a-2"]
    assert [t.id for t in tasks.kept([task("b")], [first])] == ["a", "b"]
    (wrong,) = tasks.reworded([task("a", criteria=(Criterion("a-1", "it exists"),))], [first])
    assert "give this one another id" in wrong
    assert tasks.reworded([task("a", criteria=(Criterion("a-1", "it  is loud"),))], [first]) == []
    assert tasks.reworded([task("b", criteria=(Criterion("a-1", "it is loud"),))], [first]), "nor does it change its task"
