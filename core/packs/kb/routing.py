"""Where a question belongs: domain, vertical, persona, depth, and whether it cuts across; and whether that is in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

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
    words: tuple[str, ...] = ()  # what is looked for, besides
    doubt: str = ""  # why a model might know better
    absent: tuple[str, ...] = ()  # what it names that there is nothing about
    follows: bool = False  # it goes on with what was asked before

    @property
    def where(self) -> dict[str, tuple[str, ...]]:
        given = {"domain": self.domains, "vertical": self.verticals, "persona": self.personas}
        return {name: values for name, values in given.items() if values}


class State(Struct, frozen=True):
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

    def route(self, question: str, state: State | None = None) -> Route:
        found = {field: self._named(question, values) for field, values in self.known.items()}
        absent = tuple(value for value, pattern in self.elsewhere.items() if pattern.search(question))
        many = any(len(values) > 1 for values in found.values())
        across = bool(_ACROSS.search(question)) or many
        tier = FULL if _FULL.search(question) else DETAIL if _DETAIL.search(question) else SUMMARY
        words = self._words(question)
        follows = bool(state and state.turn_count and (_MORE.match(question) or not (words or any(found.values()))))
        if follows and state:
            deeper = TIERS[min(TIERS.index(state.current_tier) + 1, len(TIERS) - 1)]
            kept = {"domain": state.current_domain, "vertical": state.current_vertical, "persona": state.current_persona}
            before = {field: (value,) if value else () for field, value in kept.items()}
            found = {field: values or before[field] for field, values in found.items()}
            return Route(
                found["domain"],
                found["vertical"],
                found["persona"],
                max(tier, deeper, key=TIERS.index),
                across,
                state.last_words,
                follows=True,
            )
        doubt = ""
        if absent:
            doubt = f"it speaks of {', '.join(map(prose.named, absent))}, which the knowledge base does not have"
        elif not any(found.values()) and not across:
            doubt = "it names no domain, vertical or persona"
        return Route(found["domain"], found["vertical"], found["persona"], tier, across, tuple(words), doubt, absent)

    def _named(self, question: str, values: Iterable[str]) -> tuple[str, ...]:
        return tuple(value for value in values if self.patterns[value].search(question))

    def _words(self, question: str) -> list[str]:
        """What is left of a question when its depth and its comparing are taken out."""
        for pattern in (_FULL, _DETAIL, _ACROSS):
            question = pattern.sub(" ", question)
        return list(dict.fromkeys(prose.words(question)))


def _called(value: str, aliases: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return (value, value.replace("_", " "), prose.named(value), *aliases.get(value, ()))


def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """The longest first, at the bounds of words, in the plural, too."""
    listed = "|".join(re.escape(name) for name in sorted(set(names), key=len, reverse=True))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?:s|'s)?(?![A-Za-z0-9])", re.I)
