"""Five dimensions: the formula against a second one written from the notes, unknown values, and what a person picks."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.contract import StrataError
from lib.disk import schemas
from packs.academic import records, scoring
from packs.academic.records import Assessed, Candidate, Scoring, Weights

NAMES = ("relevance", "recency", "citation_impact", "methodology")


def candidate(number: int, **more) -> Candidate:
    known = {"year": 2024, "doi": None, "abstract": None, "citations": 10, "pdf_url": None} | more
    return Candidate(f"C{number:04d}", f"Title {number}", ("A",), database="D", search_string="q", **known)


def said(number: int, relevance=0.8, methodology=0.6, confidence=0.9) -> Assessed:
    return Assessed(f"C{number:04d}", relevance, "it says so", methodology, "it says so", confidence)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1900, 2100), st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)
)
def test_the_total_is_what_the_notes_say(rows):
    found = [candidate(n, year=y, citations=c) for n, (y, c, _, _) in enumerate(rows, 1)]
    assessed = {f"C{n:04d}": said(n, r, m) for n, (_, _, r, m) in enumerate(rows, 1)}
    ranking = scoring.rank(found, assessed, Scoring(top=3), 2026)
    expected = {
        f"C{n:04d}": 0.4 * r + 0.2 * math.e ** (-max(0, 2026 - y) / 5) + 0.2 * min(1, max(0.1, math.log(c + 1, 1000))) + 0.2 * m
        for n, (y, c, r, m) in enumerate(rows, 1)
    }
    for one in ranking.ranked:
        assert one.total == pytest.approx(expected[one.id], abs=5e-4)
    assert [one.rank for one in ranking.ranked] == list(range(1, len(rows) + 1))
    assert [one.total for one in ranking.ranked] == sorted((one.total for one in ranking.ranked), reverse=True)
    assert [one.selected for one in ranking.ranked] == [n < 3 for n in range(len(rows))]
    document = json.loads(json.dumps(records.document(ranking)))
    assert schemas.describe(document, schemas.load("academic/ranked_candidates")) == []


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_number_is_a_half_and_a_warning(odd):
    (one,) = scoring.rank(
        [candidate(1, year=None, citations=None)], {"C0001": said(1, odd, odd, math.nan)}, Scoring(), 2026
    ).ranked
    assert one.defaulted == NAMES
    assert one.total == 0.5 and one.confidence is None
    assert "C0001" in scoring.rank([candidate(1)], {}, Scoring(), 2026).warnings[0]


def test_a_new_paper_without_citations_is_not_at_nothing():
    (one,) = scoring.rank([candidate(1, citations=0, year=2026)], {"C0001": said(1)}, Scoring(), 2026).ranked
    assert one.scores.citation_impact == 0.1
    assert one.category == "supporting"


def test_weights_that_do_not_add_up_are_refused():
    with pytest.raises(StrataError, match=r"add up to 1\.2"):
        scoring.require_weights(Scoring(Weights(0.6, 0.2, 0.2, 0.2)))


@pytest.mark.parametrize(
    ("answer", "ranks"),
    [
        ("top 3", {1, 2, 3}),
        ("top 99", set(range(1, 21))),
        ("1-15,17", {*range(1, 16), 17}),
        ("4", {4}),
        ("2, 5 - 7", {2, 5, 6, 7}),
    ],
)
def test_a_person_picks(answer, ranks):
    ranking = scoring.rank([candidate(n) for n in range(1, 21)], {}, Scoring(top=5), 2026)
    assert {one.rank for one in scoring.choose(ranking, answer).ranked if one.selected} == ranks
    assert scoring.choose(ranking, "yes") == ranking


@pytest.mark.parametrize("answer", ["top 0", "0", "21", "3-1", "1-21", "best", "1,,2", "-1"])
def test_a_pick_that_names_nothing_says_what_can_be_picked(answer):
    ranking = scoring.rank([candidate(n) for n in range(1, 21)], {}, Scoring(), 2026)
    with pytest.raises(StrataError) as refused:
        scoring.choose(ranking, answer)
    assert refused.value.code == "USAGE"
