"""What a check comes to: what its parser counted wins over exit code 0, and what ran nothing proves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lib.attempt import checks
from lib.contract import StrataError
from lib.plan import checks_file
from lib.plan.checks_file import Check

TESTS = "def test_good():\n    assert True\n\ndef test_bad():\n    assert False\n"


def run(tmp_path: Path, command: str, parser: str, **more: Any) -> dict[str, Any]:
    (tmp_path / "work").mkdir(exist_ok=True)
    return checks.run(Check("it", ("sh", "-c", command), parser=parser, **more), tmp_path / "work", tmp_path / "evidence")


def test_a_script_that_hides_pytests_exit_code_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/test_it.py").write_text(TESTS)
    (tmp_path / "work/run.sh").write_text(f"{sys.executable} -m pytest -q -p no:cacheprovider | tee log.txt\n")
    record = run(tmp_path, "sh run.sh", "pytest")
    assert (record.exit_code, record.passed, record.errors) == (0, False, 1)


def test_what_failed_in_an_earlier_run_of_the_same_script_has_failed(tmp_path: Path) -> None:
    lines = "echo '1 failed, 3 passed in 0.10s'; echo '==== 2 passed in 0.02s ===='"
    assert run(tmp_path, lines, "pytest").errors == 1
    assert run(tmp_path, "echo '==== 2 passed in 0.02s ===='", "pytest").passed


def test_ruffs_count_wins_over_exit_code_0(tmp_path: Path) -> None:
    assert run(tmp_path, "echo 'Found 3 errors.'", "ruff").errors == 3
    assert run(tmp_path, "echo 'Found 3 errors (3 fixed, 0 remaining).'", "ruff").passed, "those that were fixed are gone"
    assert run(tmp_path, "echo 'All checks passed!'", "ruff").passed


@pytest.mark.parametrize(
    "command",
    ["''", "'   '", "'# nothing yet'", "'\n# one\n  # two\n'", "['']", "[' ']", "[sh, -c, '']", "[bash, -c, '# later']"],
)
def test_a_command_that_runs_nothing_is_refused_when_the_file_is_read(tmp_path: Path, command: str) -> None:
    (tmp_path / "checks.yaml").write_text(f"version: 1\nchecks:\n  fine: {{command: 'true'}}\n  it: {{command: {command}}}\n")
    with pytest.raises(StrataError) as caught:
        checks_file.load(tmp_path / "checks.yaml")
    assert caught.value.code == "BAD_CONFIG" and "checks.yaml:4" in caught.value.message


def test_a_phase_whose_only_checks_could_not_run_is_unverifiable(tmp_path: Path) -> None:
    missing = run(tmp_path, "exec no-such-program-at-all", "exit-code", blocking=False)
    assert (missing.ran, missing.passed) == (False, False)
    good = run(tmp_path, "true", "exit-code")
    bad = run(tmp_path, "false", "exit-code", blocking=False)
    assert checks.summary([missing]).overall == "UNVERIFIABLE"
    assert checks.summary([missing, good]).overall == "WARN"
    assert checks.summary([bad]).overall == "WARN"
    assert checks.summary([]).overall == "UNVERIFIABLE"


def test_colours_are_not_evidence(tmp_path: Path) -> None:
    record = run(tmp_path, r"printf '\033[31;1m1 failed\033[0m, \033[32m1 passed\033[0m in 0.01s\n\033]0;title\007'", "pytest")
    assert record.errors == 1
    assert (tmp_path / "evidence/it.log").read_text() == "1 failed, 1 passed in 0.01s\n"


def test_uv_run_as_a_check_leaves_nothing_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.11"\n')
    monkeypatch.setattr("lib.disk.files.works_in", tmp_path / "session")
    command = f"uv run --quiet --offline --python {sys.executable} python -c 'import sys; print(sys.prefix)'"
    record = run(tmp_path, command, "exit-code")
    assert record.passed, record.tail
    assert str(tmp_path / "session" / "environments") in record.tail
    assert sorted(p.name for p in work.iterdir()) == ["pyproject.toml"]
    subprocess.run(["true"], check=True)


def test_checks_that_write_are_not_taken_for_somebody_else(tmp_path: Path) -> None:
    """What they write themselves changes again when they run once more; what a person wrote meanwhile is judged then."""
    work, session = tmp_path / "work", tmp_path / "session"
    work.mkdir()
    session.mkdir()
    counted = Check("it", ("sh", "-c", "date +%N > stamp; echo x >> ../ran"))
    _, _, steady = checks.run_steadily([counted], work, tmp_path / "e", session)
    assert steady and (tmp_path / "ran").read_text() == "x\n" * 2
    mended = Check("it", ("sh", "-c", "test -f snapshot; r=$?; echo x > snapshot; exit $r"))
    records, _, _ = checks.run_steadily([mended], work, tmp_path / "e", session)
    assert not records[0].passed, "what has failed has failed: a second run makes nothing good"
    meddled = Check("it", ("sh", "-c", "test ! -f bad; r=$?; echo x > bad; exit $r"))
    records, _, _ = checks.run_steadily([meddled], work, tmp_path / "e", session)
    assert not records[0].passed, "what appeared while they looked is looked at"
