"""When a cluster is done, sends work back, or fails: the tables, as they are read."""

from __future__ import annotations

from collections.abc import Iterable

from lib.evidence.findings import Finding, at_least
from msgspec import Struct

DONE, REVISE, ERROR = "DONE", "NEEDS_REVISION", "ERROR"
CRITICS = ("ct-security", "ct-scalability", "ct-maintainability", "ct-strategy")
VERIFIERS = ("v-suite", "v-tests", "v-tasks", "v-feature", "v-proof")
REVIEWERS = ("r-quality", "r-security", "r-testing", "r-knowledge")


class Verdict(Struct, frozen=True):
    word: str
    why: str
    warnings: tuple[str, ...] = ()


class Member(Struct, frozen=True):
    """What one of a cluster came to."""

    name: str
    ok: bool
    findings: tuple[Finding, ...] = ()
    why: str = ""  # where it failed

    def worst_at_least(self, severity: str) -> bool:
        return any(at_least(f.severity, severity) for f in self.findings)


def critique(members: Iterable[Member]) -> Verdict:
    """
    | two or more critics failed        | ERROR          |
    | any finding critical or worse     | NEEDS_REVISION |
    | one critic failed                 | DONE, and its side is named as missing |
    | otherwise                         | DONE           |
    """
    table = {m.name: m for m in members}
    missing = tuple(f"{name}: nobody looked at this side ({_why(table, name)})" for name in CRITICS if not _ok(table, name))
    if len(missing) >= 2:
        return Verdict(ERROR, f"{len(missing)} of {len(CRITICS)} critics failed", missing)
    grave = [f.claim for m in table.values() for f in m.findings if at_least(f.severity, "critical")]
    if grave:
        return Verdict(REVISE, f"{counted(len(grave), 'finding')} critical or worse: {'; '.join(grave[:3])}", missing)
    return Verdict(DONE, "no finding is critical", missing)


def verification(built: bool, members: Iterable[Member]) -> Verdict:
    """
    | the build failed                           | ERROR          |
    | a verifier failed                          | ERROR          |
    | a criterion or a test is not met           | NEEDS_REVISION |
    | otherwise                                  | DONE           |
    """
    if not built:
        return Verdict(ERROR, "the build failed")
    table = {m.name: m for m in members}
    failed = [name for name in VERIFIERS if not _ok(table, name)]
    if failed:
        return Verdict(ERROR, f"not verified: {', '.join(f'{name} ({_why(table, name)})' for name in failed)}")
    unmet = [f.claim for m in table.values() for f in m.findings if at_least(f.severity, "major")]
    if unmet:
        return Verdict(REVISE, f"{len(unmet)} not met: {'; '.join(unmet[:3])}")
    return Verdict(DONE, "the build, the tests, every task and every criterion")


def review(members: Iterable[Member]) -> Verdict:
    """
    | security failed, or found a blocker or something critical | ERROR          |
    | fewer than two of quality, security and testing           | ERROR          |
    | anything major or worse                                   | NEEDS_REVISION |
    | knowledge failed                                          | DONE, with a warning |
    | otherwise                                                 | DONE           |
    """
    table = {m.name: m for m in members}
    warnings = tuple(f"{name}: it is missing ({_why(table, name)})" for name in REVIEWERS if not _ok(table, name))
    if not _ok(table, "r-security"):
        return Verdict(ERROR, f"security was not reviewed: {_why(table, 'r-security')}", warnings)
    if table["r-security"].worst_at_least("critical"):
        grave = [f.claim for f in table["r-security"].findings if at_least(f.severity, "critical")]
        return Verdict(ERROR, f"security: {'; '.join(grave[:3])}", warnings)
    counting = [m for m in table.values() if m.name != "r-knowledge"]
    if sum(m.ok for m in counting) < 2:
        return Verdict(ERROR, "fewer than two of quality, security and testing were reviewed", warnings)
    wanted = [f.claim for m in counting for f in m.findings if at_least(f.severity, "major")]
    if wanted:
        return Verdict(REVISE, f"{counted(len(wanted), 'change')} asked for: {'; '.join(wanted[:3])}", warnings)
    return Verdict(DONE, "nothing major is left", warnings)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _ok(table: dict[str, Member], name: str) -> bool:
    return name in table and table[name].ok


def _why(table: dict[str, Member], name: str) -> str:
    return table[name].why if name in table and table[name].why else "it did not succeed"
