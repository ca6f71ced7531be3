"""Verification runs the thing: the build, then the suite, then what verifiers say, of which Python looks up every word."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from lib.attempt import checks
from lib.attempt.verdicts import Verdict
from lib.disk import files, lenient, records
from lib.evidence.findings import Finding
from lib.plan import checks_file
from lib.session.outcome import Outcome
from lib.stages import rosters
from msgspec import Struct
from msgspec.structs import replace

from packs.forge import builds, clusters, criteria, memory, proofs, tables, telling
from packs.forge import tasks as plans
from packs.forge.changes import Changes
from packs.forge.criteria import Judged
from packs.forge.step import VERIFY, Step
from packs.forge.tables import DONE

NO_TESTS = 5  # pytest's exit code where it found none
PLANNERS = ("planner", "planner-tasks")  # whose entries in the memory a failure makes stale


def v_build(at: Step) -> Verdict:
    given = " ".join(at.words)
    system = builds.find(at.call.cwd, given if given != "auto" else "")
    if system is None:
        at.write("verification/v-build.md", "# Build\n\nThere is nothing to build: no build system is known by its file.\n")
        at.leave("build.json", {"built": True, "system": "none", "command": []})
        return Verdict("done", warnings=("there is nothing to build", *at.said))
    if system.missing:
        return Verdict("failed", f"{system.name}: {system.missing} is not installed here")
    with tempfile.TemporaryDirectory(prefix="strata-") as cache:
        result = checks.run(builds.check(system, cache), at.call.cwd, at.out.parent / "checks")
    lines = ["# Build", "", f"- System: {system.name} (`{system.mark or 'given'}`)", f"- Command: `{' '.join(system.command)}`"]
    lines += [f"- Built: {builds.made(at.call.cwd, system) or 'nothing that is kept'}"]
    lines += [f"- Result: {'passed' if result.passed else 'failed'} ({result.count})", ""]
    lines += ["```", result.tail, "```"] if result.tail.strip() else []
    at.write("verification/v-build.md", "\n".join(lines))
    at.leave("build.json", {"built": result.passed, "system": system.name, "command": list(system.command)})
    if not result.passed:
        memory.invalidate(at.session, PLANNERS, "the build failed")
        last = next((line for line in reversed(result.tail.splitlines()) if line.strip()), "it said nothing")
        at.end(VERIFY, "v-build", memory.Notes(lessons=(f"The build failed: {last}",)))
        return Verdict("failed", f"the build failed: {result.tail[-400:]}")
    return Verdict("done", warnings=tuple(at.said))


class Tested(Struct, frozen=True):
    """What the suite came to."""

    passed: bool = False
    tests: int | None = None
    skipped: int | None = None
    errors: int = 0
    count: str = ""


def v_suite(at: Step) -> Verdict:
    """Python runs the suite and counts. No tests at all is a finding, not an error."""
    check = _check(at)
    result = checks.run(check, at.call.cwd, at.out.parent / "checks")
    none = result.tests == 0 and (result.passed or result.exit_code == NO_TESTS)  # one that could not run is not an empty one
    changes = Changes.of(at.session, at.call.cwd)
    suite = proofs.Suite(check, at.call.cwd, at.out.parent / "checks")
    found: list[Finding] = []
    if not result.passed and not none:
        found.append(Finding("critical", f"{check.name}: {result.count}", evidence=result.tail, who=("v-suite",)))
    if none:
        found.append(Finding("minor", "there are no tests", who=("v-suite",)))
    found += [*suite.fewer(result.tests, changes), *suite.as_before(changes)] if result.tests is not None else []
    counts = Tested(result.passed, result.tests, result.skipped, result.errors, result.count)
    document = {**records.document(counts), "command": list(result.command), "tail": result.tail}
    at.leave("suite.json", {**document, "findings": records.document(found)})
    (at.out / "suite.md").write_text(f"# Tests\n\n{check.name}: {result.count}\n\n```\n{result.tail}\n```\n", encoding="utf-8")
    return Verdict("done")


def v_proof(at: Step) -> Verdict:
    """Tests that are named as evidence are run again, and those of each task once without its code. In a copy."""
    tasks = plans.read(at.data("tasks"))
    changes = Changes.of(at.session, at.call.cwd, tasks)
    suite = proofs.Suite(_check(at), at.call.cwd, at.out.parent / "checks")
    answers = [one for name in ("tasks_said", "feature_said") for one in criteria.answered(at.data(name)) if one.passed]
    named = list(dict.fromkeys(one.evidence.test for one in answers if one.evidence.test))[: proofs.MOST_TESTS]
    again = {test: suite.again(test, number) for number, test in enumerate(named, 1)}
    found, looked = suite.idle(tasks, changes)
    at.leave("proof.json", {"again": again, "findings": records.document(found)})
    lines = ["# Proof", "", *(f"- {test}: {why or 'passes when it is run again'}" for test, why in again.items())]
    good = f"- The tests of {looked} tasks fail without their code." if looked else "- No task has tests of its own code."
    lines += [f"- {one.claim}" for one in found] or [good]
    (at.out / "proof.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Verdict("done")


def _check(at: Step) -> checks_file.Check:
    (check,) = checks_file.known(at.task.checks).choose([at.words[0] if at.words else "pytest"])
    return check


class _Proof(Struct, frozen=True):
    again: dict[str, str] = {}


def verify(at: Step) -> Verdict:
    cluster = clusters.read(at.task.input_path("roster"))
    everything = plans.read(at.data("tasks"))
    built = rosters.read(at.task.input_path("built"))
    undone = {e.key: e.message or e.code for e in built.entries if e.verdict != "done"}
    found = [Finding("critical", f"{key} was not done: {why}", who=("forge",), task=key) for key, why in undone.items()]
    changes = Changes.of(at.session, at.call.cwd, everything)
    names = changes.names()
    wrote = {e.key: _wrote(at.session, built, e.key) for e in built.entries if e.verdict == "done"}
    found += criteria.phantoms([t for t in everything if t.id not in undone], wrote, set(names))
    found += criteria.lost_tests(names)
    judged = _judged(at, cluster, everything)
    found += [one.finding for one in judged if not one.met]
    members = (*cluster.members, tables.Member("forge", True, tuple(found)))
    whole = replace(cluster, members=members)
    said = tables.verification(at.given("build") and bool(at.data("build")["built"]), members)
    tested = lenient.read(cluster.data["v-suite"], Tested) if "v-suite" in cluster.data else Tested(count="it did not run")
    clusters.publish(at.artifacts, cluster, "verification")
    texts = {c.id: c.text for c in (*plans.read_criteria(at.data("spec")), *(c for t in everything for c in t.criteria))}
    page = [clusters.page("Verification", whole, said, "Contradictions"), *_tables(at, tested, judged, texts)]
    at.write("verifier.md", "\n".join(page))
    at.tell(telling.verification(said, tested.count, judged, texts, whole.merged))
    failures = {task: records.document(fs) for task, fs in clusters.by_task(whole.merged).items()}
    at.leave("verdict.json", {"verdict": said.word, "why": said.why, "failures": failures})
    if said.word != DONE:
        memory.invalidate(at.session, PLANNERS, said.why)
    lessons = (f"Verification sent the work back: {said.why}",) if said.word != DONE else ()
    lessons += tuple(f"The task {key} failed: {why}" for key, why in undone.items())
    notes = memory.Notes(updates=(f"Verified: {said.word}.",), lessons=lessons)
    warnings = (*said.warnings, *at.end(VERIFY, "verify", notes))
    return Verdict("done" if said.word == DONE else "needs_revision", said.why, warnings)  # an error is planned again, too


def _wrote(session: Path, built: rosters.Roster, key: str) -> set[str]:
    """What a task of this round changed in its worktree, all its attempts together."""
    place = (
        f"stages/*-{built.stage}/{f'round-{built.round}/' if built.round else ''}{files.safe_name(key)}/attempt-*/outcome.json"
    )
    outcomes = [records.read(path, Outcome) for path in session.glob(f"**/{place}")]
    return {change.path for outcome in outcomes for change in outcome.changes or () if change.root == "workspace"}


def _judged(at: Step, cluster: clusters.Cluster, everything: list[plans.Task]) -> list[Judged]:
    """Every criterion, of the tasks and of the feature."""
    wanted = {
        "v-tasks": {c.id: t.id for t in everything for c in t.criteria},
        "v-feature": {c.id: "" for c in plans.read_criteria(at.data("spec"))},
    }
    again = lenient.read(cluster.data["v-proof"], _Proof).again if "v-proof" in cluster.data else {}
    found: list[Judged] = []
    for name, ids in wanted.items():
        said = criteria.answered(_json(cluster.data[name])) if name in cluster.data else []
        owned = {task.id: set(task.files) for task in everything} if name == "v-tasks" else {}
        found += criteria.judge(ids, said, at.call.cwd, name, again, owned)
    return found


def _tables(at: Step, tested: Tested, judged: list[Judged], texts: dict[str, str]) -> list[str]:
    """Pass or fail for each, as they are read by people."""
    built = at.data("build") if at.given("build") else {"system": "none", "built": False}
    lines = [
        "## Build",
        "",
        f"{built['system']}: {'passed' if built['built'] else 'failed'}.",
        "",
        "## Tests",
        "",
        tested.count,
        "",
    ]
    for who, title in (("v-tasks", "Tasks"), ("v-feature", "Feature")):
        rows = [
            f"| {one.id} | {texts.get(one.id, '')} | {'pass' if one.met else 'FAIL'} | {one.why or one.evidence} |"
            for one in judged
            if one.who == who
        ]
        lines += [f"## {title}", "", "| Criterion | What it asks | Result | Evidence |", "|---|---|---|---|", *rows, ""]
    return lines


def _json(path: Path) -> object:
    return json.loads(path.read_text(encoding="utf-8"))
