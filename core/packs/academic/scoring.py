"""Phase 3: five dimensions, four of them added up by weight. Python computes what it can; an agent judges the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from lib.contract import StrataError, usage
from msgspec.structs import asdict, replace

from packs.academic.records import DIMENSIONS, Assessed, Candidate, Ranked, Ranking, Reasons, Scores, Scoring

UNKNOWN = 0.5  # of a dimension that nobody can score
CORE, SUPPORTING = 0.7, 0.45
AGREED = ("yes", "y", "ok")
CHOICES = ("yes", "no", "adjust: NOTE", "top N", "1-15,17")


def rank(found: Iterable[Candidate], assessed: dict[str, Assessed], rules: Scoring, year: int) -> Ranking:
    """Best first; of equals the one that was found first. The first `top` are selected."""
    listed = list(found)
    scored = [_score(one, assessed.get(one.id), rules, year) for one in listed]
    order = sorted(range(len(scored)), key=lambda i: (-scored[i].total, listed[i].id))
    ranked = tuple(replace(scored[i], rank=n, selected=n <= rules.top) for n, i in enumerate(order, 1))
    odd = [f"{r.id}: nobody could score {', '.join(r.defaulted)}; {UNKNOWN} stands instead" for r in ranked if r.defaulted]
    return Ranking(ranked, formula(rules), rules.weights, year, tuple(odd))


def formula(rules: Scoring) -> str:
    added = " + ".join(f"{value:g}·{name}" for name, value in asdict(rules.weights).items())
    return (
        f"total = {added}; recency = e^(-age/{rules.recency_years:g}); "
        f"citation_impact = max({rules.floor:g}, ln(citations+1)/ln({rules.citations_full})), to 1; accessibility is not added"
    )


def require_weights(rules: Scoring) -> None:
    total = sum(asdict(rules.weights).values())
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise StrataError(
            "BAD_WEIGHTS", f"the weights of scoring add up to {total:g}, and not to 1", "correct run_config.json", final=True
        )


def recency(year: int | None, this_year: int, rules: Scoring) -> float | None:
    return None if year is None else math.exp(-max(0, this_year - year) / rules.recency_years)


def citation_impact(citations: int | None, rules: Scoring) -> float | None:
    if citations is None:
        return None
    return min(1.0, max(rules.floor, math.log(citations + 1) / math.log(rules.citations_full)))


def accessibility(one: Candidate) -> float:
    """1 where an open copy is named, 0.7 where it is said to be open, 0.3 where a page is known, else 0."""
    if one.pdf_url:
        return 1.0
    return 0.7 if one.open_access else 0.3 if one.doi or one.url else 0.0


def _score(one: Candidate, said: Assessed | None, rules: Scoring, year: int) -> Ranked:
    raw: dict[str, float | None] = {
        "relevance": said.relevance if said else None,
        "recency": recency(one.year, year, rules),
        "citation_impact": citation_impact(one.citations, rules),
        "methodology": said.methodology if said else None,
        "accessibility": accessibility(one),
    }
    defaulted = tuple(name for name in DIMENSIONS if (value := raw[name]) is None or not math.isfinite(value))
    known = {name: round(UNKNOWN if name in defaulted else min(1.0, max(0.0, raw[name] or 0.0)), 4) for name in DIMENSIONS}
    total = round(sum(weight * known[name] for name, weight in asdict(rules.weights).items()), 4)
    category = "core" if total >= CORE else "supporting" if total >= SUPPORTING else "background"
    reasons = Reasons(said.relevance_reason, said.methodology_reason) if said else Reasons(None, None)
    confidence = said.confidence if said and math.isfinite(said.confidence) else None
    return Ranked(
        0, one.id, one.doi, one.title, Scores(**known), min(1.0, total), category, False, reasons, confidence, defaulted
    )


def choose(ranking: Ranking, answer: str) -> Ranking:
    """What a person picked: `yes` takes what the file says, `top N` the best, `1-15,17` these ranks."""
    word = answer.strip().lower()
    if word in AGREED:
        return ranking
    wanted = picked(word, len(ranking.ranked))
    return replace(ranking, ranked=tuple(replace(one, selected=one.rank in wanted) for one in ranking.ranked))


def picked(word: str, count: int) -> set[int]:
    """The ranks that an answer names; a usage error where it names none, or one that is not there."""
    if top := re.fullmatch(r"top\s*(\d+)", word):
        ranks = set(range(1, min(int(top[1]), count) + 1))
    elif re.fullmatch(r"\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*", word):
        ranks = set[int]()
        for piece in word.split(","):
            first, _, last = piece.partition("-")
            low, high = int(first), int(last or first)
            if low > high or high > count or low < 1:
                usage(f"{piece.strip()}: the ranks go from 1 to {count}", "such as top 12, or 1-15,17")
            ranks |= set(range(low, high + 1))
    else:
        usage(f"{word!r} is no choice", f"one of {', '.join(CHOICES)}")
    if not ranks:
        usage(f"{word!r} picks nothing", "such as top 12, or 1-15,17")
    return ranks
