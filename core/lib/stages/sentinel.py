"""The sentinel's loop: what must hold is written down, checks are run, and what failed is diagnosed, fixed and checked again.

What decides is what Python saw. Agents write the specification, explain and fix; none of them can turn a failed check into a
passed one, and one that does not answer in the agreed form counts as a failure.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from lib.attempt import checks, refinements, verdicts
from lib.attempt.audits import audit_report, fix_list, no_fewer_tests, plain_fixes, plain_report, reasons, worst
from lib.contract import NEVER_ABSORBED, ExitCode, Json, is_final
from lib.disk import files, records
from lib.evidence import findings
from lib.plan import agents
from lib.plan.orchestration import Stage, Worker
from lib.plan.task import Limits, Task
from lib.session import signals
from lib.session.documents import AuditNote, CheckResult, Results
from lib.session.step import Step
from lib.stages import cycles, manifest
from lib.stages.cycles import CHECKS, MAX_CYCLES, WRITE, Cycles, State
from lib.stages.finished import Finished
from lib.stages.order import Order, sealed
from lib.stages.results import StageResult, StepResult
from lib.stages.steps import judged, perform, skip
from lib.stages.terms import Judges, Terms
from lib.stages.words import told
from lib.tool.call import Call

NOT_LOOKED = Results((), "FAIL", 1)  # what is known of a folder that could not be looked at
HOLDS = ("PASS", "WARN", "UNVERIFIABLE")  # grades that end a verification well
STAGES = {"write": WRITE, "checks": CHECKS, "audit": "03-audit", "consolidate": "04-consolidate", "fix": "05-fix"}


class Stopped(Exception):  # noqa: N818 - not an error: the end of the loop
    """A step ended in a way that is not ours to absorb."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(result.stage)
        self.result = result


class Verification:
    def __init__(self, call: Call, terms: Terms, base: Step) -> None:
        self.call = call
        self.terms = terms
        self.base = base
        self.cycles = Cycles(call.session, base)
        self.judges = Judges(call, terms, self.cycles)
        self.results: dict[str, StageResult] = {}
        self.counts: list[int] = []  # blocking errors, look by look

    @property
    def home(self) -> Path:
        return self.cycles.home

    def go(self) -> Json:
        """Runs the loop to its end and returns the sentinel's document."""
        known = self.begin()
        first = self.cycles.state().first_cycle
        if known:
            return self.end(known, self.cycles.state().last)
        rounds = range(first, first + MAX_CYCLES)
        for cycle in (c for c in rounds if not self.cycles.closed(c)):
            self.judges.put_back(cycle)  # of a fix that was cut short: nothing is specified or judged by what it left behind
        try:
            spec = self.specification(first)
            for cycle in rounds:
                found = self.look(cycle, spec)
                if found.overall != "FAIL":
                    return self.end(found, cycle)
                if self.no_improvement():
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_ESCALATION))
                if not self.terms.fix:
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_REFINEMENT))
                if not self.cycles.closed(cycle) and (hopeless := self.fix(cycle, spec, found)):
                    why = f"{reasons(found)}; it could not be fixed: {hopeless}"
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_REFINEMENT, why))
            last = first + MAX_CYCLES - 1
            found = self.look(last + 1, spec, retest_of=last)
            if found.overall != "FAIL":
                return self.end(found, last)
            code = ExitCode.NEEDS_ESCALATION if self.no_improvement() else ExitCode.NEEDS_REFINEMENT
            return self.end(found, last, self.unresolved(found, code))
        except Stopped as stopped:
            if stopped.result.exit_code in NEVER_ABSORBED:  # not about the work: it goes on from here
                return self.document(stopped.result, NOT_LOOKED, 0)
            return self.end(NOT_LOOKED, first, stopped.result)

    # Where this verification stands

    def begin(self) -> Results | None:
        """What an ended verification found, where it still speaks for the folder and holds. Otherwise a new one begins, or one
        that was cut short goes on."""
        state = self.cycles.state()
        if not state.ended:
            return None
        if not self.stale():
            found = cycles.read(self.cycles.folder(state.last) / state.results)
            return found if state.grade in HOLDS else None
        # Until it has passed, or a person has spoken, fewer tests than there once were is not a pass.
        keeps = state.grade == "FAIL" and not self.a_person_spoke()
        new = State(first_cycle=state.last + 1, tests_since=state.tests_since if keeps else state.last + 1)
        for name in ("grade.txt", "summary.json"):
            (self.home / name).unlink(missing_ok=True)  # what it said is no longer so
        self.cycles.keep(new)
        return None

    def stale(self, again: dict[str, int] | None = None) -> str:
        """Why the last verification does not speak for the folder as it is; nothing where it does."""
        state = self.cycles.state()
        if not state.ended:
            return "it has not been verified" if not state.cycles else "its verification was cut short"
        call, _, order, done = self.order_checks(state.checked_as)
        done.redo_before = Counter({**done.redo_before, **(again or {})})
        known = judged(call, order, done)
        if state.grade not in HOLDS:
            return f"its grade was {state.grade}"
        if not (known and known.ok and self.cycles.evidence(state.checked_as)):
            return "what was verified, or the evidence for it, changed"
        if state.terms != self.judges.question():
            return "it is to be verified by other terms"
        self.remember("checks", known, state.checked_as)
        return ""

    def a_person_spoke(self) -> bool:
        folder = self.call.session.folder / "resolutions"
        return any(Path(p).parent == folder and Path(p).name.startswith("human-") for p in self.call.options.extra_context)

    def no_improvement(self) -> bool:
        """In two consecutive cycles: more of the same would only spend."""
        recent = self.counts[-3:]
        return len(recent) == 3 and recent[2] >= recent[1] >= recent[0]

    # The stages

    def specification(self, first: int) -> Path:
        """What must hold: an agent's words where an audit was asked for, otherwise the plain list of what is judged by what."""
        target = self.cycles.folder(first) / "test-spec.md"
        if not self.terms.audit:
            made = [f"- {self.call.session.relative(Path(a))}\n" for a in self.artifacts()]
            names = "".join(f"- {name}\n" for name in self.terms.checks)
            listed = "".join(made) or "- what the folder holds\n"
            files.write_atomic(target, f"# What must hold\n\nThese pass:\n\n{names}\nof:\n\n{listed}")
            return target
        inputs: Json = {"artifacts": self.artifacts() or [str(self.call.cwd)]}
        inputs |= {"request": self.terms.request} if self.terms.request else {}
        done = self.ask("write", "sentinel-writer", first, inputs)
        if not done.ok:
            raise Stopped(self.unresolved(NOT_LOOKED, ExitCode.NEEDS_REFINEMENT, f"no specification: {done.why}"))
        files.copy_whole(Path(done.outputs["spec"]), target)
        return target

    def look(self, cycle: int, spec: Path, retest_of: int = 0) -> Results:
        """The checks, and what the auditor makes of them. The worse of the two is what counts."""
        folder = self.cycles.folder(retest_of or cycle)
        path = folder / ("retest-results.json" if retest_of else "verification-results.json")
        if not retest_of and self.cycles.closed(cycle):
            found = cycles.read(path)
        else:
            found = self.check(cycle, folder / ("retest-evidence" if retest_of else "evidence"))
            cycles.write(path, found)
            if spec.parent != folder:
                files.copy_whole(spec, folder / "test-spec.md")
            found = self.audit(cycle, spec, found, path, last=bool(retest_of))
            cycles.write(path, found)
        self.counts.append(found.blocking_count)
        state = self.cycles.state()
        looked = (retest_of or cycle) - state.first_cycle + 1
        self.cycles.keep(replace(state, cycles=looked, results=path.name, checked_as=cycle))
        return found

    def check(self, cycle: int, kept: Path) -> Results:
        """Runs the checks, or finds that they have run. Their full output is copied to `kept`: whoever reads it is told a place
        that is the same however often they were cut off."""
        call, stage, order, earlier = self.order_checks(cycle)
        known = judged(call, order, earlier) if self.cycles.evidence(cycle) else None
        done = known or perform(call, stage, order, earlier)
        self.remember("checks", done, cycle)
        path = self.cycles.evidence(cycle)
        if not path:
            raise Stopped(self.unresolved(NOT_LOOKED, ExitCode.NEEDS_REFINEMENT, f"the checks gave no evidence: {done.why}"))
        before = self.cycles.tests_before(cycle)
        found = [self.with_evidence(record, path.parent / "evidence", kept) for record in cycles.read(path).checks]
        return checks.summary([no_fewer_tests(record, *before.get(record.name, (0, 0))) for record in found])

    def with_evidence(self, record: CheckResult, source: Path, kept: Path) -> CheckResult:
        if not record.output:
            return record
        files.copy_whole(source / record.output, kept / record.output)
        return replace(record, evidence=self.call.session.relative(kept / record.output))

    def order_checks(self, cycle: int) -> tuple[Call, Stage, Order, Finished]:
        worker = Worker(tool="check.py", args=self.terms.checks)
        stage = Stage("checks", STAGES["checks"], worker, Limits(timeout_seconds=3600), retry_max=0)
        return self.order(stage, cycle, Task(action="CHECK"), "")

    def audit(self, cycle: int, spec: Path, found: Results, path: Path, last: bool) -> Results:
        wanted = self.terms.audit or (found.overall == "FAIL" and self.terms.fix and not last)
        report = path.with_name("retest-audit-report.md" if last else "audit-report.md")
        if not wanted:
            files.write_atomic(report, plain_report(found))
            return found
        inputs: Json = {"spec": str(spec), "results": str(path), "artifacts": self.artifacts()}
        done = self.ask("audit", "sentinel-auditor", cycle, inputs)
        if not done.ok:  # fails closed: what could not be audited has not passed
            files.write_atomic(report, plain_report(found) + f"\nThere was no audit: {done.why}\n")
            return replace(found, overall="FAIL", audit=AuditNote("FAIL", f"there was no audit: {done.why}"))
        audit = files.read_json(Path(done.outputs["audit"]))
        audit["grade"] = verdicts.grade(audit)
        files.write_atomic(report, audit_report(audit, found))
        grade = worst(found.overall, audit["grade"])
        unmet = sum(r["status"] == "unmet" for r in audit["requirements"])
        more = max(unmet, 1) if grade == "FAIL" and found.overall != "FAIL" else 0
        note = AuditNote(audit["grade"], audit["summary"])
        return replace(found, overall=grade, blocking_count=found.blocking_count + more, audit=note)

    def fix(self, cycle: int, spec: Path, found: Results) -> str:
        """One list of what has to change, then the change. Either may fail; the next look says what that came to. Returns
        why it is of no use to try again, where it is not."""
        folder = self.cycles.folder(cycle)
        results = folder / "verification-results.json"
        evidence = sorted({str(self.call.session.folder / r.evidence) for r in found.checks if r.evidence})
        inputs: Json = {"results": str(results), "audit": str(folder / "audit-report.md"), "evidence": evidence}
        listed = self.ask("consolidate", "sentinel-consolidator", cycle, inputs)
        fixes = findings.read(Path(listed.outputs["fixes"])) if listed.ok else []
        fixes = findings.merge(fixes or plain_fixes(found))  # what failed is still what has to be fixed
        files.write_json(folder / "fix-list.json", fix_list(fixes))
        self.call.event(f"{self.base.slug}.cycle-{cycle}", "fixing", f"{len(fixes)} to fix")
        inputs = {"fixes": str(folder / "fix-list.json"), "results": str(results), "evidence": evidence, "spec": str(spec)}
        self.judges.hold(cycle)
        try:
            done = self.ask("fix", "sentinel-fixer", cycle, inputs, fixes=True, context=tuple(self.cycles.not_fixed(cycle)))
        finally:
            undone = self.judges.put_back(cycle)
        if undone and done.ok:
            why = f"what judges was touched: {'; '.join(undone[:8])}"
            raise Stopped(self.unresolved(found, ExitCode.NEEDS_REFINEMENT, why))
        if is_final(done.error):
            return done.why
        if not done.ok:
            files.write_atomic(folder / "not-fixed.md", f"An earlier fix (cycle {cycle}) did not count: {done.why}\n")
        self.cycles.close(cycle, done.verdict, done.why)
        return ""

    def ask(
        self, name: str, agent: str, cycle: int, inputs: Json, fixes: bool = False, context: tuple[Path, ...] = ()
    ) -> StepResult:
        """Has an agent do one part. What is not ours to absorb ends the verification."""
        stage = Stage(name, STAGES[name], Worker(agent=agent), Limits(self_heal=fixes), retry_max=0 if fixes else 1)
        task = Task(inputs=inputs, outputs=agents.load(agent).outputs)
        if fixes:
            task = replace(task, scope=self.terms.scope or None, protect=self.judges.globs())
        call, stage, order, earlier = self.order(stage, cycle, task, agent, context)
        done = skip(call, stage, order, earlier) or perform(call, stage, order, earlier)
        self.remember(name, done, cycle)
        if done.exit_code in NEVER_ABSORBED:
            raise Stopped(self.results[name])
        return done

    def order(
        self, stage: Stage, cycle: int, task: Task, agent: str, context: tuple[Path, ...] = ()
    ) -> tuple[Call, Stage, Order, Finished]:
        step = replace(self.base, stage=stage.folder, round=cycle)
        task = replace(task, limits=stage.limits)
        order = Order(step, "", stage.worker, agent, stage.worker.args, task, context)
        order = sealed(self.call, order)
        return self.call, stage, order, Finished(self.call.session, self.call.cwd, self.call.options.model or "", told(self.call))

    def artifacts(self) -> list[str]:
        """What the phase says it finished, from its signals."""
        session = self.call.session.folder
        if not self.base.phase:
            return []
        found = [
            session / path
            for s in signals.present(session)
            if s.layer == "exec" and s.status == "done" and s.name.startswith(f"{self.base.phase}.") and (path := s.path)
            if not s.name.startswith(f"{self.base.slug}.")  # what verification itself made is not what is verified
        ]
        return [str(p) for p in dict.fromkeys(found) if p.exists()]

    # The end

    def remember(self, name: str, done: StepResult, cycle: int) -> None:
        result = StageResult(name, done.exit_code, done.verdict, (done,), done.error, done.note)
        self.results[name] = replace(result, round=cycle)

    def unresolved(self, found: Results, code: ExitCode, message: str = "") -> StageResult:
        stuck = "no improvement in two consecutive cycles; " if code == ExitCode.NEEDS_ESCALATION else ""
        words = message or stuck + reasons(found)
        error = {"code": "NOT_VERIFIED", "message": words, "hint": f"the evidence is in {self.home}"}
        return StageResult("checks", code, "failed", error=error)

    def end(self, found: Results, cycle: int, stopped: StageResult | None = None) -> Json:
        state = replace(self.cycles.state(), ended=True, grade=found.overall, terms=self.judges.question())
        self.cycles.keep(state)
        files.write_atomic(self.home / "grade.txt", f"{state.grade}\n")
        summary = {"cycles": state.cycles, "blocking_count": found.blocking_count, "grade": state.grade, "counts": self.counts}
        files.write_json(self.home / "summary.json", summary)
        for folder in [self.cycles.folder(n) for n in range(state.first_cycle, cycle + 1)]:
            if not (folder / "fix-list.json").exists():
                files.write_json(folder / "fix-list.json", {"fixes": []})
        good = stopped is None or stopped.exit_code == ExitCode.SUCCESS
        if not good and stopped and stopped.error:
            self.refinement(stopped.error)
        return self.document(None if good else stopped, found, state.cycles)

    def refinement(self, error: Json) -> None:
        """What the parent reads when the work did not pass."""
        path = self.call.session.folder / "refinements" / f"sentinel-{self.base.slug}.md"
        context = [f"Stage: {self.base}", f"Artifact: {self.call.session.relative(self.home)}"]
        context.append(f"Attempt: {self.cycles.state().cycles} of {MAX_CYCLES} cycles")
        looks = [f"blocking errors, look {n}: {count}" for n, count in enumerate(self.counts, 1)]
        issue = "The work was checked and did not pass."
        files.write_atomic(path, refinements.document(error["message"], context, issue, looks))
        error["refinement"] = self.call.session.relative(path)

    def document(self, stopped: StageResult | None, found: Results, looked: int) -> Json:
        path = self.home / "manifest.json"
        results = {name: r for name, r in self.results.items() if stopped or r.exit_code == ExitCode.SUCCESS}
        if stopped:
            results = {**results, stopped.stage: stopped}
        built = manifest.build("sentinel", [s for s in STAGES if s in results], results, stopped)
        built |= {"grade": found.overall, "cycles": looked}
        manifest.write(built, path, self.call.session)
        self.call.artifact = path
        shown: Json = records.document(found)
        places = {"manifest": str(path), "session_dir": str(self.call.session.folder)}
        return built | places | {"results": shown, "trace_id": self.call.trace_id}
