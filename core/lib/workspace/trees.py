"""A workspace as a git tree, taken and put back byte for byte, without touching the user's index, branches, HEAD or stash.

Only objects and refs below `refs/strata/` are added to the repository. Files are hashed as they are: no filter, no line-ending
rule comes in between. What git does not keep (full modes, folders) is in the message of the commit. Caches and environments
(`snapshot.IGNORED`) are left as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from lib.contract import Json, StrataError
from lib.disk import files
from lib.process import processes
from lib.workspace.snapshot import Snapshot

_IDENTITY = {f"GIT_{who}_{what}": "strata" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Entry(Struct, frozen=True):
    mode: str  # git's: 100644, 100755 or 120000
    blob: str


class Tree:
    """The workspace in its repository, of which it may be a subfolder."""

    def __init__(self, cwd: Path, exclude: Path) -> None:
        self.cwd = cwd
        self.exclude = exclude  # sessions, which may lie in the workspace and are not part of it

    @cached_property
    def _where(self) -> dict[str, str]:
        """To git the workspace is the whole of it: paths in the tree are relative to it."""
        found = processes.ask(["git", "-C", str(self.cwd), "rev-parse", "--absolute-git-dir"])
        if found.returncode:
            raise StrataError("GIT_FAILED", f"{self.cwd} is in no git repository any more", "run `git status` there")
        return {"GIT_DIR": os.fsdecode(found.stdout).strip(), "GIT_WORK_TREE": str(self.cwd)}

    def git(self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
        env = {**os.environ, **_IDENTITY, **self._where, **(env or {})}
        done = processes.ask(["git", "--no-optional-locks", *words], cwd=self.cwd, stdin=stdin, env=env)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip() or f"it ended with {done.returncode}"
            raise StrataError("GIT_FAILED", f"git {words[0]} failed in {self.cwd}: {why}", "run it by hand to see more")
        return done.stdout

    def take(self, ref: str, what: str, parent: str = "") -> str:
        """Keeps the workspace as it is now under `ref` and returns the commit; it follows `parent`, or else HEAD."""
        entries, extra = self._read()
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            lines = b"".join(f"{e.mode} {e.blob}\t".encode() + os.fsencode(path) + b"\0" for path, e in entries.items())
            self.git("update-index", "-z", "--index-info", stdin=lines, env=env)
            tree = self.git("write-tree", env=env).decode().strip()
        words = ["git", "-C", str(self.cwd), "rev-parse", "-q", "--verify", "HEAD"]
        head = parent or processes.ask(words).stdout.decode().strip()
        return self._commit(ref, tree, what, extra, [head] if head else [])

    def _commit(self, ref: str, tree: str, what: str, extra: Json, parents: list[str]) -> str:
        message = f"{what}\n\n{json.dumps(extra, ensure_ascii=True)}\n"
        flags = [word for parent in parents for word in ("-p", parent)]
        commit = self.git("commit-tree", tree, *flags, stdin=message.encode()).decode().strip()
        self.git("update-ref", ref, commit)
        return commit

    def merge(self, base: str, ours: str, theirs: str, ref: str) -> tuple[str, list[str]]:
        """Two states that both follow `base`, as one commit; or the paths on which they conflict. No file is touched."""
        words = ["git", "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs]
        done = processes.ask(words, cwd=self.cwd, env={**os.environ, **self._where})
        if done.returncode not in (0, 1):
            why = done.stderr.decode("utf-8", "replace").strip()
            raise StrataError("GIT_FAILED", f"git merge-tree failed: {why}", "it needs git 2.38 or later")
        tree, *paths = [os.fsdecode(part) for part in done.stdout.split(b"\0") if part]
        if done.returncode:
            return "", paths
        before, one, other = (self._extra(commit) for commit in (base, ours, theirs))
        extra: Json = {}
        for kind in ("modes", "folders"):  # what git does not merge: theirs where they changed it, ours elsewhere
            gone = before[kind].keys() - other[kind].keys()
            new = {p: mode for p, mode in other[kind].items() if before[kind].get(p) != mode}
            extra[kind] = {p: mode for p, mode in one[kind].items() if p not in gone} | new
        return self._commit(ref, tree, "merged", extra, [ours, theirs]), []

    def differing(self, one: str, other: str) -> list[str]:
        before, after = self._listed(one), self._listed(other)
        return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))

    def _extra(self, commit: str) -> Json:
        return json.loads(self.git("show", "-s", "--format=%b", commit).decode())

    def same(self, one: str, other: str) -> bool:
        trees = [self.git("rev-parse", f"{commit}^{{tree}}") for commit in (one, other)]
        return trees[0] == trees[1]

    def put_back(self, commit: str) -> list[str]:
        """Makes the workspace what it was at `commit` and returns the paths that were different."""
        before = self._listed(commit)
        extra = self._extra(commit)
        now, now_extra = self._read()
        modes: dict[str, int] = extra["modes"]
        changed = [p for p in now if before.get(p) != now[p] or modes.get(p) != now_extra["modes"].get(p)]
        missing = [p for p in before if p not in now]
        folders: dict[str, int] = extra["folders"]
        for path in [*(p for p in changed if p in before), *missing]:
            self._write(path, before[path], modes.get(path))  # each file whole, in one step
        for path in (p for p in changed if p not in before):
            if os.path.lexists(self.cwd / path) and not any(q.startswith(f"{path}/") for q in before):
                (self.cwd / path).unlink()
        for folder in sorted(set(now_extra["folders"]) - set(folders), reverse=True):
            if not (self.cwd / folder).is_symlink() and folder not in before:
                shutil.rmtree(self.cwd / folder, ignore_errors=True)  # it was not there; at most caches are left in it
        for folder, mode in folders.items():
            (self.cwd / folder).mkdir(parents=True, exist_ok=True)
            (self.cwd / folder).chmod(mode)
        return sorted({*changed, *missing})

    def _read(self) -> tuple[dict[str, Entry], Json]:
        found = Snapshot({"w": self.cwd}, exclude=(self.exclude,)).entries["w"]
        kinds = {path: signature[0] for path, signature in found.items()}
        regular = [p for p, kind in kinds.items() if kind == stat.S_IFREG]
        names = b"".join(os.fsencode(self.cwd / p) + b"\n" for p in regular if "\n" not in p)
        blobs = self.git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names).decode().split() if names else []
        hashed = dict(zip([p for p in regular if "\n" not in p], blobs, strict=True))
        for odd in (p for p in regular if "\n" in p):
            hashed[odd] = self._store((self.cwd / odd).read_bytes())
        entries = {p: Entry("100755" if found[p][3] & 0o100 else "100644", blob) for p, blob in hashed.items()}
        for link in (p for p, kind in kinds.items() if kind == stat.S_IFLNK):
            entries[link] = Entry("120000", self._store(os.fsencode((self.cwd / link).readlink())))
        folders = {p: found[p][3] for p, kind in sorted(kinds.items()) if kind == stat.S_IFDIR}
        modes = {p: found[p][3] for p in hashed if found[p][3] not in (0o644, 0o755)}
        return entries, {"modes": modes, "folders": folders}

    def _store(self, content: bytes) -> str:
        return self.git("hash-object", "-w", "--no-filters", "--stdin", stdin=content).decode().strip()

    def _listed(self, commit: str) -> dict[str, Entry]:
        listed: dict[str, Entry] = {}
        for line in self.git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if line:
                fields, _, path = line.partition(b"\t")
                mode, _, blob = fields.decode().split()
                listed[os.fsdecode(path)] = Entry(mode, blob)
        return listed

    def _write(self, path: str, entry: Entry, mode: int | None) -> None:
        content = self.git("cat-file", "blob", entry.blob)
        target = self.cwd / path
        for parent in [*reversed(Path(path).parents)][1:]:  # a link or a file may stand where a folder was
            if (self.cwd / parent).is_symlink() or (self.cwd / parent).is_file():
                (self.cwd / parent).unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        if entry.mode == "120000":
            target.unlink(missing_ok=True)
            target.symlink_to(os.fsdecode(content))
        else:
            files.write_atomic(target, content, mode if mode is not None else (0o755 if entry.mode == "100755" else 0o644))


def of_workspace(cwd: Path, session: Path) -> Tree:
    """The workspace without the sessions that may lie in it: this one, and those beside it."""
    beside = session.parent
    return Tree(cwd, beside if beside.is_relative_to(cwd) and beside != cwd else session)


def ref_home(session: Path, trace_id: str) -> str:
    """Below this stands all that a session keeps in the user's repository."""
    return f"refs/strata/{files.slug(session.name)}-{trace_id[:8]}"


def make_repository(folder: Path, name: str) -> None:
    """A repository whose first commit holds what is there; the same files make the same commit. One that has a commit stays."""
    env = {**os.environ, **_IDENTITY, "GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env |= {f"GIT_{who}_DATE": "2000-01-01T00:00:00+00:00" for who in ("AUTHOR", "COMMITTER")}
    if processes.ask(["git", "rev-parse", "--verify", "--quiet", "HEAD"], cwd=folder, env=env).returncode == 0:
        return
    settings = ["config", "user.name", name], ["config", "user.email", f"{files.slug(name)}@localhost"]
    for words in (["init", "-q", "-b", "main"], *settings, ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", name]):
        done = processes.ask(["git", *words], cwd=folder, env=env)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip()
            raise StrataError("GIT_FAILED", f"git {words[0]} failed in {folder}: {why}", "run it by hand to see more")


def require_repository(cwd: Path, where: str) -> None:
    """Rollback and worktrees are promised only where that can be kept."""
    done = processes.ask(["git", "-C", str(cwd), "rev-parse", "--git-dir"])
    if done.returncode:
        raise StrataError(
            "NO_REPOSITORY",
            f"{where} needs a git repository, and {cwd} is in none",
            "git init there, or leave that out",
        )
