"""What a campaign comes to, from how its phases ended: the seed's table at the top, and what a person is told to do next."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lib.campaign import people
from lib.contract import DONE, NEVER_ABSORBED, ExitCode, Json, part
from lib.disk import files
from lib.plan.plan import Plan
from lib.process.tools import ToolResult
from lib.session import budget, ledger
from lib.session.attempts import every_outcome
from lib.stages import asking


class Ending(Struct, frozen=True):
    session: Path
    plan: Plan
    results: dict[str, ToolResult]  # by phase
    resume: str  # the command that goes on
    source: str  # where the plan came from

    @property
    def waiting(self) -> bool:
        return any(r.waiting for r in self.results.values())

    def verdict(self) -> tuple[ExitCode, Json | None]:
        codes = {name: r.exit_code for name, r in self.results.items()}
        bad = {n: r for n, r in self.results.items() if r.exit_code not in DONE and not r.waiting}
        blocked_only = all(r.status == "blocked" for r in bad.values())
        if self.waiting and blocked_only:  # nothing has failed
            first = next(r for r in self.results.values() if r.waiting)
            how = asking.flag(first.waiting)  # a stage asks; its own hint speaks of the orchestrator
            hint = {"hint": f"{self.resume} {how}"} if how else {}
            return ExitCode.HUMAN_INPUT, {**(first.error or {}), **hint}
        for grave in NEVER_ABSORBED:
            name = next((n for n, c in codes.items() if c == grave), None)
            if name and grave != ExitCode.NEEDS_ESCALATION and not self.results[name].waiting:
                return grave, self.results[name].error
        spent = next((r for r in bad.values() if r.code == "BUDGET_EXCEEDED"), None)
        if spent:
            return ExitCode.NEEDS_ESCALATION, {**(spent.error or {}), "hint": self.more_budget(spent.error or {})}
        damaged = next((r for r in bad.values() if r.code == "CORRUPT_STATE"), None)
        if damaged:
            return ExitCode.FAILURE, {**(damaged.error or {}), "hint": f"{part(damaged.error, 'hint')}: {self.resume}"}
        fault = self.own_fault(bad) if bad else None
        if fault:
            return ExitCode.FAILURE, fault
        rejected = next((r for r in bad.values() if r.status == "rejected"), None)
        if rejected:
            return ExitCode.FAILURE, rejected.error
        if bad:
            return ExitCode.HUMAN_INPUT, self.escalate(bad)
        missing = [p.name for p in self.plan.phases if p.name not in codes]
        if missing:
            return ExitCode.PARTIAL_SUCCESS, _partly(f"not run: {', '.join(missing)}", f"{self.resume} runs the rest")
        if ExitCode.PARTIAL_SUCCESS in codes.values():
            partly = [n for n, c in codes.items() if c == ExitCode.PARTIAL_SUCCESS]
            names = "; ".join(f"{n} ({why})" if (why := self.results[n].message) else n for n in partly)
            again = f"what was given up is not tried again; {self.resume} --from PHASE/RUN/STAGE[/ITEM] runs it again"
            return ExitCode.PARTIAL_SUCCESS, _partly(f"not everything succeeded: {names}", again)
        return ExitCode.SUCCESS, None

    def more_budget(self, error: Json) -> str:
        """How to resume with more: the campaign's limits on the command line, those of a phase in the plan."""
        kind = part(error, "limit") or "usd"
        if part(error, "scope"):
            return f"raise `budget: {{{kind}: …}}` of that phase in {self.source}, then: {self.resume} {self.source}"
        limit = ledger.Ledger(self.session).limits.get(budget.WHOLE, {}).get(kind, 1)
        return f"{self.resume} --budget {kind}={limit * 2:g}"

    def own_fault(self, bad: dict[str, ToolResult]) -> Json | None:
        """What no agent can fix and no answer resolves: a login, a program that is missing."""
        codes: dict[str, Json] = {}
        for phase in map(self.plan.phase, bad):
            newest = {attempt.step: (attempt, outcome) for attempt, outcome in every_outcome(self.session, phase.folder)}
            for attempt, outcome in newest.values():
                if attempt.step.orchestrator in {r.name for r in phase.runs}:  # what was asked to judge or fix is another thing
                    codes[outcome.code] = (outcome.error or {}) | {"evidence": str(attempt.folder)}
        found = next((codes[c] for c in ("LOGIN_MISSING", "LOGIN_REFUSED", "CLI_MISSING") if c in codes), None)
        return {**found, "hint": f"{part(found, 'hint')}; then: {self.resume}"} if found else None

    def escalate(self, bad: dict[str, ToolResult]) -> Json:
        """What could not be resolved here, as one document for a person, with the commands that go on."""
        session = self.session
        number = 1 + len(list((session / "escalations").glob("*.md")))
        path = session / "escalations" / f"{number:02d}.md"
        failed = [(self.plan.phase(name), reply) for name, reply in bad.items() if reply.status != "blocked"]
        files.write_atomic(path, people.escalation(self.plan.name, session, failed, self.resume))
        message = f"{', '.join(p.name for p, _ in failed)} did not succeed: {failed[0][1].message}"
        hint = f"read {path}, then: {self.resume} --resolution FILE"
        return {"code": "ESCALATED", "message": message, "hint": hint, "escalation": str(path), "evidence": str(path)}


def _partly(message: str, hint: str) -> Json:
    return {"code": "PARTIAL_SUCCESS", "message": message, "hint": hint}
