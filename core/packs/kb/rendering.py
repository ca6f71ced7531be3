"""Every document of a knowledge base, from its sources: what it is called, what it is made from, and how.

A recipe names its sources before any text is read, so that what is made from the same is not made again. Sources are kept whole,
each in one document; everything else (overviews, briefs, extracts, what cuts across) is derived, and made anew from all there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from lib.disk import files
from msgspec import Struct

from packs.kb import prose
from packs.kb.records import CROSS, DETAIL, FULL, GENERAL, SUMMARY, Document, Origin, Source

RENDERER = "1"  # another one makes every document anew
Read = Callable[[Source], str]
Names = dict[str, tuple[str, ...]]  # by value of a dimension: all it is called
_COLLECTED = {
    "messaging_frameworks": ("Messaging frameworks", re.compile(r"messag|positioning|value prop|talk track", re.I)),
    "competitive_landscape": ("Competitive landscape", re.compile(r"compet|alternativ|vendor|differentiat", re.I)),
    "proof_points": ("Proof points", re.compile(r"proof|evidence|result|metric|case", re.I)),
}


_KINDS = {
    "playbook_2d": "Playbook",
    "playbook_3d": "Playbook",
    "service_category": "Report",
    "vertical": "Report",
    "title": "Persona report",
}


class Recipe(Struct, frozen=True):
    path: str
    title: str
    type: str
    level: str
    sources: tuple[Source, ...]
    make: Callable[[Read], str]  # nothing, where there is nothing to say
    domain: str = ""
    vertical: str = ""
    persona: str = ""
    related: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # what is looked for in its sources

    @property
    def made_of(self) -> str:
        known = [(one.key, one.sha256, one.run, one.date) for one in self.sources]
        return files.digest([RENDERER, self.path, self.title, self.related, self.names, known])[:24]

    def document(self, text: str) -> Document:
        """Its line in the index."""
        return Document(
            path=self.path,
            title=self.title,
            domain=self.domain,
            vertical=self.vertical,
            persona=self.persona,
            type=self.type,
            summary=prose.summary(prose.body(text)) or self.title,
            keywords=prose.keywords(prose.body(text)),
            detail_level=self.level,
            related=self.related,
            sources=tuple(Origin(one.key, one.run, one.date, one.sha256) for one in self.sources),
            made_of=self.made_of,
            sha256=files.sha256_text(text),
            size=len(text.encode()),
        )

    def text(self, read: Read) -> str:
        """With what it rests on in front of it: every document says which run it comes from, and when."""
        made = self.make(read).strip()
        if not made:
            return ""
        newest = max(self.sources, key=lambda one: one.date)
        head = [f'title: "{_quoted(self.title)}"', f"source_run: {newest.run}", f"source_date: {newest.date or 'unknown'}"]
        head += [f"detail_level: {self.level}", "sources:", *(f"  - {one.key} ({one.run}, {one.date})" for one in self.sources)]
        return "\n".join(["---", *head, "---", "", made, ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class Corpus:
    """All sources, and how each is found."""

    def __init__(self, sources: Sequence[Source], names: Names) -> None:
        self.sources = sorted(sources, key=lambda one: one.key)
        self.names = names

    def of(self, kind: str, **where: str) -> list[Source]:
        kinds = ("playbook_2d", "playbook_3d") if kind == "playbook" else (kind,)
        return [s for s in self.sources if s.type in kinds and all(getattr(s, name) == value for name, value in where.items())]

    def called(self, value: str) -> tuple[str, ...]:
        return (prose.named(value), value, *self.names.get(value, ()))

    @property
    def domains(self) -> list[str]:
        return sorted({s.domain for s in self.sources if s.domain not in ("", GENERAL)})


def recipes(corpus: Corpus) -> Iterator[Recipe]:
    for source in corpus.sources:
        yield _whole(corpus, source)
    for domain in corpus.domains:
        yield from _domain(corpus, domain)
    yield from _general(corpus)
    yield from _crossing(corpus)


def _whole(corpus: Corpus, source: Source) -> Recipe:
    """A source as it is, under the name of what it is about."""
    about = ", ".join(prose.named(v) for v in (source.vertical, source.persona, source.domain) if v and v != GENERAL)
    title = f"{_KINDS[source.type]}: {about}" if source.type in _KINDS else f"Report: {prose.named(source.name)}"
    return Recipe(
        path=source.path,
        title=title,
        type=source.type,
        level=FULL,
        sources=(source,),
        make=lambda read: read(source) or f"# {title}\n\n(The source is empty.)",
        domain=source.domain,
        vertical=source.vertical,
        persona=source.persona,
        related=_related(corpus, source),
    )


def _related(corpus: Corpus, source: Source) -> tuple[str, ...]:
    """Where to read on: the reports about the same vertical, persona and domain."""
    near = (
        [*corpus.of("vertical", vertical=source.vertical), *corpus.of("title", persona=source.persona)]
        if source.vertical or source.persona
        else []
    )
    near += corpus.of("service_category", domain=source.domain) if source.domain not in ("", GENERAL) else []
    return tuple(dict.fromkeys(one.path for one in near if one.path != source.path and one.key != source.key))


def _domain(corpus: Corpus, domain: str) -> Iterator[Recipe]:
    reports = corpus.of("service_category", domain=domain)
    playbooks = corpus.of("playbook_3d", domain=domain)
    verticals = sorted({one.vertical for one in playbooks})
    name = prose.named(domain)
    if reports or playbooks:
        listed = tuple(f"domains/{domain}/verticals/{vertical}/overview.md" for vertical in verticals)
        yield Recipe(
            path=f"domains/{domain}/overview.md",
            title=f"Overview: {name}",
            type="overview",
            level=SUMMARY,
            sources=tuple(reports or playbooks),
            make=lambda read: _overview(f"Overview: {name}", [read(one) for one in reports or playbooks]),
            domain=domain,
            related=(*(one.path for one in reports), *listed),
        )
    journeys = [one for one in corpus.of("horizontal") if one.name == "buyer_journey"]
    if journeys:
        yield Recipe(
            path=f"domains/{domain}/buyer_journey.md",
            title=f"Buyer journey: {name}",
            type="buyer_journey",
            level=DETAIL,
            sources=tuple(journeys),
            make=lambda read: _extracts(f"Buyer journey: {name}", [read(one) for one in journeys], corpus.called(domain)),
            domain=domain,
            related=tuple(one.path for one in journeys),
            names=corpus.called(domain),
        )
    for vertical in verticals:
        yield from _intersection(corpus, domain, vertical)


def _intersection(corpus: Corpus, domain: str, vertical: str) -> Iterator[Recipe]:
    """A vertical in a domain: what each report says of the other, and every persona there is a playbook for."""
    playbooks = corpus.of("playbook_3d", domain=domain, vertical=vertical)
    about_vertical, about_domain = corpus.of("vertical", vertical=vertical), corpus.of("service_category", domain=domain)
    title = f"Overview: {prose.named(vertical)} and {prose.named(domain)}"

    def make(read: Read) -> str:
        texts = [read(one) for one in playbooks]
        parts = [f"# {title}", "## Summary", " ".join(dict.fromkeys(prose.summary(text, 2) for text in texts))]
        said = [pair for one in about_vertical for pair in prose.extract(read(one), corpus.called(domain))]
        said += [pair for one in about_domain for pair in prose.extract(read(one), corpus.called(vertical))]
        parts += _listed(said)
        return "\n\n".join(part for part in parts if part)

    base = f"domains/{domain}/verticals/{vertical}"
    yield Recipe(
        path=f"{base}/overview.md",
        title=title,
        type="overview",
        level=SUMMARY,
        sources=(*playbooks, *about_vertical, *about_domain),
        make=make,
        domain=domain,
        vertical=vertical,
        related=tuple(f"{base}/personas/{one.persona}.md" for one in playbooks),
        names=(*corpus.called(domain), *corpus.called(vertical)),
    )
    for playbook in playbooks:
        yield _brief(corpus, playbook)


def _brief(corpus: Corpus, playbook: Source) -> Recipe:
    """A persona in a vertical: who that is, and what the playbook leads with."""
    titles = corpus.of("title", persona=playbook.persona)
    where = ", ".join(prose.named(v) for v in (playbook.persona, playbook.vertical, playbook.domain) if v and v != GENERAL)

    def make(read: Read) -> str:
        text = read(playbook)
        parts = [f"# Persona brief: {where}", "## Summary", prose.summary(text)]
        for one in titles:
            parts += ["## Who they are", prose.summary(read(one))]
        for section in prose.sections(text):
            first = prose.paragraphs(section.text)[:1]
            if section.level > 1 and first and not re.match(r"(executive )?summary", section.heading, re.I):
                parts += [f"## {section.heading}", first[0]]
        return "\n\n".join(parts)

    return Recipe(
        path=f"domains/{playbook.domain}/verticals/{playbook.vertical}/personas/{playbook.persona}.md",
        title=f"Persona brief: {where}",
        type="persona_brief",
        level=DETAIL,
        sources=(playbook, *titles),
        make=make,
        domain=playbook.domain,
        vertical=playbook.vertical,
        persona=playbook.persona,
        related=(playbook.path, *(one.path for one in titles)),
    )


def _general(corpus: Corpus) -> Iterator[Recipe]:
    """What is about no one domain."""
    for source in corpus.of("vertical"):
        title = f"Overview: {prose.named(source.vertical)}"
        yield Recipe(
            path=f"domains/{GENERAL}/verticals/{source.vertical}/overview.md",
            title=title,
            type="overview",
            level=SUMMARY,
            sources=(source,),
            make=lambda read, source=source, title=title: _overview(title, [read(source)]),
            domain=GENERAL,
            vertical=source.vertical,
            related=(source.path,),
        )
    for playbook in corpus.of("playbook_2d"):
        yield _brief(corpus, playbook)


def _crossing(corpus: Corpus) -> Iterator[Recipe]:
    """Consolidated from everything there is, which is read once for all of them."""
    parts: dict[str, list[str]] = {}

    def make(read: Read, name: str) -> str:
        if not parts:
            parts.update({other: [f"# {title}"] for other, (title, _) in _COLLECTED.items()})
            for source in corpus.sources:
                _collect(source, read, parts)
        return "\n\n".join(parts[name]) if len(parts[name]) > 1 else ""

    for name, (title, _) in _COLLECTED.items():
        yield Recipe(f"{CROSS}/{name}.md", title, CROSS, DETAIL, tuple(corpus.sources), lambda read, name=name: make(read, name))


def _collect(source: Source, read: Read, parts: dict[str, list[str]]) -> None:
    """What a source says under headings of each kind, with where it stands."""
    every = [one for one in prose.sections(read(source)) if one.level > 1 and one.text]
    values = [v for v in (source.vertical, source.persona, source.domain, source.name) if v and v != GENERAL]
    about = ", ".join(map(prose.named, values)) or source.key
    for name, (_, pattern) in _COLLECTED.items():
        said = [f"### {one.heading}\n\n{one.text}" for one in every if pattern.search(one.heading)]
        parts[name] += [f"## {about}", *said, f"Source: {source.path}"] if said else []


def _overview(title: str, texts: list[str]) -> str:
    parts = [f"# {title}", "## Summary", *dict.fromkeys(prose.summary(text) for text in texts)]
    headings = list(dict.fromkeys(s.heading for text in texts for s in prose.sections(text) if s.level > 1 and s.text))
    if headings:
        parts.append("## What the report covers\n\n" + "\n".join(f"- {heading}" for heading in headings))
    return "\n\n".join(part for part in parts if part)


def _extracts(title: str, texts: list[str], names: tuple[str, ...]) -> str:
    found = [pair for text in texts for pair in prose.extract(text, names)]
    return "\n\n".join([f"# {title}", *_listed(found)]) if found else ""


def _listed(found: list[tuple[str, str]]) -> list[str]:
    parts: list[str] = []
    for heading, paragraph in dict.fromkeys(found):
        if heading and f"## {heading}" not in parts:
            parts.append(f"## {heading}")
        parts.append(paragraph)
    return parts
