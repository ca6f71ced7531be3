"""Where a verification stands, on disk: which cycles there were, what each found, and which of them are closed.

A cycle is closed when its fix has ended. Closed cycles are history and are never run again: that is how a verification that was
interrupted goes on where it was.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.disk import files, records
from lib.disk.clock import now
from lib.session.documents import Results
from lib.session.folder import Session
from lib.session.step import Step

MAX_CYCLES = 3
WRITE, CHECKS = "01-write", "02-checks"  # the stages in which what must hold is written down, and checks run
STATE = "verification.json"


class State(Struct, frozen=True):
    first_cycle: int = 1
    cycles: int = 0
    ended: bool = False
    grade: str = ""
    results: str = ""  # of the last look: the file in its cycle's folder
    checked_as: int = 0  # the round in which the checks ran for it; 0: it was stopped before it could look
    tests_since: int = 1  # from this cycle on, fewer tests than there once were is not a pass
    terms: str = ""  # a digest of what was asked of the folder

    @property
    def last(self) -> int:
        return self.first_cycle + self.cycles - 1


class Cycles(Struct, frozen=True):
    session: Session
    base: Step

    @property
    def home(self) -> Path:
        return self.session.folder / self.base.home

    def state(self) -> State:
        path = self.home / STATE
        return records.read(path, State) if path.exists() else State()

    def keep(self, state: State) -> None:
        files.write_json(self.home / STATE, records.document(state))

    def folder(self, number: int) -> Path:
        return self.home / f"cycle-{number}"

    def closed(self, number: int) -> bool:
        return (self.folder(number) / "fixed.json").exists()

    def close(self, number: int, verdict: str, why: str) -> None:
        files.write_json(self.folder(number) / "fixed.json", {"verdict": verdict, "why": why, "at": now()})

    def not_fixed(self, number: int) -> list[Path]:
        """What earlier fixes of this verification did not achieve, in words."""
        found = [self.folder(n) / "not-fixed.md" for n in range(self.state().first_cycle, number)]
        return [path for path in found if path.exists()]

    def evidence(self, cycle: int) -> Path | None:
        """What the newest run of the checks wrote down, with the full output of each as it was then."""
        step = Step(self.base.phase, self.base.orchestrator, CHECKS, cycle)
        attempts = self.session.attempts(step)
        results = attempts[-1].folder / "out" / "verification-results.json" if attempts else None
        if not results or not results.exists():
            return None
        kept = [(results.parent / "evidence" / r.output, r.output_sha256) for r in read(results).checks if r.output]
        return results if all(path.is_file() and files.sha256(path) == sha for path, sha in kept) else None

    def tests_before(self, cycle: int) -> dict[str, tuple[int, int]]:
        """The most tests each check ran in this verification, and the most it skipped: a fix does not make a check pass by
        leaving some out."""
        most: dict[str, tuple[int, int]] = {}
        for earlier in range(self.state().tests_since, cycle):
            for path in self.folder(earlier).glob("*-results.json"):
                for record in read(path).checks:
                    ran, skipped = most.get(record.name, (0, 0))
                    most[record.name] = (max(ran, record.tests or 0), max(skipped, record.skipped or 0))
        return most


def read(path: Path) -> Results:
    return records.read(path, Results)


def write(path: Path, found: Results) -> None:
    files.write_json(path, records.document(found))
