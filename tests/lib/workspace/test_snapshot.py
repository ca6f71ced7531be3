"""What an agent changed: created, changed and deleted, with modes, links and binary content."""

from __future__ import annotations

import os
from pathlib import Path

from lib.workspace.snapshot import Snapshot


def test_every_kind_of_change_is_seen(tmp_path: Path) -> None:
    for name in ("same", "edited", "mode", "gone", "replaced"):
        (tmp_path / name).write_text(name)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "inner").write_text("x")
    before = Snapshot({"workspace": tmp_path})
    (tmp_path / "edited").write_text("edited, same length?"[:6])
    (tmp_path / "mode").chmod(0o600)
    (tmp_path / "gone").unlink()
    (tmp_path / "dir" / "inner").unlink()
    (tmp_path / "dir").rmdir()
    (tmp_path / "new").write_bytes(b"\x00\xff")
    (tmp_path / "link").symlink_to("same")
    (tmp_path / "tmp").write_text("replaced")
    (tmp_path / "tmp").replace(tmp_path / "replaced")
    found = {c.path: (c.change, c.kind) for c in before.changes()}
    assert found == {
        "edited": ("changed", "file"),
        "mode": ("changed", "file"),
        "gone": ("deleted", "file"),
        "dir": ("deleted", "file"),
        "dir/inner": ("deleted", "file"),
        "new": ("created", "file"),
        "link": ("created", "symlink"),
        "replaced": ("changed", "file"),
    }


def test_a_change_that_keeps_size_and_modification_time_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("aaaa")
    info = path.stat()
    before = Snapshot({"workspace": tmp_path})
    path.write_text("bbbb")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert [c.path for c in before.changes()] == ["x"]


def test_the_session_caches_and_git_are_not_the_agents_work(tmp_path: Path) -> None:
    before = Snapshot({"workspace": tmp_path}, exclude=(tmp_path / "sessions",))
    for name in ("sessions", ".git", "__pycache__", "src"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("x")
    assert [c.path for c in before.changes()] == ["src", "src/f"]


def test_a_folder_inside_another_watched_one_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    before = Snapshot({"workspace": tmp_path, "out": tmp_path / "out"})
    (tmp_path / "out" / "f").write_text("x")
    assert [(c.root, c.path) for c in before.changes()] == [("out", "f")]
