"""The steps of Forge that Python does: setting up, keeping what agents made in its place, and deciding how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lib.attempt import checks
from lib.attempt.verdicts import Verdict
from lib.contract import Json
from lib.disk import files, records
from lib.evidence.findings import Finding
from lib.plan import checks_file
from lib.plan.task import Task
from lib.process import processes
from lib.session import began
from lib.stages import rosters
from lib.tool.call import Call
from msgspec import Struct
from msgspec.structs import replace

from packs.forge import builds, clusters, criteria, depth, knowledge, memory, scanners, tables
from packs.forge import tasks as plans
from packs.forge.tables import DONE, ERROR, REVISE

RESEARCH, SPEC, DESIGN, PLAN, _, VERIFY, REVIEW = range(1, 8)  # as entries in the memory name them; 5 is the building
_WORDS = {DONE: "done", REVISE: "needs_revision"}


class Step(Struct, frozen=True):
    """One of these steps at work."""

    call: Call
    task: Task
    out: Path
    words: tuple[str, ...]  # behind the verb

    @property
    def session(self) -> Path:
        return self.call.session.folder

    @property
    def folder(self) -> Path:
        """Where the artifacts of the feature stand in the repository."""
        return self.call.cwd / "docs/feature" / self.task.target

    def text(self, name: str) -> str:
        return self.task.input_path(name).read_text(encoding="utf-8")

    def data(self, name: str) -> Any:
        return json.loads(self.text(name))

    def given(self, name: str) -> bool:
        return name in self.task.inputs

    def write(self, path: str, text: str) -> None:
        files.write_atomic(self.folder / path, text if text.endswith("\n") else f"{text}\n")

    def leave(self, name: str, document: Json) -> None:
        """Typed data, for the stages behind."""
        files.write_json(self.out / name, document)

    def end(self, step: int, agent: str = "", notes: memory.Notes | None = None) -> tuple[str, ...]:
        """Remembers, prunes, and writes memory.md. Returns warnings."""
        if notes:
            memory.remember(self.session, notes, agent, step)
        memory.prune(self.session, step)
        return tuple(memory.write(self.session, self.folder))


def setup(at: Step) -> Verdict:
    request = str(at.task.inputs["request"])
    at.write("initial-request.md", f"# Initial request\n\n{request}\n")
    return Verdict("done", warnings=at.end(0))


def gather(at: Step) -> Verdict:
    """Research: the sides that were looked at, and their synthesis."""
    roster = rosters.read(at.task.input_path("roster"))
    for entry in roster.entries:
        if "report" in entry.outputs:
            path = at.task.input_path("roster").parent / entry.outputs["report"]
            at.write(f"research/{entry.key}.md", path.read_text(encoding="utf-8"))
    missing = tuple(f"research: nobody looked at {e.key} ({e.message})" for e in roster.entries if e.verdict != "done")
    noted = "".join(f"\n> Missing: {warning}\n" for warning in missing)
    at.write("analysis.md", at.text("report") + noted)
    return Verdict("done", warnings=(*missing, *at.end(RESEARCH, "synthesist", memory.read(at.data("data")))))


def keep_spec(at: Step) -> Verdict:
    at.write("feature.md", at.text("report"))
    return Verdict("done", warnings=at.end(SPEC, "spec", memory.read(at.data("data"))))


def keep_design(at: Step) -> Verdict:
    """A design that was revised updates the specification it contradicts."""
    at.write("design.md", at.text("report"))
    if at.given("feature"):
        at.write("feature.md", at.text("feature"))
    return Verdict("done", warnings=at.end(DESIGN, "designer", memory.read(at.data("data"))))


def critique(at: Step) -> Verdict:
    cluster = clusters.read(at.task.input_path("roster"))
    said = tables.critique(cluster.members)
    clusters.publish(cluster, at.folder / "ct-review")
    at.write("design_critical_review.md", clusters.page("Critical review of the design", cluster, said))
    at.leave("review.json", {"verdict": said.word, "why": said.why, "findings": records.document(cluster.merged)})
    if said.word == REVISE:
        memory.invalidate(at.session, ("designer",), said.why)
    notes = memory.Notes(updates=(f"The design was reviewed from four sides: {said.word}.",), decisions=(said.why,))
    return _verdict(said, at.end(DESIGN, "critique", notes))


def keep_plan(at: Step) -> Verdict:
    """The tasks to do now, and all there have been: a plan that is made again does not forget the earlier ones."""
    now = plans.read(at.data("data"))
    earlier = [t for t in plans.read(at.data("before")) if t.id not in {n.id for n in now}] if at.given("before") else []
    at.write("plan.md", at.text("report"))
    grouped = plans.waves(now)
    for task in now:
        at.write(f"tasks/{task.id}.md", plans.markdown(task))
    waves = [[t.id for t in wave] for wave in grouped]
    everything: Json = {"tasks": records.document([*earlier, *now]), "waves": waves}
    at.write("tasks.json", json.dumps(everything, indent=2))
    at.leave("tasks.json", {"tasks": records.document(now)})
    at.leave("all.json", everything)
    counts = memory.Notes(updates=(f"{len(now)} tasks in {len(waves)} waves.",))
    warnings = at.end(PLAN, "planner", memory.read(at.data("data")))
    return Verdict("done", warnings=(*warnings, *at.end(PLAN, "planner-tasks", counts)))


def v_build(at: Step) -> Verdict:
    given = " ".join(at.words)
    system = builds.find(at.call.cwd, given if given != "auto" else "")
    if system is None:
        lines = ["# Build", "", "There is nothing to build: no build system is known by its file."]
        at.write("verification/v-build.md", "\n".join(lines))
        at.leave("build.json", {"built": True, "system": "none", "command": []})
        return Verdict("done", warnings=("there is nothing to build",))
    if system.missing:
        return Verdict("failed", f"{system.name}: {system.missing} is not installed here")
    result = checks.run(builds.check(system), at.call.cwd, at.out.parent / "checks")
    lines = ["# Build", "", f"- System: {system.name} (`{system.mark or 'given'}`)", f"- Command: `{' '.join(system.command)}`"]
    lines += [f"- Folder: `{at.call.cwd}`", f"- Result: {'passed' if result.passed else 'failed'} ({result.count})", ""]
    lines += ["```", result.tail, "```"] if result.tail.strip() else []
    at.write("verification/v-build.md", "\n".join(lines))
    at.leave("build.json", {"built": result.passed, "system": system.name, "command": list(system.command)})
    if not result.passed:
        memory.invalidate(at.session, ("planner", "planner-tasks"), "the build failed")
        at.end(VERIFY)
        return Verdict("failed", f"the build failed: {result.tail[-400:]}")
    return Verdict("done")


def v_suite(at: Step) -> Verdict:
    """Python runs the suite and counts. No tests at all is a finding, not an error."""
    name = at.words[0] if at.words else "pytest"
    (check,) = checks_file.known(at.task.checks).choose([name])
    result = checks.run(check, at.call.cwd, at.out.parent / "checks")
    found: list[Finding] = []
    if not result.passed:
        found.append(Finding("critical", f"{name}: {result.count}", evidence=result.tail, who=("v-suite",)))
    if result.tests == 0 or "no tests ran" in result.tail:
        found.append(Finding("minor", "there are no tests", who=("v-suite",)))
    counts = {"passed": result.passed, "tests": result.tests, "skipped": result.skipped, "errors": result.errors}
    at.leave("suite.json", {**counts, "command": list(result.command), "findings": records.document(found), "tail": result.tail})
    (at.out / "suite.md").write_text(f"# Tests\n\n{name}: {result.count}\n\n```\n{result.tail}\n```\n", encoding="utf-8")
    return Verdict("done")


def verify(at: Step) -> Verdict:
    cluster = clusters.read(at.task.input_path("roster"))
    everything = plans.read(at.data("tasks"))
    spec = plans.read_criteria(at.data("spec"))
    built = rosters.read(at.task.input_path("built"))
    done = [t for t in everything if not any(e.key == t.id and e.verdict != "done" for e in built.entries)]
    failed = [e for e in built.entries if e.verdict != "done"]
    undone = [Finding("critical", f"{e.key} was not done: {e.message}", who=("forge",), task=e.key) for e in failed]
    found = [*undone, *criteria.phantoms(done, at.call.cwd, began.read(at.session).commit)]
    by_task = {c.id: t.id for t in everything for c in t.criteria}
    for name, wanted in (("v-tasks", by_task), ("v-feature", {c.id: "" for c in spec})):
        if name in cluster.data:
            said = criteria.answered(json.loads(cluster.data[name].read_text(encoding="utf-8")))
            found += criteria.judge(wanted, said, at.call.cwd, name)
    members = (*cluster.members, tables.Member("forge", True, tuple(found)))
    whole = replace(cluster, members=members)
    said = tables.verification(at.given("build") and bool(at.data("build")["built"]), members)
    clusters.publish(cluster, at.folder / "verification")
    at.write("verifier.md", clusters.page("Verification", whole, said, "Contradictions"))
    failures = {task: records.document(fs) for task, fs in clusters.by_task(whole.merged).items()}
    at.leave("verdict.json", {"verdict": said.word, "why": said.why, "failures": failures})
    if said.word != DONE:
        memory.invalidate(at.session, ("planner", "planner-tasks"), said.why)
    lessons = (f"Verification sent the work back: {said.why}",) if said.word != DONE else ()
    notes = memory.Notes(updates=(f"Verified: {said.word}.",), lessons=lessons)
    warnings = (*said.warnings, *at.end(VERIFY, "verify", notes))
    return Verdict("done" if said.word == DONE else "needs_revision", said.why, warnings)  # an error is planned again, too


def compare(at: Step) -> Verdict:
    """What has changed since the work began, and how deep it is to be looked at."""
    base = began.read(at.session).commit
    words = ["git", "-C", str(at.call.cwd), "diff", "--no-color", "--no-ext-diff", base, "--", ".", ":(exclude)docs/feature"]
    tracked = processes.ask(words).stdout.decode("utf-8", "replace") if base else ""
    new = [name for name in sorted(criteria.changed(at.call.cwd, "")) if not name.startswith(criteria.OWN)]
    diff = tracked + "".join(_whole(at.call.cwd, name) for name in new)
    chosen = depth.of(diff, at.words[0] if at.words else "auto")
    (at.out / "diff.patch").write_text(diff or "nothing has changed\n", encoding="utf-8")
    at.leave("depth.json", {"depth": chosen.word, "why": chosen.why})
    return Verdict("done", f"{chosen.word}: {chosen.why}")


def _whole(cwd: Path, name: str) -> str:
    try:
        lines = (cwd / name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return f"--- /dev/null\n+++ b/{name}\n@@ binary @@\n"
    return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def scan(at: Step) -> Verdict:
    found, notes = scanners.scan(at.call.cwd, at.text("diff"))
    at.leave("scan.json", {"findings": records.document(found), "notes": notes})
    lines = ["# Scanners", "", *(f"- {note}" for note in notes), "", *(f"- {f.severity}: {f.claim} `{f.where}`" for f in found)]
    (at.out / "scan.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Verdict("done")


def review(at: Step) -> Verdict:
    cluster = clusters.read(at.task.input_path("roster"))
    table = {m.name: m for m in cluster.members}
    scanned = table.pop("r-scan", tables.Member("r-scan", False, why="no scanner ran"))
    security = table.get("r-security", tables.Member("r-security", False))
    if security.ok:
        both = (*security.findings, *(replace(f, who=("r-scan",)) for f in scanned.findings))
        table["r-security"] = tables.Member("r-security", scanned.ok, both, scanned.why)
    said = tables.review(table.values())
    clusters.publish(cluster, at.folder / "review")
    at.write("review.md", clusters.page("Review", replace(cluster, members=tuple(table.values())), said, "Tradeoffs"))
    merged = [f for m in table.values() if m.name != "r-knowledge" for f in m.findings]
    at.leave("verdict.json", {"verdict": said.word, "why": said.why, "findings": records.document(merged)})
    known = knowledge.read(json.loads(cluster.data["r-knowledge"].read_text())) if "r-knowledge" in cluster.data else None
    at.write("review/knowledge-suggestions.md", knowledge.suggestions(known or knowledge.Knowledge()))
    at.leave("knowledge.json", records.document(known or knowledge.Knowledge()))
    if known:
        path = at.folder / "decisions.md"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        files.write_atomic(path, knowledge.decisions(before, known, datetime.now(UTC).date().isoformat()))
    if said.word == REVISE:
        memory.invalidate(at.session, ("planner", "planner-tasks"), said.why)
    notes = memory.Notes(updates=(f"Reviewed: {said.word}.",), decisions=(said.why,))
    warnings = (*said.warnings, *at.end(REVIEW, "review", notes))
    return Verdict("needs_revision" if said.word == REVISE else "done", said.why, warnings)


def gate(at: Step) -> Verdict:
    """The end is true: what security blocks is not done, whatever else is."""
    said = at.data("verdict")
    return Verdict("failed", str(said["why"])) if said["verdict"] == ERROR else Verdict("done", str(said["why"]))


def _verdict(said: tables.Verdict, warnings: tuple[str, ...]) -> Verdict:
    return Verdict(_WORDS.get(said.word, "failed"), said.why, (*said.warnings, *warnings))


VERBS: dict[str, Callable[[Step], Verdict]] = {
    "setup": setup,
    "gather": gather,
    "keep-spec": keep_spec,
    "keep-design": keep_design,
    "critique": critique,
    "keep-plan": keep_plan,
    "v-build": v_build,
    "v-suite": v_suite,
    "verify": verify,
    "compare": compare,
    "scan": scan,
    "review": review,
    "gate": gate,
}
