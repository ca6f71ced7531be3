"""Sessions: names that cannot collide or escape, one writer, attempts that are never reused, files that are whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lib.contract import StrataError
from lib.disk import files
from lib.session import attempts
from lib.session import folder as session
from lib.session.folder import Session
from lib.session.step import Step
from support import CORE


@pytest.mark.parametrize(
    "text",
    [
        "../up",
        "/etc/passwd",
        "a\nb",
        "a\x00b",
        "\u202eabc",
        "x" * 300,
        "attempt-1",
        "round-2",
        "CON",
        "",
        "a/b",
        ".",
        "..",
        "10.1/2",
    ],
)
def test_any_text_becomes_a_folder_name_that_stays_where_it_is(text: str, tmp_path: Path) -> None:
    name = files.safe_name(text)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert len(name) < 64
    assert name not in ("attempt-1", "round-2", "CON")
    assert name.isprintable()
    assert "." not in name


def test_different_names_never_share_a_folder() -> None:
    names = ["a b", "a-b", "a_b", "A B", "a/b", "a.b", "ä", "a"]
    assert len({files.safe_name(n) for n in names}) == len(names)


@pytest.mark.parametrize("path", ["../x", "/abs", "a/../../x", "a\nb", "", "link/x", "a\u202eb"])
def test_a_path_from_outside_cannot_leave_its_folder(path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(StrataError, match="leaves its folder"):
        files.inside(tmp_path, path, "the output")


def test_a_step_path_survives_being_written_and_read() -> None:
    step = Step("phase-01-x", "forge", "05-build", 2, "task-7")
    assert Step.parse(str(step)) == step
    assert str(step.folder) == "phases/phase-01-x/forge/stages/05-build/round-2/task-7"
    assert Step.parse(str(Step(stage="plan"))) == Step(stage="plan")
    assert str(Step(stage="plan").folder) == "stages/plan"


@pytest.mark.parametrize("text", ["", "a/b", "a/b/c/d/e", "a/b/../1/x", "a/b/c/-1/x", "a/b/c/1/x/y", "a/b/c/1/.."])
def test_a_step_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StrataError):
        Step.parse(text)


def test_steps_with_dashes_in_their_names_have_slugs_of_their_own() -> None:
    steps = [
        Step("", "a-b", "01-c"),
        Step("", "a", "01-b-c"),
        Step("phase-01-a", "b", "01-c"),
        Step("", "a", "01-b", 1, "c"),
        Step("", "a", "01-b", 0, "c"),
        Step("", "a", "01-b", 1),
        Step("", "a", "01-b", 0, files.safe_name("round-1")),
    ]
    assert len({s.slug for s in steps}) == len(steps)


def test_attempts_made_at_the_same_time_each_get_their_own_folder(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> None:
        for _ in range(20):
            made.append(Session(tmp_path, None).new_attempt(Step(stage="x")).number)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(made) == list(range(1, 161))


def test_a_second_run_of_the_same_session_is_refused_and_names_the_first(tmp_path: Path) -> None:
    session.open_session(str(tmp_path), None, "x", "")
    code = "import sys; sys.path.insert(0, sys.argv[1])\nfrom lib.session import folder\n"
    code += "folder.open_session(sys.argv[2], None, 'x', '')"
    done = subprocess.run([sys.executable, "-c", code, str(CORE), str(tmp_path)], capture_output=True, text=True, check=False)
    assert f"another run (pid {os.getpid()})" in done.stderr


def test_an_empty_variable_names_no_session_around_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIC_SESSION_DIR", "")
    monkeypatch.chdir(tmp_path)
    opened = session.open_session(str(tmp_path), None, "x", "")
    assert opened.outermost
    opened.release()


def test_a_second_session_of_the_same_minute_gets_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noon(session.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 2, 7, 10, 0, tzinfo=tz)

    monkeypatch.setattr(session, "datetime", Noon)
    names = [session.open_session(None, str(tmp_path), "My Töpic/../x", "").folder.name for _ in range(3)]
    assert names == ["20260207-1000-my-topic-x", "20260207-1000-my-topic-x-2", "20260207-1000-my-topic-x-3"]


def test_a_file_that_could_not_be_written_whole_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    files.write_json(path, {"n": 1})

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        files.write_json(path, {"n": 2})
    assert files.read_json(path) == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "{'a': 1}"])
def test_a_corrupt_state_file_stops_with_its_name_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "outcome.json"
    path.write_text(text)
    with pytest.raises(StrataError, match=r"outcome\.json"):
        files.read_json(path)
    assert path.read_text() == text


def test_lines_appended_by_many_processes_are_whole(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(CORE)!r})
from lib.disk import files
from pathlib import Path
for n in range(200):
    files.append_line(Path({str(tmp_path / "log")!r}), {{"who": int(sys.argv[1]), "n": n, "pad": "z" * 6000}})
"""
    children = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in range(4)]
    assert [c.wait() for c in children] == [0] * 4
    import json

    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted((x["who"], x["n"]) for x in lines) == [(w, n) for w in range(4) for n in range(200)]


def test_credentials_do_not_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lib.disk import redact

    monkeypatch.setenv("MY_API_KEY", "hunter2hunter2")
    redact._values.cache_clear()
    files.write_atomic(tmp_path / "x", "key hunter2hunter2 and sk-ant-api03-abcdefghijklmnop end")
    assert (tmp_path / "x").read_text() == "key [redacted] and [redacted] end"
    redact._values.cache_clear()


def test_what_an_agent_plants_is_no_attempt(tmp_path: Path) -> None:
    step = Step("phase-01-one", "run", "01-make")
    real = tmp_path / step.folder / "attempt-1"
    planted = ["attempt-9", "stages/01-x/attempt-1"]
    homes = [
        real / "out",
        tmp_path / "workspace",
        tmp_path / "workspace/stages/01-make",
        tmp_path / "phases/phase-01-one/artifacts/x",
    ]
    for folder in [real, *(home / name for home in homes for name in planted)]:
        files.write_json(folder / "outcome.json", {"exit_code": 0, "verdict": "done", "number": 7, "step": str(step)})
    (tmp_path / step.folder / "attempt-2").symlink_to(real / "out/attempt-9")
    assert [(a.step, a.folder) for a, _ in attempts.every_outcome(tmp_path)] == [(step, real)]
    assert [a.folder for a, _ in attempts.every_outcome(tmp_path, "phase-01-one")] == [real]
    assert len(attempts.finished(tmp_path)) == 1


def test_only_what_was_begun_by_us_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".made.json.a1b2c3d4.tmp.123"
    for path in (left, tmp_path / ".notes.tmp.md", tmp_path / ".x.tmp.1"):
        path.write_text("x")
    files.sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".notes.tmp.md", ".x.tmp.1"]


def test_a_session_of_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / session.NUMBERS).write_text("...")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(StrataError, match="another version of Strata") as refused:
        session.open_session(str(tmp_path), None, "x", "")
    assert refused.value.code == "OTHER_FORMAT"
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_file_without_a_folder_in_its_name_is_written_where_we_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.write_atomic(Path("here.txt"), "x")
    files.append_line(Path("log"), {"a": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here.txt", "log"]
