"""Memory, review depth and knowledge of Forge, each against what its ids promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.session.memory import Memory
from packs.forge import depth, knowledge, memory
from packs.forge.knowledge import Decision, Knowledge, Proposal
from packs.forge.memory import Artifact, Notes

# MEM-*


def test_memory_has_exactly_four_sections_from_the_first_step(tmp_path: Path) -> None:
    """MEM-AC-1, MEM-FR-2, ORCH-AC-1"""
    text = memory.render(tmp_path)
    assert text.startswith("# Operational Memory\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.M)) == memory.SECTIONS


def test_entries_are_marked_before_a_revision_and_replaced_after_it(tmp_path: Path) -> None:
    """MEM-AC-4, MEM-FR-7, MEM-FR-8, ORCH-AC-8"""
    notes = Notes((Artifact("design.md", ("Overview",)),), ("We use SQLite.",), ("Tests were slow.",), ("Wrote the design.",))
    memory.remember(tmp_path, notes, "designer", 3)
    assert memory.invalidate(tmp_path, ("designer",), "the critics found a hole") == 3, "lessons hold"
    text = memory.render(tmp_path)
    assert text.count(f"[{memory.INVALID}: the critics found a hole]") == 3 and "- [designer, step-3] Tests were slow." in text
    assert "SQLite" not in Memory(tmp_path).render(), "agents are not told what does not hold"
    memory.remember(tmp_path, Notes(decisions=("We use files.",)), "designer", 3)
    text = memory.render(tmp_path)
    assert memory.INVALID not in text and "We use files." in text and "SQLite" not in text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two. Three. Four.", "One. Two."),
        ("Use `x.y` here. Then stop! And more.", "Use `x.y` here. Then stop!"),
        ("Look:\n```python\ndef f():\n    pass\n```\nIt works.", "Look: It works."),
        ("```\nall code", ""),
    ],
)
def test_an_entry_is_two_sentences_and_no_code(text: str, kept: str) -> None:
    """MEM-AC-7, MEM-FR-6, TS-15"""
    assert memory.short(text) == kept


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40)), min_size=1, max_size=5))
def test_memory_stays_bounded_and_keeps_lessons(steps: list[tuple[int, int]]) -> None:
    """MEM-AC-6, MEM-AC-8, MEM-FR-10, TS-7"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder)
        for number, (step, count) in enumerate(sorted(steps)):
            texts = tuple(f"Entry {number} {n}." for n in range(count))
            memory.remember(session, Notes(decisions=texts, lessons=texts[:1]), f"agent-{number}", step)
            memory.prune(session, step)
            text = memory.render(session)
            assert text.count("\n") <= memory.MOST_LINES + 1
            kept = {int(n) for n in re.findall(r"step-(\d+)", text.split("## Recent Decisions")[1].split("## Lessons")[0])}
            assert all(n >= step - 2 for n in kept)
        assert memory.render(session).count("Entry") >= min(len(steps), 1)


def test_a_damaged_memory_is_a_warning_and_a_fresh_one(tmp_path: Path) -> None:
    memory.remember(tmp_path, Notes(decisions=("We use SQLite.",)), "designer", 3)
    (tmp_path / "memory.md").write_text("## Nonsense\n")
    (warning,) = memory.damaged(tmp_path)
    assert "damaged" in warning and "We use SQLite." in memory.render(tmp_path)
    (tmp_path / "memory.md").write_text(memory.render(tmp_path))
    assert memory.damaged(tmp_path) == []


# R-AC-9


@pytest.mark.parametrize(
    ("diff", "word"),
    [
        ("--- a/README.md\n+++ b/README.md\n+More words about login\n", "lightweight"),
        ("--- a/src/sum.py\n+++ b/src/sum.py\n+total = 1\n", "standard"),
        ("--- a/src/auth.py\n+++ b/src/auth.py\n+x = 1\n", "full"),
        ("--- a/src/sum.py\n+++ b/src/sum.py\n+subprocess.run(x)\n", "full"),
        ("--- a/src/sum.py\n+++ b/src/sum.py\n" + "+x = 1\n" * 700, "full"),
    ],
)
def test_the_depth_of_a_review_follows_what_changed(diff: str, word: str) -> None:
    assert depth.of(diff).word == word
    assert depth.of(diff, "standard").word == "standard", "a person may say otherwise"


# KE-SAFE-*

GOOD = Proposal(
    "pattern-capture", "Retry with backoff", "docs/patterns.md", "HTTP", "add", "It was used three times.", "+Retry twice.", "low"
)


def test_proposals_are_listed_with_all_they_need_and_a_warning(tmp_path: Path) -> None:
    """KE-SAFE-2, KE-SAFE-3, KE-SAFE-5"""
    text = knowledge.suggestions(Knowledge((GOOD,)))
    assert (
        knowledge.WARNING in text
        and "## 1. [pattern-capture] Retry with backoff" in text
        and "```diff\n+Retry twice.\n```" in text
    )
    for field in ("category", "title", "file", "why", "diff"):
        from msgspec.structs import replace

        assert "incomplete" in knowledge.refused(replace(GOOD, **{field: ""}))
    assert "none of instruction-update" in knowledge.refused(Proposal("other", "t", "f", "", "add", "w", "+x"))


@pytest.mark.parametrize(
    "diff",
    [
        "-Never commit secrets.\n+Commit what you like.",
        "-    except ValueError: raise\n+    pass",
        "-- You must not edit tests.",
        "-Run the tests before you finish.\n+Finish.",
        "-Verify every criterion.",
    ],
)
def test_what_takes_a_safety_rule_away_is_rejected(diff: str) -> None:
    """KE-SAFE-6"""
    weak = Proposal("instruction-update", "Simpler", "AGENTS.md", "", "update", "It is shorter.", diff)
    assert knowledge.refused(weak).startswith(knowledge.REJECTED)
    assert "## Rejected" in knowledge.suggestions(Knowledge((weak, GOOD)))


def test_a_rule_that_is_made_stricter_is_not_rejected() -> None:
    better = Proposal("instruction-update", "Clearer", "AGENTS.md", "", "update", "w", "-Run tests.\n+Run all tests, twice.")
    assert knowledge.refused(better) == ""


@given(st.text(max_size=200), st.lists(st.text(alphabet="abc ", min_size=1, max_size=8), max_size=3))
def test_decisions_keep_every_earlier_byte_and_are_added_once(before: str, titles: list[str]) -> None:
    """KE-SAFE-7, R-AC-7"""
    known = Knowledge(decisions=tuple(Decision(t, "c", "d") for t in titles))
    after = knowledge.decisions(before, known, "2026-11-17")
    assert after.startswith(before or knowledge.HEADER)
    assert knowledge.decisions(after, known, "2026-11-18") == after, "a resume adds nothing twice"
