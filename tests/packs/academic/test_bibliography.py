"""Phase 6: a bibliography that comes back as it was written, styles, and a flow whose numbers add up."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import bibtexparser
import pytest
from bibtexparser.middlewares import SeparateCoAuthors
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.contract import StrataError
from packs.academic import bibliography, prisma, sanitising
from packs.academic.prisma import Flow
from packs.academic.records import Candidate


def paper(number: int = 1, title: str = "Street trees", authors: tuple[str, ...] = ("Ada Example",), **more: Any) -> Candidate:
    facts: dict[str, Any] = {
        "year": 2024,
        "doi": f"10.5555/strata.{number}",
        "venue": "Journal of Invented Climate",
        "kind": "article",
    } | more
    return Candidate(
        id=f"C{number:04d}",
        title=title,
        authors=authors,
        abstract=None,
        database="OpenAlex",
        search_string="q",
        citations=1,
        pdf_url=None,
        **facts,
    )


def read_back(papers: list[Candidate]) -> list[dict[str, str]]:
    parsed = bibtexparser.parse_string(bibliography.bibtex(bibliography.entries(papers)), append_middleware=[SeparateCoAuthors()])
    assert not parsed.failed_blocks
    return [{field.key: field.value for field in entry.fields} | {"key": entry.key} for entry in parsed.entries]


ODD = st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=60).map(
    lambda text: " ".join(sanitising.clean(text).text.split())
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ODD.filter(bool), min_size=1, max_size=4), ODD, ODD)
def test_whatever_a_title_a_venue_or_a_name_is_made_of_a_parser_reads_it_back(titles: list[str], venue: str, family: str) -> None:
    papers = [paper(n, title, (f"Ana {family}".strip(),), venue=venue or None) for n, title in enumerate(titles)]
    back = read_back(papers)  # which raises where a title differs
    assert len({one["key"] for one in back}) == len(papers)


@pytest.mark.parametrize(
    "author",
    [
        "Food and Agriculture Organization of the United Nations",
        "World Health Organization",
        "Institute of Trees and Nights",
        "The ATLAS Collaboration",
    ],
)
def test_an_institution_is_one_author(author: str) -> None:
    (one,) = read_back([paper(authors=(author, "Ada Example"))])
    assert [a.strip("{}") for a in one["author"]] == [author, "Example, Ada"]
    for style in bibliography.STYLES:
        (said,) = bibliography.csl(bibliography.entries([paper(authors=(author,))]), style)
        assert author in said, said


@pytest.mark.parametrize(
    ("written", "family"),
    [
        ("Ana de la Cruz", "de la Cruz"),
        ("de la Cruz, Ana", "de la Cruz"),
        ("Plato", "Plato"),
        ("Jørgen Ødegård", "Ødegård"),
        ("Jan van den Berg", "van den Berg"),
    ],
)
def test_a_name_is_taken_apart_as_people_do(written: str, family: str) -> None:
    assert bibliography.name(written).family == family


@pytest.mark.parametrize("style", bibliography.STYLES)
def test_a_style_has_title_year_and_doi_of_every_source(style: str) -> None:
    listed = bibliography.entries(
        [paper(1), paper(2, "Nights & streets: 100 % of <them>", ("Inês Brandão-Weiß", "Olu Adeyemi"), year=2023)]
    )
    said = bibliography.csl(listed, style)
    assert len(said) == 2 and all("2024" in one or "2023" in one for one in said) and all("10.5555/strata" in one for one in said)
    assert any("Brandão" in one for one in said)
    assert not any("ahead of print" in one for one in said), "nobody has said so"
    (printed,) = bibliography.csl(bibliography.entries([paper(volume="12", issue="3", pages="201–219")]), style)
    assert "12" in printed and "201–" in printed
    with pytest.raises(StrataError, match="no CSL style"):
        bibliography.csl(listed, "no-such-style")


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("article", "article"),
        ("review", "article"),
        ("dissertation", "phdthesis"),
        ("report", "techreport"),
        ("preprint", "misc"),
        (None, "article"),
    ],
)
def test_a_kind_of_work_is_an_entry_of_its_type(kind: str | None, type_: str) -> None:
    (entry,) = bibliography.entries([paper(kind=kind)])
    assert entry.type == type_


def test_more_duplicates_than_records_are_no_flow() -> None:
    with pytest.raises(StrataError, match="duplicates are 5 of 2"):
        Flow((("a", 2),), 5, -6, 3, 0, 3, (), 3, (), 3, 3).require()


counts = st.integers(0, 50)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), counts), max_size=3), counts, counts, counts, counts, counts, counts)
def test_a_flow_that_adds_up_is_drawn_and_no_other(
    found: list[tuple[str, int]], duplicates: int, other: int, chosen: int, gone: int, excluded: int, off: int
) -> None:
    identified = sum(n for _, n in found)
    screened = identified - duplicates - other
    sought = min(chosen, max(screened, 0))
    assessed, included = sought - gone, sought - gone - excluded
    flow = Flow(
        tuple(found),
        duplicates,
        other,
        screened,
        screened - sought,
        sought,
        (("refused", gone),),
        assessed,
        (("nothing", excluded),),
        included,
        included,
    )
    sound = duplicates <= identified and screened >= 0 and assessed >= 0 and included >= 0
    if sound:
        drawn = ElementTree.fromstring(prisma.svg(flow))
        said = " ".join("".join(text.itertext()) for text in drawn.iter() if text.tag.endswith("text"))
        assert f"Records screened (n = {screened})" in said and f"Reports sought (n = {sought})" in said
        assert prisma.table(flow).count("|") > 10
    else:
        with pytest.raises(StrataError, match="add up"):
            flow.require()
    if off and sound:
        with pytest.raises(StrataError, match="add up"):
            Flow(
                tuple(found),
                duplicates,
                other,
                screened + off,
                screened - sought,
                sought,
                (("refused", gone),),
                assessed,
                (("nothing", excluded),),
                included,
                0,
            ).require()
