"""Globs of the working folder: `src/**`, `**/*.md`, `tests/test_*.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_ESCAPED = re.compile(r"\[[*?[]\]")  # a letter that would be wild, meant as itself


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    parts: list[str] = []
    for piece in re.split(r"(\*\*/|\*\*|\*|\?|\[[*?[]\])", glob):
        parts.append(_WILD.get(piece) or re.escape(piece[1] if _ESCAPED.fullmatch(piece) else piece))
    return re.compile("".join(parts) + r"\Z", re.S)


def unsafe(glob: str) -> bool:
    """Whether a glob, put into a rule of the agent CLI, could end that rule and begin another."""
    return any(letter in "()," or ord(letter) < 32 for letter in glob)


def inside(glob: str, allowed: Iterable[str]) -> bool:
    """Whether all that a glob can match is allowed, as far as can be seen: a plain path that is matched, the same glob, or one
    below a folder of which everything is allowed."""
    wild = any(letter in glob for letter in "*?[")
    if ".." in glob.split("/") or glob.startswith("/") or unsafe(glob):
        return False
    whole = [a.removesuffix("**") for a in allowed if a.endswith("**")]
    below = any(glob.startswith(folder) for folder in whole if not any(letter in folder for letter in "*?["))
    return glob in allowed or (matches(glob, allowed) if not wild else below)


def matches(path: str, globs: Iterable[str]) -> bool:
    return any(_pattern(glob).match(path) for glob in globs)
