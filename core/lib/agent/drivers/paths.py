"""Paths that differ from run to run, written as names, so that a recording made here can be replayed elsewhere."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cached_property
from pathlib import Path

from lib.contract import HOUSE, Json

MARK = "{{strata:"
LITERAL = "{{strata:literal:"  # what a text that itself speaks of such names becomes
_ATTEMPT = re.compile(r"(?<=/)attempt-\d+(?=[/\s.,;)]|$)")


class Names:
    """Turns the folders of one attempt into `{{strata:…}}` names and back."""

    def __init__(self, session: Path, workspace: Path, attempt: Path, out: Path | None = None) -> None:
        folders = {"out": out or attempt / "out", "attempt": attempt, "session": session, "workspace": workspace, "house": HOUSE}
        folders["python"] = Path(sys.executable)  # stands in the command lines of checks
        pairs: list[tuple[str, str]] = []
        for name, folder in folders.items():
            for path in {str(folder), os.path.realpath(folder)}:
                pairs.append((path, f"{{{{strata:{name}}}}}"))
        self.names = dict(pairs)
        self.folders = {f"{{{{strata:{name}}}}}": str(folder) for name, folder in folders.items()}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The longest first: a session may lie in the workspace, or the workspace in the session. A path ends where it ends:
        /a/work is not the beginning of /a/work-2."""
        longest_first = sorted(self.names, key=lambda path: -len(path))
        return re.compile(r"(?<![\w.-])(?:" + "|".join(re.escape(p) for p in longest_first) + r")(?![\w-]|\.\w)")

    def told(self, text: str) -> str:
        """A prompt as it is compared with a recorded one: how often an attempt was cut off before makes no difference."""
        return _ATTEMPT.sub("attempt-n", self.hide(text))

    def hide(self, text: str) -> str:
        return self.pattern.sub(lambda found: self.names[found[0]], text.replace(MARK, LITERAL))

    def show(self, text: str) -> str:
        for name, folder in self.folders.items():
            text = text.replace(name, folder)
        return text.replace(LITERAL, MARK)

    def hide_in(self, document: Json) -> Json:
        return json.loads(self.hide(json.dumps(document, ensure_ascii=False)))

    def show_in(self, document: Json) -> Json:
        return json.loads(self.show(json.dumps(document, ensure_ascii=False)))
