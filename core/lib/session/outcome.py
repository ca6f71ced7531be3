"""What came of an attempt: the record in `outcome.json`, written last, which is the truth that everything else is made from."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from lib.contract import STATUS, ExitCode, Json, is_final, part
from lib.disk import records

VERSION = 2
# Verdicts of work that is there and counts, each with the only code that agrees with it.
GOOD = {"done": ExitCode.SUCCESS, "needs_revision": ExitCode.NEEDS_REFINEMENT}
TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")  # of a model's usage
_LINK = "link:"


class FileChange(Struct, frozen=True):
    """One file that an attempt made, changed or deleted. An output of the task is one that has a name."""

    root: str  # session, workspace, out, hidden (git's own settings), or dir-n for a further folder
    path: str  # below that root; bytes that are no text are spelled out (`snapshot.text_name`)
    change: str = "created"  # created, changed, deleted or merged
    kind: str = "file"  # file, folder or symlink
    sha256: str = ""  # of a folder, of all it holds
    size: int = 0
    mode: str = ""
    target: str = ""  # of a symlink
    output: str = ""  # the output of the task that this is
    checks: tuple[str, ...] = ()  # what was verified of it

    @property
    def left(self) -> str:
        """How the file was left: its hash, where a link leads, or nothing where it is gone."""
        return f"{_LINK}{self.target}" if self.kind == "symlink" else self.sha256

    def document(self) -> Json:
        known = asdict(self) | {"checks": list(self.checks)}
        return {name: value for name, value in known.items() if value or name in ("root", "path", "change")}


def link_of(left: str) -> str | None:
    """Where a file leads that was left as a link."""
    return left.removeprefix(_LINK) if left.startswith(_LINK) else None


def _left(changes: tuple[FileChange, ...]) -> dict[str, str]:
    return {c.path: c.left for c in changes if c.root == "workspace" and c.kind != "folder"}


class Outcome(Struct, frozen=True):
    exit_code: ExitCode
    version: int = VERSION
    verdict: str = "failed"  # done, needs_revision or failed
    note: str = ""
    error: Json | None = None
    wrong: tuple[str, ...] = ()  # everything that speaks against it, for the next attempt
    warnings: tuple[str, ...] = ()  # of work that is done: what others should know all the same
    tool: str = ""
    agent: str = ""
    definition: str = ""  # the fingerprint of the agent's definition
    model: str = ""
    step: str = ""
    attempt: int = 0
    kind: str = "first"  # first, retry, rerun, heal or repair
    outputs: tuple[FileChange, ...] = ()
    changes: tuple[FileChange, ...] | None = None  # what else it changed; None: it ended before it could say
    checks: tuple[Json, ...] = ()  # the records of checks that judged it
    fingerprint: str = ""
    made_of: dict[str, str] = {}
    consumed: dict[str, str] = {}
    told: str = ""
    isolation: str = ""
    judged: str = ""  # of a check: a digest of the folder it judged
    begun: int = 0  # the numbers of its beginning and its end, among all of the session
    number: int = 0
    finished_at: str = ""
    duration_seconds: float = 0.0
    worker: str = ""  # that did it, where that was not beside the run
    driver: str = ""
    result: str = ""
    structured_output: Any = None
    cost_usd: float | None = None
    cost_source: str = ""  # reported, replayed or unknown
    usage: dict[str, Json] = {}  # by model
    turns: int = 0
    agent_session_id: str = ""
    denials: tuple[Json, ...] = ()
    tool_uses: dict[str, int] = {}  # calls that were let through, by tool
    confinement: str = ""
    grant: Json | None = None
    depth: int = 0
    max_depth: int = 0
    trace_id: str = ""
    data: Json = {}  # what else the function that did it says

    @property
    def good(self) -> bool:
        """Whether there is work that counts, be it to be revised. A verdict that its own exit code contradicts is not one."""
        return self.verdict in GOOD and self.exit_code == GOOD[self.verdict]

    @property
    def code(self) -> str:
        return part(self.error, "code")

    @property
    def message(self) -> str:
        return part(self.error, "message")

    @property
    def final(self) -> bool:
        """Whether it failed in a way that no retry helps."""
        return is_final(self.error)

    @property
    def tokens(self) -> int:
        return sum(int(used.get(name) or 0) for used in self.usage.values() for name in TOKENS)

    @property
    def left(self) -> dict[str, str]:
        """Each file of the workspace it made, changed or deleted, and how it left it."""
        return _left(self.changes or ()) | self._declared

    @property
    def made(self) -> dict[str, str]:
        """What is the work of the step: all that an agent changed, and what a tool declares. What else a tool touches (a log, a
        cache) is known, but is not its product."""
        return self.left if self.agent else self._declared

    @property
    def stays(self) -> tuple[FileChange, ...]:
        """The files of the workspace it changed for good. What was done in a copy is thrown away."""
        found = (*self.outputs, *(self.changes or ())) if self.isolation != "copy" else ()
        return tuple(c for c in found if c.root == "workspace" and c.kind == "file")

    @property
    def _declared(self) -> dict[str, str]:
        return {c.path: c.sha256 for c in self.outputs if c.root == "workspace"}

    @property
    def published(self) -> dict[str, str]:
        """Its outputs in the session, with their hashes."""
        return {c.path: c.sha256 for c in self.outputs if c.root == "session"}

    def document(self) -> Json:
        """As it is written, and printed."""
        known: Json = {name: getattr(self, name) for name in self.__struct_fields__ if name != "data"}
        known |= {
            "status": STATUS[self.exit_code],
            "exit_code": int(self.exit_code),
            "wrong": list(self.wrong),
            "warnings": list(self.warnings),
        }
        known |= {"outputs": [c.document() for c in self.outputs], "checks": list(self.checks), "denials": list(self.denials)}
        known["changes"] = None if self.changes is None else [c.document() for c in self.changes]
        return self.data | known


class Left(Struct, frozen=True):
    """What is in the workspace from work that is not, or not yet, in an outcome: of an attempt that was asked to stop, and of one
    that was merged from a worktree of its own."""

    number: int
    step: str
    changes: tuple[FileChange, ...]
    at: str = ""
    isolation: str = ""
    attempt: int = 0  # of a merge: which attempt's work
    commit: str = ""

    @property
    def left(self) -> dict[str, str]:
        return _left(self.changes)

    def document(self) -> Json:
        return records.document(self) | {"changes": [c.document() for c in self.changes]}


class Begun(Struct, frozen=True):
    """That an attempt has begun, and what it may write. The time of change of the file is its last sign of life."""

    number: int
    step: str
    may_write: tuple[str, ...]
    at: str
    isolation: str = ""
    worker: str = ""
