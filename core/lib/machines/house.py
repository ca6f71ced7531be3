"""What a house is, so that two machines can tell whether theirs are the same: its files, its Python, what its tools import."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from lib.contract import CORE, HOUSE

FOLDERS = ("core", "config", "prompts")
_NOT_OURS = {"__pycache__"}
_NAMED = re.compile(r'"([A-Za-z0-9._-]+)\s*[<>=!~][^"]*"')


class Facts(Struct, frozen=True):
    """Of a house, what has to be the same on every machine that works in one session."""

    place: str  # tasks hold full paths: it lies in the same place everywhere
    code: str  # a hash of core, config and prompts
    python: str
    packages: dict[str, str]  # what the tools import, with the version that is there

    @property
    def name(self) -> str:
        """Short, for the name of a queue: houses that differ never share one."""
        text = repr((self.place, self.code, self.python, sorted(self.packages.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differs(self, other: Facts) -> str:
        """In what, for a person; nothing where they are the same."""
        found: list[str] = []
        if self.place != other.place:
            found.append(f"it is {self.place} here and {other.place} there")
        if self.code != other.code:
            found.append(f"core, config or prompts differ ({self.code[:8]} here, {other.code[:8]} there)")
        if self.python != other.python:
            found.append(f"Python is {self.python} here and {other.python} there")
        for package, here in sorted(self.packages.items()):  # the same names on both sides, where the code is the same
            if package not in other.packages or here != other.packages[package]:
                found.append(f"{package} {here} is not the same there")
        return "; ".join(found)


def facts() -> Facts:
    """Of this house, seen by this interpreter."""
    major, minor, *_ = platform.python_version_tuple()
    return Facts(str(HOUSE), code(), f"{major}.{minor}", {name: _version(name) for name in needed()})


def needed() -> list[str]:
    """What the inline block of the tools names. A tool with more than that has a block of its own, which is part of the code."""
    block = (CORE / "check.py").read_text(encoding="utf-8").partition("# ///\n")[0]
    return sorted(_NAMED.findall(block))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def code(house: Path = HOUSE) -> str:
    found = hashlib.sha256()
    for path in _files(house):
        found.update(f"{path.relative_to(house)}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def stamp(house: Path = HOUSE) -> str:
    """Cheaper than the hash, for seeing that something has changed since."""
    known = [(str(path), (info := path.stat()).st_mtime_ns, info.st_size) for path in _files(house)]
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _files(house: Path) -> list[Path]:
    found: list[Path] = []
    for name in FOLDERS:
        for place, folders, names in os.walk(house / name):
            folders[:] = sorted(f for f in folders if f not in _NOT_OURS and not f.startswith("."))
            found += [Path(place, n) for n in sorted(names) if not n.startswith(".") and not n.endswith(".pyc")]
    return found
