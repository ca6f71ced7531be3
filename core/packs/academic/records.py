"""What the phases hand over, as records: a candidate, and how it was scored."""

from __future__ import annotations

from typing import Any

from lib.contract import Json
from lib.disk import records
from msgspec import Struct

DIMENSIONS = ("relevance", "recency", "citation_impact", "methodology", "accessibility")


class Candidate(Struct, frozen=True):
    id: str
    title: str
    authors: tuple[str, ...]
    year: int | None
    doi: str | None
    abstract: str | None
    database: str
    search_string: str
    citations: int | None
    pdf_url: str | None
    url: str | None = None
    venue: str | None = None
    kind: str | None = None
    open_access: bool | None = None
    retracted: bool | None = None
    also_in: tuple[str, ...] = ()
    volume: str | None = None
    issue: str | None = None
    pages: str | None = None


class Weights(Struct, frozen=True):
    relevance: float = 0.4
    recency: float = 0.2
    citation_impact: float = 0.2
    methodology: float = 0.2


class Scoring(Struct, frozen=True):
    weights: Weights = Weights()
    recency_years: float = 5.0
    citations_full: int = 1000
    floor: float = 0.1
    top: int = 18
    batch: int = 10


class Assessed(Struct, frozen=True):
    """What the agent says of a candidate."""

    id: str
    relevance: float | None
    relevance_reason: str
    methodology: float | None
    methodology_reason: str
    confidence: float


class Scores(Struct, frozen=True):
    relevance: float
    recency: float
    citation_impact: float
    methodology: float
    accessibility: float


class Reasons(Struct, frozen=True):
    relevance: str | None
    methodology: str | None


class Ranked(Struct, frozen=True):
    rank: int
    id: str
    doi: str | None
    title: str
    scores: Scores
    total: float
    category: str
    selected: bool
    reasons: Reasons
    confidence: float | None
    defaulted: tuple[str, ...]


class Ranking(Struct, frozen=True):
    ranked: tuple[Ranked, ...]
    formula: str
    weights: Weights
    year: int
    warnings: tuple[str, ...]


def candidates(document: Json) -> list[Candidate]:
    return [records.of(one, Candidate) for one in document["candidates"]]


def document(record: Any) -> Any:
    return records.document(record)
