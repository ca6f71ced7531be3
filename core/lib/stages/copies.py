"""Steps that run commands and change nothing: each works in a copy of the working folder that is thrown away behind it."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.session.step import Step
from lib.tool.call import Call


@contextmanager
def opened(call: Call, step: Step) -> Generator[Path]:
    """A copy for one attempt. One that a kill left behind is gone before the next is made."""
    folder = call.session.folder / "copies" / step.slug
    discard(folder)
    session = call.session.folder.resolve()

    def left_out(place: str, names: list[str]) -> list[str]:
        here = Path(place)
        return [n for n in names if (here / n).resolve() == session or _special(here / n)]

    try:
        shutil.copytree(call.cwd, folder, symlinks=True, ignore=left_out)
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    """A folder that a command made unreadable goes too."""
    if folder.exists():
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder)


def _special(path: Path) -> bool:
    """Sockets and pipes, which nobody can copy."""
    return not path.is_symlink() and not path.is_file() and not path.is_dir()
