"""Search strings: each dialect has a parser; what it accepts, refuses and translates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packs.academic import syntax
from packs.academic.syntax import DIALECTS


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_accepts_its_example(name):
    assert syntax.problem(DIALECTS[name].example, name) == ""


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("(wiki", "not closed"), ("wiki)", "no opening"), ("AND wiki", "begins with AND"), ("wiki OR", "ends with"), ("a AND OR b", "AND and then OR"),
        ('"wiki', "not closed"), ("()", "nothing in them"), ("wiki and decay", "write AND"), ("", "empty"), ("*wiki", "wildcard"), ("ti:wiki", "no field"),
    ],
)  # fmt: skip
def test_what_is_broken_is_said(query, why):
    assert why in syntax.problem(query, "generic")


@pytest.mark.parametrize(
    ("dialect", "query", "why"),
    [
        ("arxiv", "all:a NOT all:b", "ANDNOT"), ("arxiv", "all:wik*", "no wildcards"), ("scopus", "TITLE-ABS-KEY(a NOT b)", "AND NOT"),
        ("ieee", '"Foo":x', "no field"), ("pubmed", "x[Foo]", "no field"), ("acm", "TS=x", "no fields"), ("wos", "TITLE(x)", ""),
        ("crossref", "a AND b", "word like any other"), ("crossref", '"a b"', "only words"), ("semantic_scholar", "a AND b", "write +"),
        ("openalex", "wik*", "no wildcards"),
    ],
)  # fmt: skip
def test_a_query_of_another_database_is_refused(dialect, query, why):
    found = syntax.problem(query, dialect)
    assert (why in found) if why else found == ""


TERMS = st.sampled_from(["wiki", "decay", "maint*", '"knowledge base"', "owner", "co-op"])
QUERIES = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR", "NOT"]), inner).map(" ".join),
        inner.map(lambda q: f"({q})"),
        st.tuples(inner, inner).map(" ".join),
    ),
    max_leaves=8,
)


def terms(node, wanted=True):
    """The oracle: which terms are asked for, and which are excluded."""
    if node.kind in ("word", "phrase"):
        return {(node.text.replace("*", ""), wanted)}
    inner = wanted if node.kind != "not" else not wanted
    return set().union(*(terms(part, inner) for part in node.parts))


@settings(max_examples=300, deadline=None)
@given(QUERIES, st.sampled_from(sorted(DIALECTS)))
def test_a_generic_query_becomes_one_that_the_database_parses_and_asks_for_the_same(query, dialect):
    translated = syntax.translate(query, dialect)
    before = terms(syntax.parse(query, "generic"))
    if dialect == "crossref":
        assert set(translated.split()) <= {w for text, wanted in before for w in text.split() if wanted}
    else:
        assert syntax.problem(translated, dialect) == ""
        assert terms(syntax.parse(translated, dialect)) == before


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if DIALECTS[name].operators])
def test_or_with_not_is_refused_and_never_turned_round(dialect):
    with pytest.raises(syntax.Broken, match="OR with NOT"):
        syntax.translate("cooling OR NOT heating", dialect)
    with pytest.raises(syntax.Broken):
        syntax.translate("(a OR (NOT b)) AND c", dialect)


@pytest.mark.parametrize(
    ("dialect", "query"),
    [
        ("ieee", '"Publication Year":2020 AND "IEEE Terms":trees'), ("pubmed", "trees[mesh] AND 2020[pdat] AND x[Text Word]"),
        ("wos", "TS = (trees) AND la=English"), ("arxiv", "id:2501.00001 OR all:trees"), ("crossref", "does e=mc2 cool trees"),
    ],
)  # fmt: skip
def test_what_a_database_reads_is_accepted(dialect, query):
    assert syntax.problem(query, dialect) == ""


@pytest.mark.parametrize(
    ("dialect", "query"),
    [("arxiv", "ti:ti:x"), ("arxiv", "ti: x"), ("generic", "NOT NOT a"), ("generic", "a NOT NOT b"), ("generic", "“a AND b"), ("generic", "a && b"),
     ("generic", "(" * 3000 + "a" + ")" * 3000)],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_no_database_reads_is_refused(dialect, query):
    assert syntax.problem(query, dialect)
