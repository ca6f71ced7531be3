"""Phase 6: every quote is looked up once more, since people edit; then all outputs are written from what stands."""

from __future__ import annotations

import json
from pathlib import Path

from lib.contract import Json
from lib.disk import files
from lib.disk.clock import now

from packs.academic import bibliography, finishing, page, pdfs, prisma, quoting
from packs.academic.at import At
from packs.academic.folder import HANDOVERS
from packs.academic.page import Box, Shown
from packs.academic.quoting import Paper
from packs.academic.reading import UNSEEN, papers_of
from packs.academic.review import Review, review
from packs.academic.steps import conf

PHASE = 6
NEEDED = (
    "run_config",
    "databases",
    "search_strings",
    "candidates",
    "ranked_candidates",
    "downloads",
    "quotes",
    "rejected_quotes",
)


def finish(at: At) -> Json:
    read = conf(at, PHASE)
    at.folder.state.phase(5, "completed")
    at.folder.state.phase(PHASE, "in_progress")
    documents = {name: at.folder.take(name, PHASE) for name in NEEDED}
    papers = papers_of(at, at.task.input_path("texts"))
    standing = _standing(at, documents["quotes"]["quotes"], papers)
    made = review(documents, standing, len(documents["rejected_quotes"]["rejected"]))
    alarms = [f"{name}: {a.level}, {a.count}" for name, a in at.folder.state.read().alarms.items() if a.level != "ok"]
    alarms += at.warnings
    of = _write_library(at, made)
    entries = [one.entry for one in made.sources]
    _put(at, "bibliography.bib", bibliography.bibtex(entries))
    for style in read.styles:
        _put(at, f"references_{style}.txt", "\n\n".join(bibliography.csl(entries, style)) + "\n")
    _put(at, "Annotated_Bibliography.md", finishing.annotated(made, read.styles))
    _put(at, "prisma.svg", prisma.svg(made.flow))
    _put(at, "search_report.md", finishing.report(made, alarms, read.styles))
    _put(at, "quotes.html", page.html(made, _shown(at.folder.root / "downloads", made, papers)))
    said = f"{len(made.quotes)} quotes from {made.flow.included} papers."
    at.leave("data", {"count": len(made.quotes), "of": of, "say": [said]})
    return at.done(f"{len(made.quotes)} quotes from {made.flow.included} papers")


def _standing(at: At, listed: list[Json], papers: dict[str, Paper]) -> list[Json]:
    standing: list[Json] = []
    folder = at.folder.root / "downloads"
    names = {one["id"]: one["filename"] for one in at.folder.take("downloads", PHASE)["downloads"]}
    for one in listed:
        source = one["source_id"]
        why = quoting.wrong(one["quote"], one["page"], papers.get(source), source)
        if not why and not papers[source].ocr and not pdfs.is_seen(folder / names[source], one["page"] - 1, one["quote"]):
            why = UNSEEN
        if why:
            at.warn(PHASE, f"{one['quote_id']} is left out: {why}")
        else:
            standing.append(one)
    return standing


def _write_library(at: At, made: Review) -> str:
    """What says the same as before has the date of before. Returns the digest of what it says, whenever it says it."""
    path = at.folder.root / HANDOVERS["quote_library"].file
    fresh = finishing.library(made, now())
    try:
        old = json.loads(path.read_bytes())
        fresh = fresh | {"made_at": old["made_at"]} if fresh | {"made_at": old["made_at"]} == old else fresh
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or not one of ours: what a person has written there is kept aside
    at.give("quote_library", fresh)
    return files.digest({name: value for name, value in fresh.items() if name != "made_at"})


def _put(at: At, name: str, text: str) -> None:
    for said in at.folder.put(f"outputs/{name}", text.encode()):
        at.warn(PHASE, said)


def _shown(folder: Path, made: Review, papers: dict[str, Paper]) -> Shown:
    names = {one.id: folder / one.filename for one in made.sources}
    pages: dict[tuple[str, int], bytes] = {}
    marks: dict[str, list[Box]] = {}
    for quote in made.quotes:
        source, number = quote["source_id"], quote["page"]
        if (source, number) not in pages:
            pages[source, number] = pdfs.picture(names[source], number - 1, 1.6, colours=16)
        if not papers[source].ocr:
            marks[quote["quote_id"]] = pdfs.marks(names[source], number - 1, quote["quote"])
    return Shown(pages, marks)
