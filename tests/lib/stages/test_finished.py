"""What counts as finished: the newest outcome, the same work, and files as their latest finished writer left them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lib.disk import files
from lib.plan.orchestration import Worker
from lib.plan.task import Task
from lib.session.folder import Session
from lib.session.step import Step
from lib.stages.finished import Finished
from lib.stages.order import Order

FIRST, SECOND = Step("", "trial", "01-first"), Step("", "trial", "02-second")


def ended(session: Session, step: Step, number: int, **fields: Any) -> None:
    outcome = {"exit_code": 0, "verdict": "done", "fingerprint": "same", "number": number, "outputs": []}
    if "made" in fields:  # what a tool declares: the rest of what it touches is not its product
        made = fields.pop("made")
        fields["outputs"] = [made | {"output": "it"}]
    session.new_attempt(step).finish({"changes": []} | outcome | fields)


def change(cwd: Path, name: str, text: str | None) -> dict[str, Any]:
    if text is None:
        (cwd / name).unlink()
        return {"root": "workspace", "path": name, "change": "deleted"}
    (cwd / name).write_text(text)
    return {"root": "workspace", "path": name, "change": "changed", "kind": "file", "sha256": files.sha256(cwd / name)}


def is_finished(session: Session, cwd: Path, step: Step) -> bool:
    return Finished(session, cwd).outcome(Order(step, "", Worker(), "", (), Task(fingerprint="same"))) is not None


def scene(tmp_path: Path) -> tuple[Session, Path]:
    (tmp_path / "work").mkdir()
    return Session(tmp_path / "session", None), tmp_path / "work"


def test_a_file_that_a_later_finished_step_changed_does_not_unfinish_the_earlier_one(tmp_path: Path) -> None:
    session, cwd = scene(tmp_path)
    ended(session, FIRST, 1, made=change(cwd, "a.py", "one"))
    ended(session, SECOND, 2, changes=[change(cwd, "a.py", "two")])
    assert is_finished(session, cwd, FIRST)
    (cwd / "a.py").write_text("a person was here")
    assert not is_finished(session, cwd, FIRST)


def test_the_latest_writer_counts_not_any_writer(tmp_path: Path) -> None:
    session, cwd = scene(tmp_path)
    ended(session, FIRST, 3, made=change(cwd, "a.py", "later"))
    ended(session, SECOND, 2, changes=[change(cwd, "a.py", "earlier")])
    assert not is_finished(session, cwd, FIRST), "the file is as an earlier writer left it"


def test_a_file_that_a_later_step_deleted_may_be_gone(tmp_path: Path) -> None:
    session, cwd = scene(tmp_path)
    ended(session, FIRST, 1, made=change(cwd, "a.py", "one"))
    (cwd / "a.py").unlink()
    assert not is_finished(session, cwd, FIRST)
    (cwd / "a.py").write_text("one")
    ended(session, SECOND, 2, changes=[change(cwd, "a.py", None)])
    assert is_finished(session, cwd, FIRST)


def test_a_failed_attempt_after_a_good_one_unfinishes_and_an_interrupted_one_does_not(tmp_path: Path) -> None:
    session, cwd = scene(tmp_path)
    ended(session, FIRST, 1)
    session.new_attempt(FIRST)  # cut short by kill -9: no outcome
    ended(session, FIRST, 2, exit_code=20, verdict="failed")
    assert is_finished(session, cwd, FIRST)
    ended(session, FIRST, 3, exit_code=1, verdict="failed")
    assert not is_finished(session, cwd, FIRST)
