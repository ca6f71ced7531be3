"""Paths that differ from run to run, written as names, so that a recording made here can be replayed elsewhere."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from lib.contract import HOUSE, Json

MARK = "{{strata:"
LITERAL = "{{strata:literal:"  # what a text that itself speaks of such names becomes
_SWAPPED = re.compile(r"\{\{strata:[a-z]+\}\}$")
_ATTEMPT = re.compile(r"(?<=/)attempt-\d+(?=[/\s.,;)]|$)")


class Names:
    """Turns the folders of one attempt into `{{strata:…}}` names and back."""

    def __init__(self, session: Path, workspace: Path, attempt: Path, out: Path | None = None) -> None:
        folders = {"out": out or attempt / "out", "attempt": attempt, "session": session, "workspace": workspace, "house": HOUSE}
        folders["python"] = Path(sys.executable)  # stands in the command lines of checks
        self.names: dict[str, str] = {}
        for name, folder in folders.items():
            for path in {str(folder), os.path.realpath(folder)}:
                self.names.setdefault(path, f"{{{{strata:{name}}}}}")  # who stands in the house works there
        self.folders = {f"{{{{strata:{name}}}}}": str(folder) for name, folder in folders.items()}

    def told(self, text: str) -> str:
        """A prompt as it is compared with a recorded one: how often an attempt was cut off before makes no difference."""
        return _ATTEMPT.sub("attempt-n", self.hide(text))

    def hide(self, text: str) -> str:
        """The longest first: a session may lie in the workspace, or the workspace in the session."""
        text = text.replace(MARK, LITERAL)
        for path in sorted(self.names, key=len, reverse=True):
            text = _swap(text, path, self.names[path]) if path in text else text
        return text

    def show(self, text: str) -> str:
        for name, folder in self.folders.items():
            text = text.replace(name, folder)
        return text.replace(LITERAL, MARK)

    def hide_in(self, document: Json) -> Json:
        return json.loads(self.hide(json.dumps(document, ensure_ascii=False)))

    def show_in(self, document: Json) -> Json:
        return json.loads(self.show(json.dumps(document, ensure_ascii=False)))


def _swap(text: str, path: str, name: str) -> str:
    """A path ends where it ends: /a/work is not the beginning of /a/work-2. A pattern would be compiled anew in every process."""
    parts: list[str] = []
    begin = 0
    while (at := text.find(path, begin)) >= 0:
        end = at + len(path)
        parts += [text[begin:at], path if _goes_on(text, at, end) else name]
        begin = end
    return "".join([*parts, text[begin:]])


def _goes_on(text: str, at: int, end: int) -> bool:
    """Whether what stands there is a part of a longer name. A path that was swapped already ends like one."""
    before, after, next_one = text[at - 1 : at] if at else "", text[end : end + 1], text[end + 1 : end + 2]
    swapped = before == "}" and _SWAPPED.search(text, max(at - 30, 0), at) is not None
    in_extension = after == "." and (next_one.isalnum() or next_one == "_")
    return swapped or before == "." or _in_name(before) or _in_name(after) or in_extension


def _in_name(letter: str) -> bool:
    return letter.isalnum() or (letter != "" and letter in "_-")
