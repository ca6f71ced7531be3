"""Phases 4 and 5, as far as files go: a paper is fetched and looked at, its pages are read, its quotes are looked up."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from html import unescape
from pathlib import Path
from urllib.parse import quote, urljoin

from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.web.door import Door, Page

from packs.academic import annotating, pdfs, quoting, sanitising, steps
from packs.academic.at import At
from packs.academic.quoting import Paper, Rejected
from packs.academic.records import candidates
from packs.academic.steps import conf

_META = re.compile(rb"<meta\b[^>]*>", re.I)
_ATTRIBUTE = re.compile(rb"""(\w[\w-]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""")
UNSEEN = "the file has it, and nobody who looks at the page sees it"
NOBODY = "nobody names an open copy"


def download(at: At) -> Json:
    """One paper: from where it is open, then from where its DOI leads. What is no PDF, or no harmless one, is not kept."""
    item: Json = at.task.item
    read = conf(at, 4)
    door, target = Door(at.call, at.out), at.path("file")
    problems: list[StrataError] = []
    tried: set[str] = set()
    for address in _addresses(at, door, item, problems):
        if address in tried:
            continue
        tried.add(address)
        try:
            door.download(address, f"the paper {item['title']}"[:200], target, read.papers.max_bytes)
            looked = pdfs.look(target, read.papers.max_bytes)
        except StrataError as error:
            target.unlink(missing_ok=True)
            said = error.message if error.message.startswith(address) else f"{address}: {error.message}"
            problems.append(StrataError(error.code, said, error.hint, detail=error.detail))
            continue
        at.leave("data", {"bytes": looked.size, "sha256": looked.sha256, "pages": looked.pages, "source": address})
        at.say(4, f"{item['id']}: {looked.pages} pages, {looked.size} bytes from {address}")
        return at.done(f"{looked.pages} pages")
    raise _refused(problems)


def _addresses(at: At, door: Door, item: Json, problems: list[StrataError]) -> Generator[str]:
    """The open copy that is named, then what the page says to which the DOI leads; which is asked when it is needed."""
    if item["pdf_url"]:
        yield str(item["pdf_url"])
    if item["doi"]:
        try:
            address = at.settings().resolver.replace("{doi}", quote(item["doi"], safe="/"))
            yield from _named(door.get(address, f"where {item['doi']} leads").require())
        except StrataError as error:
            problems.append(error)


def _named(page: Page) -> list[str]:
    """The PDF that a landing page names, as most publishers and archives do."""
    for tag in _META.findall(page.content[:500_000]):
        said = {k.lower(): unescape((a or b or c).decode(errors="replace")) for k, a, b, c in _ATTRIBUTE.findall(tag)}
        if said.get(b"name", "").lower() == "citation_pdf_url" and said.get(b"content"):
            return [urljoin(page.evidence.final_url, said[b"content"])]
    return []


def _refused(problems: list[StrataError]) -> StrataError:
    """Why there is none. It is tried again unless every source has said no for good."""
    tried = [p for p in problems if p.code != "MISSING"]
    if not tried:
        return StrataError("NO_OPEN_COPY", NOBODY, "name one in metadata/candidates.json (pdf_url)", final=True)
    final = all(p.detail.get("final") for p in tried)
    first = tried[0]
    return StrataError(first.code, "; ".join(p.message for p in tried)[:600], first.hint, final=final)


# Phase 5


def text(at: At) -> Json:
    """Every paper that is there, page by page: as it is, to look quotes up; and as an agent may read it."""
    read, listed = conf(at, 5), at.folder.take("downloads", 5)["downloads"]
    known = {c.id: c for c in candidates(at.folder.take("candidates", 5))}
    at.folder.state.phase(5, "in_progress")
    folder, entries, papers = at.path("texts"), list[Json](), list[Json]()
    folder.mkdir(parents=True, exist_ok=True)
    for one in [d for d in listed if d["status"] == "success"]:
        path = at.folder.root / "downloads" / one["filename"]
        at.folder.read.add(f"downloads/{one['filename']}")
        skipped, content = _content(path, one, read.papers.max_pages, read.papers.ocr)
        paper: Json = {"source_id": one["id"], "pages": one["pages"], "ocr": content.ocr, "skipped": skipped or None}
        papers.append(paper | {"read": 0 if skipped else sum(bool(p.strip()) for p in content.pages)})
        if skipped:
            at.warn(5, f"{one['id']} is not read: {skipped}")
            continue
        files.write_json(
            folder / f"{one['id']}.json", {"pages": list(content.pages), "ocr": content.ocr, "sha256": one["sha256"]}
        )
        if one["pages"] > len(content.pages):
            at.warn(5, f"{one['id']}: {len(content.pages)} of {one['pages']} pages are read (papers.max_pages)")
        paper_text = f"downloads/text/{one['id']}.md"
        files.write_atomic(at.folder.root / paper_text, _for_agents(at, one["id"], content).encode())
        facts: Json = {
            "source_id": one["id"],
            "paper": os.path.relpath(at.folder.root / paper_text, at.call.cwd),
            "pages": len(content.pages),
            "quotes": read.quotes_per_paper,
        }
        title = known[one["id"]].title if one["id"] in known else one["id"]
        entries.append(facts | {"title": title, "question": read.research_question})
    files.write_json(folder / "papers.json", [e["source_id"] for e in entries])  # a folder that is handed on is never empty
    at.leave("entries", {"entries": entries, "papers": papers})
    return at.done(f"{len(entries)} papers can be read")


def _content(path: Path, download: Json, most: int, ocr: bool) -> tuple[str, pdfs.Text]:
    """Its text, or why there is none."""
    if not path.is_file():
        return f"downloads/{path.name} is not there: phase 4 (papers) owes it", pdfs.Text(())
    if files.digest_bytes(path.read_bytes()) != download["sha256"]:
        return f"downloads/{path.name} is not the file that was fetched and looked at", pdfs.Text(())
    try:
        content = pdfs.text(path, most, ocr)
    except StrataError as error:
        return error.message, pdfs.Text(())
    return ("its pages are pictures, and this machine has no OCR" if content.scanned else ""), content


def _for_agents(at: At, source: str, content: pdfs.Text) -> str:
    """With a mark at every page. A sentence that would order a machine about is left out, and said to be."""
    parts: list[str] = []
    for number, page in enumerate(content.pages, 1):
        shown, held = sanitising.withheld(page)
        for reason in held:
            at.warn(5, f"{source}, page {number}: a sentence is withheld from the agent: it {reason}")
        parts.append(f"[page {number}]\n\n{shown.strip()}\n")
    return "\n".join(parts)


def papers_of(at: At, folder: Path) -> dict[str, Paper]:
    """What was read, to look quotes up in."""
    known = {c.id: c for c in candidates(at.folder.take("candidates", 5))}
    made: dict[str, Paper] = {}
    for path in sorted(p for p in folder.glob("*.json") if p.name != "papers.json"):
        read, one = files.read_json(path), known.get(path.stem)
        facts = (one.title, one.authors, one.year, one.doi, one.venue) if one else ("", (), None, None, None)
        made[path.stem] = Paper(path.stem, tuple(read["pages"]), *facts, ocr=read["ocr"])
    return made


def quotes(at: At) -> Json:
    """What agents proposed: what stands on its page, and the rest with the reason."""
    papers = papers_of(at, at.task.input_path("texts"))
    read: list[Json] = at.given("papers")["papers"]
    withdrawn: Json = at.given("retracted")["retracted"]
    folder, roster = at.roster("extracted")
    files_of = {d["id"]: d["filename"] for d in at.folder.take("downloads", 5)["downloads"]}
    kept: list[Json] = []
    rejected: list[Rejected] = []
    annotations: dict[str, str | None] = {}
    failed: dict[str, str] = {}
    for one in roster.entries:
        source = str(one.item["source_id"])
        if one.exit_code:
            failed[source] = "nobody read it to the end"
            at.warn(5, f"{source}: {failed[source]}: {one.message or one.code}")
            continue
        made = files.read_json(folder / one.outputs["data"])
        good, bad = quoting.sort_out(made["quotes"], papers.get(source), source)
        good, unseen = _seen(at, good, papers[source], files_of) if source in papers else (good, [])
        bad += unseen
        kept, rejected = kept + [_noted(at, q, papers.get(source)) for q in good], rejected + bad
        annotations[source] = _annotation(at, made.get("annotation"), papers.get(source))
    if roster.entries and len(failed) == len(roster.entries):
        why = roster.entries[0].message or roster.entries[0].code
        raise StrataError("NOBODY_READ", f"not one paper was read to the end: {why}", steps.AGAIN.format(5), final=True)
    listed = [
        {**p, "annotation": annotations.get(p["source_id"]), "retracted": withdrawn.get(p["source_id"])}
        | ({"skipped": failed[p["source_id"]]} if p["source_id"] in failed else {})
        for p in read
    ]
    handover: Json = {"quotes": quoting.number(kept), "papers": listed, "rejected_count": len(rejected)}
    at.give("quotes", handover)
    at.give("rejected_quotes", {"rejected": [records.document(r) for r in rejected]})
    alarm = at.folder.state.counted("quotes", len(kept))
    at.warn(5, alarm)
    missing = at.folder.take("downloads", 5)["failed"]
    said = [f"{len(kept)} stand on their pages, {len(rejected)} do not."]
    said += [f"{len(missing)} of the chosen papers could not be had: {', '.join(missing)}."] if missing else []
    said += at.folder.held("quotes")
    said += [f"{len(failed)} were not read to the end: {', '.join(failed)}."] if failed else []
    at.leave("data", {"count": len(kept), "of": files.digest(handover), "say": [*said, *([f"{alarm}."] if alarm else [])]})
    return at.done(f"{len(kept)} quotes stand, {len(rejected)} were rejected")


def _seen(at: At, good: list[Json], paper: Paper, names: dict[str, str]) -> tuple[list[Json], list[Rejected]]:
    """What nobody sees on the page does not stand there, whatever the file says; of a scanned page all is seen."""
    path = at.folder.root / "downloads" / names[paper.source_id]
    hidden = [one for one in good if not paper.ocr and not pdfs.is_seen(path, one["page"] - 1, one["quote"])]
    return [one for one in good if one not in hidden], [
        Rejected(paper.source_id, one["page"], one["quote"], UNSEEN) for one in hidden
    ]


def _noted(at: At, one: Json, paper: Paper | None) -> Json:
    """A quote, with what is said about it only as far as the paper has it."""
    if paper and one.get("note") and (found := annotating.invented(one["note"], paper)):
        at.warn(5, f"{paper.source_id}: a note is not used: the paper does not have {', '.join(found[:5])}")
        return one | {"note": None}
    return one


def _annotation(at: At, said: str | None, paper: Paper | None) -> str | None:
    """What an agent says about a paper, unless it says what the paper does not."""
    if not said or not paper:
        return None
    if found := annotating.invented(said, paper):
        at.warn(5, f"{paper.source_id}: its annotation is not used: the paper does not have {', '.join(found[:5])}")
        return None
    return said
