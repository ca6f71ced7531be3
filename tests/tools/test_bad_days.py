"""Disks that are full, sessions that cannot be written, torn lines, clocks that jump, two at once, files that are gone:
each has an outcome that is said clearly, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import WORKER, House, Ran, log, plan, wait_for

pytestmark = pytest.mark.rehearsed

STAGES = """version: 1
name: trial
stages:
  - {name: a, tool: worker.py, args: [a], retry: {max: 0}, outputs: {made: {path: made.json}}}
  - {name: b, tool: worker.py, args: [b], retry: {max: 0}, inputs: {made: a.made}, outputs: {made: {path: made.json}}}
  - {name: c, tool: worker.py, args: [c], retry: {max: 0}, inputs: {made: b.made}, outputs: {made: {path: made.json}}}
"""
PLAN = """version: 1
name: trial
checks: checks.yaml
budget: {agents: 5}
phases:
  - {name: one, run: [{orchestrator: trial}], verify: {checks: [good, artifacts]}}
  - {name: two, depends_on: [one], run: [{orchestrator: trial, name: again}], verify: {none: a test}}
"""


@pytest.fixture
def trial(house: House) -> House:
    house.tool("worker", WORKER.replace('Path(call.cwd) / "log"', 'Path(__file__).parent.parent / "workspace" / "log"'))
    house.orchestrator(STAGES)
    house.workspace.joinpath("in").mkdir()
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: test ! -f bad}}\n")
    (house.folder / "plan.yaml").write_text(PLAN)
    return house


def start(house: House, *flags: str) -> Ran:
    return house.json("campaign", str(house.folder / "plan.yaml"), "--cwd", str(house.workspace / "in"), *flags)


def parses(session: Path) -> None:
    for path in session.rglob("*"):
        if path.is_file() and path.suffix == ".json" and "out" not in path.parts:  # what a worker had begun there is its own
            json.loads(path.read_text())
        elif path.is_file() and path.name.endswith((".yaml", ".done", ".fail", ".session-state")):
            yaml.safe_load(path.read_text())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "strata", folder], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


@pytest.mark.parametrize("size", [16, 64, 100, 160])
def test_a_full_disk_is_said_and_a_resume_with_room_goes_on(trial: House, small_disk: Path, size: int) -> None:
    remount(small_disk, f"size={size}k")
    session = small_disk / "s"
    ran = start(trial, "--session-dir", str(session))
    assert ran.code in (1, 3), ran.stdout
    assert "No space left" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.error["hint"]
    remount(small_disk, "size=50m")
    done = len(list(session.glob("**/outcome.json")))
    ran = (
        start(trial, "--session-dir", str(session))
        if not (session / "effective-config.json").exists()
        else (trial.json("campaign", "--resume", str(session)))
    )
    assert ran.code == 0, ran.stderr
    parses(session)
    attempts = [json.loads(p.read_text())["verdict"] for p in session.glob("**/attempt-*/outcome.json")]
    assert attempts.count("done") == 7, (done, attempts)


def test_a_session_that_cannot_be_written_is_refused_with_what_to_do(trial: House, small_disk: Path) -> None:
    remount(small_disk, "size=50m")
    plan(House.at(trial, trial.workspace / "in"), b="fail")
    assert start(trial, "--session-dir", str(small_disk / "s")).code == 3
    remount(small_disk, "ro")
    ran = trial.json("campaign", "--resume", str(small_disk / "s"))
    assert (ran.code, ran.error["code"]) == (1, "SESSION_UNWRITABLE")
    assert "permissions" in ran.error["hint"]
    looked = trial.json("campaign", "--resume", str(small_disk / "s"), "--explain")
    assert looked.code == 0, "looking needs no writing"
    remount(small_disk, "rw")
    plan(House.at(trial, trial.workspace / "in"), b="ok")
    assert trial.json("campaign", "--resume", str(small_disk / "s")).code == 0


def test_a_torn_line_for_people_is_left_alone_and_one_of_the_ledger_is_said_once(trial: House) -> None:
    plan(House.at(trial, trial.workspace / "in"), b="fail")
    assert start(trial).code == 3
    session = trial.session
    for name in (".live-report", "ledger.jsonl"):
        with (session / name).open("a") as file:
            file.write('{"torn": "half a li')
    plan(House.at(trial, trial.workspace / "in"), b="ok")
    ran = trial.json("campaign", "--resume", session.name)
    assert (ran.code, ran.error["code"]) == (1, "CORRUPT_STATE")
    assert "half a li" in (session / "ledger.jsonl.corrupt-1").read_text(), "it is kept"
    ran = trial.json("campaign", "--resume", session.name)
    assert ran.code == 0, ran.stderr
    lines = (session / ".live-report").read_text().splitlines()
    assert sum("half a li" in line for line in lines) == 1
    assert all(json.loads(line) for line in lines if "half a li" not in line), "nothing was written onto the torn line"


def test_a_clock_that_jumps_back_changes_nothing(trial: House) -> None:
    for name in ("clock", "checkpoints"):
        trial.rewrite(
            name,
            ("datetime.now(UTC)", "_clock()"),
            more=(
                "\n\ndef _clock():\n    from datetime import timedelta\n    from pathlib import Path\n"
                f"    back = Path({str(trial.folder / 'back')!r}).exists()\n"
                "    return datetime.now(UTC) - timedelta(days=400 if back else 0)\n"
            ),
        )
    plan(House.at(trial, trial.workspace / "in"), b="fail")
    assert start(trial).code == 3
    (trial.folder / "back").touch()
    plan(House.at(trial, trial.workspace / "in"), b="ok")
    before = log(trial)
    ran = trial.json("campaign", "--resume", trial.session.name)
    assert ran.code == 0, ran.stderr
    assert log(trial)[len(before) :] == ["b", "c", "a", "b", "c"]
    names = sorted(p.name for p in (trial.session / "checkpoints").iterdir())
    latest = json.loads((trial.session / "checkpoints" / names[-1]).read_text())
    assert latest["pending_phases"] == [], "the newest checkpoint is the last one, whatever the clock says"
    assert trial.json("campaign", "--resume", trial.session.name).code == 0
    assert len(log(trial)) == len(before) + 5, "and what was done then is finished"


def test_of_two_resumes_at_once_one_goes_on(trial: House) -> None:
    plan(House.at(trial, trial.workspace / "in"), b="fail")
    assert start(trial).code == 3
    plan(House.at(trial, trial.workspace / "in"), b="sleep")
    name = trial.session.name
    before = len(log(trial))
    with trial.start("campaign", "--resume", name) as child:
        wait_for(lambda: len(log(trial)) > before, what="the first one works")
        ran = trial.json("campaign", "--resume", name)
        assert (ran.code, ran.error["code"]) == (1, "SESSION_LOCKED")
        assert str(child.pid) in ran.error["message"]
        assert trial.json("campaign", "--resume", name, "--explain").code == 0, "looking is allowed"
        child.terminate()
        child.communicate(timeout=60)
    plan(House.at(trial, trial.workspace / "in"), b="ok")
    assert trial.json("campaign", "--resume", name).code == 0


def test_derived_files_that_are_deleted_are_made_again_and_nothing_runs(trial: House) -> None:
    assert start(trial).code == 0
    session = trial.session
    ran = log(trial)
    signals = {p.name for p in (session / ".signals").iterdir()}
    derived = ["manifest.json", ".session-state", ".live-report", "execution-report.md", "sentinel", "checkpoints", ".signals"]
    derived += [".numbers", ".trace", "phases/phase-01-one/report.json", "phases/phase-01-one/trial/manifest.json"]
    derived += ["phases/phase-01-one/sentinel/manifest.json", "phases/phase-01-one/sentinel/grade.txt"]
    for name in derived:
        path = session / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = trial.json("campaign", "--resume", session.name)
    assert again.code == 0, again.stderr
    assert again.document["grade"] == "UNVERIFIABLE"
    assert log(trial) == ran, "nothing that was finished ran again"
    for name in set(derived) - {".numbers"}:  # that one when the next outcome needs it
        assert (session / name).exists(), name
    assert {p.name for p in (session / ".signals").iterdir()} >= {s for s in signals if "checks" not in s}
    assert trial.json("campaign", "--resume", session.name, "--from", "two").code == 0
    numbers = [json.loads(p.read_text())["number"] for p in session.glob("**/attempt-*/outcome.json")]
    assert len(set(numbers)) == len(numbers)


def test_a_state_file_that_is_damaged_stops_it_under_its_name_and_is_kept_aside(trial: House) -> None:
    assert start(trial).code == 0
    path = next(trial.session.glob("**/01-a/attempt-1/outcome.json"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    ran = trial.json("campaign", "--resume", trial.session.name)
    assert ran.code != 0
    assert "CORRUPT_STATE" in ran.stdout
    assert str(path.relative_to(trial.session)) in ran.stdout
    assert path.with_name("outcome.json.corrupt-1").read_bytes() == whole[: len(whole) // 2], "and it is kept as it was"
    assert trial.json("campaign", "--resume", trial.session.name).code == 0, "the next goes on without it"


def test_a_session_of_somebody_else_is_refused(trial: House) -> None:
    if os.getuid() == 0:
        pytest.skip("nothing is somebody else's for root")
    folder = trial.folder / "closed"
    folder.mkdir(mode=0o500)
    ran = start(trial, "--session-dir", str(folder / "s"))
    assert ran.error["code"] == "SESSION_UNWRITABLE"
