"""The ticks of a run: each does the work of one stage over files with tools, decides its gate, and asks once to go on."""

from __future__ import annotations

import json
from collections.abc import Callable

from lib.attempt.verdicts import Verdict
from lib.contract import AsksPerson, Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.evidence.gates import Decision
from lib.session.documents import Part, Section
from lib.session.ledger import Ledger
from lib.stages import rosters
from lib.web import rules

from packs.deep_research import citing, claims, planning, retrying, reviewing, serving, sources, tools, writing
from packs.deep_research.at import At
from packs.deep_research.planning import PERSPECTIVES, WAVES
from packs.deep_research.retrying import CAPPED
from packs.deep_research.state import Query
from packs.deep_research.tools import use


def init(at: At) -> Verdict:
    """run_init: the run on disk, and whether it can be served at all, before anything is spent."""
    sensitivity, effort = at.words
    known = serving.require_enabled()
    query, folder = str(at.task.inputs["query"]), str(at.task.inputs.get("corpus", "none"))
    folder = "" if folder == "none" else folder
    use_init = {"run_id": at.task.target, "query": query, "sensitivity": sensitivity, "effort": effort, "mode": at.call.driver}
    use_init["limits"] = str(at.task.inputs.get("limits", "usual"))
    made = tools.run_init(at, **use_init) if not at.run.manifest_path.exists() else {"created": False}
    at.tool("run_init", use_init, lambda: made)
    if at.run.manifest().query != Query(query, sensitivity, effort):
        raise StrataError("PLAN_STALE", f"{at.task.target} is a run about something else", "--run-id gives this one another name")
    if not at.is_past("init"):
        served = serving.served(known, rules.of_project().hosts, folder, there=at.call.driver != "replay")
        if at.run.manifest().served != served:
            at.tool(
                "manifest_write",
                {"served": records.document(served)},
                lambda: at.run.write_manifest(now(), served=served).revision,
            )
        decision = at.gate(tools.GATES["F"](at))
        if not decision.passed:
            at.halt("GATE_BLOCKED", "; ".join(decision.reasons), "logs/blocked.json", records.document(decision), failed=True)
        tools.advance(at, "the run can be served")
    return Verdict("done")


def plan(at: At) -> Verdict:
    """wave1_plan: the sides on disk, a prompt with its contract for each, and gate A. An ambiguous question is asked back."""
    chosen = planning.read(at.data("data"))
    if chosen.clarify.strip():
        if at.task.answer is None:
            raise AsksPerson(chosen.clarify.strip())
        at.leave("answer.json", {"question": chosen.clarify, "answer": at.task.answer})
        return Verdict("needs_revision", f"a person answered: {at.task.answer}")
    at.leave("answer.json", {"question": "", "answer": ""})
    if not at.is_past("perspectives"):
        document = {"run_id": at.run.manifest().run_id, "perspectives": records.document(chosen.perspectives)}
        if not (at.root / PERSPECTIVES).is_file():  # what a person has edited stays edited
            at.write_json(PERSPECTIVES, document)
        _planned(at)
    return Verdict("done", f"{len(planning.entries(at.root, 'wave1'))} perspectives")


def _planned(at: At) -> None:
    use(at, "wave1_plan")
    decision = at.gate(tools.GATES["A"](at))
    if not decision.passed:
        at.halt("GATE_A_FAILED", "; ".join(decision.reasons), "logs/blocked.json", records.document(decision), failed=True)


def begin(at: At) -> Verdict:
    """From the plan to the first wave. Perspectives that a person has edited meanwhile are planned anew."""
    if not at.is_past("perspectives"):
        if tools.is_stale(at):
            _planned(at)
        tools.advance(at, "the plan is whole")
    return Verdict("done", f"{len(planning.entries(at.root, 'wave1'))} perspectives")


def ingest(at: At) -> Verdict:
    """wave_output_ingest, _validate, wave_review and gate B: what came of a wave, in its place, with what was tried before."""
    (number,) = at.words
    stage = f"wave{number}"
    if not planning.entries(at.root, stage):  # the pivot asked for none
        return Verdict("done", "no second wave")
    if at.is_past(stage):
        return Verdict("done")
    roster = rosters.read(at.task.input_path("roster"))
    home = at.task.input_path("roster").parent
    tried = retrying.tried(at.session, roster)
    retrying.consume(at, stage, tried)
    for entry in roster.entries:
        mine = [one for one in tried if one.perspective == entry.key and one.output]
        for n, one in enumerate(mine):
            use(at, "wave_output_ingest", stage=stage, perspective_id=entry.key, report=str(one.output), data="", retry=n)
        retrying.evidence(at, stage, entry)
        if entry.verdict == "done":
            made = {"report": str(home / entry.outputs["report"]), "data": str(home / entry.outputs["data"])}
            use(at, "wave_output_ingest", stage=stage, perspective_id=entry.key, **made, retry=len(mine))
    use(at, "wave_output_validate", stage=stage)
    use(at, "wave_review", stage=stage)
    at.gate(use(at, "gate_b_derive", stage=stage))
    missing = {e.key: e.message or e.code for e in roster.entries if e.verdict != "done"}
    if missing:
        why = "; ".join(f"{name}: {words}" for name, words in missing.items())
        capped = any(e.code == CAPPED for e in roster.entries)
        at.halt(CAPPED if capped else "RUN_AGENT_FAILED", why, "logs/blocked.json", missing)
    tools.advance(at, f"{stage} keeps to its contract", "pivot" if number == "1" else "citations")
    return Verdict("done", f"{len(roster.entries)} outputs of {WAVES[stage]}")


def pivot(at: At) -> Verdict:
    """pivot_decide: whether a second wave goes after what the first left open."""
    decided = use(at, "pivot_decide")
    if not at.is_past("pivot"):
        tools.advance(at, decided.rule, "wave2" if decided.wave2_required else "citations")
    return Verdict("done", decided.rule)


def pack(at: At) -> Verdict:
    """summary_pack_build and gate D: both waves, summarised, with the claims that were found again."""
    roster = rosters.read(at.task.input_path("roster"))
    home = at.task.input_path("roster").parent
    if not at.is_past("summaries"):
        for entry in (e for e in roster.entries if e.verdict == "done"):
            text = (home / entry.outputs["report"]).read_text(encoding="utf-8")
            at.write(tools.summary_of(entry.item["output"]), text)
        use(at, "summary_pack_build")
        at.gate(use(at, "gate_d_evaluate"))
        tools.advance(at, "nearly all is summarised")
    document = files.read_json(at.root / tools.PACK)
    at.leave("pack.json", document)
    return Verdict("done", f"{len(document['claims'])} claims with their passages")


def write(at: At) -> Verdict:
    """synthesis_write: this round's text, beside those of earlier rounds."""
    manifest = at.run.manifest()
    if manifest.stage.current == "synthesis" and manifest.review_iterations + 1 == at.round:
        use(at, "synthesis_write", report=str(at.task.input_path("report")))
        tools.advance(at, "there is a synthesis", "review")
    return Verdict("done")


def decide(at: At) -> Verdict:
    """review_factory_run, revision_control and gate E: one more round, or the end, with the best round and not the last."""
    manifest = at.run.manifest()
    if manifest.review_iterations >= at.round:  # cut off behind its advance: the round was sent back
        return _sent_back(at, files.read_json(at.root / f"review/review-{at.round}.json"))
    ended = manifest.stage.current == "finalize"
    bundle = (
        files.read_json(at.root / reviewing.BUNDLE)
        if ended
        else use(at, "review_factory_run", data=str(at.task.input_path("data")))
    )
    control: reviewing.Revision = reviewing.revision_control(at) if ended else use(at, "revision_control")
    if control.again and not ended:
        tools.advance(at, "the review asks for changes", "synthesis")
        return _sent_back(at, bundle)
    at.leave("directives.json", {"directives": bundle["directives"]})
    decision = _held(at, control.best) if not ended else reviewing.gate_e_evaluate(at)
    left = tuple(f"the review would change: {text}" for text in bundle["directives"]) if bundle["decision"] != "PASS" else ()
    return Verdict("done", f"round {control.best}", (*left, *decision.warnings))


def _sent_back(at: At, bundle: Json) -> Verdict:
    directives: list[str] = bundle["directives"]
    at.leave("directives.json", {"directives": directives})
    return Verdict("needs_revision", "; ".join(directives)[:400] or "the review asks for changes")


def _held(at: At, best: int) -> Decision:
    """Gate E over the best round; the run ends with it, or fails."""
    at.write(reviewing.FINAL, (at.root / f"synthesis/round-{best}.md").read_text(encoding="utf-8"))
    decision: Decision = use(at, "gate_e_evaluate")
    use(at, "gate_e_reports")
    at.gate(decision)
    if not decision.passed:
        at.halt(
            "GATE_BLOCKED", "; ".join(decision.reasons), "review/terminal-failure.json", records.document(decision), failed=True
        )
    tools.advance(at, "the synthesis holds", "finalize")
    return decision


def report(at: At) -> Verdict:
    """The report for people, for programs, and for a benchmark; and what was counted."""
    root, manifest = at.root, at.run.manifest()
    if manifest.stage.current != "finalize":
        at.halt("STAGE_DID_NOT_ADVANCE", f"the run is in {manifest.stage.current}", "logs/blocked.json", {})
    text = (root / reviewing.FINAL).read_text(encoding="utf-8")
    looked, cited = sources.read_claims(root), sources.read_citations(root)
    figures = {
        "claims": len(looked),
        "claims whose words were found": sum(c.supported for c in looked),
        "claims left out": sum(not c.supported for c in looked),
        "addresses": len(cited),
        "addresses that could not be read": sum(not c.usable for c in cited),
        "fabricated citations": len(set(citing.look(text).cited) - {c.cid for c in cited if c.usable}),
        "unsupported numbers": len(claims.unsupported(text, looked)),
    }
    made = writing.Report(manifest.query.text, text, {c.cid: c for c in cited}, looked, figures, _made(at))
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


def _made(at: At) -> list[str]:
    """How it was made: what it cost, how long it took, and what was searched."""
    manifest, spent = at.run.manifest(), Ledger(at.session).figures()
    replayed = " (replayed)" if at.call.driver == "replay" else ""
    lines = [f"Cost: {spent.usd:.4f} USD, {spent.agents} agent sessions, {spent.tokens} tokens{replayed}."]
    lines.append(f"Begun {manifest.created_at}, ended {manifest.updated_at}.")
    asked: dict[str, int] = {}
    for place in sorted((at.root / "evidence/agents").glob("*/*/meta.json")):
        for name, count in files.read_json(place)["tool_uses"].items():
            asked[name] = asked.get(name, 0) + count
    lines += [f"{name} was called {count} times by agents." for name, count in sorted(asked.items()) if name.startswith("Web")]
    for place in sorted((at.root / "evidence/search").glob("*.json")):
        lines += [f"Searched, {place.stem}, {line}" for line in files.read_json(place)["searched"]]
    return lines


TICKS: dict[str, Callable[[At], Verdict]] = {
    "init": init,
    "plan": plan,
    "begin": begin,
    "ingest": ingest,
    "pivot": pivot,
    "pack": pack,
    "write": write,
    "decide": decide,
    "report": report,
}
