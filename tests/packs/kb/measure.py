"""How well questions find their documents: the set of questions, and what each came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from packs.kb import prose
from packs.kb.asking import Base

QUESTIONS = Path(__file__).with_name("questions.yaml")


@dataclass
class Asked:
    question: str
    documents: list[str]  # any of these answers it; none: nothing does


def questions() -> list[Asked]:
    known = yaml.safe_load(QUESTIONS.read_text())
    found: list[Asked] = []
    for place, listed in known.items():
        for one in listed:
            if place == "across":
                found.append(Asked(one["question"], one["documents"]))
            else:
                found.append(Asked(one, [] if place == "not_there" else [place, *derived(place)]))
    return found


def derived(place: str) -> list[str]:
    """What is made of a document and says the same: a brief of a playbook, the part of the journey that speaks of a domain."""
    if place == "cross_cutting/reports/buyer_journey.md":
        return ["domains/security/buyer_journey.md", "domains/cloud/buyer_journey.md"]
    return [place.replace("/playbooks/", "/personas/")] if "/playbooks/" in place else []


@dataclass
class Measured:
    answerable: int
    hits: int  # with a document that answers among the first five
    firsts: int  # with such a document first
    answered: int  # that were answered at all
    refused: int  # of those nothing answers, told so
    unanswerable: int
    shown: int  # tokens of the answers
    whole: int  # tokens of everything there is
    misses: list[str]


def measure(base: Base) -> Measured:
    whole = sum(prose.tokens(base.read(one.path)) for one in base.index.documents)
    made = Measured(0, 0, 0, 0, 0, 0, 0, whole, [])
    for one in questions():
        answer = base.ask(one.question)
        if not one.documents:
            made.unanswerable += 1
            made.refused += not answer.found
            made.misses += [f"answered: {one.question} {answer.documents[:1]}"] if answer.found else []
            continue
        ranked = [hit.document.path for hit in base.hits(answer.route, 5)]
        made.answerable += 1
        made.hits += any(path in one.documents for path in ranked)
        made.firsts += bool(ranked) and ranked[0] in one.documents
        made.answered += answer.found
        made.shown += prose.tokens(answer.text)
        if not any(path in one.documents for path in ranked):
            made.misses.append(f"missed: {one.question} {ranked[:2]}")
        elif not answer.found:
            made.misses.append(f"refused: {one.question} {answer.coverage}")
    return made
