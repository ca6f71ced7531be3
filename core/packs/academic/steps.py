"""What Python does between the agents, phase by phase: it takes a handover, hands work out, and gives the next handover."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from lib.contract import Json, StrataError
from lib.disk import files, records, schemas
from lib.disk.clock import now
from lib.stages import rosters

from packs.academic import asking, config, scoring, syntax
from packs.academic.at import At
from packs.academic.folder import HANDOVERS
from packs.academic.records import Assessed, Ranking, candidates
from packs.academic.settings import Settings

_CONFIG = HANDOVERS["run_config"].file
AGAIN = "look at logs/phase_{0}.log, then: academic.py phase {0} RUN, and academic.py run RUN"
_RELEVANCE = {"top": "high", "high": "high", "medium": "medium", "low": "low"}


def conf(at: At, phase: int) -> config.Config:
    return config.of(at.folder.take("run_config", phase))


# Phase 0


def begin(at: At) -> Json:
    """The run folder, and what is to be walked through."""
    at.folder.make()
    if given := at.text("config"):
        _bring(at, Path(given))
    read = conf(at, 0)
    scoring.require_weights(read.scoring)
    at.folder.state.begin(read.run_id, at.call.session.folder)
    at.folder.state.phase(0, "in_progress")
    if read.portal:
        at.settings().portal(read.portal)
    fields = (
        [{"key": files.slug(f, "field"), "portal": read.portal, "discipline": f} for f in read.disciplines] if read.portal else []
    )
    at.leave("entries", {"portals": fields})
    at.say(0, f"{read.run_id}: {read.research_question}")
    return at.done(
        f"{len(fields)} lists of {read.portal} to look at" if read.portal else "the databases are those of the configuration"
    )


def _bring(at: At, given: Path) -> None:
    """Configuration from elsewhere: a file, or a folder with settings beside it. What is in the run already stays."""
    folder = given if given.is_dir() else given.parent
    wanted = {_CONFIG: folder / "run_config.json" if given.is_dir() else given}
    if given.is_dir():
        wanted["config/academic_settings.yaml"] = folder / "academic_settings.yaml"
    for name, source in wanted.items():
        if source.is_file() and not (at.folder.root / name).exists():
            files.write_atomic(at.folder.root / name, source.read_bytes())
    if not (at.folder.root / _CONFIG).exists():
        raise StrataError("MISSING_HANDOVER", f"{given} has no run_config.json", "setup writes one", final=True)


def databases(at: At) -> Json:
    """What the portal lists and what the configuration names, each once, with how it can be searched."""
    read, known = conf(at, 0), at.settings()
    folder, roster = at.roster("portals")
    rows: list[Json] = []
    for one in roster.entries:
        if one.exit_code == 0:
            rows += files.read_json(folder / one.outputs["found"])["rows"]
        else:
            at.warn(0, f"{one.key}: the portal could not be read: {one.message}")
    listed: dict[str, Json] = {}
    own = [records.document(d) for d in read.databases]
    shape = schemas.load("academic/databases")["properties"]["databases"]["items"]
    for row in (*own, *rows):
        made = _database(row, known)
        if wrong := schemas.describe(made, shape):
            at.warn(0, f"{made['name'][:80]} is left out: {wrong[0]}")
            continue
        listed.setdefault(made["name"].casefold(), made)
    usable = [d for d in listed.values() if d["access"] != "none"]
    if not usable:
        why = "; ".join(at.warnings) or "neither the portal nor the configuration names one that this house can search"
        hint = "name some in run_config.json under databases, such as {name: OpenAlex}"
        raise StrataError("NO_DATABASES", f"there is no database to search: {why}", hint, final=True)
    source = "both" if rows and own else "portal" if rows else "config"
    handover: Json = {"databases": list(listed.values()), "source": source}
    at.give("databases", handover)
    aside = [d["name"] for d in listed.values() if d["access"] == "none"]
    if aside:
        at.warn(0, f"listed, and not searched by this house: {', '.join(aside)}")
    at.leave(
        "data",
        {
            "count": len(usable),
            "of": files.digest(handover),
            "say": [f"{len(usable)} can be searched.", *(f"{w}." for w in at.warnings)],
        },
    )
    return at.done(f"{len(usable)} databases can be searched")


def _database(row: Json, known: Settings) -> Json:
    name = str(row.get("name") or "").strip()
    of = known.known(name)
    interface = row.get("interface") or (of.interface if of else None)
    service = of.service if of else None
    access = "browser" if row.get("interface") else "api" if service else "browser" if interface else "none"
    dialect = of.syntax if of else known.interface(interface).syntax if interface else "generic"
    url = str(row.get("url") or (of.url if of else "")) or "https://unknown.invalid"
    return {
        "name": name,
        "url": url,
        "relevance": _RELEVANCE.get(str(row.get("relevance") or "").strip().lower(), "unknown"),
        "discipline": str(row.get("discipline") or "unknown"),
        "access": access,
        "service": service if access == "api" else None,
        "interface": interface,
        "syntax": dialect,
    }


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
