"""What judges the work: test files, the checkers' configuration, what a plan protects. Whoever fixes the work may not touch it.

Before a fix every such file is copied and hashed. Afterwards whatever was changed, deleted or added among them is put back as
it was, and named.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from lib.disk import files, globs
from lib.workspace.snapshot import IGNORED, real_name, text_name

DEFAULT = (
    *(
        "**/test_*.py",
        "**/*_test.py",
        "**/*_test.*",
        "**/*.test.*",
        "**/*.spec.*",
        "**/tests/**",
        "**/test/**",
        "**/__tests__/**",
    ),
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml", "**/tox.ini", "**/setup.cfg"),
    *("**/pyproject.toml", "**/ruff.toml", "**/.ruff.toml", "**/pyrightconfig.json", "**/mypy.ini", "**/.coveragerc"),
    *("**/sitecustomize.py", "**/usercustomize.py", "**/*.pth", "**/.gitignore", "**/.ignore", "**/noxfile.py"),
    *("**/*.dist-info/**", "**/*.egg-info/**", "**/entry_points.txt", "**/*.pyc"),  # what makes pytest load a plugin
    *("**/Makefile", "**/package.json", "**/jest.config.*", "**/vitest.config.*", "**/tsconfig*.json", "**/.eslintrc*"),
)
# A module of such a name in the folder a check runs in would be imported in place of the checker, or of what it stands on.
_CHECKERS = {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "ruff", "pyright", "mypy"),
    *("xdist", "pytest_cov", "coverage", "anyio", "hypothesis", "_hypothesis_pytestplugin", "pytest_asyncio", "pytest_mock"),
    *(
        "pytest_timeout",
        "pytest_randomly",
        "pytest_django",
        "pytest_httpx",
        "respx",
        "faker",
        "syrupy",
        "typeguard",
        "_distutils_hack",
    ),
}
_STARTERS = {"sitecustomize.py", "usercustomize.py"}
_UNSEEN = {".git", "__pycache__", "node_modules", ".pytest_cache", ".ruff_cache", ".mypy_cache"}
_SHADOWS = _CHECKERS | set(sys.stdlib_module_names)
_SETTINGS = (".sh", ".bash", ".mk", ".cfg", ".toml", ".ini", ".yaml", ".yml", ".json")
_INTERPRETERS = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh|(?:.*/)?(?:python|node|ruby|perl)[\d.]*")


class Judge(Struct, frozen=True):
    """The files that judge a folder, as they were when `hold` was called, with a copy of each in `copies`."""

    cwd: Path
    globs: tuple[str, ...]
    copies: Path
    exclude: Path  # the session, which may lie in the folder and is not part of it

    def hold(self) -> None:
        """Keeps a copy of every judging file. What is held already stays as it is: it is older, and nearer the truth."""
        if (self.copies / "held.json").exists():
            return
        held: dict[str, str] = {}
        for path in self._present():
            held[text_name(path)] = _identity(self.cwd / path)
            target = self.copies / "files" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.cwd / path, target, follow_symlinks=False)
        files.write_json(self.copies / "held.json", {"files": held, "modules": sorted(self._shadows())})

    def put_back(self) -> list[str]:
        """Undoes whatever was done to the judging files since, and says what that was."""
        before = files.read_json(self.copies / "held.json")
        held: dict[str, str] = before["files"]
        undone: list[str] = []
        for path in [*self._present(), *(self._shadows() - set(before["modules"]))]:
            if text_name(path) not in held:
                undone.append(f"{text_name(path)} was added")
                self._set_aside(path)
        for name, identity in held.items():
            path = real_name(name)
            now = self.cwd / path
            if _identity(now) != identity:
                undone.append(f"{name} was {'changed' if os.path.lexists(now) else 'deleted'}")
                self._set_aside(path)
                self._restore(path)
        return sorted(undone)

    def _present(self) -> list[str]:
        return [path for path in _walk(self.cwd, self.exclude) if globs.matches(path, self.globs)]

    def _shadows(self) -> set[str]:
        names = os.listdir(self.cwd) if self.cwd.is_dir() else []  # noqa: PTH208
        loads = (".py", ".pyc", ".so", ".pyd")
        return {n for n in names if n.split(".")[0] in _SHADOWS and (n.endswith(loads) or (self.cwd / n).is_dir())}

    def _set_aside(self, path: str) -> None:
        """What was done is evidence; it is only no longer where it counts. A link is taken away, never followed."""
        found = self.cwd / path
        for parent in [*reversed(Path(path).parents)][1:]:  # a folder on the way may have become a link or a file
            if (self.cwd / parent).is_symlink() or (self.cwd / parent).is_file():
                (self.cwd / parent).unlink()
        if os.path.lexists(found):
            target = self.copies / "rejected" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()
            shutil.move(found, target)

    def _restore(self, path: str) -> None:
        source, target = self.copies / "files" / path, self.cwd / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            files.write_atomic(target, source.read_bytes(), source.stat().st_mode & 0o777)


def _identity(path: Path) -> str:
    if path.is_symlink():
        return f"link:{path.readlink()}"
    return f"{path.stat().st_mode & 0o777:o}:{files.sha256(path)}" if path.is_file() else ""


def _walk(root: Path, exclude: Path) -> Iterator[str]:
    for folder, names, found in os.walk(root):
        names[:] = sorted(n for n in names if n not in _UNSEEN and Path(folder) / n != exclude)
        place = os.path.relpath(folder, root)
        hidden = any(part in IGNORED for part in Path(place).parts)  # an environment: what Python runs by itself still counts
        links = [n for n in names if (Path(folder) / n).is_symlink()]
        for name in sorted([*found, *links]):
            counts = not hidden or name in _STARTERS or name.endswith(".pth")
            if counts and stat.S_IFMT((Path(folder) / name).lstat().st_mode) in (stat.S_IFREG, stat.S_IFLNK):
                yield os.path.normpath(os.path.join(place, name))  # noqa: PTH118


def of_commands(cwd: Path, commands: list[tuple[str, ...]], work: set[str]) -> tuple[str, ...]:
    """Files of the folder that the checks' own command lines run or read their settings from: a script that runs the tests judges
    too, and so does what lies beside it. What is only looked at is the work, and `work` is what is known to be."""
    found: set[str] = set()
    for command in commands:
        words = [word for part in command for word in re.split(r"[\s=;&|]+", part) if word]
        places = [cwd, *((cwd / w) for v, w in itertools.pairwise(words) if v == "cd")]
        for before, word in itertools.pairwise(["", *words]):
            names = [word.replace(".", "/") + ".py", word.replace(".", "/") + "/__main__.py"] if before == "-m" else [word]
            for path in (Path(os.path.normpath(place / name)) for place in places for name in names):
                if not path.is_file() or not path.is_relative_to(cwd):
                    continue
                runs = before == "-m" or path.suffix in _SETTINGS or os.access(path, os.X_OK) or _INTERPRETERS.fullmatch(before)
                relative = str(path.relative_to(cwd))
                if runs and relative not in work:
                    found.add(literal(relative))
                    found |= {literal(str(path.parent.relative_to(cwd))) + "/**"} if path.parent != cwd else set()
    return tuple(sorted(found))


def literal(path: str) -> str:
    """A path as a glob that matches only itself."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
