"""The rules of research, against small models: contracts, gaps, tracks, addresses, numbers, and gates at their boundaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.contract import StrataError
from lib.disk import records
from packs.deep_research import citing, claims, contract, corpus, gating, sources
from packs.deep_research.citing import Citation
from packs.deep_research.contract import WAVE_1, WAVE_2, Contract, Gap, Used
from packs.deep_research.serving import Served

GOOD = "# Findings\nIt holds.\n\n# Sources\n- [One](https://example.org/1)\n\n# Gaps\n- (P3) colour of the box #look\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (GOOD, []),
        (GOOD.replace("# Gaps", "# Other"), ["MISSING_SECTION"]),
        (GOOD.replace("It holds.", ""), ["MISSING_SECTION"]),
        (f"```\n{GOOD}```\n", ["MISSING_SECTION"] * 3),
        (GOOD + "word " * 900, ["TOO_MANY_WORDS"]),
        (GOOD.replace("https://example.org/1", "a book"), ["MALFORMED_SOURCES"]),
        (GOOD.replace("- [One]", "[One]"), ["MALFORMED_SOURCES"]),
        (
            GOOD.replace("- [One](https://example.org/1)", "\n".join(f"{n}. https://e.org/{n}" for n in range(1, 14))),
            ["TOO_MANY_SOURCES"],
        ),
        ("nothing " * 901, ["MISSING_SECTION"] * 3 + ["TOO_MANY_WORDS"]),
    ],
)
def test_an_output_is_validated_in_the_order_of_the_contract(text: str, codes: list[str]) -> None:
    assert [one.code for one in contract.complaints(text, WAVE_1)] == codes


@pytest.mark.parametrize(("words", "ok"), [(899, True), (900, True), (901, False)])
def test_the_bound_of_words_is_exact(words: int, ok: bool) -> None:
    text = GOOD + "word " * (words - len(GOOD.split()))
    assert (contract.complaints(text, WAVE_1) == []) == ok
    assert contract.complaints(text, WAVE_2)[0].code == "TOO_MANY_WORDS"


@pytest.mark.parametrize(("used", "ok"), [(Used(4, 6), True), (Used(5, 6), False), (Used(4, 7), False)])
def test_calls_of_tools_are_bounded(used: Used, ok: bool) -> None:
    assert (contract.complaints(GOOD, WAVE_1, used) == []) == ok


def test_a_prompt_carries_its_contract() -> None:
    text = Contract(words=123).markdown()
    assert f"## {contract.HEADING}" in text and "123 words" in text and "Findings, Sources, Gaps" in text


def test_gaps_are_read_as_they_are_written() -> None:
    lines = ["# Gaps", "- (P0) nobody measured it #speed #x", "- (P9) no such", "- P1 without brackets", "* (P2) costs", ""]
    text = "\n".join([*lines, "# Sources", "- (P0) elsewhere"])
    assert contract.gaps(text, "p1") == [Gap(0, "nobody measured it", ("speed", "x"), "p1"), Gap(2, "costs", (), "p1")]


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 6))
def test_the_pivot_follows_its_three_rules(priorities: list[int], most: int) -> None:
    found = contract.pivot([Gap(p, f"gap {n}") for n, p in enumerate(priorities)], most)
    p0, p1, p2 = (priorities.count(n) for n in range(3))
    assert found.wave2_required == (p0 >= 1 or p1 >= 2 or (len(priorities) >= 4 and p1 + p2 >= 3))
    if found.wave2_required:
        grave = [p for p in priorities if p <= 1]
        assert len(found.targets) == min(most, len(grave) or 3)
        assert all(g.priority <= 1 for g in found.targets) or not grave


@given(st.integers(0, 60))
def test_tracks_are_divided_by_largest_remainder(count: int) -> None:
    found = contract.tracks(count)
    assert sum(found.values()) == count and list(found) == ["standard", "independent", "contrarian"]
    for name, share in contract.TRACKS.items():
        assert abs(found[name] - count * share / 100) < 1
    assert (contract.tracks(6), contract.tracks(1)) == (
        {"standard": 3, "independent": 2, "contrarian": 1},
        {"standard": 1, "independent": 0, "contrarian": 0},
    )


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTPS://Example.ORG:443/a/?b=2&a=1&utm_source=x#top", "https://example.org/a?a=1&b=2"),
        ("http://example.org:80", "http://example.org/"),
        ("http://example.org/", "http://example.org/"),
        ("http://example.org:8080/?gclid=1&FBCLID=2", "http://example.org:8080/"),
        ("http://[2001:DB8::1]/x", "http://[2001:db8::1]/x"),
        ("https://example.org/?q=", "https://example.org/?q="),
    ],
)
def test_an_address_has_one_form(url: str, normal: str) -> None:
    assert citing.normal(url) == normal and citing.normal(normal) == normal
    assert citing.cid(url) == citing.cid(normal) and citing.cid(url).startswith("cid_")


def test_one_trailing_slash_is_taken_away_and_no_more() -> None:
    assert citing.normal("http://example.org/a//") == "http://example.org/a/"


@pytest.mark.parametrize("url", ["ftp://example.org/", "example.org", "https://", "", "javascript:alert(1)"])
def test_what_is_no_http_address_has_none(url: str) -> None:
    with pytest.raises(ValueError, match="no http address"):
        citing.normal(url)


def test_addresses_are_found_in_prose() -> None:
    text = "See (https://a.org/x), [b](https://b.org/y_(z)) and **https://c.org/**; again https://a.org/x."
    assert citing.extract(text) == ["https://a.org/x", "https://b.org/y_(z)", "https://c.org/"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, "valid"), (204, "valid"), (299, "valid"), (300, "blocked"), (401, "paywalled"), (402, "paywalled"), (403, "paywalled"),
     (404, "invalid"), (410, "invalid"), (429, "blocked"), (451, "paywalled"), (500, "blocked"), (0, "blocked")],
)  # fmt: skip
def test_what_an_answer_means(status: int, kind: str) -> None:
    assert citing.kind(status) == kind


C = "cid_" + "a" * 64


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("It grew by 12 %.", 1),
        (f"It grew by 12 % [@{C}].", 0),
        ("1. First\n2. Second\n", 0),
        ("1. It took 5 days\n", 1),
        ("```\nx = 5\n```\n", 0),
        ("## In 2024\n\nNothing.", 1),
        ("Nothing here.\n\nIn 2024 it ended.", 1),
        (f"In 2024 it ended.\nAnd so on [@{C}].", 0),
        ("See https://example.org/2024/5.", 0),
        ("IPv6 and utf-8 and H2O are names.", 0),
        ("- one of 3\n- and 1,200.5 more\n", 2),
    ],
)
def test_numbers_without_a_citation_are_counted_per_paragraph(text: str, bare: int) -> None:
    assert len(citing.look(text).numeric) == bare


def whole(body: str = "", sections: tuple[str, ...] = citing.SECTIONS) -> str:
    return "\n\n".join(f"## {name}\n\nWords." for name in sections) + f"\n\n{body}\n"


def ids(count: int) -> list[str]:
    return [f"cid_{n:064x}" for n in range(count)]


@pytest.mark.parametrize(
    ("text", "usable", "passed", "warnings"),
    [
        (whole(f"It [@{ids(1)[0]}]."), ids(1), True, 0),
        (whole(), ids(1), False, 1),
        (whole("5 of them."), [], False, 1),
        (whole(f"It [@{ids(2)[1]}]."), ids(1), False, 1),
        (whole(sections=citing.SECTIONS[:3]), [], False, 1),
        (whole(" ".join(f"[@{c}]" for c in ids(6))), ids(10), True, 0),
        (whole(" ".join(f"[@{c}]" for c in ids(5))), ids(10), True, 1),
        (whole(" ".join(f"[@{c}]" for c in [*ids(4), ids(1)[0]])), ids(4), True, 0),
        (whole(" ".join(f"[@{c}]" for c in [*ids(3), ids(1)[0]])), ids(3), True, 1),
    ],
)
def test_gate_e_at_its_boundaries(text: str, usable: list[str], passed: bool, warnings: int) -> None:
    found = gating.synthesis(text, usable)
    assert (found.passed, len(found.warnings)) == (passed, warnings), found.reasons + found.warnings
    assert not gating.synthesis(text, usable, ["12 %"]).passed, "a number that stands in no passage"


def cited(**counts: int) -> list[Citation]:
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [Citation(f"cid_{n:064x}", f"https://e.org/{n}", kind) for n, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("counts", "passed"),
    [
        ({}, False),
        ({"valid": 9, "invalid": 1}, True),
        ({"valid": 89, "paywalled": 1, "blocked": 10}, True),
        ({"valid": 89, "blocked": 11}, False),
        ({"valid": 10, "mismatch": 1}, True),
        ({"valid": 9, "mismatch": 1, "paywalled": 0}, True),
        ({"valid": 8, "mismatch": 1}, False),
        ({"valid": 99, "odd": 1}, False),
        ({"paywalled": 1}, True),
    ],
)
def test_gate_c_at_its_boundaries(counts: dict[str, int], passed: bool) -> None:
    assert gating.citations(cited(**counts)).passed == passed


@pytest.mark.parametrize(
    ("sizes", "expected", "passed"),
    [
        ({f"p{n}": 100 for n in range(9)}, 10, True),
        ({f"p{n}": 100 for n in range(8)}, 9, False),
        ({"p": 5 * 1024}, 1, True),
        ({"p": 5 * 1024 + 1}, 1, False),
        ({f"p{n}": 5 * 1024 for n in range(12)}, 12, True),
        ({**{f"p{n}": 5 * 1024 for n in range(12)}, "q": 1}, 13, False),
        ({}, 0, False),
    ],
)
def test_gate_d_at_its_boundaries(sizes: dict[str, int], expected: int, passed: bool) -> None:
    assert gating.summaries(sizes, expected, 5, 60).passed == passed


def planned(**changes: object) -> gating.Planned:
    prompts = {name: WAVE_1.markdown() for name in ("p1", "p2")}
    known = {"run_id": "r", "perspectives": ("p1", "p2"), "prompts": prompts, "plan_run_id": "r", "perspectives_run_id": "r"}
    return gating.Planned(**(known | changes))  # type: ignore[arg-type]


def test_gate_a_wants_a_whole_plan_of_this_run() -> None:
    assert gating.planning(planned(), 2).passed
    for wrong in (
        planned(plan_run_id="other"), planned(perspectives_run_id="other"), planned(perspectives=()),
        planned(prompts={"p1": "x"}), planned(prompts={"p1": "no contract", "p2": WAVE_1.markdown()}),
        planned(perspectives=("p1", "p1")),
    ):  # fmt: skip
        found = gating.planning(wrong, 2)
        assert not found.passed and found.decision == "fail", "there is no retry for a plan"
    assert not gating.planning(planned(), 1).passed


def test_gate_b_names_who_is_missing_and_who_broke_the_contract() -> None:
    assert gating.wave({"p1": [], "p2": []}, ["p1", "p2"], {}).passed
    found = gating.wave({"p1": [contract.Complaint("TOO_MANY_WORDS", "x")]}, ["p1", "p2"], {})
    assert not found.passed and "p2" in found.reasons[0] and "p1: TOO_MANY_WORDS" in found.reasons[1]
    assert not gating.wave({}, [], {}).passed


@pytest.mark.parametrize(
    ("sensitivity", "served", "passed"),
    [
        ("normal", Served(), True),
        ("normal", Served(web=False), False),
        ("normal", Served(web=False, corpus="docs"), True),
        ("restricted", Served(), False),
        ("restricted", Served(service=True), False),
        ("restricted", Served(listed=True), False),
        ("restricted", Served(service=True, listed=True), True),
        ("restricted", Served(web=False, service=True, listed=True), False),
        ("restricted", Served(corpus="docs"), True),
        ("no_web", Served(), False),
        ("no_web", Served(service=True, listed=True), False),
        ("no_web", Served(corpus="docs"), True),
        ("secret", Served(corpus="docs"), False),
    ],
)
def test_gate_f_is_decided_before_anything_is_spent(sensitivity: str, served: Served, passed: bool) -> None:
    """no_web is served by a folder alone; restricted also by a search service, where the hosts that may be asked are listed."""
    assert gating.rollout(sensitivity, served).passed == passed


CID = "cid_" + "a" * 64


def report(findings: str, extra: str = "") -> str:
    parts = {"Summary": "So.", "Key Findings": findings, "Evidence": "Pages.", "Caveats": "Few."}
    return extra + "\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n"


@pytest.mark.parametrize(
    "findings",
    [
        "- Nothing is cited here.",
        f"- It holds [@{CID}] [@cid_abc1234].",
        f"- It holds [@{CID}; @{CID}].",
        f"- It holds [@{CID}] [@CID_{'A' * 64}].",
        "- It holds [1].\n- So it is said [@somebody].",
    ],
)
def test_what_only_looks_like_a_citation_does_not_pass(findings: str) -> None:
    assert not gating.synthesis(report(findings), [CID]).passed
    assert gating.synthesis(report(f"- It holds [@{CID}]."), [CID]).passed


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It grew 10-97 per cent", ["10", "97"]),
        ("a share of .97 is large", [".97"]),
        ("In 2019, 45 % of firms", ["2019", "45 %"]),
        ("12 000 and 1,000,000 and 3.5", ["12 000", "1,000,000", "3.5"]),
        ("H2O, utf-8 and COVID-19 are names", []),
        ("a minus: -5 degrees", ["-5"]),
    ],
)
def test_every_number_is_seen_and_seen_as_it_is_meant(text: str, numbers: list[str]) -> None:
    assert citing.numbers(text) == numbers


@pytest.mark.parametrize("line", ["#1 of 9999 is 88%", "### Won by 97%", "```\n97 % of them\n"])
def test_numbers_do_not_hide_in_headings_or_behind_a_fence_that_nobody_closed(line: str) -> None:
    assert not gating.synthesis(report(f"- It holds [@{CID}].\n\n{line}"), [CID]).passed


def test_a_number_that_stands_in_its_passage_is_found_there_whatever_stands_beside_it() -> None:
    looked = [claims.Looked("a-1", "a", "t", CID, "In 2019, 45 % of firms had one", True)]
    assert claims.unsupported(f"45 % of firms had one in 2019 [@{CID}].", looked) == []
    assert claims.unsupported(f"46 % of firms had one in 2019 [@{CID}].", looked) == ["46 %"]


def test_titles_with_odd_line_ends_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "citations").mkdir()
    one = citing.Citation(CID, "http://a.example/", "valid", title="a\u2028b\u0085c")
    (tmp_path / sources.CITATIONS).write_text(json.dumps(records.document(one), ensure_ascii=False) + "\n", encoding="utf-8")
    assert sources.read_citations(tmp_path) == [one]


def test_a_folder_gives_its_documents_and_nothing_else(tmp_path: Path) -> None:
    """Not what a link leads to, not what is hidden, not what lies beside it: an agent may cite any address."""
    folder = tmp_path / "papers"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("secret")
    (folder / "deep/a.md").write_text("# A\n\nwords of a document\n")
    (folder / ".env.md").write_text("hidden words")
    (folder / "key.pem").write_text("words of a key")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "linked").symlink_to(tmp_path)
    made = corpus.Corpus(folder, tmp_path / "index.sqlite")
    assert made.names() == ["deep/a.md"] and made.build() == 1
    assert [hit.url for hit in made.search("words", 9)] == ["http://corpus.invalid/deep/a.md"]
    assert made.get("http://corpus.invalid/deep/a.md").title == "A"
    for name in (".env.md", "key.pem", "link.md", "linked/secret.md", "../secret.md", "%2e%2e/secret.md", "deep"):
        with pytest.raises(StrataError):
            made.get(f"http://corpus.invalid/{name}")
