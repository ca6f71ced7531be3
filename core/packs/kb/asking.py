"""Answering a question from a knowledge base: the best passages, at the depth that was asked for, each with its document.

Nothing is added that does not stand there. A question whose words the knowledge base does not have is told so.
"""

from __future__ import annotations

import math
from pathlib import Path

from lib.disk import records
from msgspec import Struct
from msgspec.structs import replace

from packs.kb import prose
from packs.kb.records import CROSS, DETAIL, FULL, INDEX, SUMMARY, Document, Index
from packs.kb.routing import ConversationState, Route, Router
from packs.kb.search import Passage, Searcher

LOOKED_AT = 60  # passages
SHOWN = 5
ENOUGH = 0.45  # of what is asked for, weighed by how rare each word is, must stand in what is answered with
MOST_OF_IT = 0.75  # the same where it names a domain, vertical or persona that there is nothing about
COMMON = 10  # passages that a word stands in which is neither rare nor common
# How much a document of a level is worth at a depth: overviews answer first, playbooks when everything is asked for.
_LEVELS = {
    SUMMARY: {SUMMARY: 1.2, DETAIL: 1.05, FULL: 1.0},
    DETAIL: {SUMMARY: 0.85, DETAIL: 1.2, FULL: 1.0},
    FULL: {SUMMARY: 0.7, DETAIL: 0.85, FULL: 1.3},
}
NOT_THERE = "This is not in the knowledge base."


class Hit(Struct, frozen=True):
    document: Document
    heading: str
    text: str
    score: float


class Answer(Struct, frozen=True):
    question: str
    route: Route
    found: bool
    text: str
    documents: tuple[str, ...]
    hits: tuple[Hit, ...] = ()
    coverage: float = 0.0
    version: int = 0


class Base:
    """A pinned version, opened."""

    def __init__(self, folder: Path, version: int, aliases: dict[str, tuple[str, ...]]) -> None:
        self.folder, self.version = folder, version
        self.index = records.read(folder / INDEX, Index)
        self.by_path = {one.path: one for one in self.index.documents}
        self.router = Router(self.index, aliases)
        self.searcher = Searcher(folder)
        self.total = self.searcher.total()

    def close(self) -> None:
        self.searcher.base.close()

    def read(self, path: str) -> str:
        return prose.body((self.folder / self.by_path[path].path).read_text(encoding="utf-8"))

    def route(self, question: str, state: ConversationState | None = None) -> Route:
        return self.router.route(question, state)

    # Finding

    def hits(self, route: Route, most: int = SHOWN) -> list[Hit]:
        """The best documents, each by its best passage: those about all that is named count more than others."""
        found: dict[str, Hit] = {}
        for where, worth in self._circles(route):
            for passage in self.searcher.find(self._words(route), where, LOOKED_AT):
                hit = self._hit(passage, route, worth)
                if hit.document.path not in found or hit.score > found[hit.document.path].score:
                    found[hit.document.path] = hit
        return sorted(found.values(), key=lambda hit: (-hit.score, hit.document.path))[:most]

    def _words(self, route: Route) -> list[str]:
        values = (*route.domains, *route.verticals, *route.personas)
        named = [word for value in values for word in prose.words(prose.named(value))]
        return list(dict.fromkeys([*route.words, *named]))

    def _circles(self, route: Route) -> list[tuple[dict[str, list[str]], float]]:
        """From what is about everything that is named to all there is."""
        where = {name: list(values) for name, values in route.where.items()}
        circles = [(where, 1.0)] if where else []
        if len(where) > 1:
            circles += [({name: values}, 0.8) for name, values in where.items()]
        return [*circles, ({}, 0.6 if where else 1.0)]

    def _hit(self, passage: Passage, route: Route, worth: float) -> Hit:
        document = self.by_path[passage.path]
        crossing = document.path.startswith(CROSS)
        factor = worth * _LEVELS[route.tier][document.detail_level]
        factor *= 1.3 if crossing and route.cross_cutting else 0.9 if crossing else 1.0
        return Hit(document, passage.heading, passage.text, round(passage.score * factor, 6))

    def coverage(self, route: Route, hits: list[Hit]) -> float:
        """How much of what is asked for stands in one of the documents that were found. A word that stands nowhere weighs most;
        each domain, vertical or persona that is named, and that there is something about, as much as a word that is neither rare
        nor common."""
        total = max(self.total, 1)
        named = len(route.where) * math.log(1 + total / COMMON)
        weights = {word: math.log(1 + total / (0.5 + self.searcher.count(word))) for word in route.rest}
        if not hits or not (weights or named):
            return 0.0
        best = max(sum(weights[word] for word in weights if self.searcher.stands(word, hit.document.path)) for hit in hits)
        return (best + named) / (sum(weights.values()) + named)

    # Answering

    def ask(self, question: str, state: ConversationState | None = None, route: Route | None = None) -> Answer:
        chosen = route or self.route(question, state)
        hits = self.hits(chosen)
        covered = round(self.coverage(chosen, hits), 3)
        enough = bool(hits) and (covered >= (MOST_OF_IT if chosen.absent else ENOUGH) or chosen.follows)
        if not enough:
            return Answer(question, chosen, False, NOT_THERE + _missing(chosen), (), (), covered, self.version)
        text = self._told(chosen, hits) + _missing(chosen)
        return Answer(question, chosen, True, text, tuple(hit.document.path for hit in hits), tuple(hits), covered, self.version)

    def _told(self, route: Route, hits: list[Hit]) -> str:
        """At its depth: a few sentences, the passages, or the whole of the best document."""
        if route.tier == FULL:
            return f"{self.read(hits[0].document.path).strip()}\n\n{_named(hits[:1])}"
        if route.tier == DETAIL:
            parts = [f"**{hit.heading or hit.document.title}**\n{hit.text}" for hit in hits[:3]]
            return "\n\n".join([*parts, _named(hits[:3])])
        best = hits[0]
        sentences = best_sentences(best.text, route.words) or best.document.summary
        return f"{sentences}\n\n{_named(hits[:3])}"


def _missing(route: Route) -> str:
    names = ", ".join(map(prose.named, route.absent))
    return f" It has nothing about {names}." if names else ""


def _named(hits: list[Hit]) -> str:
    return "\n".join(f"[{n}] {hit.document.path} ({hit.document.title})" for n, hit in enumerate(hits, 1))


def best_sentences(text: str, words: tuple[str, ...], most: int = 3) -> str:
    """The sentences of a passage that say most of what was asked for, in their order."""
    plain = " ".join(line.lstrip("-*# ").strip() for line in text.splitlines() if line.strip() and not line.startswith("|"))
    sentences = [s.strip() for s in prose.split_sentences(plain) if s.strip()]
    stems = {word[:5] for word in words}
    scored = [(sum(stem in sentence.lower() for stem in stems), -n, sentence) for n, sentence in enumerate(sentences)]
    chosen = sorted(scored, reverse=True)[:most]
    return " ".join(sentence for _, _, sentence in sorted(chosen, key=lambda entry: -entry[1]))


def after(state: ConversationState, answer: Answer) -> ConversationState:
    """The conversation, one turn further. What is named anew takes the place of what was; what is not named stays."""
    route = answer.route
    if not answer.found:
        return replace(state, turn_count=state.turn_count + 1)
    fresh = any(route.where.values()) and not route.follows
    return replace(
        state,
        current_domain=route.domains[0] if route.domains else (None if fresh else state.current_domain),
        current_vertical=route.verticals[0] if route.verticals else (None if fresh else state.current_vertical),
        current_persona=route.personas[0] if route.personas else (None if fresh else state.current_persona),
        current_tier=route.tier,
        documents_referenced=tuple(dict.fromkeys((*state.documents_referenced, *answer.documents))),
        turn_count=state.turn_count + 1,
        last_words=route.words,
    )
