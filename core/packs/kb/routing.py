"""Where a question belongs: domain, vertical, persona, depth, and whether it cuts across; and whether that is in doubt."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from packs.kb import prose
from packs.kb.records import DETAIL, FULL, GENERAL, SUMMARY, TIERS, Index

_FULL = re.compile(
    r"\b(everything|in full|full (analysis|research|report|playbook|text|version|detail)|deep[ -]dive|comprehensive(ly)?|"
    r"whole (report|playbook|text)|entire|complete (playbook|report|analysis|text)|all (you|we) (know|have))\b",
    re.I,
)
_DETAIL = re.compile(
    r"\b(more detail|in detail|details?|tell me more|more about|go deeper|elaborate|expand on|break (it|this|that) down|"
    r"walk me through|step by step|explain|specifics)\b",
    re.I,
)
_ACROSS = re.compile(
    r"\b(compare|comparison|compared|versus|vs\.?|across|difference between|differ|both|in common|overall|consolidated|"
    r"common to|(all|every|which) (verticals?|industr(y|ies)|domains?|personas?|segments?))\b",
    re.I,
)
_MORE = re.compile(
    r"^\W*(tell me more|more|more detail|go on|and|what else|continue|details|elaborate|why|how so|go deeper)\W*$", re.I
)


class Route(Struct, frozen=True):
    domains: tuple[str, ...] = ()
    verticals: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    tier: str = SUMMARY
    cross_cutting: bool = False
    words: tuple[str, ...] = ()  # what is looked for, besides the persona: what people call that stands in few texts
    rest: tuple[str, ...] = ()  # of these, what does not only name a domain or a vertical
    doubt: str = ""  # why a model might know better
    absent: tuple[str, ...] = ()  # what it names that there is nothing about
    follows: bool = False  # it goes on with what was asked before

    @property
    def where(self) -> dict[str, tuple[str, ...]]:
        given = {"domain": self.domains, "vertical": self.verticals, "persona": self.personas}
        return {name: values for name, values in given.items() if values}


class ConversationState(Struct, frozen=True):
    """Of a conversation: what it is about, how deep, and what was shown."""

    session_id: str = ""
    current_domain: str | None = None
    current_vertical: str | None = None
    current_persona: str | None = None
    current_tier: str = SUMMARY
    documents_referenced: tuple[str, ...] = ()
    turn_count: int = 0
    last_words: tuple[str, ...] = ()


class Router:
    """Knows what there is in a version, and what people call it."""

    def __init__(self, index: Index, aliases: dict[str, tuple[str, ...]]) -> None:
        def values(field: str) -> list[str]:
            return sorted({getattr(one, field) for one in index.documents} - {"", GENERAL})

        self.known = {"domain": values("domain"), "vertical": values("vertical"), "persona": values("persona")}
        self.patterns = {value: _pattern(_called(value, aliases)) for field in self.known.values() for value in field}
        self.elsewhere = {value: _pattern(_called(value, aliases)) for value in aliases if value not in self.patterns}

    def route(self, question: str, state: ConversationState | None = None) -> Route:
        spans = self._spans(question)
        found = {field: tuple(value for value in values if value in spans) for field, values in self.known.items()}
        absent = tuple(value for value in self.elsewhere if value in spans)
        across = bool(_ACROSS.search(question)) or any(len(values) > 1 for values in found.values())
        tier = FULL if _FULL.search(question) else DETAIL if _DETAIL.search(question) else SUMMARY
        rest = _words(_without(question, {value: spans[value] for value in spans if value in self.patterns}))
        words = _words(_without(question, {value: spans[value] for value in spans if value in self.known["persona"]}))
        route = Route(found["domain"], found["vertical"], found["persona"], tier, across, words, rest, absent=absent)
        if state and state.turn_count and (_MORE.match(question) or not (words or any(found.values()))):
            return _following(route, state)
        if state and state.turn_count and not any(found.values()) and not across and not absent:
            return _focused(route, state)
        if absent:
            names = ", ".join(map(prose.named, absent))
            return replace(route, doubt=f"it speaks of {names}, which the knowledge base does not have")
        doubt = "" if any(found.values()) or across else "it names no domain, vertical or persona"
        return replace(route, doubt=doubt)

    def _spans(self, question: str) -> dict[str, tuple[int, int]]:
        """Where each value is named. Of two at the same place the longer counts: a security leader is not the domain security."""
        every = self.patterns | self.elsewhere
        found = {value: match.span() for value, pattern in every.items() if (match := pattern.search(question))}
        return {
            value: (start, end)
            for value, (start, end) in found.items()
            if not any(s <= start and end <= e and e - s > end - start for s, e in found.values())
        }


def _without(question: str, spans: dict[str, tuple[int, int]]) -> str:
    for start, end in spans.values():
        question = question[:start] + " " * (end - start) + question[end:]
    return question


def _words(question: str) -> tuple[str, ...]:
    """What is left of a question when its depth and its comparing are taken out."""
    for pattern in (_FULL, _DETAIL, _ACROSS):
        question = pattern.sub(" ", question)
    return tuple(dict.fromkeys(prose.words(question)))


def _focused(route: Route, state: ConversationState) -> Route:
    """Another question about what was asked before: it stays in focus, and is answered in more detail."""
    kept = {"domains": state.current_domain, "verticals": state.current_vertical, "personas": state.current_persona}
    focus = {name: (value,) for name, value in kept.items() if value}
    tier = max(route.tier, DETAIL, key=TIERS.index) if focus else route.tier
    return replace(route, tier=tier, doubt="" if focus else "it names no domain, vertical or persona", **focus)


def _following(route: Route, state: ConversationState) -> Route:
    """It goes on with what was asked before, one step deeper."""
    now = TIERS.index(state.current_tier) if state.current_tier in TIERS else 0
    deeper = TIERS[min(now + 1, len(TIERS) - 1)]

    def kept(named: tuple[str, ...], before: str | None) -> tuple[str, ...]:
        return named or ((before,) if before else ())

    return replace(
        route,
        domains=kept(route.domains, state.current_domain),
        verticals=kept(route.verticals, state.current_vertical),
        personas=kept(route.personas, state.current_persona),
        tier=max(route.tier, deeper, key=TIERS.index),
        words=state.last_words,
        rest=(),
        follows=True,
    )


def _called(value: str, aliases: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return (value, value.replace("_", " "), prose.named(value), *aliases.get(value, ()))


def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """The longest first, at the bounds of words, in the plural, too."""
    listed = "|".join(re.escape(name) for name in sorted(set(names), key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?:s|'s)?(?![A-Za-z0-9])", re.I)
