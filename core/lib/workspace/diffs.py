"""What became of files, as a diff: against the commit a run began at, or of new files against nothing."""

from __future__ import annotations

import difflib
from pathlib import Path

from lib.process import processes

GIT = ("git", "--literal-pathspecs")  # a file may be called like one of git's patterns
MOST_FILES = 60
MOST_LINES = 400  # of one file
MOST_BYTES = 200_000  # of a file that is shown


def of(cwd: Path, commit: str, paths: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """By path, a unified diff, where there is one to show. `paths`: what became of each; `before`: texts that are known."""
    shown = list(paths)[:MOST_FILES]
    known = _tracked(cwd, commit, shown) if commit else set[str]()
    found: dict[str, str] = {}
    for path in shown:
        if path in known:
            found[path] = _shortened(_against(cwd, commit, path))
        elif path in before or paths[path] == "created":
            found[path] = _shortened(_between(before.get(path, ""), cwd / path))
    return found


def _tracked(cwd: Path, commit: str, paths: list[str]) -> set[str]:
    done = processes.ask([*GIT, "-C", str(cwd), "ls-tree", "-r", "-z", "--name-only", commit, "--", *paths]) if paths else None
    return set(done.stdout.decode("utf-8", "replace").split("\0")) if done and done.returncode == 0 else set()


def _against(cwd: Path, commit: str, path: str) -> str:
    words = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--relative", commit, "--", path]
    done = processes.ask([*GIT, "-C", str(cwd), *words])
    text = done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("@@")), None)
    return "\n".join(lines[start:]) if start is not None else ""


def _between(before: str, place: Path) -> str:
    try:
        if place.is_symlink() or (place.exists() and (not place.is_file() or place.stat().st_size > MOST_BYTES)):
            return ""
        text = place.read_bytes().decode("utf-8") if place.exists() else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return "\n".join(list(difflib.unified_diff(before.splitlines(), text.splitlines(), lineterm=""))[2:])


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    return "\n".join([*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more lines"])
