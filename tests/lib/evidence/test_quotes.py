"""A quote is found where its very words stand, however the letters were set, and nowhere else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.evidence.quotes import BREAK, find, normalise, rejoined

words = st.lists(st.text(alphabet="abcdefghilmnorstuéßñ", min_size=1, max_size=9), min_size=3, max_size=30)
SETTINGS = settings(deadline=None, max_examples=300)


def mangle(word: str, how: int) -> str:
    """The same word as a printer or a PDF might set it."""
    if len(word) < 3:
        return word
    cut = 1 + how % (len(word) - 1)
    kinds = [
        word,
        f"{word[:cut]}\u00ad{word[cut:]}",
        f"{word[:cut]}-\n{word[cut:]}",
        f"{word[:cut]}\u0002\r\n{word[cut:]}",
        f"{word[:cut]}\ufffe\n  {word[cut:]}",
        f"{word[:cut]}\u200b{word[cut:]}",
        unicodedata.normalize("NFD", word),
        word.replace("fi", "\ufb01"),
    ]
    return kinds[how % len(kinds)]


@SETTINGS
@given(words, st.lists(st.integers(0, 999), min_size=30, max_size=30), st.data())
def test_what_stands_in_a_text_is_found_however_it_was_set(text: list[str], ways: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    spaces = [" ", "\n", "  ", "\u00a0", "\t\n"]
    source = "".join(mangle(w, h) + spaces[h % 5] for w, h in zip(text, ways, strict=False))
    quote = " ".join(text[start:end])
    found = find(quote, source)
    assert found, (quote, source)
    for one in found:
        assert normalise(source[one.offset : one.end]).text.replace(BREAK, "") == normalise(quote).text
        assert one.text == source[one.offset : one.end]


@SETTINGS
@given(words, st.integers(0, 99), st.sampled_from("xyz"))
def test_what_differs_in_one_letter_is_not_found(text: list[str], place: int, letter: str) -> None:
    source = " ".join(text)
    at = place % len(source)
    quote = source[:at] + letter + source[at + 1 :]
    assert find(quote, source) == []


def test_the_page_and_the_surrounding_words_are_said() -> None:
    pages = ["It begins here, and\nends on this page.", "Nothing of in-\nterest.", "It begins again, and ends on this page."]
    (one,) = find("and ends on this page. Nothing of interest", pages)
    assert (one.page, one.offset) == (1, pages[0].index("and"))
    assert one.before == "It begins here,"
    both = find("ends on this page", pages)
    assert [f.page for f in both] == [1, 3]
    assert both[1].before.endswith("It begins again, and") and both[1].after == "."


@pytest.mark.parametrize(
    ("quote", "source", "count"),
    [
        ("well-known", "a well-\nknown case", 1),  # the hyphen may be the word's own …
        ("wellknown", "a well-\nknown case", 1),  # … or only the line's
        ("art", "a party", 0),
        ("art", "the art of", 1),
        ("office", "the o\ufb03ce is", 1),
        ("the same", "The same", 0),
        ("", "anything", 0),
        ("   ", "any thing", 0),
        ("a a", "a a a", 2),
        ("x² + 1", "x2 + 1", 0),  # another number, whatever NFKC makes of it
        ("105 patients", "about 10⁵ patients", 0),
        ("grew by 51 percent", "grew by 5¹ percent", 0),
        ("21⁄2 cups", "2½ cups", 0),
        ("1020 mg", "a dose of 10-\n20 mg", 0),
        ("202021", "in 2020-\n21 season", 0),
        ("5 3 = 2", "5 -\n3 = 2", 0),
        ("5% of users", "only 0.5% of users", 0),
        ("000 users", "15,000 users", 0),
        ("5 degrees", "fell to -5 degrees", 0),
        ("5 degrees", "at 5 degrees", 1),
        ("15", "15.", 1),
        ("state-of-the-art example", "a state-\nof-the-art exam-\nple here", 1),
        ("한국 사람", unicodedata.normalize("NFD", "이 한국 사람 은"), 1),
        (unicodedata.normalize("NFC", "কো"), unicodedata.normalize("NFD", "কো"), 1),
        ("hello world", "hello\u200e world", 1),
        ("cafe", "cafe\u0301", 0),
        ("10 000", "10\u202f000", 1),
    ],
)
def test_what_counts_as_the_same(quote: str, source: str, count: int) -> None:
    assert len(find(quote, source)) == count


def test_text_for_reading_has_its_words_in_one_piece() -> None:
    assert rejoined("exam\u0002\nple of soft\u00adness and a well-\nknown") == "example of softness and a well-\nknown"


CUT = [  # what is quoted, and what stands there: the rest of the word or of the number would have said something else
    ("significant effect of the trees", "a non-significant effect of the trees"),
    ("20 residents said that they", "about 10–20 residents said that they"),
    ("the number of residents was 10", "the number of residents was 10–20"),
    ("5 of the residents slept", "about 1/5 of the residents slept"),
    ("the share of trees is 1", "the share of trees is 1/5"),
    ("the effect size was 0", "the effect size was 0·5 kelvin"),
    ("5 kelvin was the effect size", "was .5 kelvin was the effect size"),
    ("5 kelvin was the effect size", "it was ±5 kelvin was the effect size"),
    ("5 kelvin was the effect size", "it was − 5 kelvin was the effect size"),
    ("5 kelvin was the effect", "was -\n5 kelvin was the effect"),
    ("5 kelvin was the effect", "was \u00ad5 kelvin was the effect"),
    ("there were in total 1", "there were in total 1 234 567 people"),
    ("000 people were seen there", "about 10 000 people were seen there"),
    ("the share was p = 1", "the share was p = 1×10⁻⁵"),
    ("cooler by 0.4", "cooler by 0.4^3 kelvin"),
    ("in the end it was 64", "in the end it was 64% of them"),
    ("the effect of trees isn", "the effect of trees isn't real"),
    ("it was measured at 5", "it was measured at 5:30 in the morning"),
    ("p and q are true here", "¬p and q are true here"),
    ("slept in COVID19 wards", "slept in COVID\ufffe19 wards"),
    ("The the-\nrapist said", "The therapist said"),
    ("The the\ue000rapist said", "The the rapist said"),
]


@pytest.mark.parametrize(("quote", "text"), CUT)
def test_what_was_cut_out_of_a_word_a_compound_or_a_number_does_not_stand_there(quote: str, text: str) -> None:
    assert find(quote, text) == []


def test_the_last_number_of_a_page_and_the_first_of_the_next_are_two() -> None:
    assert find("it cost 1 5 dollars", ["it cost 1", "5 dollars"]) == []
    assert find("it cost much 5 dollars", ["it cost much", "5 dollars"])


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("slept in COVID-19 wards", "slept in COVID-\n19 wards"),
        ("slept in COVID-19 wards", "slept in COVID\ufffe19 wards"),
        ("between 10-20 people", "between 10-\n20 people"),
        ("a well-known effect", "a well\ufffeknown effect"),
        ("a variation of it", "a varia\ufffetion of it"),
        ('the "effect" isn\'t', "the “effect” isn’t"),
        ("In 2020 we saw", "In 2020 we saw 300 people"),
        ("300 people came to us", "In 2020 people said 300 people came to us"),
        ("31 percent of the bill", "A heading\n- 31 percent of the bill belongs to nobody"),
        ("trees are good", "Some say—trees are good—and mean it"),
    ],
)
def test_what_a_reader_takes_for_the_same_is_found(quote: str, text: str) -> None:
    assert find(quote, text)
