"""Every tool of the machine by its name: explicit inputs, explicit outputs. A tick calls them in order, an operator one by hand.

They read the run on disk and nothing else, so that what was done by a tick and what was done by hand is the same work.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lib.contract import Json, StrataError, nearest, usage
from lib.disk import files, records
from lib.disk.clock import now
from lib.evidence.gates import Decision
from msgspec.structs import replace

from packs.deep_research import advancing, claims, contract, gating, planning, sources
from packs.deep_research.at import Desk, given
from packs.deep_research.contract import WAVE_1, WAVE_2, Complaint
from packs.deep_research.planning import PERSPECTIVES, WAVES
from packs.deep_research.reviewing import gate_e_evaluate, gate_e_reports, review_factory_run, revision_control, synthesis_write
from packs.deep_research.state import CANCELLED, COMPLETED, FAILED, KINDS, STAGES, STATUSES, Limits, Manifest, Query, Retry

DIRECTIVES = "retry/retry-directives.json"
PACK = "summaries/summary-pack.json"
EFFORTS = {"quick": 3, "standard": 6, "deep": 6}  # perspectives
MINUTES = {"quick": 15, "standard": 45, "deep": 120}
BOUNDS = {"wave1": WAVE_1, "wave2": WAVE_2}


# The beginning


def run_init(
    desk: Desk,
    run_id: str,
    query: str,
    sensitivity: str = "normal",
    effort: str = "standard",
    mode: str = "live",
    limits: str = "",
) -> Json:
    """The run on disk, unless it is there. `limits`: those that are others than usual, as `name=number …`."""
    said = {name: int(number) for name, _, number in (word.partition("=") for word in limits.split()) if number}
    known = {"max_wave1_agents": EFFORTS[effort], "scope_minutes": MINUTES[effort]} | said
    made = desk.run.begin(Manifest(run_id, Query(query, sensitivity, effort), now(), mode=mode, limits=Limits(**known)))
    return {"created": made, "manifest_path": str(desk.run.manifest_path), "gates_path": str(desk.run.gates_path)}


def wave1_plan(desk: Desk) -> Json:
    """A prompt with its contract for each perspective, from perspectives.json as it stands there, a person's edits included."""
    manifest = desk.run.manifest()
    chosen = _perspectives(desk)
    made = [planning.entry(manifest.run_id, manifest.query.text, p, WAVE_1, uses(manifest)) for p in chosen.perspectives]
    document = {"run_id": manifest.run_id, "perspectives_digest": _digest(desk), "entries": made}
    desk.write_json(planning.plan_of("wave1"), document)
    return document


def _perspectives(desk: Desk) -> planning.Chosen:
    path = desk.root / PERSPECTIVES
    if not path.is_file():
        raise StrataError("MISSING_ARTIFACT", f"{path} is not there", "the planner makes it: resume the run")
    try:
        chosen = planning.read(files.read_json(path))
    except (ValueError, StrataError) as error:
        raise desk.invalid(PERSPECTIVES, str(error)) from None
    wrong = planning.complaints(chosen)
    if wrong:
        raise desk.invalid(PERSPECTIVES, "; ".join(wrong))
    return chosen


def _digest(desk: Desk) -> str:
    return files.sha256(desk.root / PERSPECTIVES)


def is_stale(desk: Desk) -> bool:
    """Whether the perspectives were edited behind the plan that was made of them."""
    plan = files.read_json(desk.root / planning.plan_of("wave1"))
    return plan["perspectives_digest"] != _digest(desk)


def uses(manifest: Manifest, bounds: contract.Contract = WAVE_1) -> dict[str, int]:
    """How often an agent may call its own web tools: not at all where only listed places may be asked."""
    open_web = manifest.query.sensitivity == "normal" and manifest.served.web
    return {"WebSearch": bounds.searches, "WebFetch": bounds.fetches} if open_web else {"WebSearch": 0, "WebFetch": 0}


# A wave


def wave_output_ingest(desk: Desk, stage: str, perspective_id: str, report: str, data: str, retry: int = 0) -> Json:
    """One output in its place. `report` and `data` are files. A retry stands beside what failed, which stays."""
    folder = _wave(stage)
    if perspective_id not in planning.names(desk.root, stage):
        raise StrataError("NOT_FOUND", f"no perspective of {stage} is called {perspective_id}", f"see {planning.plan_of(stage)}")
    name = f"{perspective_id}.retry-{retry}.md" if retry else f"{perspective_id}.md"
    text = given(report).read_text(encoding="utf-8", errors="replace")
    found = claims.read(json.loads(given(data).read_text(encoding="utf-8"))) if data else []
    first = desk.root / folder / name
    if first.is_file() and first.read_text(encoding="utf-8") != text:
        raise StrataError(
            "INVALID_STATE", f"{first} is there with other words: evidence is not written over", "retry=1 stands beside it"
        )
    desk.write(f"{folder}/{name}", text)
    desk.write_json(f"{folder}/{perspective_id}.claims.json", {"claims": records.document(found)})
    desk.write_json(f"{folder}/{perspective_id}.current.json", {"path": f"{folder}/{name}"})
    return {"path": f"{folder}/{name}", "claims": len(found)}


def _wave(stage: str) -> str:
    if stage not in WAVES:
        usage(f"stage={stage}: one of {', '.join(WAVES)}")
    return WAVES[stage]


def wave_output_validate(desk: Desk, stage: str) -> dict[str, list[Complaint]]:
    """What is wrong with each output that is there."""
    _wave(stage)
    there = {name: planning.output(desk.root, stage, name) for name in planning.names(desk.root, stage)}
    return {
        name: contract.complaints(path.read_text(encoding="utf-8"), BOUNDS[stage])
        for name, path in there.items()
        if path.is_file()
    }


def wave_review(desk: Desk, stage: str) -> Json:
    """Which outputs are there, and what is wrong with whom."""
    found = wave_output_validate(desk, stage)
    missing = sorted(set(planning.names(desk.root, stage)) - set(found))
    broken = {name: [one.message for one in wrong] for name, wrong in found.items() if wrong}
    document: Json = {"outputs": sorted(found), "missing": missing, "broken": broken}
    desk.write_json(f"{_wave(stage)}/wave-review.json", document)
    return document


def gate_b_derive(desk: Desk, stage: str = "wave1") -> Decision:
    found = wave_output_validate(desk, stage)
    digests = {name: files.sha256(planning.output(desk.root, stage, name)) for name in found}
    return gating.wave(found, planning.names(desk.root, stage), digests)


def pivot_decide(desk: Desk) -> contract.Pivot:
    """Whether a second wave goes after what the first left open. What was decided stays decided."""
    manifest, path = desk.run.manifest(), desk.root / "pivot.json"
    if path.is_file():
        desk.log("artifact_skipped", "the pivot is decided", path="pivot.json")
        return records.of(files.read_json(path), contract.Pivot)
    gaps: list[contract.Gap] = []
    for name in planning.names(desk.root, "wave1"):
        gaps += contract.gaps(planning.output(desk.root, "wave1", name).read_text(encoding="utf-8"), name)
    decided = contract.pivot(gaps, manifest.limits.max_wave2_agents)
    if decided.wave2_required:
        made = [planning.gap(number, one) for number, one in enumerate(decided.targets, 1)]
        entries = [planning.entry(manifest.run_id, manifest.query.text, p, WAVE_2, uses(manifest, WAVE_2)) for p in made]
        desk.write_json(planning.plan_of("wave2"), {"run_id": manifest.run_id, "entries": entries})
    desk.write_json("pivot.json", decided)
    return decided


# Citations; fetching is `citations_validate`, of deep_research_fetch.py


def citations_extract_urls(desk: Desk) -> dict[str, list[str]]:
    """Every address as it stands in an output or a claim, with who named it."""
    found = sources.extract(desk.root)
    desk.write_json("citations/extracted-urls.json", found)
    return found


def citations_normalize(desk: Desk) -> dict[str, list[str]]:
    """Each address once, in its one form."""
    found = sources.normalised(sources.extract(desk.root))
    desk.write_json("citations/normalized-urls.json", found)
    return found


def gate_c_compute(desk: Desk) -> Decision:
    return gating.citations(sources.read_citations(desk.root))


# Summaries


def summary_pack_build(desk: Desk) -> Json:
    """Both waves, summarised, with the claims that were found again, and which of them speak against what."""
    names = [name for name in planning.outputs(desk.root) if (desk.root / summary_of(name)).is_file()]
    supported = [c for c in sources.read_claims(desk.root) if c.supported]
    document = {
        "query": desk.run.manifest().query.text,
        "summaries": [{"output": n, "summary": (desk.root / summary_of(n)).read_text(encoding="utf-8")} for n in sorted(names)],
        "claims": [sources.shown(claim) for claim in supported],
        "contradictions": [{"claim": c.id, "against": c.against, "cid": c.cid, "quote": c.quote} for c in supported if c.against],
    }
    desk.write_json(PACK, document)
    return document


def summary_of(name: str) -> str:
    return f"summaries/{name.replace('/', '-')}.md"


def gate_d_evaluate(desk: Desk) -> Decision:
    limits, expected = desk.run.manifest().limits, planning.outputs(desk.root)
    there = [name for name in expected if (desk.root / summary_of(name)).is_file()]
    sizes = {name: (desk.root / summary_of(name)).stat().st_size for name in there}
    return gating.summaries(sizes, len(expected), limits.max_summary_kb, limits.max_total_summary_kb)


# State


def gates_write(desk: Desk, gate: str, expected_revision: int | None = None) -> Json:
    """Decides a gate anew from what is on disk, and writes it down. Nobody says `pass`: the files do."""
    if gate not in GATES:
        usage(f"gate={gate}: one of {', '.join(GATES)}")
    known = desk.run.gates().revision
    if expected_revision is not None and expected_revision != known:
        raise StrataError("REVISION_MISMATCH", f"gates.json is at revision {known}, not {expected_revision}", "read it again")
    decision = desk.gate(GATES[gate](desk))
    return {"gate": gate, "decision": decision.decision, "reasons": list(decision.reasons), "revision": desk.run.gates().revision}


def manifest_write(desk: Desk, status: str = "", note: str = "", expected_revision: int | None = None) -> Json:
    """All but the stage, which only stage_advance leaves."""
    if status and status not in STATUSES:
        usage(f"status={status}: one of {', '.join(STATUSES)}")
    known = desk.run.manifest()
    if status == COMPLETED or (status and known.status in (COMPLETED, FAILED, CANCELLED)):
        raise StrataError(
            "INVALID_STATE", f"{known.status} does not become {status} by hand", "finalize completes a run; begin another"
        )
    fields: Json = {"status": status} if status else {}
    fields |= {"notes": (*known.notes, note)} if note else {}
    return {"revision": desk.run.write_manifest(now(), expected_revision, **fields).revision}


def stage_advance(
    desk: Desk, reason: str = "by hand", requested_next: str = "", expected_revision: int | None = None
) -> advancing.Allowed:
    """The authority: a gate counts only for what it was decided about, which is looked at once more."""
    return advancing.stage_advance(desk.run, now(), reason, requested_next, expected_revision, lambda gate: GATES[gate](desk))


def retry_record(desk: Desk, stage: str, perspective_id: str, attempt: int, reason: str, event: str = "created") -> Json:
    """That somebody is asked again, in the manifest, each once."""
    known = desk.run.manifest().retries
    one = Retry(now(), stage, perspective_id, attempt, reason, event)
    same = any(replace(other, at=one.at) == one for other in known)
    revision = desk.run.write_manifest(now(), retries=(*known, one)).revision if not same else desk.run.manifest().revision
    return {"revision": revision, "retries": len(known) + (not same)}


def telemetry_append(desk: Desk, kind: str, reason: str) -> Json:
    if kind not in KINDS:
        usage(f"there is no kind of event {kind!r}", nearest(kind, KINDS))
    desk.log(kind, reason)
    return {"kind": kind}


def _gate_a(desk: Desk) -> Decision:
    manifest, plan = desk.run.manifest(), files.read_json(desk.root / planning.plan_of("wave1"))
    chosen = _perspectives(desk)
    prompts = {str(one["perspective_id"]): str(one["prompt_md"]) for one in plan["entries"]}
    of = str(files.read_json(desk.root / PERSPECTIVES).get("run_id", ""))
    found = gating.Planned(manifest.run_id, tuple(p.id for p in chosen.perspectives), prompts, str(plan["run_id"]), of)
    return gating.planning(found, manifest.limits.max_wave1_agents)


def _gate_b(desk: Desk) -> Decision:
    """Of the wave the run is in, or was in last."""
    second = STAGES.index(desk.run.manifest().stage.current) >= STAGES.index("wave2") and planning.entries(desk.root, "wave2")
    return gate_b_derive(desk, "wave2" if second else "wave1")


def _gate_f(desk: Desk) -> Decision:
    manifest = desk.run.manifest()
    return gating.rollout(manifest.query.sensitivity, manifest.served)


GATES: dict[str, Callable[[Desk], Decision]] = {
    "A": _gate_a,
    "B": _gate_b,
    "C": gate_c_compute,
    "D": gate_d_evaluate,
    "E": gate_e_evaluate,
    "F": _gate_f,
}
TOOLS: dict[str, Callable[..., Any]] = {
    tool.__name__: tool
    for tool in (
        run_init, wave1_plan, wave_output_ingest, wave_output_validate, wave_review, gate_b_derive, pivot_decide,
        citations_extract_urls, citations_normalize, gate_c_compute, summary_pack_build, gate_d_evaluate, synthesis_write,
        review_factory_run, revision_control, gate_e_evaluate, gate_e_reports, gates_write, manifest_write, stage_advance,
        retry_record, telemetry_append,
    )
}  # fmt: skip
FETCHES = "citations_validate"  # the one that needs the web, and so a tool of its own


def advance(desk: Desk, reason: str, wish: str = "") -> advancing.Allowed:
    """Asks once. What is refused is left on disk by its name, and the tick has failed."""
    frm = desk.run.manifest().stage.current
    desk.log("stage_advance_requested", reason, **{"from": frm, "requested_next": wish})
    arguments = {"from": frm, "requested_next": wish, "reason": reason}
    found: advancing.Allowed = desk.tool("stage_advance", arguments, lambda: stage_advance(desk, reason, wish))
    payload = {"from": found.frm, "to": found.to, "decision_inputs_digest": found.inputs_digest, "ok": found.allowed}
    desk.log("stage_advance_result", found.refusal or "advanced", **payload)
    if not found.allowed:
        desk.halt(found.refusal, found.message, "logs/blocked.json", records.document(found))
    return found


def use(desk: Desk, name: str, **arguments: Any) -> Any:
    """Calls one, as an event with a bundle of what it was given and what came of it."""
    return desk.tool(name, arguments, lambda: TOOLS[name](desk, **arguments))
