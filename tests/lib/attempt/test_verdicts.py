"""An agent's data that contradicts itself counts as the worse of its statements."""

from __future__ import annotations

from typing import Any

import pytest
from lib.attempt import verdicts
from lib.attempt.acceptance import status_line

UNMET = [{"requirement": "r", "status": "unmet", "evidence": "e"}]
UNPROVEN = [{"requirement": "r", "status": "unproven", "evidence": "e"}]
MET = [{"requirement": "r", "status": "met", "evidence": "e"}]


@pytest.mark.parametrize(
    ("said", "requirements", "counts"),
    [("PASS", MET, "PASS"), ("PASS", UNMET, "FAIL"), ("PASS", UNPROVEN, "WARN"), ("WARN", MET, "WARN"), ("FAIL", MET, "FAIL")],
)
def test_an_audit_is_as_bad_as_its_worst_requirement(said: str, requirements: Any, counts: str) -> None:
    assert verdicts.grade({"grade": said, "requirements": [*MET, *requirements]}) == counts


@pytest.mark.parametrize(
    ("said", "gaps", "requirements", "counts"),
    [("yes", [], MET, "yes"), ("yes", ["x"], MET, "partly"), ("yes", [], UNPROVEN, "partly"), ("no", [], MET, "no")],
)
def test_a_goal_is_met_only_where_nothing_is_open(said: str, gaps: list[str], requirements: Any, counts: str) -> None:
    assert verdicts.met({"met": said, "gaps": gaps, "requirements": requirements}) == counts


def test_a_request_is_resolved_only_by_words_and_without_a_question() -> None:
    assert verdicts.resolves({"decision": "resolve", "guidance": "do this", "question": ""})
    assert not verdicts.resolves({"decision": "resolve", "guidance": " ", "question": ""})
    assert not verdicts.resolves({"decision": "resolve", "guidance": "do this", "question": "which colour?"})
    assert not verdicts.resolves({"decision": "escalate", "guidance": "do this", "question": ""})


def test_there_is_a_plan_only_where_there_is_one() -> None:
    assert verdicts.plans({"decision": "plan", "plan": {"name": "x"}})
    assert not verdicts.plans({"decision": "plan", "plan": None})
    assert not verdicts.plans({"decision": "impossible", "plan": {"name": "x"}})


@pytest.mark.parametrize(
    "against",
    [
        {"requirements": UNMET},
        {"findings": [{"severity": "blocking", "issue": "broken"}]},
        {"gaps": ["one"]},
        {"grade": "FAIL"},
        {"met": "partly"},
        {"passed": False},
        {"checks": [{"name": "x", "passed": False}]},
    ],
)
def test_done_with_something_open_is_not_done(against: dict[str, Any]) -> None:
    assert verdicts.of({"verdict": "done", **against}).word == "needs_revision"
    assert verdicts.of({"verdict": "failed", **against}).word == "failed"
    assert verdicts.of(against).word == "done", "a report that finds fault is a good report"


def test_what_was_resolved_or_does_not_block_is_not_open() -> None:
    fine = {"findings": [{"severity": "minor"}, {"severity": "blocking", "resolved": True}], "gaps": [], "grade": "WARN"}
    assert verdicts.of({"verdict": "done", **fine}).word == "done"
    assert verdicts.of({"verdict": "splendid"}).word == "failed"


@pytest.mark.parametrize(
    "line", ["DONE", "DONE.", "**DONE**", "`DONE`", "- DONE", "DONE!", "**DONE**: all of it", "DONE — all of it"]
)
def test_a_status_word_is_read_as_agents_write_it(line: str) -> None:
    assert status_line(f"I did it.\n\n{line}\n", "", "cluster").word == "done"


@pytest.mark.parametrize("line", ["I am DONE", "DONE with the first half, the rest is open", "done", "not DONE"])
def test_a_sentence_with_the_word_in_it_is_no_status_line(line: str) -> None:
    assert status_line(line, "", "cluster").word == "failed"


def test_who_writes_no_status_line_is_told_exactly_what_is_missing() -> None:
    note = status_line("All is well.", "BUILD", "stage").note
    assert "'All is well.'" in note and "`STAGE_BUILD_COMPLETE`" in note and "`STAGE_FAILED: <reason>`" in note
    assert "`DONE: <one sentence>`" in status_line("", "", "cluster").note
