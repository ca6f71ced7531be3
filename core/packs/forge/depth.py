"""How deep a review goes: worked out from what changed, and said with the reason."""

from __future__ import annotations

import re

from msgspec import Struct

FULL, STANDARD, LIGHTWEIGHT = DEPTHS = ("full", "standard", "lightweight")
_GRAVE = re.compile(
    r"auth|login|password|secret|token|crypt|session|permission|admin|payment|billing|invoice|migrat|schema|database|sql|network"
    r"|socket|http|upload|deserial|pickle|subprocess|eval\(",
    re.I,
)
_DOCS = re.compile(r"(^|/)(docs?/|README|CHANGELOG|LICENSE)|\.(md|rst|txt|cfg|ini|toml|ya?ml|json)$", re.I)
MANY_FILES, MANY_LINES = 15, 600


class Depth(Struct, frozen=True):
    word: str
    why: str


def of(diff: str, given: str = "") -> Depth:
    """From a unified diff. `given`: what a person asked for."""
    if given in DEPTHS:
        return Depth(given, "asked for")
    changed = _changed(diff)
    code = {path: lines for path, lines in changed.items() if not _DOCS.search(path)}
    if changed and not code:
        return Depth(LIGHTWEIGHT, "only documents and settings")
    grave = next((w[0] for path, lines in code.items() for text in (path, *lines) if (w := _GRAVE.search(text))), "")
    if grave:
        return Depth(FULL, f"it touches {grave!r}")
    added = sum(map(len, changed.values()))
    if len(changed) > MANY_FILES or added > MANY_LINES:
        return Depth(FULL, f"{len(changed)} files, {added} lines")
    return Depth(STANDARD, f"{len(changed)} files, {added} lines, nothing grave in them")


def _changed(diff: str) -> dict[str, list[str]]:
    """By file, the lines that came."""
    found: dict[str, list[str]] = {}
    here = ""
    for line in diff.splitlines():
        named = re.match(r"(?:\+\+\+ b/|--- a/)(.+)$", line)
        if named:
            here = named[1]
            found.setdefault(here, [])
        elif line.startswith("+") and here:
            found[here].append(line[1:])
    return found
