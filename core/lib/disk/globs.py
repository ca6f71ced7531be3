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


def matches(path: str, globs: Iterable[str]) -> bool:
    return any(_pattern(glob).match(path) for glob in globs)
