"""Writing to a stream somebody may have closed, without what a terminal would obey; and the end of a process."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn, TextIO


def harmless(text: str) -> str:
    """Without what a terminal would obey instead of show, or turn a line around. As long as it was."""
    if text.isprintable():  # nearly all of it is, and a page has a hundred thousand pieces
        return text
    return "".join(c if c in "\n\t\u00a0" or c.isprintable() else "\ufffd" for c in text)


def write(stream: TextIO, text: str) -> None:
    """Prints, if anybody can hear it. A closed pipe or a full disk behind a stream does not change how the tool ended."""
    try:
        known = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(known, "replace").decode(known))  # a terminal that does not know a sign shows a ?
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or the interpreter would fail on its way out


def end_process(code: int) -> NoReturn:
    """Ends this process at once, with what it printed. An interpreter takes longer to take itself apart than it took to start."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = code or 1  # nobody takes its last words; an interpreter's own 120 is no code of ours
    os._exit(code)
