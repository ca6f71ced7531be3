"""The session folder: where a run lives, which step a piece of work is, and the attempts made at it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from lib import names
from lib.contract import HOUSE, STATUS, ExitCode, Json, StrataError, usage
from lib.disk import files
from lib.process import processes

LOCK_NAME = ".lock"
ENDING_SECONDS = 20.0  # what is below a killed tool has ended by then
MERGED = "merged.json"  # beside the attempts of a step that worked in a worktree: what came back from there
NOT_STEPS = {"workspace", "worktrees", "lost-worktrees", "artifacts"}  # folders of a session that hold work, not its record
ENDED = "ended.json"  # the number at which the last run ended by itself
NUMBERS = ".numbers"  # one byte per outcome


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Step:
    """The name of a piece of work: `phase/orchestrator/stage/round/item`. Folders, signals and fixtures all follow it."""

    phase: str = ""
    orchestrator: str = ""
    stage: str = ""
    round: int = 0  # 0: the stage is in no loop
    item: str = ""

    @staticmethod
    def parse(text: str) -> Step:
        parts = text.split("/")
        if len(parts) != 5 or not parts[3].isdigit() or any(p != "_" and not files.is_safe(p) for p in parts):
            usage(f"--step must look like phase/orchestrator/stage/round/item, not {text!r}")
        phase, orchestrator, stage, number, item = ("" if p == "_" else p for p in parts)
        return Step(phase, orchestrator, stage, int(number), item)

    def __str__(self) -> str:
        return "/".join((self.phase or "_", self.orchestrator or "_", self.stage or "_", str(self.round), self.item or "_"))

    @staticmethod
    def of_folder(folder: Path) -> Step:
        """The step whose folder this is, seen from the session."""
        parts = list(folder.parts)
        at = parts.index("stages")
        phase = parts[1] if parts[0] == "phases" else ""
        head = parts[2 if phase else 0 : at]
        stage, *rest = parts[at + 1 :]
        number = re.fullmatch(r"round-(\d+)", rest[0]) if rest else None
        rest = rest[1:] if number else rest
        return Step(phase, head[0] if head else "", stage, int(number[1]) if number else 0, rest[0] if rest else "")

    @property
    def place(self) -> int:
        """Where its stage stands among the others."""
        number = self.stage.partition("-")[0]
        return int(number) if number.isdigit() else 0

    @property
    def slug(self) -> str:
        """For a flat namespace. Two steps never share one: names hold no dots, no item is called round-n, and in
        an orchestrator only a stage starts with a digit."""
        parts = (self.phase, self.orchestrator, self.stage, f"round-{self.round}" if self.round else "", self.item)
        return ".".join(p for p in parts if p)

    @property
    def folder(self) -> Path:
        folder = self.home / "stages" / self.stage
        if self.round:
            folder /= f"round-{self.round}"
        return folder / self.item if self.item else folder

    @property
    def home(self) -> Path:
        """The folder of the orchestrator this step belongs to."""
        folder = Path("phases") / self.phase if self.phase else Path()
        return folder / self.orchestrator if self.orchestrator else folder

    @property
    def artifacts(self) -> Path:
        """Where finished outputs are published: the same place whichever attempt made them, another one per round."""
        folder = (Path("phases") / self.phase if self.phase else Path()) / "artifacts"
        parts = (self.orchestrator, self.stage, f"round-{self.round}" if self.round else "", self.item)
        return folder.joinpath(*(p for p in parts if p))


@dataclass(frozen=True)
class Attempt:
    """One try at a step. Its folder is made once and never reused; `outcome.json`, written last, says it ended."""

    folder: Path
    number: int

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def outcome(self) -> Json | None:
        path = self.folder / "outcome.json"
        if not path.exists():
            return None
        return read_outcome(path)

    def finish(self, outcome: Json, before: Callable[[str], None] = lambda sha256: None) -> None:
        """Written last. `before` is told the hash of what is about to be there."""
        data = files.as_written(outcome)
        before(hashlib.sha256(data).hexdigest())
        files.write_atomic(self.folder / "outcome.json", data)


_LISTS = {"outputs": {"output": str, "in": str, "path": str, "sha256": str}, "artifacts": {"root": str, "path": str}}
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("verdict", "fingerprint", "step", "kind", "agent", "definition", "note", "told"), (str,)),
    **dict.fromkeys(("made_of", "consumed", "judged"), (dict,)),
    **dict.fromkeys(("number", "begun"), (int,)),
    "error": (dict, type(None)),
}


def read_outcome(path: Path) -> Json:
    """An outcome that can be relied on: what decides is there and of its kind. Anybody may have changed it since."""
    outcome = files.read_json(path)
    code = outcome.get("exit_code")
    wrong = "" if isinstance(code, int) and not isinstance(code, bool) and code in STATUS else "exit_code"
    wrong = wrong or next((k for k, kinds in _KINDS.items() if k in outcome and not isinstance(outcome[k], kinds)), "")
    for name, fields in _LISTS.items():
        listed: Any = outcome.get(name) or []
        entries = cast(list[Any], listed) if isinstance(listed, list) else [None]
        sound = all(isinstance(e, dict) and all(isinstance(e.get(f), t) for f, t in fields.items()) for e in entries)  # type: ignore[reportUnknownMemberType]
        wrong = wrong or ("" if sound else name)
    if wrong:
        raise files.corrupt(path, f"{path}: {wrong} is not what it should be: {str(outcome.get(wrong))[:80]!r}")
    return outcome


class Session:
    def __init__(self, folder: Path, lock: int | None) -> None:
        self.folder = folder
        self._lock = lock  # held open for the life of the process that is outermost

    @property
    def outermost(self) -> bool:
        """Whether this process is the one that opened it."""
        return self._lock is not None

    def attempts(self, step: Step) -> list[Attempt]:
        folder = self.folder / step.folder
        if not folder.is_dir():
            return []
        numbers = [int(m[1]) for e in os.scandir(folder) if (m := re.fullmatch(r"attempt-(\d+)", e.name))]
        return [Attempt(folder / f"attempt-{n}", n) for n in sorted(numbers)]

    def cut_short(self, step: Step) -> list[Attempt]:
        """The attempts since the last one that ended, the newest first. One may have been killed before it did anything."""
        found: list[Attempt] = []
        for attempt in reversed(self.attempts(step)):
            if attempt.outcome is not None:
                break
            found.append(attempt)
        return found

    def new_attempt(self, step: Step) -> Attempt:
        folder = self.folder / step.folder
        folder.mkdir(parents=True, exist_ok=True)
        number = max((a.number for a in self.attempts(step)), default=0) + 1
        while True:
            try:
                (folder / f"attempt-{number}").mkdir()
            except FileExistsError:
                number += 1  # another process took it between our look and our step
                continue
            attempt = Attempt(folder / f"attempt-{number}", number)
            attempt.out.mkdir()
            return attempt

    def ended(self, step: Step) -> list[tuple[Attempt, Json]]:
        """Attempts that ran to an end of their own, oldest first. An interrupted one was cut short and does not count."""
        pairs = [(a, a.outcome) for a in self.attempts(step)]
        return [(a, o) for a, o in pairs if o and o.get("exit_code") != ExitCode.INTERRUPTED]

    def next_number(self) -> int:
        """Of the next outcome in this session. Clocks are set back; this only goes up."""
        descriptor = os.open(self.folder / NUMBERS, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_size == 0:  # new, or lost: it is made again from the outcomes
                os.write(descriptor, b"." * max((int(e.outcome.get("number", 0)) for e in every_outcome(self.folder)), default=0))
            os.write(descriptor, b".")
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def say_ended(self) -> None:
        """The run has come to an end of its own: what it came to is said, and was not cut off."""
        files.write_json(self.folder / ENDED, {"number": self.next_number(), "at": now()})

    def relative(self, path: Path) -> str:
        """A path as the session's own files write it: a session can be moved, so nothing inside it is absolute."""
        resolved = path.resolve()
        root = self.folder.resolve()
        return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(path)


@dataclass(frozen=True)
class Ended:
    """An attempt that ended, wherever in the session it stands."""

    step: Step
    folder: Path
    outcome: Json


def every_attempt(session: Path, phase: str = "") -> Generator[tuple[Step, Path]]:
    """The attempts of all steps, or of one phase's. What an agent puts into a folder of its own is never taken for one."""
    places = [f"phases/{phase}/*/stages"] if phase else ["stages", "*/stages", "phases/*/stages", "phases/*/*/stages"]
    for pattern in places:
        for stages in sorted(session.glob(pattern)):
            if not set(stages.relative_to(session).parts) & NOT_STEPS:
                for folder in _attempts_below(stages, 3):  # stage, round, item
                    yield Step.of_folder(folder.parent.relative_to(session)), folder


def _attempts_below(folder: Path, levels: int) -> Generator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            if re.fullmatch(r"attempt-\d+", entry.name):
                yield Path(entry.path)  # and nothing below it: that is where agents write
            elif levels:
                yield from _attempts_below(Path(entry.path), levels - 1)


def every_outcome(session: Path, phase: str = "") -> list[Ended]:
    """In the order they came, whatever the clock says."""
    found = [(step, folder) for step, folder in every_attempt(session, phase) if (folder / "outcome.json").exists()]
    ended = [Ended(step, folder, read_outcome(folder / "outcome.json")) for step, folder in found]
    return sorted(ended, key=lambda e: (e.outcome.get("number", 0), str(e.folder)))


def every_writer(session: Path, phase: str = "") -> list[Json]:
    """Who wrote files, in the order it happened: finished attempts, and what was merged from worktrees."""
    outcomes = every_outcome(session, phase)
    done = [e.outcome for e in outcomes if e.outcome.get("verdict") in ("done", "needs_revision")]
    written = [o for o in done if not o.get("isolation")]  # what was done in a worktree counts when it is merged
    homes = dict.fromkeys(e.folder.parent / MERGED for e in outcomes)
    written += [files.read_json(path) for path in homes if path.exists()]
    return sorted(written, key=lambda o: o.get("number", 0))


def open_session(session_dir: str | None, session_base: str | None, topic: str, trace_id: str) -> Session:
    """The session this process works in: the one named, the one it was started in, or a new one."""
    inherited = os.environ.get(names.SESSION)
    if session_dir:
        folder = Path(session_dir).resolve()  # the agent CLI compares real paths
        _make(folder)
    elif inherited:
        folder = Path(inherited)
        if not folder.is_dir():
            raise StrataError("NO_SESSION", f"{names.SESSION} names {inherited}, which is not a folder")
    else:
        base = Path(session_base).resolve() if session_base else HOUSE / "sessions"
        folder = new_folder(base, topic)
    inner = bool(inherited) and Path(inherited or "").resolve() == folder.resolve()
    lock = None if inner else _lock(folder)
    if lock is not None:
        processes.session_lock = lock
        files.sweep(folder)
    if not (folder / ".trace").exists():
        files.write_atomic(folder / ".trace", (trace_id or secrets.token_hex(8)) + "\n")
    return Session(folder, lock)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StrataError(
            "SESSION_UNWRITABLE",
            f"cannot make the session folder {folder}: {error.strerror}",
            "give a writable folder with --session-dir or --session-base",
        ) from None


def new_folder(base: Path, topic: str) -> Path:
    name = f"{datetime.now().strftime('%Y%m%d-%H%M')}-{files.slug(topic, 'run')}"
    _make(base)
    for number in range(1, 10_000):
        folder = base / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise StrataError("SESSION_UNWRITABLE", f"cannot make {folder}: {error.strerror}", "use --session-base") from None
        return folder
    raise StrataError("SESSION_UNWRITABLE", f"{base} holds 10,000 sessions of this minute", "clean it up")


def _lock(folder: Path) -> int:
    """One writer. The kernel lets go of the lock when the process ends, however it ends."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StrataError("SESSION_UNWRITABLE", f"cannot write in {folder}: {error.strerror}", "check its permissions") from None
    if not _take(descriptor, folder):
        owner = Owner.read(folder)
        os.close(descriptor)
        raise StrataError(
            "SESSION_LOCKED",
            f"another run ({owner or 'pid unknown'}) is working in {folder}",
            "wait for it, or stop it, then run this again",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, Owner.this().text().encode(), 0)
    return descriptor


@dataclass(frozen=True)
class Owner:
    """The process that works in a session, as its lock says: a number means something only on its machine, since its last
    start, and for a process that began when this one did."""

    pid: int
    host: str
    boot: str
    began: str

    @staticmethod
    def this() -> Owner:
        return Owner(os.getpid(), socket.gethostname(), _boot(), _began(os.getpid()))

    @staticmethod
    def read(session: Path) -> Owner | None:
        try:
            fields = (session / LOCK_NAME).read_text(encoding="utf-8").split()
            return Owner(int(fields[0]), *fields[1:4]) if len(fields) == 4 else None
        except (OSError, ValueError):
            return None

    def text(self) -> str:
        return f"{self.pid} {self.host} {self.boot} {self.began}\n"

    @property
    def elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether it runs here. Of one on another machine nothing is known."""
        same = not self.elsewhere and self.boot == _boot()
        return same and self.began == _began(self.pid) and self.began != "-"

    def __str__(self) -> str:
        return f"pid {self.pid}" + (f" on {self.host}" if self.elsewhere else "")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "-"


def _began(pid: int) -> str:
    """When a process was started, in the kernel's count; where there is none, whether it is there at all."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass  # it is gone, or there is no such list here
    try:
        os.kill(pid, 0)
        return "-" if Path("/proc/self").exists() else "?"
    except (OSError, OverflowError):
        return "-"


def _take(descriptor: int, folder: Path) -> bool:
    """Whether the lock is ours now. Where its owner was killed, its tree lets go of it in a moment, as it ends."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            owner = Owner.read(folder)
            killed = owner is not None and not owner.elsewhere and not owner.alive
            if not killed or time.monotonic() > deadline:
                return False
            time.sleep(0.1)


def bare_step(stage: str) -> Step:
    return Step(stage=files.safe_name(stage))
