"""What a folder holds at one moment, and what has changed since: created, changed and deleted files, with their modes.

Before an agent runs only the status of each file is read, not its content: a file whose inode, size, mode and change
time are the same has not been touched, and the kernel does not let a program set the change time.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec.structs import replace

from lib.disk import files
from lib.session.outcome import FileChange

# Made by running things rather than by doing the work; recording them would replay caches.
IGNORED = {".git", "__pycache__", ".venv", "node_modules", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".coverage"}

READ_AT_MOST = 256 * 1024 * 1024
Signature = tuple[int, int, int, int, int]


def state(root: Path, exclude: tuple[Path, ...] = ()) -> str:
    """A digest of a folder's state. It changes with any change of a file, and costs one look at each, not one read."""
    entries = Snapshot({"root": root}, exclude).entries["root"]
    return files.digest(sorted((text_name(path), signature) for path, signature in entries.items()))


def content(root: Path, exclude: tuple[Path, ...] = ()) -> str:
    """A digest of what a folder holds, wherever it lies: it outlives a copy, which `state` does not. Nothing for a folder so
    large that reading it would cost more than judging it again."""
    found = Snapshot({"root": root}, exclude)
    entries = found.entries["root"]
    if sum(signature[2] for signature in entries.values()) > READ_AT_MOST:
        return ""
    described = [c for path in sorted(entries) if (c := _seen("root", found.roots["root"], path, ""))]
    return files.digest([change.document() for change in described])


def table(root: Path, exclude: tuple[Path, ...] = (), like: dict[str, str] | None = None) -> dict[str, str]:
    """Every file of a folder with its mode and a hash of its content. Of a folder so large that reading it would cost more than
    judging it again, with its signature instead, as in the table it is to be compared with."""
    found = Snapshot({"root": root}, exclude)
    entries = found.entries["root"]
    large = sum(signature[2] for signature in entries.values()) > READ_AT_MOST
    by_content = not large if like is None else not any(entry.startswith("~") for entry in like.values())
    listed: dict[str, str] = {}
    for path, signature in entries.items():
        if not stat.S_ISDIR(signature[0]):
            seen = _seen("root", found.roots["root"], path, "") if by_content else None
            if seen:
                listed[text_name(path)] = f"{seen.mode} {seen.left}"
            elif not by_content:
                listed[text_name(path)] = f"~{files.digest(signature)[:16]} "
    return listed


_ESCAPE = "%strata-bytes:"


def text_name(path: str) -> str:
    """A file name as text. Bytes that are no UTF-8 are spelled out; everything else stays as it is."""
    try:
        path.encode()
    except UnicodeEncodeError:
        from urllib.parse import quote_from_bytes

        return _ESCAPE + quote_from_bytes(os.fsencode(path))
    return path


def real_name(text: str) -> str:
    if not text.startswith(_ESCAPE):
        return text
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(text.removeprefix(_ESCAPE)))


class Snapshot:
    """The state of some named folders. A folder that lies inside another, or is excluded, is counted once."""

    def __init__(self, roots: dict[str, Path], exclude: tuple[Path, ...] = ()) -> None:
        self.roots = {name: Path(os.path.realpath(path)) for name, path in roots.items()}
        self.exclude = {os.path.realpath(p) for p in exclude}
        self.entries = {name: self._walk(root) for name, root in self.roots.items()}

    def _walk(self, root: Path) -> dict[str, Signature]:
        entries: dict[str, Signature] = {}
        others = {str(p) for p in self.roots.values() if p != root} | self.exclude
        queue = [str(root)]
        while queue:
            folder = queue.pop()
            try:
                listing = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # gone while we looked, or closed to us: nothing an agent of ours could have changed
            for entry in listing:
                if entry.name in IGNORED or entry.path in others:
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(info.st_mode):
                    queue.append(entry.path)
                    signature = (stat.S_IFDIR, 0, 0, stat.S_IMODE(info.st_mode), 0)
                else:
                    signature = (
                        stat.S_IFMT(info.st_mode),
                        info.st_ino,
                        info.st_size,
                        stat.S_IMODE(info.st_mode),
                        info.st_ctime_ns,
                    )
                entries[os.path.relpath(entry.path, root)] = signature
        return entries

    def changes(self) -> list[FileChange]:
        """What is different now."""
        after = Snapshot(self.roots, tuple(Path(p) for p in self.exclude))
        found: list[FileChange] = []
        for name, root in self.roots.items():
            old, new = self.entries[name], after.entries[name]
            for path in sorted(old.keys() | new.keys()):
                if path not in new:
                    found.append(FileChange(name, text_name(path), "deleted"))
                elif old.get(path) != new[path]:
                    change = _seen(name, root, path, "changed" if path in old else "created")
                    found += [change] if change else [FileChange(name, text_name(path), "deleted")] if path in old else []
        return found


class Hidden:
    """The parts of a repository that decide what git itself runs. No work of an agent is there, and no snapshot looks at them."""

    PLACES = (".git/hooks", ".git/info", ".git/config", ".git/modules")

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.before = self._look()

    def _look(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for place in self.PLACES:
            root = self.cwd / place
            for path in [root] if root.is_file() else sorted(root.rglob("*")) if root.is_dir() else []:
                if path.is_file() or path.is_symlink():
                    found[str(path.relative_to(self.cwd))] = f"{path.readlink()}" if path.is_symlink() else files.sha256(path)
        return found

    def changes(self) -> list[FileChange]:
        after = self._look()
        changed = [p for p in sorted(self.before.keys() | after.keys()) if self.before.get(p) != after.get(p)]
        return [FileChange("hidden", p, "changed" if p in after else "deleted", sha256=after.get(p, "")) for p in changed]


def _seen(name: str, root: Path, path: str, change: str) -> FileChange | None:
    """None where it is gone by the time we look."""
    try:
        return _describe(name, root, path, change)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _describe(name: str, root: Path, path: str, change: str) -> FileChange:
    full = root / path
    info = full.lstat()
    seen = FileChange(name, text_name(path), change, mode=f"{stat.S_IMODE(info.st_mode):04o}")
    if stat.S_ISLNK(info.st_mode):
        return replace(seen, kind="symlink", target=text_name(str(full.readlink())))
    if stat.S_ISDIR(info.st_mode):
        return replace(seen, kind="folder")
    if not stat.S_ISREG(info.st_mode):
        return replace(seen, kind="special")
    return replace(seen, size=info.st_size, sha256=files.sha256(full))
