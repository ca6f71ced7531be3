"""Phase 2: rounds of searching. Every database is asked in its own words; a round that brings nothing new twice ends it."""

from __future__ import annotations

from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.stages.rosters import Entry
from lib.web import manners
from lib.web.door import Door
from msgspec import Struct

from packs.academic import merging, services, syntax
from packs.academic.at import At
from packs.academic.config import Config
from packs.academic.records import Candidate, candidates
from packs.academic.services import Asked
from packs.academic.steps import conf

PHASE = 2
BUSY = "HTTP_429"  # a short Retry-After is obeyed by the door
LONGEST_WAIT = 300.0  # seconds: who wants to be left alone for longer is skipped


class Query(Struct, frozen=True):
    """What a round asks: the query of a database, or a variation of it; and which page of the answer."""

    variation: int | None  # None: the first
    page: int


class Round(Struct, frozen=True):
    """What is known behind a round."""

    iteration: int = 0
    quiet: int = 0  # rounds in a row that brought nothing new
    candidates: tuple[Candidate, ...] = ()
    searched: tuple[str, ...] = ()
    skipped: tuple[Json, ...] = ()
    total: int = 0
    duplicates: int = 0
    queries: tuple[Json, ...] = ()


def plan(iteration: int, variations: int) -> Query:
    """Round 1 asks the first query, then come its variations, then their further pages in the same order."""
    page, which = divmod(iteration - 1, variations + 1)
    return Query(None if which == 0 else which - 1, page + 1)


def query_for(database: Json, strings: Json, query: Query) -> str:
    """In the words of the database; a variation is translated."""
    own = strings["databases"].get(database["name"])
    if query.variation is None and own:
        return str(own)
    generic = strings["primary_string"] if query.variation is None else strings["variations"][query.variation]
    return syntax.translate(generic, database["syntax"])


def probe(at: At) -> Json:
    """How much each service has for its query: too much is for a person to decide."""
    read, strings = conf(at, 1), at.folder.take("search_strings", 1)
    listed = at.folder.take("databases", 1)["databases"]
    counts: list[Json] = []
    for one in listed:
        if one["access"] != "api":
            continue
        query = query_for(one, strings, Query(None, 1))
        try:
            door = _turn(at, one["service"])
            found = services.search(door, one["service"], at.settings().service(one["service"]), _asked(read, query, 1, 1))
            counts.append({"database": one["name"], "query": query, "hits": found.hits})
        except StrataError as error:
            at.say(1, f"{one['name']} cannot say how much it has: {error.message}", "warning")
            counts.append({"database": one["name"], "query": query, "hits": None})
    most = read.search.too_broad
    broad = [
        f"{c['database']} has {c['hits']} hits, and more than {most} are too broad: narrow it."
        for c in counts
        if (c["hits"] or 0) > most
    ]
    hits = [f"{c['database']}: {c['hits']} hits." for c in counts if c["hits"] is not None]
    at.leave("counts", {"counts": counts, "too_broad": broad, "say": [] if broad else hits})
    return at.done("; ".join(broad) or " ".join(hits))


def open2(at: At) -> Json:
    """Whom a round asks, and what."""
    read, strings = conf(at, PHASE), at.folder.take("search_strings", PHASE)
    listed = at.folder.take("databases", PHASE)["databases"]
    before = at.given("before")
    known = records.of(before, Round) if before else Round()
    at.folder.state.phase(PHASE, "in_progress")
    iteration = known.iteration + 1
    query = plan(iteration, len(strings["variations"]))
    gone = {s["database"] for s in known.skipped}
    keys: dict[str, str] = {}
    for one in listed:  # two names may look alike once they are plain
        key = files.slug(one["name"], "database")
        keys[one["name"]] = key if key not in keys.values() else f"{key}-{len(keys)}"
    entries: dict[str, list[Json]] = {"api": [], "browser": []}
    for one in listed:
        if one["access"] in entries and one["name"] not in gone:
            words = query_for(one, strings, query)
            wanted: Json = {
                "key": keys[one["name"]],
                "database": one["name"],
                "query": words,
                "page": query.page,
            }
            entries[one["access"]].append(
                wanted
                | {
                    "iteration": iteration,
                    "size": read.search.per_query,
                    "service": one["service"],
                    "interface": one["interface"],
                }
            )
    at.leave("entries", entries)
    return at.done(f"round {iteration}: {len(entries['api'])} services, {len(entries['browser'])} pages")


def search(at: At) -> Json:
    """One query to one service."""
    item: Json = at.task.item
    read, known = conf(at, PHASE), at.settings()
    asked = _asked(read, item["query"], item["page"], item["size"])
    door, service = _turn(at, item["service"]), known.service(item["service"])
    try:
        found = services.search(door, item["service"], service, asked)
    except StrataError as error:
        if error.code != BUSY:
            raise
        wait = max(known.busy_seconds, float(error.detail.get("wait") or 0))
        if wait > LONGEST_WAIT:
            message = f"{error.message}, and wants to be left alone for {wait:.0f} s"
            raise StrataError(BUSY, message, "resume later", final=True) from None
        at.folder.state.retried(PHASE, "search", item["database"], error.message, wait)
        manners.pause(0 if door.shelf.recorded else wait)
        found = services.search(door, item["service"], service, asked)
    at.leave("found", {"hits": found.hits, "at": found.at or now(), "records": list(found.records)})
    at.say(PHASE, f"{item['database']}, round {item['iteration']}: {len(found.records)} of {found.hits} for {item['query']}")
    return at.done(f"{len(found.records)} records")


def merge(at: At) -> Json:
    """What the round found becomes part of one list; and whether it is worth another."""
    read = conf(at, PHASE)
    before = at.given("before")
    known = records.of(before, Round) if before else Round()
    answered: list[tuple[Json, Json]] = []
    skipped, searched = list(known.skipped), list(known.searched)
    folders = [at.roster(name) for name in ("api", "browser")]
    for folder, roster in folders:
        for one in roster.entries:
            if one.exit_code == 0:
                answered.append((one.item, files.read_json(folder / one.outputs["found"])))
                searched += [one.item["database"]] if one.item["database"] not in searched else []
                if not answered[-1][1]["records"] and not answered[-1][1]["hits"] and one.item["page"] == 1:
                    at.warn(PHASE, f"{one.item['database']} has nothing for {one.item['query']}")
            else:
                skipped.append({"database": one.item["database"], "reason": _reason(one)})
                at.warn(PHASE, f"{one.item['database']} is skipped: {_reason(one)}")
    asked = sum(len(roster.entries) for _, roster in folders)
    if asked and not answered and not known.searched:
        listed = "; ".join(f"{s['database']}: {s['reason']}" for s in skipped)
        raise StrataError("ALL_DATABASES", f"no database answered: {listed}", "look at the network, and resume", final=True)
    after = _added(known, answered, tuple(searched), tuple(skipped))
    done = not answered or after.quiet >= read.search.stop_after or after.iteration >= read.search.max_iterations
    at.leave("data", records.document(after))
    new = len(after.candidates) - len(known.candidates)
    at.say(PHASE, f"round {after.iteration}: {new} new, {len(after.candidates)} in all")
    if not done:
        return at.done(f"{new} new in round {after.iteration}", "needs_revision")
    at.give("candidates", handover(after))
    at.warn(PHASE, at.folder.state.counted("candidates", len(after.candidates)))
    at.folder.state.phase(PHASE, "completed")
    return at.done(f"{len(after.candidates)} candidates after {after.iteration} rounds")


def _added(known: Round, answered: list[tuple[Json, Json]], searched: tuple[str, ...], skipped: tuple[Json, ...]) -> Round:
    listed, total, duplicates = known.candidates, known.total, known.duplicates
    queries: list[Json] = []
    for item, found in answered:
        usable = [c for r in found["records"] if (c := merging.candidate(r, item["database"], item["query"]))]
        merged = merging.merge(listed, usable)
        listed, total, duplicates = merged.candidates, total + len(found["records"]), duplicates + merged.duplicates
        said: Json = {"database": item["database"], "query": item["query"], "at": found["at"], "iteration": item["iteration"]}
        queries.append(said | {"hits": found["hits"], "taken": len(found["records"]), "new": merged.new})
    quiet = 0 if len(listed) > len(known.candidates) else known.quiet + 1
    return Round(known.iteration + 1, quiet, listed, searched, skipped, total, duplicates, (*known.queries, *queries))


def handover(after: Round) -> Json:
    return {
        "candidates": [records.document(c) for c in after.candidates],
        "iterations": after.iteration,
        "databases_searched": list(after.searched),
        "skipped": list(after.skipped),
        "total_results": after.total,
        "duplicates_removed": after.duplicates,
        "near_duplicates": merging.near(after.candidates),
        "queries": list(after.queries),
    }


def retractions(at: At) -> Json:
    """Which of the papers that are there a service calls withdrawn; null where nobody says."""
    read = conf(at, 5)
    there = {d["id"]: d["doi"] for d in at.folder.take("downloads", 5)["downloads"] if d["status"] == "success"}
    known = {c.id: c.retracted for c in candidates(at.folder.take("candidates", 5))}
    found: dict[str, bool | None] = {one: known.get(one) for one in there}
    wanted = {doi: one for one, doi in there.items() if doi}
    used = {d["service"] for d in at.folder.take("databases", 5)["databases"]}
    for service in [name for name in ("openalex", "crossref") if name in used] or ["openalex", "crossref"]:
        for doi, one in wanted.items():
            try:
                said = services.withdrawn(_turn(at, service), service, at.settings().service(service), doi, read.mail)
            except StrataError as error:
                at.say(5, f"{service} cannot say whether {doi} was withdrawn: {error.message}", "warning")
                continue
            if said is not None:
                found[one] = bool(found[one] or said)
    for one in [one for one, said in found.items() if said]:
        at.warn(5, f"{one} was withdrawn, as a service says")
    at.leave("data", {"retracted": found})
    return at.done(f"{sum(bool(v) for v in found.values())} of {len(found)} were withdrawn")


def _reason(one: Entry) -> str:
    return one.message or one.note or one.code or one.status


def _asked(read: Config, query: str, page: int, size: int) -> Asked:
    return Asked(query, page, size, read.period.from_, read.period.to, read.mail)


def _turn(at: At, service: str) -> Door:
    """The door, when it is our turn at a service."""
    door = Door(at.call, at.out)
    pause = 0 if door.shelf.recorded else at.settings().service(service).pause_seconds
    manners.wait_for_turn(at.call.session.folder, f"service-{service}", pause)
    return door
