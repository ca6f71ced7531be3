"""Phase 6: what a person takes away: a library of quotes, an annotated bibliography, and a report of the search."""

from __future__ import annotations

from collections.abc import Sequence

from lib.contract import Json

from packs.academic import bibliography, prisma
from packs.academic.review import Review, Source

PER_SOURCE = 50


def library(made: Review, at: str) -> Json:
    """quote_library.json"""
    sources: list[Json] = []
    for one in made.sources:
        paper = one.entry.paper
        who: Json = {"source_id": one.id, "cite_key": one.entry.key, "title": paper.title, "authors": list(paper.authors)}
        file: Json = {"filename": one.filename, "sha256": one.sha256, "retracted": one.retracted, "annotation": one.annotation}
        sources.append(who | {"year": paper.year, "doi": paper.doi} | file)
    keys = {one.id: one.entry.key for one in made.sources}
    quotes = [{**quote, "cite_key": keys[quote["source_id"]]} for quote in made.quotes]
    return {"research_question": made.config["research_question"], "made_at": at, "sources": sources, "quotes": quotes}


def annotated(made: Review, styles: Sequence[str]) -> str:
    """Annotated_Bibliography.md: every source with what it says to the question, and its quotes with their pages."""
    lines = [f"# {_md(made.config['project'])}: annotated bibliography", "", f"> {_md(made.config['research_question'])}", ""]
    count = len([one for one in made.sources if made.of(one)])
    one = made.rejected == 1
    others = (
        "1 other that was proposed was not, and is" if one else f"{made.rejected} others that were proposed were not, and are"
    )
    counted = f"{len(made.quotes)} quotes from {count} papers."
    lines += [f"{counted} Each was found by a program, word by word, on the page that is named; {others} not here.", ""]
    style = styles[0] if styles else bibliography.STYLES[0]
    by_key = _cited(made.sources, style)
    quoted = [one for one in made.sources if made.of(one)]
    for one in sorted(quoted, key=lambda s: -max(q["relevance"] for q in made.of(s))):
        lines += _source(made, one, by_key[one.entry.key])
    rest = [one for one in made.sources if not made.of(one)]
    if rest:
        lines += ["## Read, and not quoted", ""]
        lines += [
            f"- {_md(by_key[o.entry.key])} {_md(o.skipped or 'Nothing in it answers the question.')}{_warning(o)}" for o in rest
        ] + [""]
    if made.missing:
        lines += ["## Chosen, and not available", ""]
        lines += [f"- {_md(m.paper.title)} ({m.paper.year or 'n. d.'}): {_md(m.reason)}" for m in made.missing] + [""]
    for name in styles:
        lines += [
            f"## References ({name})",
            "",
            *(f"- {_md(text)}" for text in bibliography.csl([s.entry for s in made.sources], name)),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _cited(sources: Sequence[Source], style: str) -> dict[str, str]:
    """Each on its own, so that it can stand above its annotation."""
    return {one.entry.key: bibliography.csl([one.entry], style)[0].removeprefix("[1] ") for one in sources}


def _source(made: Review, one: Source, cited: str) -> list[str]:
    lines = [f"## {_md(one.entry.paper.title)}", "", f"{_md(cited)} `{one.entry.key}`", ""]
    if one.retracted:
        lines += ["**Withdrawn**: a service says that this paper was retracted. Look before you cite it.", ""]
    if one.annotation:
        lines += [_md(one.annotation), ""]
    if one.ocr:
        lines += ["Its pages are pictures: the quotes are as OCR reads them. Compare them with the page.", ""]
    for quote in made.of(one)[:PER_SOURCE]:
        note = f" {_md(quote['note'])}" if quote.get("note") else ""
        lines += [
            f"> {_md(quote['quote'])}",
            f"> (p. {quote['page']}, {quote['context']}, {quote['quote_id']})",
            "",
            *([note.strip(), ""] if note else []),
        ]
    return lines


def _warning(one: Source) -> str:
    return " **Withdrawn.**" if one.retracted else ""


def report(made: Review, alarms: Sequence[str], styles: Sequence[str]) -> str:
    """search_report.md: how it was searched, so that somebody else could do it again."""
    config, found = made.config, made.found
    lines = [f"# {_md(config['project'])}: how it was searched", "", f"> {_md(config['research_question'])}", ""]
    period: Json = config.get("period") or {}
    years = f"{period.get('from') or 'any year'} to {period.get('to') or 'today'}"
    lines += [
        f"Keywords: {_md(', '.join(config['keywords']))}. Fields: {_md(', '.join(config['disciplines']))}. Years: {years}.",
        "",
    ]
    if alarms:
        lines += ["**Look at this first**", "", *(f"- {_md(a)}" for a in alarms), ""]
    lines += ["## Flow (PRISMA 2020)", "", "![The flow of the review](prisma.svg)", "", prisma.table(made.flow), ""]
    lines += ["## Databases", "", "| database | searched | syntax |", "|---|---|---|"]
    skipped = {s["database"]: s["reason"] for s in found["skipped"]}
    for one in made.databases["databases"]:
        how = (
            f"{'yes, then ' if one['name'] in found['databases_searched'] else ''}skipped: {skipped[one['name']]}"
            if one["name"] in skipped
            else "yes"
            if one["name"] in found["databases_searched"]
            else one["access"]
        )
        lines.append(f"| {_cell(one['name'])} | {_cell(how)} | {one['syntax']} |")
    lines += ["", "## Queries", "", "| database | query | date | round | hits | taken | new |", "|---|---|---|---|---|---|---|"]
    for q in found["queries"]:
        hits = "unknown" if q["hits"] is None else q["hits"]
        lines.append(
            f"| {_cell(q['database'])} | `{_cell(q['query'])}` | {q['at'][:10]} | {q['iteration']} | {hits} | {q['taken']} | {q['new']} |"
        )
    lines += [
        "",
        f"The search ended after {found['iterations']} rounds. {found['duplicates_removed']} duplicates were removed by DOI, then by title.",
        "",
    ]
    if found["near_duplicates"]:
        lines += ["Titles that are nearly the same, and were left as two:", ""]
        lines += [f"- {' and '.join(n['ids'])} ({n['similarity']:g} of 100)" for n in found["near_duplicates"]] + [""]
    ranking = made.ranking
    lines += [
        "## Scoring",
        "",
        f"`{ranking['formula']}`",
        "",
        "| rank | paper | total | relevance | recency | citations | method | read |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in ranking["ranked"]:
        s = one["scores"]
        figures = " | ".join(f"{s[k]:.2f}" for k in ("relevance", "recency", "citation_impact", "methodology"))
        lines.append(
            f"| {one['rank']} | {_cell(one['title'])} | {one['total']:.2f} | {figures} | {'yes' if one['selected'] else ''} |"
        )
    lines += [
        "",
        "## Quotes",
        "",
        f"{len(made.quotes)} stand in their papers. {made.rejected} were proposed and not found: rejected_quotes.json has them, with the nearest passage.",
        "",
    ]
    lines += [f"Bibliography: bibliography.bib, and in the styles {', '.join(styles)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _md(text: str) -> str:
    """A stranger's text, as text: no markup of it works."""
    out = " ".join(text.split())
    for sign in ("\\", "`", "*", "_", "[", "]", "<", "|", "#"):
        out = out.replace(sign, f"\\{sign}")
    return out


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")
