"""A run as a whole, when its phases are done: sources, quotes, what was left out, and the flow from the one to the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lib.contract import Json
from msgspec import Struct

from packs.academic import bibliography, records
from packs.academic.bibliography import Entry
from packs.academic.prisma import Flow
from packs.academic.records import Candidate


class Source(Struct, frozen=True):
    """A paper that is there, and what came of it."""

    entry: Entry
    filename: str
    sha256: str
    pages: int
    ocr: bool
    annotation: str | None
    skipped: str | None
    retracted: bool | None

    @property
    def id(self) -> str:
        return self.entry.paper.id


_REFUSED = ("HTTP_401", "HTTP_402", "HTTP_403")
_NOT_TRIED = {"status": "failed", "code": "NOT_TRIED", "reason": "nobody tried to fetch it"}
_KINDS = {
    "NO_OPEN_COPY": "no open copy is named",
    "NOT_A_PDF": "a page instead of a PDF (paywall)",
    "HTTP_404": "not found",
    "HTTP_410": "not found",
    "TOO_LARGE": "too large",
}  # fmt: skip


class Missing(Struct, frozen=True):
    """A paper that was chosen, and is not there."""

    paper: Candidate
    reason: str
    code: str

    @property
    def kind(self) -> str:
        """Why, in as few words as a flow has room for."""
        unsafe = "an unsafe or damaged file" if self.code.endswith("_PDF") else "could not be fetched"
        return "refused by the site" if self.code in _REFUSED else _KINDS.get(self.code, unsafe)


class Review(Struct, frozen=True):
    config: Json
    databases: Json
    strings: Json
    found: Json  # candidates.json
    ranking: Json
    sources: tuple[Source, ...]
    missing: tuple[Missing, ...]
    quotes: tuple[Json, ...]  # best first
    rejected: int
    flow: Flow

    def of(self, source: Source) -> list[Json]:
        return [one for one in self.quotes if one["source_id"] == source.id]


def review(documents: dict[str, Json], quotes: Iterable[Json], rejected: int) -> Review:
    """`documents`: the handovers, by name. `quotes`: those that stand, as they were looked up now."""
    papers = {one.id: one for one in records.candidates(documents["candidates"])}
    chosen = [one["id"] for one in documents["ranked_candidates"]["ranked"] if one["selected"] and one["id"] in papers]
    fetched = {one["id"]: one for one in documents["downloads"]["downloads"]}
    downloads = [fetched.get(one) or _NOT_TRIED | {"id": one} for one in chosen]
    there = [papers[d["id"]] for d in downloads if d["status"] == "success"]
    entries = {e.paper.id: e for e in bibliography.entries(there)}
    read = {one["source_id"]: one for one in documents["quotes"]["papers"]}
    sources = tuple(_source(entries[d["id"]], d, read.get(d["id"], {})) for d in downloads if d["status"] == "success")
    missing = tuple(
        Missing(papers[d["id"]], d["reason"] or "unknown", d["code"] or "") for d in downloads if d["status"] != "success"
    )
    known = {source.id for source in sources}
    kept = sorted((q for q in quotes if q["source_id"] in known), key=lambda q: (-q["relevance"], q["quote_id"]))
    flow = _flow(documents, sources, missing, {q["source_id"] for q in kept}, len(kept))
    return Review(
        documents["run_config"],
        documents["databases"],
        documents["search_strings"],
        documents["candidates"],
        documents["ranked_candidates"],
        sources,
        missing,
        tuple(kept),
        rejected,
        flow,
    )


def _source(entry: Entry, download: Json, read: Json) -> Source:
    retracted = read.get("retracted")
    return Source(
        entry,
        download["filename"],
        download["sha256"],
        download["pages"],
        bool(read.get("ocr")),
        read.get("annotation"),
        read.get("skipped") if read else "nobody has read it",
        entry.paper.retracted if retracted is None else retracted,
    )


def _flow(
    documents: dict[str, Json], sources: tuple[Source, ...], missing: tuple[Missing, ...], quoted: set[str], quotes: int
) -> Flow:
    found = documents["candidates"]
    by_database: Counter[str] = Counter()
    for query in found["queries"]:
        by_database[query["database"]] += query["taken"]
    screened = len(found["candidates"])
    sought = len(sources) + len(missing)
    excluded = Counter(_why(source) for source in sources if source.id not in quoted)
    identified, duplicates = sum(by_database.values()), found["duplicates_removed"]
    return Flow(
        tuple(by_database.most_common()),
        duplicates,
        identified - duplicates - screened,
        screened,
        screened - sought,
        sought,
        tuple(Counter(one.kind for one in missing).most_common()),
        len(sources),
        tuple(excluded.most_common()),
        len(sources) - sum(excluded.values()),
        quotes,
    ).require()


def _why(source: Source) -> str:
    if source.retracted:
        return "withdrawn, and without a verified quote"
    return source.skipped or "no verified quote answers the question"
