"""By what a folder is judged: the terms of a verification, and holding on to what judges while somebody fixes the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from msgspec import Struct

from lib.disk import files
from lib.plan import checks_file
from lib.plan.plan import Phase, Plan
from lib.session.attempts import every_outcome, finished
from lib.stages.cycles import WRITE, Cycles
from lib.tool.call import Call
from lib.workspace import protected


class Terms(Struct, frozen=True):
    """By what a folder is judged, and what may be done about it."""

    checks: tuple[str, ...]
    checks_file: str = ""  # a file of the plan's own
    audit: bool = False  # have agents write a specification and compare the results with it, also when all is green
    fix: bool = True
    protect: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()  # what a fix may write
    request: str = ""  # what was asked for

    @staticmethod
    def of_phase(plan: Plan, phase: Phase, cwd: Path) -> Terms:
        """As its coordinator tells the sentinel."""
        return Terms(phase.checks, plan.checks_file, phase.audit, phase.fix, phase.protect, phase.scope, request(phase, cwd))


def request(phase: Phase, cwd: Path) -> str:
    """What the phase was asked for, for those who judge it: the file a run was pointed at, or the words."""
    for run in phase.runs:
        for value in run.params.values():
            if isinstance(value, str) and files.is_file(cwd / value):
                return str(cwd / value)
    return "; ".join(f"{name}: {value}" for run in phase.runs for name, value in run.params.items())[:2000]


def _resolved(check: checks_file.Check) -> tuple[str, ...]:
    return tuple(word.replace("{python}", sys.executable) for word in check.command)


class Judges(Struct, frozen=True):
    """What judges the work in a folder: a fix may not touch it, and whatever it does there is undone."""

    call: Call
    terms: Terms
    cycles: Cycles

    def globs(self) -> tuple[str, ...]:
        """Tests and checkers' settings, what the plan protects, what the writer wrote, and the files the checks name."""
        known = checks_file.known(self.terms.checks_file)
        commands = [_resolved(check) for check in known.choose(self.terms.checks)]
        base, session = self.cycles.base, self.call.session.folder
        written: list[str] = []
        for attempt, outcome in every_outcome(session, base.phase):
            if attempt.step.orchestrator == base.orchestrator and attempt.step.stage == WRITE:
                written += [protected.literal(path) for path in outcome.left]
        defined = {known.files[name] for name in self.terms.checks if name in known.files}
        inside = [path for path in sorted(defined) if path.is_relative_to(self.call.cwd)]
        own = [protected.literal(os.path.relpath(path, self.call.cwd)) for path in inside]
        named = protected.of_commands(self.call.cwd, commands, self._made())
        return (*protected.DEFAULT, *self.terms.protect, *named, *written, *own)

    def _made(self) -> set[str]:
        """Files of the workspace that the phase itself wrote: they are the work."""
        base, found = self.cycles.base, set[str]()
        for attempt, outcome in every_outcome(self.call.session.folder, base.phase) if base.phase else ():
            if attempt.step.orchestrator != base.orchestrator:
                found |= outcome.left.keys()
        return found

    def question(self) -> str:
        """What is asked of the folder, wherever it lies. Another question is another verification."""
        terms = self.terms
        asked = terms.request.removeprefix(f"{self.call.cwd}/")
        of = self.published() if checks_file.ARTIFACTS in terms.checks or terms.audit else []
        return files.digest(
            [terms.checks, checks_file.known(terms.checks_file).digest(terms.checks), terms.audit, terms.protect, asked, of]
        )

    def published(self) -> list[list[str]]:
        """What the phase has published in the session, as its steps left it last."""
        found: dict[str, str] = {}
        for attempt, outcome in finished(self.call.session.folder, self.cycles.base.phase) if self.cycles.base.phase else ():
            if attempt.step.orchestrator not in (self.cycles.base.orchestrator, "coordinator", "campaign"):
                found |= outcome.published
        return [list(pair) for pair in sorted(found.items())]

    def hold(self, cycle: int) -> None:
        """Keeps copies of what judges now, before a fix of this cycle begins."""
        kept = self.cycles.folder(cycle) / "judge"
        globs = self.globs()
        files.write_json(kept / "globs.json", {"globs": list(globs)})
        protected.Judge(self.call.cwd, globs, kept, self.call.session.folder).hold()

    def put_back(self, cycle: int) -> list[str]:
        """Whatever became of the fixer: what judges is as it was before it started."""
        kept = self.cycles.folder(cycle) / "judge"
        if not (kept / "held.json").exists():
            return []
        globs = tuple(files.read_json(kept / "globs.json")["globs"])
        undone = protected.Judge(self.call.cwd, globs, kept, self.call.session.folder).put_back()
        if undone:
            self.call.event(f"{self.cycles.base.slug}.cycle-{cycle}", "judge-restored", "; ".join(undone[:8]))
        return undone
