"""Globs of the working folder: `src/**`, `**/*.md`, `tests/test_*.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    parts: list[str] = []
    for piece in re.split(r"(\*\*/|\*\*|\*|\?)", glob):
        parts.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece, re.escape(piece)))
    return re.compile("".join(parts) + r"\Z", re.S)


def matches(path: str, globs: Iterable[str]) -> bool:
    return any(_pattern(glob).match(path) for glob in globs)
