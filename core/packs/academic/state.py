"""research_state.json: where a run stands, what went wrong, what was tried again and why. Python alone writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lib.contract import StrataError, command
from lib.disk import files, locks, records
from lib.disk.clock import now
from msgspec import Struct
from msgspec.structs import replace

PHASES = {
    0: "databases", 1: "search strings", 2: "search", 3: "scoring", 4: "papers", 5: "quotes", 6: "bibliography",
}  # fmt: skip
CHECKPOINTS = (0, 1, 3, 5, 6)  # a person is asked behind these
ALARMS = {"candidates": (30, 10), "pdfs": (12, 8), "quotes": (20, 10)}  # warn below, critical below


class Failed(Struct, frozen=True):
    phase: int
    agent: str
    item: str
    error: str
    timestamp: str
    retry_count: int


class Retried(Struct, frozen=True):
    phase: int
    agent: str
    item: str
    why: str
    after_seconds: float
    timestamp: str


class Alarm(Struct, frozen=True):
    level: str
    count: int
    warn_below: int
    critical_below: int


class Waiting(Struct, frozen=True):
    stage: str
    phase: int
    question: str
    choices: tuple[str, ...] = ()
    show: tuple[str, ...] = ()


class Edited(Struct, frozen=True):
    file: str
    kept_as: str | None
    timestamp: str


class State(Struct, frozen=True):
    run_id: str = ""
    session: str = ""
    current_phase: int = 0
    phase_status: dict[str, str] = {}
    errors: tuple[Failed, ...] = ()
    retries: tuple[Retried, ...] = ()
    alarms: dict[str, Alarm] = {}
    waiting: Waiting | None = None
    last_checkpoint: str | None = None
    edits: tuple[Edited, ...] = ()


class Keeper:
    """Changes the state of one run, one process at a time."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "research_state.json"

    def read(self) -> State:
        return records.read(self.path, State) if self.path.is_file() else State()

    def change(self, how: Callable[[State], State]) -> State:
        (self.root / "logs").mkdir(parents=True, exist_ok=True)
        with locks.held(self.root / "logs/state.lock"):
            before = self.read()
            after = how(before)
            if after != before or not self.path.is_file():
                files.write_json(self.path, records.document(after))
            return after

    def begin(self, run_id: str, session: Path) -> None:
        pending = {str(number): "pending" for number in PHASES}

        def set_(state: State) -> State:
            other = Path(state.session) if state.session else session
            if other != session and other.is_dir() and not self.root.is_relative_to(session):
                hint = f"resume that one: {command('orchestrator')} academic --resume {other}; or set up another folder"
                raise StrataError("RUN_IN_USE", f"{self.root} belongs to the session {other}", hint, final=True)
            return replace(state, run_id=run_id, session=str(session), phase_status=pending | state.phase_status)

        self.change(set_)

    def ended(self) -> None:
        """All of it is done, also what a resume found as it was."""
        self.change(
            lambda s: replace(s, phase_status={str(n): "completed" for n in PHASES}, current_phase=max(PHASES), waiting=None)
        )

    def phase(self, number: int, status: str) -> None:
        """How a phase stands. Those behind it have not begun, or are to be done again."""

        def set_(state: State) -> State:
            later = {n: "pending" for n, s in state.phase_status.items() if int(n) > number and s == "completed"}
            stands = state.phase_status | (later if status == "in_progress" else {}) | {str(number): status}
            current = number if status != "completed" or number == max(PHASES) else number + 1
            return replace(state, phase_status=stands, current_phase=current)

        self.change(set_)

    def failed(self, phase: int, agent: str, item: str, error: str) -> int:
        """Notes what went wrong, and returns how often this had been tried again by then."""

        def add(state: State) -> State:
            before = sum(e.phase == phase and e.agent == agent and e.item == item for e in state.errors)
            return replace(state, errors=(*state.errors, Failed(phase, agent, item, error[:500], now(), before)))

        return self.change(add).errors[-1].retry_count

    def retried(self, phase: int, agent: str, item: str, why: str, after: float) -> None:
        again = Retried(phase, agent, item, why[:300], round(after, 2), now())
        self.change(lambda s: replace(s, retries=(*s.retries, again)))

    def counted(self, name: str, count: int) -> str:
        """Raises an alarm, or takes it back. Returns what to say about it."""
        warn, critical = ALARMS[name]
        level = "critical" if count < critical else "warn" if count < warn else "ok"
        self.change(lambda s: replace(s, alarms=s.alarms | {name: Alarm(level, count, warn, critical)}))
        return (
            ""
            if level == "ok"
            else f"{level}: {count} {name}, and fewer than {critical if level == 'critical' else warn} are few"
        )

    def waits(self, waiting: Waiting | None) -> None:
        def set_(state: State) -> State:
            phase = waiting.phase if waiting else state.current_phase
            stands = state.phase_status | ({str(phase): "waiting"} if waiting else {})
            return replace(state, waiting=waiting, phase_status=stands, current_phase=phase)

        self.change(set_)

    def answered(self, stage: str) -> None:
        self.change(
            lambda s: replace(s, waiting=s.waiting if s.waiting and s.waiting.stage != stage else None, last_checkpoint=now())
        )

    def edited(self, file: str, kept_as: str | None = None) -> None:
        self.change(lambda s: replace(s, edits=(*s.edits, Edited(file, kept_as, now()))))
