"""The ticks of a run: each does the work of one stage over files, decides its gate, and asks once to go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.attempt.verdicts import Verdict
from lib.contract import Json, StrataError
from lib.disk import files, lenient, records
from lib.disk.clock import now
from lib.session.documents import Part, Section
from lib.stages import rosters
from msgspec import Struct

from packs.deep_research import citing, claims, contract, gating, retrying, sources, writing
from packs.deep_research.at import At
from packs.deep_research.contract import WAVE_1, WAVE_2, Gap
from packs.deep_research.state import Limits, Manifest, Query

EFFORTS = {"quick": 3, "standard": 6, "deep": 6}  # perspectives


def init(at: At) -> Verdict:
    """run_init: the run on disk, and whether it can be served at all, before anything is spent."""
    sensitivity, effort = at.words
    query = Query(str(at.task.inputs["query"]), sensitivity, effort)
    limits = Limits(max_wave1_agents=EFFORTS[effort])
    made = at.run.begin(Manifest(at.task.target, query, now(), mode=at.call.driver, limits=limits))
    if at.run.manifest().query != query:
        raise StrataError("PLAN_STALE", f"{at.task.target} is a run about something else", "--run-id gives this one another name")
    at.tool("run_init", {"run_id": at.task.target, "query": records.document(query)}, lambda: {"created": made})
    if not at.is_past("init"):
        at.gate(gating.rollout(sensitivity, ["web"] if sensitivity != "no_web" else [], corpus=False))
        at.advance("the run can be served")
    return Verdict("done")


class Perspective(Struct, frozen=True):
    id: str = ""
    title: str = ""
    question: str = ""
    track: str = "standard"


class Chosen(Struct, frozen=True):
    clarify: str = ""
    perspectives: tuple[Perspective, ...] = ()


def plan(at: At) -> Verdict:
    """wave1_plan: a prompt with its contract for each perspective; gate A."""
    manifest = at.run.manifest()
    chosen = lenient.of(at.data("data"), Chosen)
    entries = [_entry(manifest.query.text, p, WAVE_1) for p in chosen.perspectives]
    arguments = {"perspectives": [p.id for p in chosen.perspectives]}
    document = {"run_id": manifest.run_id, "entries": entries}
    if not at.is_past("perspectives"):
        at.tool("wave1_plan", arguments, lambda: document)
        at.write_json("perspectives.json", {"run_id": manifest.run_id, "perspectives": records.document(chosen.perspectives)})
        at.write_json("wave-1/wave1-plan.json", document)
        prompts = {entry["perspective_id"]: entry["prompt_md"] for entry in entries}
        names = tuple(p.id for p in chosen.perspectives)
        found = gating.Planned(manifest.run_id, names, prompts, manifest.run_id, manifest.run_id)
        decision = at.gate(gating.planning(found, manifest.limits.max_wave1_agents))
        if not decision.passed:
            at.halt("GATE_A_FAILED", "; ".join(decision.reasons), "logs/blocked.json", records.document(decision), failed=True)
        at.advance("the plan is whole")
    at.leave("entries.json", {"entries": entries})
    return Verdict("done", f"{len(entries)} perspectives")


def _entry(query: str, perspective: Perspective, bounds: contract.Contract) -> Json:
    prompt = f"# {perspective.title}\n\nThe whole question: {query}\n\nYour part ({perspective.track}): {perspective.question}\n"
    return {
        "perspective_id": perspective.id,
        "title": perspective.title,
        "track": perspective.track,
        "prompt_md": f"{prompt}\n{bounds.markdown()}",
    }


def ingest(at: At) -> Verdict:
    """wave_output_ingest, _validate, wave_review and gate B: what came of a wave, in its place, with what was tried before."""
    (number,) = at.words
    stage, folder = f"wave{number}", f"wave-{number}"
    bounds = WAVE_1 if number == "1" else WAVE_2
    roster = rosters.read(at.task.input_path("roster")) if "roster" in at.task.inputs else None
    entries = roster.entries if roster else ()
    if number == "2" and not entries:  # the pivot asked for none
        return Verdict("done", "no second wave")
    if at.is_past(stage):
        return Verdict("done")
    home = at.task.input_path("roster").parent
    tried = retrying.record(at, stage, roster) if roster else []
    found: dict[str, list[contract.Complaint]] = {}
    for entry in entries:
        if entry.verdict != "done":
            continue
        text = (home / entry.outputs["report"]).read_text(encoding="utf-8")
        data = json.loads((home / entry.outputs["data"]).read_text(encoding="utf-8"))
        at.write(f"{folder}/{entry.key}.md", text)
        at.write_json(f"{folder}/{entry.key}.claims.json", {"claims": records.document(claims.read(data))})
        again = max((one.attempt for one in tried if one.perspective == entry.key), default=0)
        if again:
            at.write(f"{folder}/{entry.key}.retry-{again}.md", text)  # beside what failed, which stays as evidence
        found[entry.key] = contract.complaints(text, bounds)
        _evidence(at, stage, entry.key, entry.item)
    at.tool("wave_output_ingest", {"stage": stage}, lambda: sorted(found))
    at.tool("wave_output_validate", {"stage": stage}, lambda: {k: records.document(v) for k, v in found.items()})
    expected = [entry.key for entry in entries]
    missing = {e.key: e.message or e.code for e in entries if e.verdict != "done"}
    at.write_json(f"{folder}/wave-review.json", {"outputs": sorted(found), "missing": missing})
    at.tool("wave_review", {"stage": stage}, lambda: {"outputs": sorted(found), "missing": missing})
    digests = {name: files.sha256(at.root / folder / f"{name}.md") for name in found}
    decision = at.tool("gate_b_derive", {"stage": stage}, lambda: gating.wave(found, expected, digests))
    at.gate(decision)
    if missing:
        at.halt(
            "RETRY_CAP_EXHAUSTED", "; ".join(f"{k}: {w}" for k, w in missing.items()), "logs/blocked.json", missing, failed=True
        )
    at.advance(f"{stage} keeps to its contract", "pivot" if number == "1" else "citations")
    return Verdict("done", f"{len(found)} outputs")


def _evidence(at: At, stage: str, name: str, item: Any) -> None:
    """The prompt and where it was asked; what was tried before and not accepted stays beside it."""
    prompt = "\n".join(line.rstrip() for line in str(item["prompt_md"]).splitlines()) + "\n"
    place = f"evidence/agents/{stage}/{name}"
    at.write(f"{place}/prompt.md", prompt)
    meta = {"agent_type": "wave-researcher", "perspective_id": name, "prompt_hash": files.sha256_text(prompt)}
    at.write_json(f"{place}/meta.json", meta)


def pivot(at: At) -> Verdict:
    """pivot_decide: whether a second wave goes after what the first left open."""
    manifest = at.run.manifest()
    names = [entry["perspective_id"] for entry in files.read_json(at.root / "wave-1/wave1-plan.json")["entries"]]
    gaps: list[Gap] = []
    for name in names:
        gaps += contract.gaps((at.root / "wave-1" / f"{name}.md").read_text(encoding="utf-8"), name)
    decided = contract.pivot(gaps, manifest.limits.max_wave2_agents)
    targets = [_gap_entry(manifest.query.text, n, gap) for n, gap in enumerate(decided.targets, 1)]
    if not at.is_past("pivot"):
        at.tool("pivot_decide", {"gaps": records.document(gaps)}, lambda: decided)
        at.write_json("pivot.json", decided)
        if decided.wave2_required:
            at.write_json("wave-2/wave2-plan.json", {"run_id": manifest.run_id, "entries": targets})
        at.advance(decided.rule, "wave2" if decided.wave2_required else "citations")
    at.leave("entries.json", {"entries": targets})
    return Verdict("done", decided.rule)


def _gap_entry(query: str, number: int, gap: Gap) -> Json:
    title = f"What is open (P{gap.priority})"
    return _entry(query, Perspective(f"gap-{number}", title, gap.text, "gap"), WAVE_2)


def pack(at: At) -> Verdict:
    """summary_pack_build and gate D: both waves, summarised, with the claims that were found again."""
    manifest = at.run.manifest()
    roster = rosters.read(at.task.input_path("roster"))
    home = at.task.input_path("roster").parent
    texts = {
        e.item["output"]: (home / e.outputs["report"]).read_text(encoding="utf-8") for e in roster.entries if e.verdict == "done"
    }
    supported = [c for c in sources.read_claims(at.root) if c.supported]
    document = {
        "query": manifest.query.text,
        "summaries": [{"output": name, "summary": text} for name, text in sorted(texts.items())],
        "claims": [sources.shown(claim) for claim in supported],
    }
    if not at.is_past("summaries"):
        for name, text in texts.items():
            at.write(f"summaries/{name.replace('/', '-')}.md", text)
        at.tool("summary_pack_build", {"summaries": sorted(texts)}, lambda: {"claims": len(supported)})
        at.write_json("summaries/summary-pack.json", document)
        sizes = {name: len(text.encode()) for name, text in texts.items()}
        bounds = manifest.limits.max_summary_kb, manifest.limits.max_total_summary_kb
        decision = at.tool("gate_d_evaluate", {"sizes": sizes}, lambda: gating.summaries(sizes, len(roster.entries), *bounds))
        at.gate(decision)
        at.advance("nearly all is summarised")
    at.leave("pack.json", document)
    return Verdict("done", f"{len(supported)} claims with their passages")


def write(at: At) -> Verdict:
    """synthesis_write: this round's text, beside those of earlier rounds."""
    text = at.text("report")
    manifest = at.run.manifest()
    if manifest.stage.current == "synthesis":
        at.write(f"synthesis/round-{manifest.review_iterations + 1}.md", text)
        at.tool("synthesis_write", {"bytes": len(text.encode())}, lambda: {"path": "synthesis/final-synthesis.md"})
        at.write("synthesis/final-synthesis.md", text)
        at.advance("there is a synthesis", "review")
    return Verdict("done")


class Reviewed(Struct, frozen=True):
    decision: str = ""
    directives: tuple[str, ...] = ()


def decide(at: At) -> Verdict:
    """review_factory_run, revision_control and gate E: one more round, or the end, with the best round and not the last."""
    manifest = at.run.manifest()
    if manifest.stage.current != "review":
        return Verdict("done")
    said = lenient.of(at.data("data"), Reviewed)
    number = manifest.review_iterations + 1
    rounds = {n: _judged(at.root, n) for n in range(1, number + 1)}
    here = rounds[number]
    wants = said.decision != "PASS" or not here.passed
    directives = [*said.directives, *here.reasons]
    may = manifest.review_iterations < manifest.limits.max_review_iterations
    word = "CHANGES_REQUIRED" if wants and may else "PASS"
    bundle = {"iteration": number, "decision": word, "reviewer": said.decision, "directives": directives}
    at.tool("review_factory_run", {"iteration": number}, lambda: bundle)
    at.write_json(f"review/review-{number}.json", bundle)
    at.write_json("review/review-bundle.json", bundle)
    at.leave("directives.json", {"directives": directives})
    at.tool("revision_control", {"iteration": number, "wants": wants}, lambda: {"again": wants and may})
    if wants and may:
        at.advance("the review asks for changes", "synthesis")
        return Verdict("needs_revision", "; ".join(directives)[:400] or "the review asks for changes")
    best = max(rounds, key=lambda n: (rounds[n].passed, n == number and said.decision == "PASS", -len(rounds[n].warnings), n))
    at.write("synthesis/final-synthesis.md", (at.root / f"synthesis/round-{best}.md").read_text(encoding="utf-8"))
    decision = at.tool("gate_e_evaluate", {"round": best}, lambda: _judged(at.root, best))
    at.tool("gate_e_reports", {"round": best}, lambda: records.document(decision))
    at.write_json("review/gate-e.json", decision)
    at.gate(decision)
    if not decision.passed:
        at.halt(
            "GATE_BLOCKED", "; ".join(decision.reasons), "review/terminal-failure.json", records.document(decision), failed=True
        )
    at.advance("the synthesis holds", "finalize")
    left = tuple(f"the review would change: {text}" for text in said.directives) if said.decision != "PASS" else ()
    return Verdict("done", f"round {best}", (*left, *decision.warnings))


def _judged(root: Path, number: int) -> Any:
    text = (root / f"synthesis/round-{number}.md").read_text(encoding="utf-8")
    usable = [one.cid for one in sources.read_citations(root) if one.usable]
    return gating.synthesis(text, usable, claims.unsupported(text, sources.read_claims(root)))


def report(at: At) -> Verdict:
    """The report for people, for programs, and for a benchmark; and what was counted."""
    root, manifest = at.root, at.run.manifest()
    if manifest.stage.current != "finalize":
        at.halt("STAGE_DID_NOT_ADVANCE", f"the run is in {manifest.stage.current}", "logs/blocked.json", {})
    text = (root / "synthesis/final-synthesis.md").read_text(encoding="utf-8")
    looked, cited = sources.read_claims(root), sources.read_citations(root)
    figures = {
        "claims": len(looked),
        "claims whose words were found": sum(c.supported for c in looked),
        "claims left out": sum(not c.supported for c in looked),
        "addresses": len(cited),
        "fabricated citations": len(set(citing.look(text).cited) - {c.cid for c in cited if c.usable}),
        "unsupported numbers": len(claims.unsupported(text, looked)),
    }
    made = writing.Report(manifest.query.text, text, {c.cid: c for c in cited}, looked, figures)
    (at.out / "report.md").write_text(made.markdown(), encoding="utf-8")
    (at.out / "report.html").write_text(made.html(), encoding="utf-8")
    article = {"id": manifest.run_id, "prompt": manifest.query.text, "article": made.markdown()}
    (at.out / "article.jsonl").write_text(json.dumps(article, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = tuple((name, str(number)) for name, number in figures.items())
    section = Section(
        manifest.query.text, (Part(text=made.summary()), Part("What was counted", head=("figure", "number"), rows=rows))
    )
    at.leave("section.json", records.document(section))
    return Verdict("done", warnings=tuple(f"{c.id}: {c.why}" for c in looked if not c.supported))


TICKS: dict[str, Callable[[At], Verdict]] = {
    "init": init,
    "plan": plan,
    "ingest": ingest,
    "pivot": pivot,
    "pack": pack,
    "write": write,
    "decide": decide,
    "report": report,
}
