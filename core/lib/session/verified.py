"""What verification did for a phase, in a few words: what was checked, what failed first, what was fixed, and how it ended."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.disk import lenient
from lib.session.documents import CheckResult, Fixes, Results

TAIL_LINES = 40


class Caught(Struct, frozen=True):
    """A check that failed, and what it said."""

    check: str
    count: str
    cycle: int
    lines: str = ""


class Story(Struct, frozen=True):
    checks: tuple[str, ...] = ()
    looks: int = 0
    caught: tuple[Caught, ...] = ()  # what failed the first time anything did
    fixes: tuple[str, ...] = ()  # what was to be fixed then
    grade: str = ""

    @property
    def words(self) -> str:
        if not self.looks:
            return ""
        named = ", ".join(self.checks) or "no checks"
        if not self.caught:
            return f"{named}: {self.grade} at the first look"
        failed = ", ".join(f"{c.check} ({c.count})" for c in self.caught)
        done = f"{len(self.fixes)} to fix, " if self.fixes else ""
        return f"{named}: first failed {failed}; {done}{self.grade} after {self.looks} looks"


def of(session: Path, sentinel: Path) -> Story:
    """From the cycles of a sentinel's folder; an empty one where nothing was verified."""
    cycles = sorted(sentinel.glob("cycle-*"), key=lambda p: (len(p.name), p.name))
    looks = [(n, lenient.read(c / "verification-results.json", Results)) for n, c in enumerate(cycles, 1)]
    looks = [(n, found) for n, found in looks if found.checks or found.audit]
    if not looks:
        return Story()
    first = next(((n, found) for n, found in looks if found.failed), None)
    caught = tuple(_caught(session, check, first[0]) for check in first[1].failed) if first else ()
    fixes = lenient.read(cycles[first[0] - 1] / "fix-list.json", Fixes).fixes if first else ()
    last = looks[-1][1]
    return Story(
        tuple(c.name for c in last.checks), len(looks), caught, tuple(f"{f.file}: {f.issue}" for f in fixes), last.overall
    )


def _caught(session: Path, check: CheckResult, cycle: int) -> Caught:
    return Caught(check.name, check.count, cycle, lines_of(session, check))


def lines_of(session: Path, check: CheckResult) -> str:
    """The end of what a check printed, where its failures stand."""
    try:
        text = (session / check.evidence).read_bytes()[-64_000:].decode("utf-8", "replace") if check.evidence else check.tail
    except OSError:
        text = check.tail
    return "\n".join(text.rstrip().splitlines()[-TAIL_LINES:])
