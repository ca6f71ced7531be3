"""Ring 1: a folder that several machines are to work in is looked at before anything is placed."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from lib.contract import StrataError
from lib.machines import mounts, submission


def test_a_folder_with_locks_and_the_same_clock_is_fit_and_left_as_it_was(tmp_path: Path) -> None:
    submission.require_place(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_keeps_no_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that says yes to everybody."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(StrataError, match="keeps no locks") as refused:
        submission.require_place(tmp_path)
    assert "--session-base" in refused.value.hint


def test_a_folder_whose_mount_forbids_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "of", lambda folder: mounts.Mount("nfs4", ("rw", "local_lock=flock")))
    with pytest.raises(StrataError, match="one machine only") as refused:
        submission.require_place(tmp_path)
    assert refused.value.hint == "mount it without"


def test_a_file_system_that_knows_no_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(37, os.strerror(37))

    monkeypatch.setattr(fcntl, "flock", unknown)
    with pytest.raises(StrataError, match="keeps no locks"):
        submission.require_place(tmp_path)


@pytest.mark.parametrize("seconds", [-60.0, 60.0])
def test_a_clock_that_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    before = time.time
    monkeypatch.setattr(submission.time, "time", lambda: before() + seconds)
    with pytest.raises(StrataError, match=r"60\.0 s apart"):
        submission.require_place(tmp_path)


def test_a_run_asks_before_it_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(StrataError, match="keeps no locks"):
        submission.begin("temporal://127.0.0.1:1", tmp_path, print)
