"""What Python does between the agents, phase by phase: it takes a handover, hands work out, and gives the next handover."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.stages import rosters

from packs.academic import asking, config, scoring, syntax
from packs.academic.at import At
from packs.academic.records import Assessed, Ranking, candidates

AGAIN = "look at logs/phase_{0}.log, then: academic.py phase {0} RUN, and academic.py run RUN"


def conf(at: At, phase: int) -> config.Config:
    return config.of(at.folder.take("run_config", phase))


# Phase 1


def open1(at: At) -> Json:
    """What the strategist needs to know."""
    read, listed = conf(at, 1), at.folder.take("databases", 1)["databases"]
    at.folder.state.phase(1, "in_progress")
    wanted = [
        {"name": d["name"], "syntax": d["syntax"], "example": syntax.DIALECTS[d["syntax"]].example}
        for d in listed
        if d["access"] != "none"
    ]
    context = "\n\n".join(dict.fromkeys(text for text in (read.context.strip(), at.folder.context()) if text))
    brief: Json = {"question": read.research_question, "keywords": list(read.keywords), "context": context}
    at.leave(
        "brief", brief | {"period": records.document(read.period), "disciplines": list(read.disciplines), "databases": wanted}
    )
    return at.done(f"{len(wanted)} databases")


def save1(at: At) -> Json:
    """Every query is parsed once more before it is anybody's."""
    made, listed = at.given("data"), at.folder.take("databases", 1)["databases"]
    wrong = wrong_strings(made, {d["name"]: d["syntax"] for d in listed if d["access"] != "none"})
    if wrong:
        raise StrataError("BAD_SEARCH_STRINGS", "; ".join(wrong[:5]), "phase 1 (search strings) owes them", final=True)
    at.give("search_strings", made)
    at.leave(
        "saved",
        {"of": files.digest(made), "say": [f"{1 + len(made['variations'])} queries for {len(made['databases'])} databases."]},
    )
    return at.done(f"{len(made['databases'])} databases, {len(made['variations'])} variations")


def wrong_strings(made: Json, wanted: dict[str, str]) -> list[str]:
    """What is the matter with search strings: a database without one, one for nobody, a query its database does not read."""
    wrong = [f"{name}: there is no query for it" for name in wanted if name not in made["databases"]]
    wrong += [f"{name} is not searched: leave it out" for name in made["databases"] if name not in wanted]
    for label, query in [
        ("primary_string", made["primary_string"]),
        *((f"variation {n}", v) for n, v in enumerate(made["variations"], 1)),
    ]:
        if said := syntax.problem(query, "generic"):
            wrong.append(f"{label} ({query}): {said}")
    for name, query in made["databases"].items():
        if name in wanted and (said := syntax.problem(query, wanted[name])):
            wrong.append(f"{name} ({query}), in the syntax {wanted[name]}: {said}")
    return wrong


# Phase 3


def open3(at: At) -> Json:
    """Candidates in batches, as the assessor sees them: what databases say, and nothing that could sway it."""
    read, found = conf(at, 3), candidates(at.folder.take("candidates", 3))
    if not found:
        hint = "adjust the search strings: academic.py phase 1 RUN"
        raise StrataError("NOTHING_FOUND", "the search found no candidate", hint, final=True)
    at.folder.state.phase(3, "in_progress")
    size = read.scoring.batch
    batches = [
        {
            "batch": f"b{n // size + 1:03d}",
            "question": read.research_question,
            "candidates": [
                {"id": c.id, "title": c.title, "year": c.year, "venue": c.venue, "abstract": c.abstract}
                for c in found[n : n + size]
            ],
        }
        for n in range(0, len(found), size)
    ]
    at.leave("batches", {"batches": batches})
    return at.done(f"{len(found)} candidates in {len(batches)} batches")


def score(at: At) -> Json:
    read, search = conf(at, 3), at.folder.take("candidates", 3)
    found = candidates(search)
    folder, roster = at.roster("assessed")
    said: dict[str, Assessed] = {}
    failed = [one for one in roster.entries if one.exit_code]
    for one in failed:
        at.warn(3, f"{one.key}: nobody assessed it: {one.message}")
    if roster.entries and len(failed) == len(roster.entries):
        raise StrataError("NOBODY_ASSESSED", f"no candidate was assessed: {failed[0].message}", AGAIN.format(3), final=True)
    for one in roster.entries:
        if one.exit_code:
            continue
        own = {c["id"] for c in one.item["candidates"]}
        for assessed in files.read_json(folder / one.outputs["data"])["assessments"]:
            if assessed["id"] in own:  # what was not asked is not listened to
                said[assessed["id"]] = records.of(assessed, Assessed)
    scoring.require_weights(read.scoring)
    ranking = scoring.rank(found, said, read.scoring, _year(search))
    at.give("ranked_candidates", records.document(ranking))
    alarm = at.folder.state.counted("candidates", len(found))
    at.warn(3, alarm)
    for text in ranking.warnings[:20]:
        at.warn(3, text)
    skipped = [f"{one['database']} was skipped: {one['reason']}." for one in search["skipped"]]
    skipped += at.folder.held("candidates")
    near = len(search["near_duplicates"])
    skipped += [f"{near} pairs of titles are nearly the same: near_duplicates in metadata/candidates.json."] if near else []
    unknown = len(found) - len(said)
    skipped += (
        [f"{unknown} were assessed by nobody: {scoring.UNKNOWN} stands instead of relevance and method."] if unknown else []
    )
    at.leave(
        "data",
        {
            "count": len(ranking.ranked),
            "of": files.digest(records.document(ranking)),
            "say": [*skipped, *([f"{alarm}."] if alarm else [])],
        },
    )
    return at.done(f"{len(ranking.ranked)} ranked, {sum(one.selected for one in ranking.ranked)} proposed")


def _year(search: Json) -> int:
    """In which it was searched: a run that is replayed later ranks as it did then."""
    years = [int(str(q["at"])[:4]) for q in search["queries"]]
    return max(years, default=date.today().year)


# Phase 4


def open4(at: At) -> Json:
    """Applies what a person chose, once: what they change in the file behind that is their choice."""
    chosen, done = at.given("answer"), at.folder.root / "logs/chosen.json"
    ranking = records.of(at.folder.take("ranked_candidates", 4), Ranking)
    applied = done.is_file() and files.read_json(done) == chosen
    if not applied or not at.folder.is_edited("ranked_candidates"):
        ranking = scoring.choose(ranking, chosen["answer"])
        at.give("ranked_candidates", records.document(ranking))
        files.write_json(done, chosen)
    at.folder.state.phase(3, "completed")
    at.folder.state.phase(4, "in_progress")
    known = {c.id: c for c in candidates(at.folder.take("candidates", 4))}
    entries: list[Json] = []
    for one in ranking.ranked:
        paper = known.get(one.id)
        if one.selected and paper:
            name = f"{paper.id}_{files.slug(paper.title, 'paper')[:60].strip('-') or 'paper'}.pdf"
            entries.append(
                {
                    "id": paper.id,
                    "title": paper.title,
                    "doi": paper.doi,
                    "pdf_url": paper.pdf_url,
                    "url": paper.url,
                    "filename": name,
                }
            )
        elif one.selected:
            at.warn(4, f"{one.id} is selected, and is no candidate any more")
    if not entries:
        raise StrataError("NOTHING_CHOSEN", "no paper is selected", "answer check3 with top N, or edit selected", final=True)
    at.leave("entries", {"entries": entries})
    return at.done(f"{len(entries)} papers")


def downloads(at: At) -> Json:
    """What came of each, and the files in downloads/."""
    folder, roster = at.roster("papers")
    listed: list[Json] = []
    for one in roster.entries:
        item: Json = one.item
        base: Json = {"id": item["id"], "doi": item["doi"]}
        tries = _tries(at, one)
        if one.exit_code == 0:
            got = files.read_json(folder / one.outputs["data"])
            _copy(folder / one.outputs["file"], at.folder.root / "downloads" / item["filename"], got["sha256"])
            facts = {"filename": item["filename"], "status": "success", "bytes": got["bytes"], "sha256": got["sha256"]}
            listed.append(
                base | facts | {"pages": got["pages"], "source": got["source"], "code": None, "reason": None, "tries": tries}
            )
        else:
            at.warn(4, f"{item['id']}: {one.message}")
            none: Json = {"filename": None, "status": "failed", "bytes": 0, "sha256": None, "pages": 0, "source": None}
            listed.append(base | none | {"code": one.code or "FAILED", "reason": one.message or one.code, "tries": tries})
    there = [d for d in listed if d["status"] == "success"]
    at.give(
        "downloads",
        {"downloads": listed, "success_count": len(there), "failed": [d["id"] for d in listed if d["status"] != "success"]},
    )
    at.warn(4, at.folder.state.counted("pdfs", len(there)))
    if not there:
        hint = "name open copies in metadata/candidates.json (pdf_url), or choose other papers"
        raise StrataError("NO_PAPERS", "not one of the chosen papers could be had", hint, final=True)
    at.folder.state.phase(4, "completed")
    at.leave("data", {"count": len(there)})
    return at.done(f"{len(there)} of {len(listed)} papers are there")


def _tries(at: At, one: rosters.Entry) -> int:
    errors = [e for e in at.folder.state.read().errors if e.phase == 4 and e.item == one.item["id"]]
    return len(errors) + (one.exit_code == 0)


def _copy(source: Path, target: Path, sha256: str) -> None:
    if target.is_file() and files.digest_bytes(target.read_bytes()) == sha256:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    files.copy_whole(source, target)


# Phase 6


def close(at: At) -> Json:
    at.folder.state.ended()
    state = at.folder.state.read()
    made = at.folder.take("quote_library", 6)
    rows = [
        [s["cite_key"], s["title"], str(s["year"] or ""), str(sum(q["source_id"] == s["source_id"] for q in made["quotes"]))]
        for s in made["sources"]
    ]
    parts: list[Json] = [
        {"text": made["research_question"]},
        {"title": "Sources", "head": ["key", "title", "year", "quotes"], "rows": rows},
    ]
    alarms = [[name, a.level, str(a.count)] for name, a in state.alarms.items()]
    parts.append({"title": "Counts", "head": ["of", "level", "count"], "rows": alarms})
    quoted = [[q["quote"], q["cite_key"], str(q["page"])] for q in made["quotes"][:50]]
    parts.append({"title": "Quotes", "head": ["quote", "source", "page"], "rows": quoted})
    at.leave("section", {"title": f"Review {state.run_id}", "parts": parts})
    at.leave(
        "listing",
        {
            "run": state.run_id,
            "at": now(),
            "outputs": sorted(p.name for p in (at.folder.root / "outputs").iterdir() if p.is_file()),
        },
    )
    return at.done(f"{len(made['quotes'])} quotes from {len(rows)} papers")


def check(phase: int, at: At) -> Json:
    return asking.checkpoint(at, phase, at.given("seen") or {})
