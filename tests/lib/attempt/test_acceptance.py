"""What counts as done: the status line, and files that are there, are not empty and match their schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.attempt import acceptance
from lib.plan.task import Output, Task


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("All good.\nSTAGE_PLAN_COMPLETE", "done"),
        ("STAGE_PLAN_COMPLETE\n\n", "done"),
        ("**STAGE_PLAN_COMPLETE**", "done"),
        ("`STAGE_PLAN_COMPLETE`", "done"),
        ("STAGE_FAILED: no spec\nSTAGE_PLAN_COMPLETE", "done"),
        ("STAGE_PLAN_COMPLETE\nSTAGE_FAILED: after all", "failed"),
        ("I would say STAGE_PLAN_COMPLETE if it were", "failed"),
        ("STAGE_IMPLEMENT_COMPLETE", "failed"),
        ("STAGE_PLAN_COMPLETED", "failed"),
        ("stage_plan_complete", "failed"),
        ("Done!", "failed"),
        ("", "failed"),
        ("DONE: it is", "done"),
        ("NEEDS_REVISION: section 3", "needs_revision"),
        ("ERROR: could not", "failed"),
    ],
)
def test_the_last_status_line_counts_and_an_answer_without_one_is_not_a_success(text: str, word: str) -> None:
    assert acceptance.status_line(text, "PLAN", "stage").word == word


def test_the_reason_of_a_failure_is_kept() -> None:
    assert acceptance.status_line("STAGE_FAILED: no such file", "PLAN", "stage").note == "no such file"
    assert acceptance.status_line("NEEDS_REVISION: section 3", "", "cluster").note == "section 3"


def judge(tmp_path: Path, output: Output) -> list[str]:
    return acceptance.outputs(Task(outputs=(output,)), tmp_path, tmp_path)[1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "missing"),
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("{", "not valid JSON"),
        ('{"checks": 1}', "does not match"),
        ('{"version": NaN}', "not valid JSON"),
    ],
)
def test_missing_empty_and_invalid_outputs_are_found(tmp_path: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "x.json").write_text(content)
    (found,) = judge(tmp_path, Output("x", "x.json", "checks"))
    assert problem in found


def test_it_is_said_what_was_verified_of_a_good_output(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("hello")
    verified, wrong = acceptance.outputs(Task(outputs=(Output("x", "x.md"),)), tmp_path, tmp_path)
    assert wrong == []
    assert verified == {"x": ("exists", "not empty")}


@pytest.mark.parametrize("target", ["/etc/hostname", "real.md"])
def test_a_symlink_is_not_an_output(tmp_path: Path, target: str) -> None:
    (tmp_path / "real.md").write_text("x")
    (tmp_path / "x.md").symlink_to(target)
    (found,) = judge(tmp_path, Output("x", "x.md"))
    assert "symbolic link" in found


def test_an_optional_output_may_be_absent_but_not_wrong(tmp_path: Path) -> None:
    assert judge(tmp_path, Output("x", "x.json", "checks", optional=True)) == []
    (tmp_path / "x.json").write_text("{}")
    assert judge(tmp_path, Output("x", "x.json", "checks", optional=True)) != []


def test_an_output_folder_must_hold_something(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    assert judge(tmp_path, Output("t", "tasks/")) != []
    (tmp_path / "tasks" / "one.md").write_text("x")
    assert judge(tmp_path, Output("t", "tasks/")) == []
