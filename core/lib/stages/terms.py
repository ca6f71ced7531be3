"""By what a folder is judged: the terms of a verification, and holding on to what judges while somebody fixes the rest."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from lib.disk import files
from lib.plan import checks_file
from lib.plan.plan import Phase, Plan
from lib.session.attempts import every_outcome
from lib.stages.cycles import WRITE, Cycles
from lib.tool.call import Call
from lib.workspace import protected


class Terms(Struct, frozen=True):
    """By what a folder is judged, and what may be done about it."""

    checks: tuple[str, ...]
    checks_file: Path
    audit: bool = False  # have agents write a specification and compare the results with it, also when all is green
    fix: bool = True
    protect: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()  # what a fix may write
    request: str = ""  # what was asked for

    @staticmethod
    def of_phase(plan: Plan, phase: Phase, cwd: Path) -> Terms:
        """As its coordinator tells the sentinel."""
        path = Path(plan.checks_file or checks_file.DEFAULT_FILE)
        return Terms(phase.checks, path, phase.audit, phase.fix, phase.protect, phase.scope, request(phase, cwd))


def request(phase: Phase, cwd: Path) -> str:
    """What the phase was asked for, for those who judge it: the file a run was pointed at, or the words."""
    for run in phase.runs:
        for value in run.params.values():
            if isinstance(value, str) and files.is_file(cwd / value):
                return str(cwd / value)
    return "; ".join(f"{name}: {value}" for run in phase.runs for name, value in run.params.items())[:2000]


class Judges(Struct, frozen=True):
    """What judges the work in a folder: a fix may not touch it, and whatever it does there is undone."""

    call: Call
    terms: Terms
    cycles: Cycles

    def globs(self) -> tuple[str, ...]:
        """Tests and checkers' settings, what the plan protects, what the writer wrote, and the files the checks name."""
        known = checks_file.load(self.terms.checks_file)
        commands = [known[n].command for n in self.terms.checks if n in known]
        base, session = self.cycles.base, self.call.session.folder
        written: list[str] = []
        for attempt, outcome in every_outcome(session, base.phase):
            if attempt.step.orchestrator == base.orchestrator and attempt.step.stage == WRITE:
                written += [protected.literal(path) for path in outcome.left]
        own: tuple[str, ...] = ()
        if self.terms.checks_file.is_relative_to(self.call.cwd):
            own = (protected.literal(os.path.relpath(self.terms.checks_file, self.call.cwd)),)
        named = protected.of_commands(self.call.cwd, commands, self._made())
        return (*protected.DEFAULT, *self.terms.protect, *named, *written, *own)

    def _made(self) -> set[str]:
        """Files of the workspace that the phase itself wrote: they are the work."""
        base, found = self.cycles.base, set[str]()
        for attempt, outcome in every_outcome(self.call.session.folder, base.phase) if base.phase else ():
            if attempt.step.orchestrator != base.orchestrator:
                found |= outcome.left.keys()
        return found

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
