"""Depth: a child can tighten, never loosen, and a malformed value is an error, not 0."""

from __future__ import annotations

import pytest
from lib.contract import ExitCode, StrataError
from lib.tool import depth


@pytest.mark.parametrize(
    ("env_depth", "env_max", "arg_depth", "arg_max", "expected"),
    [
        (None, None, None, None, (0, 2)),
        ("1", "5", None, None, (1, 5)),
        ("1", "5", 3, 9, (3, 5)),
        ("3", "5", 1, 4, (3, 4)),
        (None, None, 2, 7, (2, 7)),
    ],
)
def test_the_larger_depth_and_the_smaller_limit_hold(monkeypatch, env_depth, env_max, arg_depth, arg_max, expected) -> None:
    for name, value in (("AGENTIC_SPAWN_DEPTH", env_depth), ("AGENTIC_MAX_DEPTH", env_max)):
        if value is not None:
            monkeypatch.setenv(name, value)
    found = depth.from_environment(1, arg_depth, arg_max)
    assert (found.current, found.maximum) == expected


@pytest.mark.parametrize("value", ["", "-1", "x", "1.5", "٣", " 1", "1e3", "NaN"])
@pytest.mark.parametrize("name", ["AGENTIC_SPAWN_DEPTH", "AGENTIC_MAX_DEPTH"])
def test_a_malformed_value_is_an_error(monkeypatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StrataError, match=name):
        depth.from_environment(1, None, None)


def test_nothing_left_is_exit_2() -> None:
    with pytest.raises(StrataError) as caught:
        depth.Depth(3, 3).require()
    assert caught.value.exit_code == ExitCode.DEPTH_EXCEEDED
