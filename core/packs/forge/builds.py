"""Finding the build system of a repository, and building it: what is there, what was run, and what came of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from lib.plan.checks_file import Check
from msgspec import Struct


class System(Struct, frozen=True):
    name: str
    mark: str  # the file by which it is known
    command: tuple[str, ...]
    needs: str = ""  # a program

    @property
    def missing(self) -> str:
        return self.needs if self.needs and not shutil.which(self.needs) else ""


_NOT_OURS = r"(^|/)(\.[^/]+|node_modules|build)/"
_COMPILE = ("{python}", "-X", "pycache_prefix={cache}", "-m", "compileall", "-q", "-x", _NOT_OURS, ".")
SYSTEMS = (
    System(
        "Python",
        "pyproject.toml",
        _COMPILE,
    ),
    System(
        "Python",
        "setup.py",
        _COMPILE,
    ),
    System("npm", "package.json", ("npm", "run", "build", "--if-present"), "npm"),
    System("Cargo", "Cargo.toml", ("cargo", "build", "--quiet"), "cargo"),
    System("Go", "go.mod", ("go", "build", "./..."), "go"),
    System("Maven", "pom.xml", ("mvn", "-q", "-DskipTests", "compile"), "mvn"),
    System("CMake", "CMakeLists.txt", ("sh", "-c", "cmake -S . -B build && cmake --build build"), "cmake"),
    System("Make", "Makefile", ("make",), "make"),
)


def find(cwd: Path, command: str = "") -> System | None:
    """What the plan says, or what the repository shows; None where there is nothing to build."""
    if command:
        return System("as the plan says", "", ("sh", "-c", command))
    return next((system for system in SYSTEMS if (cwd / system.mark).is_file()), None)


_MADE = {"npm": ("dist", "build"), "Cargo": ("target",), "Maven": ("target",), "CMake": ("build",)}


def made(cwd: Path, system: System) -> str:
    """Where what was built lies, for who needs it next."""
    return ", ".join(f"`{name}/`" for name in _MADE.get(system.name, ()) if (cwd / name).is_dir())


def check(system: System, cache: str) -> Check:
    """`cache`: where compiled Python goes, which is not kept."""
    return Check("build", tuple(word.replace("{cache}", cache) for word in system.command), timeout_seconds=1800.0)
