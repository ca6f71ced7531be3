"""Layer 4's runtime: phases by dependency, the session's state and checkpoints, and what becomes of what went wrong."""

from __future__ import annotations

from pathlib import Path

from lib.attempt import refinements
from lib.campaign import approvals, beginning, checkpoints, goals, outlook, people
from lib.campaign.progress import Progress
from lib.contract import (
    CORE,
    DONE,
    NEVER_ABSORBED,
    UNFINISHED,
    ExitCode,
    Interrupted,
    Json,
    StrataError,
    part,
    usage,
)
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan.plan import Phase
from lib.process import fanout
from lib.process.tools import ToolResult
from lib.session import budget, wall_clock, watchers
from lib.session.documents import CampaignManifest
from lib.session.signature import signature
from lib.session.step import Step
from lib.stages import agent_mode

MAX_RERUNS = 2  # of a phase, each with an answer to what it asked


class Campaign(Progress):
    def go(self) -> Json:
        """Phases by dependency. At a terminal a person may answer what could not be resolved, and it goes on at once."""
        earlier = self.call.session.folder / "manifest.json"
        self.started_at = (records.read(earlier, CampaignManifest).started_at if earlier.exists() else "") or now()
        self.state("INIT")
        if not checkpoints.newest(self.call.session.folder):
            self.checkpoint()
        with wall_clock.Clock(self.call.session.folder, budget.WHOLE) as clock:
            return self.rounds(clock)

    def rounds(self, clock: wall_clock.Clock) -> Json:
        while True:
            try:
                self.held = self.ask_about_plan()
                if self.held:
                    return self.finish(self.held.exit_code, self.held.error)
                self.walk()
                code, error = self.verdict()
                if code in DONE and self.plan.goal:
                    code, error = self.as_judged(code, error) if self.only else self.judge(code, error)
            except Interrupted as stop:
                if clock.ran_out:
                    error = clock.error().document()
                    return self.finish(ExitCode.NEEDS_ESCALATION, error | {"hint": self.ending().more_budget(error)})
                return self.finish(ExitCode.INTERRUPTED, stop.document() | {"hint": f"resume with: {self.resume_command()}"})
            if code is None:
                continue  # another round, for what was missing
            unresolved = part(error, "escalation")
            resolution = people.resolve(Path(unresolved), self.call.session.folder) if unresolved else None
            if not resolution:
                return self.finish(code, error)
            self.resolutions = [resolution]
            self.results.clear()

    # A goal: the plan an agent wrote for it, and what came of it

    def ask_about_plan(self) -> ToolResult | None:
        """The status of a campaign whose plan no person wrote, and nobody has approved."""
        asked = goals.asked(self.call, self.plan, self.base)
        said = ("approve", "--approve-plan", None) if self.call.options.approve_plan else None
        return self.decided(asked, said, "plan") if asked else None

    def as_judged(self, code: ExitCode, error: Json | None) -> tuple[ExitCode, Json | None]:
        """One phase alone asks nobody: what was said of the goal counts, where it was said of what there is now."""
        known = goals.last_evaluation(self.call.session.folder) if goals.judged(self.call.session.folder, self.plan) else None
        if not known:
            message = "the goal has not been judged since"
            return ExitCode.PARTIAL_SUCCESS, {"code": "GOAL_NOT_JUDGED", "message": message, "hint": self.resume_command()}
        return (code, error) if known["met"] == "yes" else (ExitCode.PARTIAL_SUCCESS, goals.unmet(known, self.resume_command()))

    def judge(self, code: ExitCode, error: Json | None) -> tuple[ExitCode | None, Json | None]:
        """What the evaluator says decides whether there is another round, and never makes a failure good. None: once more."""
        not_yet = {"code": "GOAL_NOT_JUDGED", "message": "the goal has not been judged yet", "hint": self.resume_command()}
        self.finish(ExitCode.PARTIAL_SUCCESS, not_yet)  # the report is what it reads first
        self.state("EVALUATE")
        try:
            self.evaluation = goals.evaluate(self.call, self.plan)
            if self.evaluation["met"] == "yes":
                return code, error
            if not self.evaluation["gaps"] or self.plan.round >= self.plan.rounds:
                return ExitCode.PARTIAL_SUCCESS, goals.unmet(self.evaluation, f"see {self.call.session.folder / 'goal'}")
            self.state("REPLAN")
            self.plan = goals.next_round(self.call, self.plan, self.evaluation)
        except StrataError as problem:
            if problem.exit_code == ExitCode.INTERRUPTED:
                raise Interrupted() from None
            hint = problem.hint or f"{self.resume_command()} asks again"
            grave = problem.exit_code if problem.exit_code in NEVER_ABSORBED else ExitCode.PARTIAL_SUCCESS
            return grave, problem.document() | {"hint": hint}
        path = goals.plan_file_of(self.call.session.folder, self.plan.round)
        self.effective = beginning.prepare(self.call, self.plan, path, path.read_text(encoding="utf-8"))
        return None, None

    def walk(self) -> None:
        if self.call.options.mode == "agent":
            return self.by_agent()
        if self.only:
            return self.walk_only(next(p for p in self.plan.phases if self.only in (p.name, p.folder)))
        fanout.run(
            {p.name: p.depends_on for p in self.plan.phases},
            self.plan.max_parallel,
            lambda name: self.phase(self.plan.phase(name)),
            succeeded=lambda r: r.exit_code in DONE,
            blocked=self.blocked,
            go_on=lambda r: r.exit_code not in NEVER_ABSORBED or bool(r.waiting),
        )

    def by_agent(self) -> None:
        """An agent calls the coordinators; the status of each phase is read from the files afterwards."""
        listed: Json = {}
        for phase in self.plan.phases:
            after = f" (after {', '.join(phase.depends_on)})" if phase.depends_on else ""
            listed[phase.name] = f"uv run {CORE}/coordinator.py --of {phase.folder}{after}"
        done = {p.name for p in self.plan.phases if outlook.all_done(self.call, self.plan, (p,))}
        reports = {p.name: self.report_of(p) for p in self.plan.phases}
        reply = agent_mode.NOTHING_TO_DO
        if len(done) < len(self.plan.phases):
            reply = agent_mode.ask(self.call, "campaign-controller", Step("", "campaign"), self.plan.name, listed)
        for phase in self.plan.phases:
            cause = next((d for d in phase.depends_on if self.results[d].exit_code not in DONE), None)
            if cause:
                self.blocked(phase.name, cause)
                continue
            known = self.report_of(phase)
            spoke = phase.name in done or known != reports[phase.name]  # verified already, or in this run
            result = self.ask(phase, "before") or self.from_files(phase, known if spoke else {}, reply)
            self.settle(phase, (self.ask(phase, "after") if result.exit_code in DONE else None) or result)

    def from_files(self, phase: Phase, known: Json, reply: ToolResult) -> ToolResult:
        left = [step for run in phase.runs for step in outlook.unfinished(self.call, self.plan, phase, run)]
        code = known.get("exit_code")
        if code is None or (code in DONE and left):
            return agent_mode.not_done(reply, "PHASE_NOT_DONE", f"the phase {phase.name}", left)
        return ToolResult(ExitCode(code), known)

    def walk_only(self, phase: Phase) -> None:
        """One phase; the others stand as they ended."""
        for other in self.plan.phases:
            known = self.report_of(other)
            if other != phase and known.get("exit_code") is not None:
                self.results[other.name] = ToolResult(ExitCode(known["exit_code"]), known)
        missing = [d for d in phase.depends_on if d not in self.results or self.results[d].exit_code not in DONE]
        if missing:
            usage(f"--only {phase.name}: it depends on {', '.join(missing)}, which has not succeeded", "resume without --only")
        self.phase(phase)

    def blocked(self, name: str, cause: str) -> ToolResult:
        waits = self.results[cause].waiting
        error = {"code": "BLOCKED", "message": f"the phase {cause} {'waits for a person' if waits else 'did not succeed'}"}
        self.results[name] = ToolResult(ExitCode.FAILURE, {"status": "blocked", "exit_code": 1, "error": error})
        return self.results[name]

    def phase(self, phase: Phase) -> ToolResult:
        """One phase: what a person has to say before it, the coordinator, what a person has to say after it."""
        held = self.ask(phase, "before")
        if held:
            return self.settle(phase, held)
        reply = self.coordinate(phase)
        if reply.exit_code in DONE:
            return self.settle(phase, self.ask(phase, "after") or reply)
        stopped = reply.exit_code in UNFINISHED or reply.code == "BUDGET_EXCEEDED"
        if phase.rollback and not stopped:
            back = self.call.call("coordinator.py", ["--phase", phase.name, "--roll-back", str(self.effective)])
            if back.exit_code != ExitCode.SUCCESS:  # a promise that was not kept is said where the failure is
                error = {**(reply.error or {}), "rollback_failed": back.message}
                reply = ToolResult(reply.exit_code, reply.document | {"error": error})
        return self.settle(phase, reply)

    def coordinate(self, phase: Phase) -> ToolResult:
        """The seed's table: 10 is answered and tried again, at most twice; the rest is logged or goes up."""
        resolutions: list[Path] = []
        again = 0
        while True:
            self.state("PHASE_N" if not again else "REFINEMENT", phase)
            reply = self.call.call("coordinator.py", [*self.flags(phase, resolutions), str(self.effective)])
            if reply.exit_code != ExitCode.NEEDS_REFINEMENT or again == MAX_RERUNS:
                return reply
            again += 1
            step = Step(phase.folder, "campaign", "01-evaluate", round=again)
            answered = refinements.answer(self.call, reply, step, f"coord-{phase.folder}-{self.number(phase)}")
            if not answered.resolution:
                return answered.stopped or refinements.with_question(reply, answered.question)
            if not answered.judged:
                again = MAX_RERUNS  # nobody said what would help: once more, and no oftener
            resolutions = [answered.resolution]

    def number(self, phase: Phase) -> int:
        """Of the next answer to this phase: earlier ones stay."""
        return 1 + len(
            [p for p in (self.call.session.folder / "resolutions").glob(f"coord-{phase.folder}-*.md") if "request" not in p.name]
        )

    def flags(self, phase: Phase, resolutions: list[Path]) -> list[str]:
        flags = ["--phase", phase.name, *(["--keep-failed"] if phase.rollback else []), "--mode", phase.mode]
        given = [*(Path(p).absolute() for p in self.call.options.extra_context), *self.resolutions, *resolutions]
        for path in given:
            flags += ["--extra-context", str(path)]
        for answer in self.call.options.answer:
            if answer.partition("=")[0] not in {p.name for p in self.plan.phases if p.checkpoint}:
                flags += ["--answer", answer]
        return flags

    def settle(self, phase: Phase, reply: ToolResult) -> ToolResult:
        with self._lock:
            self.results[phase.name] = reply
            self.checkpoint()
        self.state("CHECKPOINT", phase)
        return reply

    def ask(self, phase: Phase, at: str) -> ToolResult | None:
        """The status of a phase that a person has not approved yet; None if there is nothing to wait for."""
        if not phase.checkpoint or phase.checkpoint.at != at:
            return None
        with self._lock:
            return self.decided(self.approvals.asked(phase), None, phase.name)

    def decided(self, asked: approvals.Asked, said: approvals.Decision | None, name: str) -> ToolResult | None:
        decided = self.approvals.decision(asked)
        said = self.said.about(asked) or said or (None if decided else people.decide(asked, self.call.session.folder))
        if said and (not decided or decided["decision"] != said[0]):
            decided = self.approvals.record(asked, *said)
            self.call.event(f"{self.plan.name}.{name}", f"{decided['decision']}d", f"by {decided['by']}")
        if not decided:
            return ToolResult(ExitCode.HUMAN_INPUT, approvals.waiting(asked, self.resume_command()))
        if decided["decision"] == "approve":
            return None
        error = {
            "code": "REJECTED",
            "message": f"{decided['by']} said no: {decided['why']}",
            "hint": f"{self.resume_command()} --approve to say yes after all",
        }
        return ToolResult(ExitCode.FAILURE, {"status": "rejected", "exit_code": 1, "error": error, "rejected": asked.document()})

    def give_up(self, why: str) -> Json:
        """A person says no to what was escalated: nothing runs, and that is on record."""
        folder = self.call.session.folder
        known = signature() | {"decision": "reject", "why": why}
        files.write_json(folder / "escalations" / "rejected.json", known)
        error = {"code": "REJECTED", "message": f"{known['by']} gave up on it: {why}", "hint": "resume without --reject to go on"}
        manifest = files.read_json(folder / "manifest.json") | {"status": "failure", "exit_code": 1, "error": error}
        files.write_json(folder / "manifest.json", manifest)
        self.state("STOPPED")
        return manifest | {"session_dir": str(folder), "report": str(watchers.place(folder))}
