"""What a killed attempt may have done to the workspace."""

from __future__ import annotations

import os
from pathlib import Path

from lib.workspace.history import CutOff


def test_a_folder_is_as_a_killed_attempt_left_it_where_the_last_change_below_it_was_in_its_time(tmp_path: Path) -> None:
    """Only the folder of the file that is written changes its time, not those above it."""
    deep = tmp_path / "docs/feature/review"
    deep.mkdir(parents=True)
    (deep / "old.md").write_text("old\n")
    now = (deep / "old.md").stat().st_mtime
    cut = CutOff(3, "a/b/c", ("**",), now + 100, now + 200)
    assert not cut.explains(tmp_path, "docs")
    (deep / "new.md").write_text("by the attempt\n")
    os.utime(deep / "new.md", (now + 150, now + 150))
    assert cut.explains(tmp_path, "docs") and cut.explains(tmp_path, "docs/feature/review/new.md")
    os.utime(deep / "old.md", (now + 500, now + 500))
    assert not cut.explains(tmp_path, "docs"), "somebody was here after it was dead"
    assert not CutOff(3, "a/b/c", ("src/**",), now + 100, now + 600).explains(tmp_path, "docs"), "it may not write there"
