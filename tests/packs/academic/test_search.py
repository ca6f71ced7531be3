"""Phase 2: the four services through their own clients, against a library on loopback; and what they found as one list."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.contract import StrataError
from lib.web.door import Door
from lib.web.rules import Rules
from msgspec.structs import replace
from packs.academic import merging, services
from packs.academic.records import Candidate
from packs.academic.services import Asked
from packs.academic.settings import Service
from scripted_model.academic_library import Library, slow, times

WHERE = {"openalex": "/openalex", "crossref": "/crossref", "semantic_scholar": "/s2", "arxiv": "/arxiv/api/query"}
ASKED = Asked("street trees night", mail="a@example.org")


@pytest.fixture
def library() -> Iterator[Library]:
    with Library() as made:
        yield made


def door(tmp_path: Path, library: Library, driver: str = "live", **bounds: Any) -> Door:
    session = tmp_path / ("session" if driver == "live" else "again")
    attempt = session / "trial/stages/01-one/attempt-1"
    (attempt / "out").mkdir(parents=True, exist_ok=True)
    options = Namespace(fixtures=str(tmp_path / "session"))
    call: Any = SimpleNamespace(driver=driver, options=options, session=SimpleNamespace(folder=session), report=lambda *_: None)
    given = {"private": (f"127.0.0.1:{library.port}",), "robots": False, "delay_seconds": 0.0} | bounds
    return Door(call, attempt / "out", Rules(**given))


def ask(
    tmp_path: Path, library: Library, name: str, asked: Asked = ASKED, driver: str = "live", **bounds: Any
) -> services.Answer:
    service = Service(library.url + WHERE[name], "LIBRARY_KEY")
    return services.search(door(tmp_path, library, driver, **bounds), name, service, asked)


@pytest.mark.parametrize("name", WHERE)
def test_a_service_answers_through_its_client_and_again_offline(tmp_path: Path, library: Library, name: str) -> None:
    live = ask(tmp_path, library, name)
    known = {r["doi"]: r for r in library.records}
    assert live.records
    for record in live.records:
        candidate = merging.candidate(record, name, "q")
        assert candidate, record
        true = known[candidate.doi or ""]
        assert (candidate.title, candidate.year, list(candidate.authors)) == (true["title"], true["year"], true["authors"])
        assert candidate.abstract == true["abstract"]  # also from an inverted index, and from JATS
    assert live.hits in (None, len(library.records), len(live.records))
    seen = len(library.seen)
    again = ask(tmp_path, library, name, driver="replay")
    assert (again, len(library.seen)) == (live, seen)


def test_what_is_withdrawn_is_said_by_those_who_know(tmp_path: Path, library: Library) -> None:
    for name in ("openalex", "crossref"):
        found = {r["title"]: r["retracted"] for r in ask(tmp_path, library, name, Asked("five kelvin")).records}
        assert found["Street Trees Cool Nights by Five Kelvin"] is True
        assert found.get("Street Trees and Night-Time Air Temperature in Three Dense Districts") in (False, None)


def test_a_key_and_an_address_go_to_who_wants_them_and_into_no_evidence(
    tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_KEY", "sesame-0123456789")
    ask(tmp_path, library, "openalex")
    assert library.headers[-1]["authorization"] == "Bearer sesame-0123456789" and "mailto=a%40example.org" in library.seen[-1]
    ask(tmp_path, library, "semantic_scholar")
    assert library.headers[-1]["x-api-key"] == "sesame-0123456789"
    ask(tmp_path, library, "arxiv")
    assert "sesame" not in library.seen[-1]
    kept = "".join(p.read_text(errors="replace") for p in (tmp_path / "session").rglob("*.json"))
    assert "sesame" not in kept and "street" in kept


@pytest.mark.parametrize(("status", "final"), [(403, True), (404, True), (429, False), (500, False), (503, False)], ids=str)
def test_a_service_that_says_no_is_told_with_its_reason(tmp_path: Path, library: Library, status: int, final: bool) -> None:
    for name, path in WHERE.items():
        library.trouble[path] = times(9, (status, {}, b"{}"))
        before = len(library.seen)
        with pytest.raises(StrataError) as caught:
            ask(tmp_path, library, name)
        assert (caught.value.code, bool(caught.value.detail.get("final"))) == (f"HTTP_{status}", final), name
        assert len(library.seen) == before + 1, f"{name} was asked again by its client"  # the stage alone tries again


def test_retry_after_is_obeyed_and_a_service_that_sleeps_is_left(tmp_path: Path, library: Library) -> None:
    library.trouble["/crossref"] = times(1, (429, {"Retry-After": "1"}, b""))
    assert ask(tmp_path, library, "crossref").records
    assert library.asked("/crossref") == 2
    library.trouble["/openalex"] = slow(3)
    with pytest.raises(StrataError, match=r"127\.0\.0\.1") as caught:
        ask(tmp_path, library, "openalex", timeout_seconds=0.5)
    assert not caught.value.detail.get("final")


def test_an_answer_that_is_none_is_said_to_be_none(tmp_path: Path, library: Library) -> None:
    for name, path in WHERE.items():
        library.trouble[path] = lambda: (200, {"Content-Type": "application/json"}, b"<html>maintenance</html>")
        if name == "arxiv":
            continue  # its client takes a page without entries for an empty feed
        with pytest.raises(StrataError) as caught:
            ask(tmp_path, library, name)
        assert caught.value.code == "UNREADABLE", name


# One list of what several have found


def made(title: str, doi: str | None = None, database: str = "a", **more: Any) -> Candidate:
    record = {"title": title, "authors": ["A. B"], "year": 2020, "doi": doi} | more
    found = merging.candidate(record, database, "q")
    assert found
    return found


def test_one_doi_is_one_paper_and_what_the_first_does_not_say_the_second_may() -> None:
    first = made("Trees at night", "https://doi.org/10.5555/AB", abstract=None)
    second = made("Trees at night (preprint)", "10.5555/ab", "b", abstract="It cools.", retracted=True)
    merged = merging.merge([], [first, second])
    assert (merged.new, merged.duplicates) == (1, 1)
    (one,) = merged.candidates
    assert (one.id, one.title, one.abstract, one.also_in, one.retracted) == ("C0001", "Trees at night", "It cools.", ("b",), True)


def test_one_title_is_one_paper_unless_two_dois_disagree() -> None:
    assert merging.merge([], [made("Trees, at Night!"), made("trees at night", "10.5555/a", "b")]).new == 1
    both = merging.merge([], [made("Editorial", "10.5555/a"), made("Editorial", "10.5555/b")])
    assert both.new == 2
    assert merging.near(both.candidates) == [{"ids": ["C0001", "C0002"], "similarity": 100.0}]


def test_titles_that_are_nearly_the_same_are_proposed_and_not_merged() -> None:
    found = merging.merge(
        [], [made("Street trees and night air in dense districts"), made("Street trees and night air in dense district")]
    )
    assert found.new == 2
    assert [pair["ids"] for pair in merging.near(found.candidates)] == [["C0001", "C0002"]]
    assert merging.near(merging.merge([], [made("Street trees"), made("Green roofs at noon")]).candidates) == []


def test_what_a_service_says_that_cannot_be_is_unknown() -> None:
    odd = merging.candidate(
        {"title": " <b>A</b>  title ", "year": "soon", "citations": -3, "doi": "none", "pdf_url": "javascript:1"}, "a", "q"
    )
    assert odd == replace(made("A title"), authors=(), year=None)
    assert merging.candidate({"title": None}, "a", "q") is None
    assert merging.candidate({"title": "<script>x</script>"}, "a", "q") is None


papers = st.builds(
    made,
    st.sampled_from(["Trees", "Roofs", "Walls", "trees!", "Lawns"]),
    st.sampled_from([None, None, "10.5555/a", "10.5555/A", "10.5555/b", "10.5555/c"]),
    st.sampled_from(["a", "b"]),
)


@given(st.lists(papers, max_size=12), st.integers(0, 12))
def test_nothing_is_lost_nothing_counted_twice_and_numbers_stay(found: list[Candidate], cut: int) -> None:
    whole = merging.merge([], found)
    first = merging.merge([], found[:cut])
    then = merging.merge(first.candidates, found[cut:])
    assert then.candidates == whole.candidates  # in rounds or at once
    assert whole.new + whole.duplicates == len(found) and whole.new == len(whole.candidates)
    assert [one.id for one in whole.candidates] == [f"C{n:04d}" for n in range(1, whole.new + 1)]
    assert {one.doi for one in found} - {None} <= {one.doi for one in whole.candidates}
    assert {merging.folded(one.title) for one in found} == {merging.folded(one.title) for one in whole.candidates} | {
        merging.folded(one.title) for one in found if one.doi
    }
    dois = [one.doi for one in whole.candidates if one.doi]
    assert len(dois) == len(set(dois))
    assert merging.merge(whole.candidates, found).new == 0  # a second time brings nothing


def test_candidates_pass_the_gate(tmp_path: Path, library: Library) -> None:
    from packs.academic import gate

    found = [merging.candidate(r, "OpenAlex", "q") for r in ask(tmp_path, library, "openalex").records]
    merged = merging.merge([], [one for one in found if one])
    document = json.loads(json.dumps([__import__("lib.disk.records", fromlist=["x"]).document(c) for c in merged.candidates]))
    whole = {
        "candidates": document,
        "iterations": 1,
        "databases_searched": ["OpenAlex"],
        "skipped": [],
        "total_results": len(found),
    }
    whole |= {"duplicates_removed": 0, "near_duplicates": merging.near(merged.candidates), "queries": []}
    assert gate.passed(whole, "candidates").problems == ()
