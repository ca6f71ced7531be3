"""Ring 1: an outcome is believed only where every field is what it should be, and says once what an attempt produced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lib.contract import ExitCode, StrataError
from lib.disk import files
from lib.session.attempts import Attempt
from lib.session.outcome import FileChange, Outcome
from lib.session.step import Step

WHOLE = Outcome(
    ExitCode.SUCCESS,
    verdict="done",
    agent="maker",
    outputs=(
        FileChange("session", "artifacts/a.md", sha256="1", output="a"),
        FileChange("workspace", "src/", kind="folder", sha256="2"),
    ),
    changes=(FileChange("workspace", "x.py", "changed", sha256="3"), FileChange("workspace", "y", kind="symlink", target="x.py")),
    made_of={"target": "4"},
    number=7,
)


def kept(tmp_path: Path, document: Any) -> Attempt:
    attempt = Attempt(Step(stage="01-one"), tmp_path / "attempt-1")
    files.write_json(attempt.folder / "outcome.json", document)
    return attempt


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert kept(tmp_path, WHOLE.document()).outcome == WHOLE
    assert WHOLE.left == {"x.py": "3", "y": "link:x.py", "src/": "2"}
    assert WHOLE.published == {"artifacts/a.md": "1"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("exit_code", "0"), ("exit_code", 99), ("exit_code", None), ("verdict", 1), ("outputs", [1]), ("outputs", [{}])],
        *[("changes", {"x": 1}), ("made_of", []), ("consumed", {"a": 1}), ("error", "x"), ("number", "7"), ("told", 3)],
        *[("usage", []), ("denials", [1]), ("cost_usd", "much"), ("version", 1), ("fingerprint", [])],
    ],
)
def test_a_field_of_another_kind_is_named_and_the_file_kept_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: Any
) -> None:
    monkeypatch.setattr(files, "works_in", tmp_path)
    attempt = kept(tmp_path, WHOLE.document() | {field: value})
    with pytest.raises(StrataError, match=field) as refused:
        _ = attempt.outcome
    assert refused.value.code == "CORRUPT_STATE"
    aside = attempt.folder / "outcome.json.corrupt-1"
    assert json.loads(aside.read_text())[field] == value
    assert attempt.outcome is None, "the next run goes on without it"


@pytest.mark.parametrize("code", list(ExitCode), ids=lambda code: code.name)
def test_a_verdict_that_its_own_code_contradicts_is_no_success(code: ExitCode) -> None:
    assert Outcome(code, verdict="done").good is (code == ExitCode.SUCCESS)
    assert Outcome(code, verdict="needs_revision").good is (code == ExitCode.NEEDS_REFINEMENT)
    assert not Outcome(code, verdict="failed").good
