"""What a feature has changed, seen from the folder the run works in. What git was told to overlook is not overlooked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lib.contract import StrataError
from lib.process import processes
from lib.session import began
from msgspec import Struct

from packs.forge.tasks import ARTIFACTS, Task

CREATED, CHANGED, DELETED = "created", "changed", "deleted"


class Changes(Struct, frozen=True):
    cwd: Path  # the folder itself, wherever a step works: a copy of it need not be a repository
    base: str
    owned: frozenset[str] = frozenset()

    @staticmethod
    def of(session: Path, cwd: Path, tasks: Iterable[Task] = ()) -> Changes:
        """`cwd`: where a step works, which may be a copy. A session that was moved has its workspace in it."""
        start = began.read(session)
        if not start.commit:
            raise StrataError("NO_COMMIT", f"{start.cwd} has no commit to compare with", "commit what is there, then begin anew")
        own = session / "workspace"
        home = cwd if not cwd.is_relative_to(session / "copies") else own if own.is_dir() else Path(start.cwd)
        return Changes(home, start.commit, frozenset(file for task in tasks for file in task.files))

    def git(self, *words: str) -> str:
        argv = ["git", "-C", str(self.cwd), "-c", "core.quotePath=false", *words]
        done = processes.ask(argv, timeout_seconds=300)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip()
            raise StrataError("GIT_FAILED", f"git {words[0]} failed in {self.cwd}: {why}", "run it by hand to see more")
        return done.stdout.decode("utf-8", "surrogateescape")

    def names(self) -> dict[str, str]:
        """By file, what became of it. A file that a task owns counts, also where it is ignored."""
        words = self.git("diff", "--relative", "--no-renames", "--no-ext-diff", "--name-status", "-z", self.base).split("\0")
        kinds = {"A": CREATED, "D": DELETED}
        found = {name: kinds.get(kind, CHANGED) for kind, name in zip(words[::2], words[1::2], strict=False)}
        tracked = set(self.git("ls-files", "-z").split("\0"))
        new = [name for name in self.git("ls-files", "--others", "--exclude-standard", "-z").split("\0") if name]
        new += [name for name in sorted(self.owned) if name not in tracked and (self.cwd / name).is_file()]
        for name in new:
            inside = self._nested(name) if name.endswith("/") else [name]
            found |= {path: CREATED for path in inside if path not in found}
        return found

    def _nested(self, folder: str) -> list[str]:
        """A repository in the repository is a folder like any other."""
        here = [p for p in (self.cwd / folder).rglob("*") if p.is_file() and ".git" not in p.relative_to(self.cwd / folder).parts]
        return [str(path.relative_to(self.cwd)) for path in sorted(here)]

    @property
    def touched(self) -> set[str]:
        return set(self.names())

    def diff(self) -> str:
        """As text, whatever attributes say; new files whole. Artifacts of features are not part of it."""
        words = ["diff", "--text", "--no-textconv", "--no-color", "--no-ext-diff", "--no-renames", "--relative"]
        words += ["--src-prefix=a/", "--dst-prefix=b/", self.base, "--", ".", f":(exclude){ARTIFACTS.rstrip('/')}"]
        tracked = self.git(*words).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        known = set(self.git("ls-files", "-z").split("\0"))
        new = [n for n, what in self.names().items() if what == CREATED and n not in known and not n.startswith(ARTIFACTS)]
        return tracked + "".join(self._whole(name) for name in sorted(new))

    def _whole(self, name: str) -> str:
        path = self.cwd / name
        text = f"link to {path.readlink()}" if path.is_symlink() else path.read_bytes().decode("utf-8", "replace")
        lines = text.splitlines()
        return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)

    def before(self, path: str) -> bytes | None:
        """A file as it was at the beginning; nothing where there was none."""
        listed = self.git("--literal-pathspecs", "ls-tree", "-z", self.base, "--", path)
        if not listed or listed.startswith(("040000", "160000")):
            return None
        return processes.ask(["git", "-C", str(self.cwd), "cat-file", "blob", listed.split()[2]]).stdout

    def unpack(self, folder: Path) -> None:
        """All of it as it was at the beginning, in an empty folder."""
        packed = processes.ask(["git", "-C", str(self.cwd), "archive", "--format=tar", self.base, "."], timeout_seconds=300)
        done = processes.ask(["tar", "-x", "-C", str(folder)], stdin=packed.stdout, timeout_seconds=300)
        if packed.returncode or done.returncode:
            raise StrataError("GIT_FAILED", f"{self.base[:12]} cannot be unpacked", "git archive says why")


def added(diff: str) -> list[tuple[str, int, str]]:
    """The lines that came: file, number, text. A line that only looks like a header is one of them."""
    found: list[tuple[str, int, str]] = []
    here, number, left = "", 0, 0
    previous = ""
    for line in diff.splitlines():
        if left <= 0 and line.startswith("+++ ") and previous.startswith("--- "):
            here = line[4:].removeprefix("b/")
        elif left <= 0 and line.startswith("@@ "):
            _, place = line.split()[1:3]
            first, _, count = place.lstrip("+").partition(",")
            number, left = int(first) - 1, int(count or 1)
        elif line.startswith("+"):
            number, left = number + 1, left - 1
            found.append((here, number, line[1:]))
        elif line.startswith(" "):
            number, left = number + 1, left - 1
        previous = line
    return found
