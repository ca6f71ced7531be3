"""Ring 1: the folder of a command that was placed holds up, whatever somebody has put into it."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from pathlib import Path

import pytest
from lib.disk import records
from lib.machines import lease, placed
from lib.machines.lease import Lease
from lib.machines.placed import Result

KEY = secrets.token_hex(32)


def put(session: Path) -> Path:
    folder = session / placed.PLACED / secrets.token_hex(8)
    folder.mkdir(parents=True)
    return folder


def test_what_an_earlier_run_left_is_ended_all_at_the_same_time(tmp_path: Path) -> None:
    left = [put(tmp_path) for _ in range(6)]
    for folder in left:
        assert Lease.take(folder, 1, "w1")  # whose holder says nothing any more
    heard: list[int] = []
    started = time.monotonic()
    placed.settle(tmp_path, heard.append, grace=0.1)
    assert time.monotonic() - started < 2 * lease.TAKE_SECONDS, "and not one after the other"
    assert heard == [6]
    assert not (tmp_path / placed.PLACED).exists()


def test_settling_touches_nothing_that_is_no_order(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "deep").mkdir(parents=True)
    (photos / "deep/one").touch()
    session = tmp_path / "s"
    put(session)
    (session / placed.PLACED / secrets.token_hex(8)).symlink_to(photos)
    (session / placed.PLACED / "mine").mkdir()
    placed.settle(session, lambda count: None, grace=0.1)
    assert [p.name for p in photos.rglob("*")] == ["deep", "one"]
    assert (session / placed.PLACED / "mine").is_dir()
    other = tmp_path / "t"
    other.mkdir()
    (other / placed.PLACED).symlink_to(photos)
    placed.settle(other, lambda count: None, grace=0.1)
    assert (photos / "deep/one").exists() and not (other / placed.PLACED).exists()


def test_who_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "PATIENCE_SECONDS", 0.3)
    held = Lease.take(put(tmp_path), 1, "gpu-box")
    assert held
    renewing = threading.Event()
    thread = threading.Thread(target=lambda: [held.renew() for _ in iter(lambda: renewing.wait(0.1), True)])
    thread.start()
    try:
        with pytest.raises(Exception, match="worker gpu-box still runs"):
            placed.settle(tmp_path, lambda count: None, grace=0.1)
    finally:
        renewing.set()
        thread.join()


def test_what_is_removed_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that waits never sees a folder without its result, which would look like one that nobody began."""
    folder = put(tmp_path)
    (folder / "result-1.json").touch()
    seen: list[bool] = []
    monkeypatch.setattr(placed.shutil, "rmtree", lambda path, **_: seen.append(folder.exists()))
    placed.remove(folder)
    assert seen == [False]


@pytest.mark.parametrize("name", ["result-1.json", "handed-1.json"])
def test_a_result_that_is_no_file_is_none(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path)
    os.mkfifo(folder / name)
    assert placed.result(folder, KEY, ended=True) is None


def test_a_seal_in_other_letters_is_none(tmp_path: Path) -> None:
    folder = put(tmp_path)
    document = {**records.document(Result(1, 0, "w1").sealed(KEY)), "seal": "é" * 64}
    (folder / "result-1.json").write_text(json.dumps(document))
    assert placed.result(folder, KEY) is None


def test_a_lease_that_cannot_be_read_is_held_and_odd_names_are_none(tmp_path: Path) -> None:
    (tmp_path / "lease-٣").touch()
    (tmp_path / "lease-99999999999999").touch()
    assert lease.newest(tmp_path) == 0
    os.mkfifo(tmp_path / "lease-1")
    assert not lease.Watch(tmp_path).free()
    (tmp_path / "lease-2").write_bytes(b"\xff\xfe 0")
    assert not lease.Watch(tmp_path).free()


def test_what_was_handed_back_is_not_counted_as_lost(tmp_path: Path) -> None:
    for number, handed_back in enumerate((True, False, True), start=1):
        held = Lease.take(tmp_path, number, "w1")
        assert held
        held.release(handed_back)
        assert lease.Watch(tmp_path).free()
    assert lease.lost(tmp_path) == 1
