"""Steps that run commands and change nothing: each works in a copy of the working folder that is thrown away behind it.

A link that leads to a place in the folder leads to the same place in the copy. What lies outside of the folder is not copied, and
is as it is for every program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.contract import StrataError
from lib.process import processes
from lib.session.step import Step
from lib.tool.call import Call


@contextmanager
def opened(call: Call, step: Step) -> Generator[Path]:
    """A copy for one attempt. One that a kill left behind is gone before the next is made."""
    folder = call.session.folder / "copies" / step.slug
    discard(folder)
    try:
        try:
            _copy(call.cwd, folder, call.session.folder.resolve())
        except (OSError, shutil.Error) as error:
            message = f"the folder cannot be copied: {str(error)[:300]}"
            raise StrataError("NOT_COPIED", message, "make it readable, or leave out isolation: copy", final=True) from None
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    """A folder that a command made unreadable goes too."""
    if folder.exists():
        folder.chmod(0o700)
        for place, names, _ in os.walk(folder):
            for name in names:
                path = Path(place, name)
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)


def _copy(cwd: Path, folder: Path, session: Path) -> None:
    def left_out(place: str, names: list[str]) -> list[str]:
        here = Path(place)
        real = here.resolve()
        return [n for n in names if real / n == session or _special(here / n)]

    shutil.copytree(cwd, folder, symlinks=True, ignore=left_out)
    for place, names, others in os.walk(folder):
        for name in (*names, *others):
            path = Path(place, name)
            if path.is_symlink():
                _lead(path, cwd, folder)
    if (folder / ".git").is_file():  # of a worktree: it would lead to the real one
        _own_repository(cwd, folder)


def _lead(link: Path, cwd: Path, folder: Path) -> None:
    """Into the copy where it led into the folder, and otherwise to the very place where it led."""
    target = link.readlink()
    was = cwd / link.relative_to(folder)
    led = Path(os.path.normpath(was.parent / target))
    inside = next((led.relative_to(root) for root in (cwd, cwd.resolve()) if led.is_relative_to(root)), None)
    if inside is not None and not target.is_absolute():
        return  # it leads there by itself
    link.unlink()
    link.symlink_to(folder / inside if inside is not None else led)


def _own_repository(cwd: Path, folder: Path) -> None:
    """A repository of the copy's own, with the history of the real one."""
    (folder / ".git").unlink()
    apart = folder.with_name(f"{folder.name}.git")
    done = processes.ask(["git", "clone", "--quiet", "--shared", "--no-checkout", str(cwd), str(apart)])
    if done.returncode == 0:
        shutil.move(apart / ".git", folder / ".git")
        processes.ask(["git", "-C", str(folder), "reset", "--quiet"])
    shutil.rmtree(apart, ignore_errors=True)


def _special(path: Path) -> bool:
    """Sockets and pipes, which nobody can copy."""
    return not path.is_symlink() and not path.is_file() and not path.is_dir()
