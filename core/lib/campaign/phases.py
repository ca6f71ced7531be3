"""Layer 3's runtime: the orchestrators of one phase by dependency, then verification, then the phase report."""

from __future__ import annotations

import argparse
from pathlib import Path

from lib.attempt import refinements
from lib.campaign import by_agent, checkpoints
from lib.campaign.approvals import Approvals
from lib.campaign.rollback import Rollback
from lib.contract import (
    ASKS_PARENT,
    DONE,
    NEVER_ABSORBED,
    RUN_AGAIN,
    STATUS,
    UNFINISHED,
    ExitCode,
    Interrupted,
    Json,
    StrataError,
    gravest,
    part,
)
from lib.disk import files, lenient
from lib.disk.clock import now
from lib.plan import orchestrator_file, outputs
from lib.plan.orchestration import Question
from lib.plan.plan import Phase, Plan, Run
from lib.process import fanout
from lib.process.tools import ToolResult
from lib.session import ledger, wall_clock, watchers
from lib.session.attempts import every_outcome
from lib.session.documents import Manifest, Results
from lib.session.step import Step
from lib.stages import agent_mode, asking, terms
from lib.tool.arguments import keyword
from lib.tool.call import Call

FROM_HELP = "run this and everything after it again: PHASE[/RUN[/STAGE[/ITEM]]] of a plan, RUN[/STAGE[/ITEM]] of a phase"


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--answer", metavar="STAGE=ANSWER", action="append", default=[], help="answer a waiting stage; @FILE reads the answer")
    add("--extra-context", metavar="FILE", action="append", default=[], help="a text file for every stage that runs (repeatable)")
    add("--mode", choices=agent_mode.MODES, default="tool", help="agent: an agent replaces this tool (costs one level of depth)")
    add("--explain", action="store_true", help="print what would happen to every step, and why; run nothing")
    add("--from", metavar="STEP", dest="start_from", help=FROM_HELP)
    add("--inherit-settings", action="store_true", help="let agents load CLAUDE.md, settings, hooks and MCP servers")


def run(call: Call, plan: Plan, phase: Phase) -> Json:
    """Runs the phase and returns its report. What is finished is skipped: running it again is how it is resumed."""
    coordinator = Coordinator(call, plan, phase)
    if call.options.roll_back:
        done = coordinator.rollback.only()
        watchers.report(call.session.folder)
        ended: Json = {"tool": "coordinator", "status": "success", "exit_code": 0, "phase": phase.folder}
        return ended | {"rolled_back": done}
    coordinator.rolled_back = coordinator.rollback.begin()
    code, grade = coordinator.within_its_time()
    unfinished = code in UNFINISHED or coordinator.out_of_budget()
    if code not in DONE and not unfinished and not call.options.keep_failed:
        coordinator.rolled_back = coordinator.rollback.roll_back()
    if unfinished:
        coordinator.rollback.pause()
    document = coordinator.report(code, grade)
    coordinator.checkpoint(grade)
    return document | {"report": str(watchers.report(call.session.folder))}


def _escalated(reply: ToolResult) -> ToolResult:
    code = ExitCode.NEEDS_ESCALATION
    return ToolResult(code, reply.document | {"exit_code": int(code), "status": STATUS[code]})


def _blocked(name: str, cause: str) -> ToolResult:
    error = {"code": "BLOCKED", "message": f"{cause} did not succeed"}
    return ToolResult(ExitCode.FAILURE, {"status": "blocked", "exit_code": 1, "error": error})


def _together(codes: list[ExitCode]) -> ExitCode:
    return gravest(codes) if codes else ExitCode.SUCCESS


class Coordinator:
    def __init__(self, call: Call, plan: Plan, phase: Phase) -> None:
        self.call = call
        self.plan = plan
        self.phase = phase
        self.folder = call.session.folder / "phases" / phase.folder
        self.rollback = Rollback(call, phase)
        self.replies: dict[str, ToolResult] = {}
        self.sentinel: Json = {}
        self.rolled_back: Json = {}

    def within_its_time(self) -> tuple[ExitCode, str]:
        """The phase itself, ended where a budget of time of its own is used up."""
        book = ledger.Ledger(self.call.session.folder)
        timed = "wall_seconds" in book.limits.get(self.phase.folder, {})
        if not timed:
            return self.whole()
        book.begin_run(self.phase.folder)
        with wall_clock.Clock(self.call.session.folder, self.phase.folder) as clock:
            try:
                return self.whole()
            except Interrupted:
                if not clock.ran_out:
                    raise
                self.sentinel = {"error": clock.error().document()}
                return ExitCode.NEEDS_ESCALATION, ""
            finally:
                book.end_run(self.phase.folder)

    def out_of_budget(self) -> bool:
        """With more of it the phase goes on from where it is: nothing is to be undone."""
        errors = [self.sentinel.get("error"), *(r.error for r in self.replies.values())]
        return any(part(error, "code") == "BUDGET_EXCEEDED" for error in errors)

    def whole(self) -> tuple[ExitCode, str]:
        if self.call.options.mode == "agent":
            self.replies = results = by_agent.coordinate(self.call, self.plan, self.phase)
        else:
            results = self.by_dependency()
        code = _together([r.exit_code for r in results.values()])
        if code not in DONE:
            return code, ""
        verified, grade = self.verify()
        return verified if verified != ExitCode.SUCCESS else code, grade

    def by_dependency(self) -> dict[str, ToolResult]:
        return fanout.run(
            {r.name: r.depends_on for r in self.phase.runs},
            self.phase.cap,
            lambda name: self.orchestrate(next(r for r in self.phase.runs if r.name == name)),
            succeeded=lambda r: r.exit_code in DONE,
            blocked=_blocked,
            go_on=lambda r: r.exit_code not in NEVER_ABSORBED,
        )

    def orchestrate(self, run: Run) -> ToolResult:
        """One orchestrator, with the seed's table: 1 and 12 are run once more, 10 is answered, the rest goes up."""
        reply = self._once_more(run)
        if reply.exit_code == ExitCode.NEEDS_REFINEMENT:
            step = Step(self.phase.folder, "coordinator", "01-evaluate", item=run.name)
            answered = refinements.answer(self.call, reply, step, f"orch-{self.phase.folder}.{run.name}")
            if answered.resolution:
                self.call.event(f"{self.call.label}.{run.name}", "again", "with a resolution")
                reply = self._call(run, ["--extra-context", str(answered.resolution)])
            else:
                reply = answered.stopped or _escalated(refinements.with_question(reply, answered.question))
        self.replies[run.name] = reply
        self.report(None, "")
        self.checkpoint("")
        return reply

    def _once_more(self, run: Run) -> ToolResult:
        """The orchestrator, and once more what failed in it. That there was a second time is on disk: a resume adds none, and one
        that was cut short is resumed."""
        path = self.folder / run.name / "rerun.json"
        known = files.read_json(path) if path.exists() else {"done": 0, "begun": 0}
        if not known["begun"]:
            reply = self._call(run, [])
            failed = reply.exit_code in RUN_AGAIN
            failed = failed and reply.code != "CORRUPT_STATE"  # a person is to see that first
            if failed and self._news(run, known["done"]):
                known["begun"] = self.call.session.next_number()
                files.write_json(path, known)
        else:
            reply = ToolResult(ExitCode.FAILURE, {})
        if known["begun"]:
            self.call.event(f"{self.call.label}.{run.name}", "again", "what failed")
            reply = self._call(run, ["--rerun", str(known["begun"])])
        if reply.exit_code not in NEVER_ABSORBED and self._news(run, known["done"]):
            files.write_json(path, {"done": self.call.session.next_number(), "begun": 0})
        return reply

    def _news(self, run: Run, number: int) -> bool:
        """Whether anything of the run has ended since."""
        ended = every_outcome(self.call.session.folder, self.phase.folder)
        return any(attempt.step.orchestrator == run.name and outcome.number > number for attempt, outcome in ended)

    def checkpoint(self, grade: str) -> None:
        ended = {name: reply.exit_code for name, reply in self.replies.items()}
        completed = [{"name": n, "exit_code": int(c), "sentinel_grade": grade} for n, c in ended.items() if c in DONE]
        pending = [r.name for r in self.phase.runs if ended.get(r.name) not in DONE]
        checkpoints.write(self.call, self.folder, "runs", completed, pending)

    def _call(self, run: Run, extra: list[str]) -> ToolResult:
        return self.call.call("orchestrator.py", self.command(run, extra))

    def command(self, run: Run, extra: list[str]) -> list[str]:
        params = self.folder / run.name / "params.json"
        files.write_json(params, run.params | {name: self._input(text) for name, text in run.inputs.items()})
        flags = ["--params", str(params), "--phase", self.phase.folder, "--run-name", run.name, *extra]
        flags += ["--modifier", run.modifier] if run.modifier else []
        flags += ["--mode", run.mode] if run.mode != "tool" else []
        flags += ["--checks", self.plan.checks_file] if self.plan.checks_file else []
        for path in self.call.options.extra_context:
            flags += ["--extra-context", str(Path(path).absolute())]
        for answer in self._answers(run):
            flags += ["--answer", answer]
        return [*flags, run.orchestrator]

    def _answers(self, run: Run) -> list[str]:
        """Of what a person answered, what this run asks: a stage that is a question, before it is asked, too, and what waits.
        A stage is named alone, or as RUN.STAGE where two runs ask the same."""
        given: dict[str, str] = keyword(self.call.options.answer, "--answer")
        if not given:
            return []
        questions = {s.name for s in orchestrator_file.load(run.orchestrator, run.modifier).stages if isinstance(s, Question)}
        named = {name.removeprefix(f"{run.name}."): text for name, text in given.items()}
        waits = asking.waiting(self.folder / run.name)
        return [f"{name}={text}" for name, text in named.items() if name in questions | waits]

    def _input(self, text: str) -> str:
        """The path of `PHASE.RUN.OUTPUT`: what the last stage that has such an output produced; of `PHASE.answer`: what a
        person answered."""
        if text.count(".") == 1:
            return str(Approvals(self.call.session.folder, self.plan).answer_file(text.split(".", maxsplit=1)[0]))
        found = outputs.of(self.call.session.folder, self.plan, text)
        if not found:
            raise StrataError("MISSING_INPUT", f"{text}: that run has not produced it", "run that phase first")
        return str(found)

    def verify(self) -> tuple[ExitCode, str]:
        """Whether what the phase produced holds: checks that Python runs, through the sentinel."""
        if not self.phase.checks:
            return ExitCode.SUCCESS, "UNVERIFIABLE"
        if self.call.options.mode == "agent":
            code, grade, self.sentinel = by_agent.verified(self.call, self.plan, self.phase)
            return code, grade
        checkpoints.say_state(self.call.session.folder, "VERIFY")
        reply = self.call.call("sentinel.py", self.sentinel_command())
        self.sentinel = reply.document
        return reply.exit_code, reply.grade or "FAIL"

    def sentinel_command(self) -> list[str]:
        phase = self.phase
        flags = ["--phase", phase.folder, *(["--audit"] if phase.audit else []), *([] if phase.fix else ["--no-fix"])]
        flags += ["--checks", self.plan.checks_file] if self.plan.checks_file else []
        for glob in phase.protect:
            flags += ["--protect", glob]
        for glob in phase.scope:
            flags += ["--scope", glob]
        for path in self.call.options.extra_context:
            flags += ["--extra-context", str(Path(path).absolute())]
        flags += ["--request", terms.request(phase, self.call.cwd)]
        return [*flags, "--", *phase.checks]

    def report(self, code: ExitCode | None, grade: str) -> Json:
        """The seed's phase report. Before the end it says so, and can be taken for nothing else."""
        runs: list[Json] = []
        artifacts: list[str] = []
        error: Json | None = None
        for run in self.phase.runs:
            reply = self.replies.get(run.name)
            manifest = self.folder / run.name / "manifest.json"
            runs.append(
                {
                    "name": run.name,
                    "manifest": self.call.session.relative(manifest) if manifest.exists() else None,
                    "exit_code": int(reply.exit_code) if reply else None,
                }
            )
            error = error or (reply.error if reply and reply.exit_code == code else None)
            artifacts += _artifacts(reply.document) if reply else []
        status = "running" if code is None else ("complete" if code == ExitCode.SUCCESS else STATUS[code])
        document: Json = {
            "phase": self.phase.folder,
            "name": self.phase.name,
            "status": status,
            "exit_code": None if code is None else int(code),
            "orchestrators": runs,
            "artifacts": [self.call.session.relative(Path(a)) for a in artifacts],
            "sentinel_grade": grade,
            "updated_at": now(),
        }
        if self.rolled_back:
            document["rolled_back"] = self.rolled_back
        warnings = [f"{n}/{w}" for n, r in self.replies.items() for w in r.warnings]
        warnings += [f"the check {c} could not run" for c in _not_run(self.sentinel)]
        if warnings:
            document["warnings"] = warnings
        if self.phase.unverified:
            document["unverified"] = self.phase.unverified
        if code not in (None, ExitCode.SUCCESS):
            problem: Json = error or self.sentinel.get("error") or {"code": "PHASE_FAILED", "message": self.phase.name}
            asks = code in ASKS_PARENT and part(problem, "code") != "BUDGET_EXCEEDED"
            context = [f"Stage: {self.phase.folder}", f"Artifact: {self.call.session.relative(self.folder)}"]
            document["error"] = refinements.ask(self.call, "coord", self.phase.folder, problem, context) if asks else problem
        asked = [q for r in self.replies.values() for q in asking.each(r.waiting)]
        if asked and code == ExitCode.HUMAN_INPUT:
            document["waiting"] = {**asked[0], "questions": asked}
        files.write_json(self.folder / "report.json", document)
        self.call.artifact = self.folder / "report.json"
        return document | {"session_dir": str(self.call.session.folder)}


def _not_run(document: Json) -> list[str]:
    return [check.name for check in lenient.of(document.get("results"), Results).checks if not check.ran]


def _artifacts(document: Json) -> list[str]:
    stages = lenient.of(document, Manifest).stages
    return [path for s in stages for path in (*s.outputs.values(), *(i.artifact for i in s.items if i.artifact))]
