"""The sentinel's loop: what must hold is written down, checks are run, and what failed is diagnosed, fixed and checked again.

What decides is what Python saw. Agents write the specification, explain and mend; none of them can turn a failed check into a
passed one, and one that does not answer in the agreed form counts as a failure. A cycle is closed when its fix has ended; closed
cycles are history and are never run again, so an interrupted verification goes on where it was.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.attempt import checks, refinements, verdicts
from lib.attempt.findings import audit_report, count, plain_fixes, plain_report, worst
from lib.contract import HOPELESS, NEVER_ABSORBED, ExitCode, Json
from lib.disk import files
from lib.disk.clock import now
from lib.plan import agents, checks_file
from lib.plan.orchestration import Stage, Worker
from lib.plan.plan import Phase, Plan
from lib.plan.task import Limits, Task
from lib.session import signals
from lib.session.attempts import every_outcome, finished
from lib.session.step import Step
from lib.stages import manifest
from lib.stages.finished import Finished
from lib.stages.order import Order, sealed
from lib.stages.results import StageResult, StepResult
from lib.stages.steps import judged, perform, skip, told
from lib.tool.call import Call
from lib.workspace import protected

MAX_CYCLES = 3
HOLDS = ("PASS", "WARN", "UNVERIFIABLE")  # grades that end a verification well
STAGES = {"write": "01-write", "checks": "02-checks", "audit": "03-audit", "consolidate": "04-consolidate", "fix": "05-fix"}


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


class Stopped(Exception):  # noqa: N818 - not an error: the end of the loop
    """A step ended in a way that is not ours to absorb."""

    def __init__(self, result: StageResult) -> None:
        super().__init__(result.stage)
        self.result = result


class Verification(Struct):
    call: Call
    terms: Terms
    base: Step
    results: dict[str, StageResult] = {}
    counts: list[int] = []  # blocking errors, check by check

    @property
    def home(self) -> Path:
        return self.call.session.folder / self.base.home

    def go(self) -> Json:
        """Runs the loop to its end and returns the sentinel's document."""
        state = self.begin()
        first: int = state["first_cycle"]
        if state.get("grade") in HOLDS:
            return self.end(state, first + state["cycles"] - 1)
        cycles = range(first, first + MAX_CYCLES)
        for cycle in (c for c in cycles if not self.closed(c)):
            self.put_back(cycle)  # of a fix that was cut short: nothing is specified or judged by what it left behind
        try:
            spec = self.specification(first)
            for cycle in cycles:
                found = self.look(cycle, spec)
                if found["overall"] != "FAIL":
                    return self.end(found, cycle)
                if self.no_improvement():
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_ESCALATION))
                if not self.terms.fix:
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_REFINEMENT))
                if not self.closed(cycle) and (hopeless := self.mend(cycle, spec, found)):
                    why = f"{self.reasons(found)}; it could not be fixed: {hopeless}"
                    return self.end(found, cycle, self.unresolved(found, ExitCode.NEEDS_REFINEMENT, why))
            last = first + MAX_CYCLES - 1
            found = self.look(last + 1, spec, retest_of=last)
            if found["overall"] != "FAIL":
                return self.end(found, last)
            code = ExitCode.NEEDS_ESCALATION if self.no_improvement() else ExitCode.NEEDS_REFINEMENT
            return self.end(found, last, self.unresolved(found, code))
        except Stopped as stopped:
            if stopped.result.exit_code in NEVER_ABSORBED:  # not about the work: it goes on from here
                return self.document(stopped.result, {"checks": [], "overall": "FAIL"}, "FAIL")
            return self.end({"checks": [], "overall": "FAIL", "blocking_count": 1}, first, stopped.result)

    # Where this verification stands, on disk

    def question(self) -> str:
        """What is asked of the folder, wherever it lies. Another question is another verification."""
        terms = self.terms
        asked = terms.request.removeprefix(f"{self.call.cwd}/")
        of = self.published() if checks_file.ARTIFACTS in terms.checks or terms.audit else []
        return files.digest([terms.checks, files.sha256(terms.checks_file), terms.audit, terms.protect, asked, of])

    def published(self) -> list[list[str]]:
        """What the phase has published in the session, as its steps left it last."""
        found: dict[str, str] = {}
        for attempt, outcome in finished(self.call.session.folder, self.base.phase) if self.base.phase else ():
            if attempt.step.orchestrator not in (self.base.orchestrator, "coordinator", "campaign"):
                found |= outcome.published
        return [list(pair) for pair in sorted(found.items())]

    def state(self) -> Json:
        path = self.home / "verification.json"
        return files.read_json(path) if path.exists() else {"first_cycle": 1, "cycles": 0, "ended": False}

    def begin(self) -> Json:
        """An ended verification speaks for the folder it saw. Once that is another one, a new verification begins."""
        state = self.state()
        if state["ended"]:
            last = state["first_cycle"] + state["cycles"] - 1
            if not self.stale():
                return state | files.read_json(self.cycle(last) / state["results"])
            # Until it has passed, or a person has spoken, fewer tests than there once were is not a pass.
            kept = state.get("tests_since", 1) if state["grade"] == "FAIL" and not self.a_person_spoke() else last + 1
            state = {"first_cycle": last + 1, "cycles": 0, "ended": False, "tests_since": kept}
            for name in ("grade.txt", "summary.json"):
                (self.home / name).unlink(missing_ok=True)  # what it said is no longer so
            files.write_json(self.home / "verification.json", state)
        return {k: v for k, v in state.items() if k != "grade"}

    def stale(self, again: dict[str, int] | None = None) -> str:
        """Why the last verification does not speak for the folder as it is; nothing where it does."""
        state = self.state()
        if not state["ended"]:
            return "it has not been verified" if not state["cycles"] else "its verification was cut short"
        looked: int = state.get("checked_as", 0)  # 0: it was stopped before it could look
        call, _, order, done = self.order_checks(looked)
        done.redo_before |= again or {}
        known = judged(call, order, done)
        if state["grade"] not in HOLDS:
            return f"its grade was {state['grade']}"
        if not (known and known.ok and self.evidence(looked)):
            return "what was verified, or the evidence for it, changed"
        if state.get("terms") != self.question():
            return "it is to be verified by other terms"
        self.remember("checks", known, looked)
        return ""

    def a_person_spoke(self) -> bool:
        folder = self.call.session.folder / "resolutions"
        return any(Path(p).parent == folder and Path(p).name.startswith("human-") for p in self.call.options.extra_context)

    def cycle(self, number: int) -> Path:
        return self.home / f"cycle-{number}"

    def closed(self, number: int) -> bool:
        return (self.cycle(number) / "fixed.json").exists()

    def no_improvement(self) -> bool:
        """In two consecutive cycles: more of the same would only spend."""
        recent = self.counts[-3:]
        return len(recent) == 3 and recent[2] >= recent[1] >= recent[0]

    # The stages

    def specification(self, first: int) -> Path:
        """What must hold: an agent's words where an audit was asked for, otherwise the plain list of what is judged by what."""
        target = self.cycle(first) / "test-spec.md"
        if not self.terms.audit:
            listed = (
                "".join(f"- {self.call.session.relative(Path(a))}\n" for a in self.artifacts()) or "- what the folder holds\n"
            )
            names = "".join(f"- {name}\n" for name in self.terms.checks)
            files.write_atomic(target, f"# What must hold\n\nThese pass:\n\n{names}\nof:\n\n{listed}")
            return target
        inputs: Json = {"artifacts": self.artifacts() or [str(self.call.cwd)]}
        inputs |= {"request": self.terms.request} if self.terms.request else {}
        done = self.ask("write", "sentinel-writer", first, inputs)
        if not done.ok:
            raise Stopped(self.unresolved({"checks": []}, ExitCode.NEEDS_REFINEMENT, f"no specification: {_why(done)}"))
        files.copy_whole(Path(done.outputs["spec"]), target)
        return target

    def look(self, cycle: int, spec: Path, retest_of: int = 0) -> Json:
        """The checks, and what the auditor makes of them. The worse of the two is what counts."""
        folder = self.cycle(retest_of or cycle)
        path = folder / ("retest-results.json" if retest_of else "verification-results.json")
        if not retest_of and self.closed(cycle):
            found = files.read_json(path)
        else:
            found = self.check(cycle, folder / ("retest-evidence" if retest_of else "evidence"))
            files.write_json(path, found)
            if spec.parent != folder:
                files.copy_whole(spec, folder / "test-spec.md")
            found = self.audit(cycle, spec, found, path, last=bool(retest_of))
            files.write_json(path, found)
        self.counts.append(found["blocking_count"])
        state = self.state() | {"cycles": (retest_of or cycle) - self.state()["first_cycle"] + 1, "results": path.name}
        files.write_json(self.home / "verification.json", state | {"checked_as": cycle})
        return found

    def check(self, cycle: int, kept: Path) -> Json:
        """Runs the checks, or finds that they have run. Their full output is copied to `kept`: whoever reads it is told a place
        that is the same however often they were cut off."""
        call, stage, order, earlier = self.order_checks(cycle)
        known = judged(call, order, earlier) if self.evidence(cycle) else None
        done = known or perform(call, stage, order, earlier)
        self.remember("checks", done, cycle)
        results = self.evidence(cycle)
        if not results:
            raise Stopped(
                self.unresolved({"checks": []}, ExitCode.NEEDS_REFINEMENT, f"the checks gave no evidence: {_why(done)}")
            )
        found = files.read_json(results)
        before = self.tests_before(cycle)
        for record in found["checks"]:
            if record.get("output"):
                files.copy_whole(results.parent / "evidence" / record["output"], kept / record["output"])
                record["evidence"] = call.session.relative(kept / record["output"])
            ran, known = record.get("tests"), before.get(record["name"], (0, 0))
            fewer = ran is not None and ran < known[0]
            skips = (record.get("skipped") or 0) > known[1] if known[0] else False
            if fewer or skips:
                note = f"{ran} tests ran, where there were {known[0]}" if fewer else f"{record['skipped']} tests are skipped now"
                record |= {"passed": False, "errors": record["errors"] + 1, "note": note}
        return checks.summary(found["checks"])

    def evidence(self, cycle: int) -> Path | None:
        """What the newest run of the checks wrote down, with the full output of each as it was then."""
        attempts = self.call.session.attempts(replace(self.base, stage=STAGES["checks"], round=cycle))
        results = attempts[-1].folder / "out" / "verification-results.json" if attempts else None
        if not results or not results.exists():
            return None
        records: list[Json] = [r for r in files.read_json(results)["checks"] if r.get("output")]
        kept = [(results.parent / "evidence" / r["output"], r["output_sha256"]) for r in records]
        return results if all(path.is_file() and files.sha256(path) == sha for path, sha in kept) else None

    def order_checks(self, cycle: int) -> tuple[Call, Stage, Order, Finished]:
        worker = Worker(tool="check.py", args=self.terms.checks)
        stage = Stage("checks", STAGES["checks"], worker, Limits(timeout_seconds=3600), retry_max=0)
        return self.order(stage, cycle, Task(action="CHECK"), "")

    def tests_before(self, cycle: int) -> dict[str, tuple[int, int]]:
        """The most tests each check ran in this verification, and the most it skipped: a fix does not make a check pass by
        leaving some out."""
        most: dict[str, tuple[int, int]] = {}
        for earlier in range(self.state().get("tests_since", 1), cycle):
            for path in self.cycle(earlier).glob("*-results.json"):
                records: list[Json] = files.read_json(path)["checks"]
                for record in records:
                    ran, skipped = most.get(record["name"], (0, 0))
                    most[record["name"]] = (max(ran, record.get("tests") or 0), max(skipped, record.get("skipped") or 0))
        return most

    def audit(self, cycle: int, spec: Path, found: Json, results: Path, last: bool) -> Json:
        wanted = self.terms.audit or (found["overall"] == "FAIL" and self.terms.fix and not last)
        report = results.with_name("retest-audit-report.md" if last else "audit-report.md")
        if not wanted:
            files.write_atomic(report, plain_report(found))
            return found
        inputs: Json = {"spec": str(spec), "results": str(results), "artifacts": self.artifacts()}
        done = self.ask("audit", "sentinel-auditor", cycle, inputs)
        if not done.ok:  # fails closed: what could not be audited has not passed
            files.write_atomic(report, plain_report(found) + f"\nThere was no audit: {_why(done)}\n")
            return found | {"overall": "FAIL", "audit": {"grade": "FAIL", "summary": f"there was no audit: {_why(done)}"}}
        audit = files.read_json(Path(done.outputs["audit"]))
        audit["grade"] = verdicts.grade(audit)
        files.write_atomic(report, audit_report(audit, found))
        grade = worst(found["overall"], audit["grade"])
        unmet = sum(r["status"] == "unmet" for r in audit["requirements"])
        more = max(unmet, 1) if grade == "FAIL" and found["overall"] != "FAIL" else 0
        summary = {"grade": audit["grade"], "summary": audit["summary"]}
        return found | {"overall": grade, "blocking_count": found["blocking_count"] + more, "audit": summary}

    def mend(self, cycle: int, spec: Path, found: Json) -> str:
        """One list of what has to change, then the change. Either may fail; the next look says what that came to. Returns
        why it is of no use to try again, where it is not."""
        folder = self.cycle(cycle)
        results = folder / "verification-results.json"
        evidence = sorted({str(self.call.session.folder / r["evidence"]) for r in found["checks"] if r.get("evidence")})
        inputs: Json = {"results": str(results), "audit": str(folder / "audit-report.md"), "evidence": evidence}
        listed = self.ask("consolidate", "sentinel-consolidator", cycle, inputs)
        fixes: Json = files.read_json(Path(listed.outputs["fixes"])) if listed.ok else {"fixes": []}
        if not fixes["fixes"]:
            fixes = {"fixes": plain_fixes(found)}  # what failed is still what has to be fixed
        files.write_json(folder / "fix-list.json", fixes)
        self.call.event(f"{self.base.slug}.cycle-{cycle}", "fixing", f"{len(fixes['fixes'])} to fix")
        inputs = {"fixes": str(folder / "fix-list.json"), "results": str(results), "evidence": evidence, "spec": str(spec)}
        context = [p for n in range(self.state()["first_cycle"], cycle) if (p := self.cycle(n) / "not-fixed.md").exists()]
        held = self.hold(cycle)
        files.write_json(held.copies / "globs.json", {"globs": list(held.globs)})
        held.hold()
        try:
            done = self.ask("fix", "sentinel-fixer", cycle, inputs, mends=True, context=tuple(context))
        finally:
            undone = self.put_back(cycle)
        if undone and done.ok:
            raise Stopped(self.unresolved(found, ExitCode.NEEDS_REFINEMENT, f"what judges was touched: {'; '.join(undone[:8])}"))
        if (done.error or {}).get("code") in HOPELESS:
            return _why(done)
        if not done.ok:
            files.write_atomic(folder / "not-fixed.md", f"An earlier fix (cycle {cycle}) did not count: {_why(done)}\n")
        files.write_json(folder / "fixed.json", {"verdict": done.verdict, "why": _why(done), "at": now()})
        return ""

    def ask(
        self, name: str, agent: str, cycle: int, inputs: Json, mends: bool = False, context: tuple[Path, ...] = ()
    ) -> StepResult:
        """Has an agent do one part. What is not ours to absorb ends the verification."""
        stage = Stage(name, STAGES[name], Worker(agent=agent), Limits(self_heal=mends), retry_max=0 if mends else 1)
        task = Task(inputs=inputs, outputs=agents.load(agent).outputs)
        if mends:
            task = replace(task, scope=self.terms.scope, protect=self.judges())
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

    def judges(self) -> tuple[str, ...]:
        """Globs of everything that judges: tests and checkers' settings, what the plan protects, what the writer wrote, and
        the files the checks themselves name."""
        known = checks_file.load(self.terms.checks_file)
        commands = [known[n].command for n in self.terms.checks if n in known]
        written: list[str] = []
        for attempt, outcome in every_outcome(self.call.session.folder, self.base.phase):
            if attempt.step.orchestrator == self.base.orchestrator and attempt.step.stage == STAGES["write"]:
                written += [protected.literal(path) for path in outcome.left]
        own: tuple[str, ...] = ()
        if self.terms.checks_file.is_relative_to(self.call.cwd):
            own = (protected.literal(os.path.relpath(self.terms.checks_file, self.call.cwd)),)
        named = protected.of_commands(self.call.cwd, commands, self.made())
        return (*protected.DEFAULT, *self.terms.protect, *named, *written, *own)

    def made(self) -> set[str]:
        """Files of the workspace that the phase itself wrote: they are the work."""
        found: set[str] = set()
        for attempt, outcome in every_outcome(self.call.session.folder, self.base.phase) if self.base.phase else ():
            if attempt.step.orchestrator != self.base.orchestrator:
                found |= outcome.left.keys()
        return found

    def hold(self, cycle: int) -> protected.Judge:
        return protected.Judge(self.call.cwd, self.judges(), self.cycle(cycle) / "judge", self.call.session.folder)

    def put_back(self, cycle: int) -> list[str]:
        """Whatever became of the fixer: what judges is as it was before it started."""
        kept = self.cycle(cycle) / "judge"
        if not (kept / "held.json").exists():
            return []
        globs = tuple(files.read_json(kept / "globs.json")["globs"])
        undone = protected.Judge(self.call.cwd, globs, kept, self.call.session.folder).put_back()
        if undone:
            self.call.event(f"{self.base.slug}.cycle-{cycle}", "judge-restored", "; ".join(undone[:8]))
        return undone

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

    def unresolved(self, found: Json, code: ExitCode, message: str = "") -> StageResult:
        stuck = "no improvement in two consecutive cycles; " if code == ExitCode.NEEDS_ESCALATION else ""
        words = message or stuck + self.reasons(found)
        error = {"code": "NOT_VERIFIED", "message": words, "hint": f"the evidence is in {self.home}"}
        return StageResult("checks", code, "failed", error=error)

    def reasons(self, found: Json) -> str:
        failed = [r for r in found["checks"] if not r["passed"] and r["blocking"]]
        reasons = [f"{r['name']}: {count(r)}" for r in failed]
        audit = found.get("audit", {})
        return "; ".join(reasons or ([f"audit: {audit['summary']}"] if audit.get("grade") == "FAIL" else []))

    def end(self, found: Json, cycle: int, stopped: StageResult | None = None) -> Json:
        grade = found["overall"]
        state: Json = self.state() | {"ended": True, "grade": grade, "terms": self.question()}
        files.write_json(self.home / "verification.json", state)
        files.write_atomic(self.home / "grade.txt", f"{grade}\n")
        summary = {"cycles": state["cycles"], "blocking_count": found["blocking_count"], "grade": grade, "counts": self.counts}
        files.write_json(self.home / "summary.json", summary)
        for folder in [self.cycle(n) for n in range(state["first_cycle"], cycle + 1)]:
            if not (folder / "fix-list.json").exists():
                files.write_json(folder / "fix-list.json", {"fixes": []})
        good = stopped is None or stopped.exit_code == ExitCode.SUCCESS
        if not good and stopped and stopped.error:
            self.refinement(stopped)
        return self.document(None if good else stopped, found | {"cycles": state["cycles"]}, grade)

    def refinement(self, stopped: StageResult) -> None:
        """What the parent reads when the work did not pass."""
        path = self.call.session.folder / "refinements" / f"sentinel-{self.base.slug}.md"
        error = stopped.error or {}
        context = [f"Stage: {self.base}", f"Artifact: {self.call.session.relative(self.home)}"]
        context.append(f"Attempt: {self.state()['cycles']} of {MAX_CYCLES} cycles")
        looks = [f"blocking errors, look {n}: {count}" for n, count in enumerate(self.counts, 1)]
        issue = "The work was checked and did not pass."
        files.write_atomic(path, refinements.document(str(error.get("message", "")), context, issue, looks))
        error["refinement"] = self.call.session.relative(path)

    def document(self, stopped: StageResult | None, found: Json, grade: str) -> Json:
        path = self.home / "manifest.json"
        results = {name: r for name, r in self.results.items() if stopped or r.exit_code == ExitCode.SUCCESS}
        if stopped:
            results = {**results, stopped.stage: stopped}
        built = manifest.build("sentinel", [s for s in STAGES if s in results], results, stopped)
        built |= {"grade": grade, "cycles": found.get("cycles", 0)}
        manifest.write(built, path, self.call.session)
        self.call.artifact = path
        shown = {key: value for key, value in found.items() if key in ("checks", "overall", "blocking_count", "audit")}
        return built | {
            "results": shown,
            "manifest": str(path),
            "trace_id": self.call.trace_id,
            "session_dir": str(self.call.session.folder),
        }


def _why(done: StepResult) -> str:
    return (done.error or {}).get("message", "") or done.note
