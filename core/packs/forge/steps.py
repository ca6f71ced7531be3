"""The steps of Forge that Python does: setting up, keeping what agents made in its place, and deciding how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable

from lib.attempt.verdicts import Verdict
from lib.contract import Json
from lib.disk import records
from lib.stages import rosters

from packs.forge import clusters, memory, merging, reviewing, setting, tables, telling, verifying
from packs.forge import tasks as plans
from packs.forge.step import DESIGN, PLAN, RESEARCH, SPEC, Step
from packs.forge.tables import DONE, ERROR, REVISE

_WORDS = {DONE: "done", REVISE: "needs_revision"}


def setup(at: Step) -> Verdict:
    request = str(at.task.inputs["request"])
    at.said.extend(setting.require(at.call.cwd, at.session, at.words[0] if at.words else "pytest", at.task.checks))
    at.write("initial-request.md", f"# Initial request\n\n{request}\n")
    at.tell(telling.request(request))
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
    clusters.publish(at.artifacts, cluster, "ct-review")
    at.write("design_critical_review.md", clusters.page("Critical review of the design", cluster, said))
    at.leave("review.json", {"verdict": said.word, "why": said.why, "findings": records.document(cluster.merged)})
    at.tell(telling.critique(said, cluster.merged, cluster.cross_cutting))
    if said.word == REVISE:
        memory.invalidate(at.session, ("designer",), said.why)
    notes = memory.Notes(updates=(f"The design was reviewed from four sides: {said.word}.",), decisions=(said.why,))
    return Verdict(_WORDS.get(said.word, "failed"), said.why, (*said.warnings, *at.end(DESIGN, "critique", notes)))


def keep_plan(at: Step) -> Verdict:
    """The tasks to do now, and all there have been: a plan that is made again does not forget the earlier ones."""
    now = plans.read(at.data("data"))
    every = plans.kept(now, plans.read(at.data("before")) if at.given("before") else [])
    at.write("plan.md", at.text("report"))
    grouped = plans.waves(now)
    for task in now:
        at.write(f"tasks/{task.id}.md", plans.markdown(task))
    waves = [[t.id for t in wave] for wave in grouped]
    rounds: list[list[list[str]]] = [*(at.data("before")["rounds"] if at.given("before") else []), waves]
    everything: Json = {"tasks": records.document(every), "rounds": rounds}
    at.write("tasks.json", json.dumps(everything, indent=2))
    at.leave("tasks.json", {"tasks": records.document(now)})
    at.leave("all.json", everything)
    at.tell(telling.plan(every, rounds))
    counts = memory.Notes(updates=(f"{tables.counted(len(now), 'task')} in {tables.counted(len(waves), 'wave')}.",))
    at.end(PLAN, "planner", memory.read(at.data("data")))
    return Verdict("done", warnings=at.end(PLAN, "planner-tasks", counts))


def gate(at: Step) -> Verdict:
    """The end is true: what security blocks is not done, whatever else is."""
    said = at.data("verdict")
    return Verdict("failed", str(said["why"])) if said["verdict"] == ERROR else Verdict("done", str(said["why"]))


VERBS: dict[str, Callable[[Step], Verdict]] = {
    "setup": setup,
    "gather": gather,
    "keep-spec": keep_spec,
    "keep-design": keep_design,
    "critique": critique,
    "keep-plan": keep_plan,
    "v-build": verifying.v_build,
    "v-suite": verifying.v_suite,
    "v-proof": verifying.v_proof,
    "verify": verifying.verify,
    "compare": reviewing.compare,
    "review": reviewing.review,
    "gate": gate,
    "merge": merging.merge,
}
