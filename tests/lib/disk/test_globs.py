"""Globs of the working folder."""

from __future__ import annotations

import pytest
from lib.agent.drivers.paths import Names
from lib.disk import globs


@pytest.mark.parametrize(
    ("path", "glob", "inside"),
    [
        ("a.py", "**", True),
        ("a/b/c.py", "**", True),
        ("docs/a.md", "docs/**", True),
        ("docs2/a.md", "docs/**", False),
        ("a.md", "**/*.md", True),
        ("x/y/a.md", "**/*.md", True),
        ("x/a.md", "*.md", False),
        ("test_a.py", "**/test_*.py", True),
        ("a.py.bak", "*.py", False),
        ("spec.md", "spec.md", True),
        ("specXmd", "spec.md", False),
    ],
)
def test_globs(path: str, glob: str, inside: bool) -> None:
    assert globs.matches(path, [glob]) is inside


def test_a_path_is_hidden_only_where_it_ends(tmp_path) -> None:
    names = Names(tmp_path / "s", tmp_path / "desk", tmp_path / "s/a")
    text = f"{tmp_path}/desk/x {tmp_path}/desk-2/x {tmp_path}/desk. {tmp_path}/desk.bak {tmp_path}/desk"
    hidden = names.hide(text)
    assert hidden.count("{{strata:workspace}}") == 3
    assert f"{tmp_path}/desk-2/x" in hidden
    assert f"{tmp_path}/desk.bak" in hidden
    assert names.show(hidden) == text
