"""PDFs of several producers: what is refused, what is read, and 200 lies about what stands in them."""

import random
import shutil
from pathlib import Path

import pikepdf
import pytest
from lib.contract import StrataError
from packs.academic import pdfs, quoting
from packs.academic.quoting import Paper
from scripted_model.academic_producers import LINES, PROGRAMS, reportlab


def crafted(path: Path, how) -> Path:
    with pikepdf.open(reportlab(path.with_suffix(".plain.pdf"), [LINES])) as pdf:
        how(pdf)
        pdf.save(path)
    return path


def javascript(pdf):
    pdf.Root.OpenAction = pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS="app.alert(1)")


def launch(pdf):
    action = pikepdf.Dictionary(S=pikepdf.Name.Launch, F="/bin/sh")
    link = pikepdf.Dictionary(Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.Link, Rect=[0, 0, 9, 9], A=action)
    pdf.pages[0].Annots = pdf.make_indirect(pikepdf.Array([link]))


def embedded(pdf):
    pdf.attachments["tool.exe"] = pikepdf.AttachedFileSpec(pdf, b"MZ", filename="tool.exe")


def nobody_leads_to_it(pdf):
    pdf.pages[0].PieceInfo = pdf.make_indirect(
        pikepdf.Dictionary(X=pikepdf.Dictionary(Y=pikepdf.Array([pikepdf.Dictionary(JS="x")])))
    )


@pytest.mark.parametrize(
    ("how", "says"),
    [(javascript, "JavaScript"), (launch, "launch"), (embedded, "embedded file"), (nobody_leads_to_it, "JavaScript")],
)
def test_what_would_act_is_refused(how, says, tmp_path):
    with pytest.raises(StrataError, match=says) as refused:
        pdfs.look(crafted(tmp_path / "a.pdf", how))
    assert refused.value.code == "UNSAFE_PDF"


def test_what_cannot_be_read_is_refused_each_with_its_reason(tmp_path):
    good = reportlab(tmp_path / "good.pdf", [LINES])
    assert pdfs.look(good).pages == 1
    page = tmp_path / "page.pdf"
    page.write_text("<!DOCTYPE html><html>Buy this article</html>")
    noise = tmp_path / "noise.pdf"
    noise.write_bytes(random.Random(1).randbytes(3000))
    cut = tmp_path / "cut.pdf"
    cut.write_bytes(good.read_bytes()[: len(good.read_bytes()) // 2])
    locked = tmp_path / "locked.pdf"
    with pikepdf.open(good) as pdf:
        pdf.save(locked, encryption=pikepdf.Encryption(owner="o", user="u"))
    half = tmp_path / "half.pdf"  # opens without a password, and may not be copied from
    with pikepdf.open(good) as pdf:
        pdf.save(half, encryption=pikepdf.Encryption(owner="o", user=""))
    found = {}
    for path in (page, noise, cut, locked, half):
        with pytest.raises(StrataError) as refused:
            pdfs.look(path)
        found[path.stem] = refused.value.code
    expected = {
        "page": "NOT_A_PDF",
        "noise": "NOT_A_PDF",
        "cut": "CORRUPT_PDF",
        "locked": "ENCRYPTED_PDF",
        "half": "ENCRYPTED_PDF",
    }
    assert found == expected
    with pytest.raises(StrataError) as refused:
        pdfs.look(good, most_bytes=100)
    assert refused.value.code == "TOO_LARGE"


@pytest.mark.parametrize("producer", [p if p != "soffice" else pytest.param(p, marks=pytest.mark.long) for p in PROGRAMS])
def test_every_sentence_is_found_in_the_file_of_a_producer_and_no_changed_one(producer, tmp_path):
    if not shutil.which(producer):
        pytest.skip(f"no {producer} here")
    path = PROGRAMS[producer](tmp_path / "paper.pdf")
    assert pdfs.look(path).pages >= 1
    paper = Paper("C0001", pdfs.text(path).pages)
    assert not any(sign in page for page in paper.pages for sign in pdfs.LIGATURES)
    for line in LINES:
        assert any(not quoting.wrong(line, page, paper, "C0001") for page in range(1, len(paper.pages) + 1)), (line, paper.pages)
        changed = line.replace(" a ", " the ", 1).replace(" page", " folder", 1)
        assert all(quoting.wrong(changed, page, paper, "C0001") for page in range(1, len(paper.pages) + 1))


def test_a_scanned_file_is_read_with_ocr_where_there_is_one_and_said_to_be_scanned_where_not(tmp_path, monkeypatch):
    from PIL import Image

    plain = reportlab(tmp_path / "plain.pdf", [LINES])
    scan = tmp_path / "scan.pdf"
    drawn = tmp_path / "page.png"
    drawn.write_bytes(pdfs.picture(plain, 0))
    Image.open(drawn).convert("RGB").save(scan)
    assert pdfs.look(scan).pages == 1
    assert pdfs.text(scan, ocr=False).scanned
    if shutil.which("tesseract"):
        read = pdfs.text(scan)
        assert read.ocr and quoting.wrong(LINES[1], 1, Paper("C0001", read.pages), "C0001") == ""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert pdfs.text(scan) == pdfs.Text(("",), scanned=True)


def liars(papers: dict[str, Paper], seed: int):
    """Lies about papers, each with what it is; and now and then the truth."""
    random_ = random.Random(seed)
    ids = sorted(papers)
    while True:
        source = random_.choice(ids)
        paper = papers[source]
        page = random_.randrange(len(paper.pages)) + 1
        line = random_.choice([one for one in paper.pages[page - 1].splitlines() if len(one.split()) > 6])
        words = line.split()
        other = random_.choice([i for i in ids if i != source])
        at = random_.randrange(1, len(words) - 1)
        yield "true", source, page, line
        yield "one word changed", source, page, " ".join([*words[:at], "nevertheless", *words[at + 1 :]])
        yield "one word left out", source, page, " ".join([*words[:at], *words[at + 1 :]])
        yield "two words changed places", source, page, " ".join([*words[: at - 1], words[at], words[at - 1], *words[at + 1 :]])
        yield "a quote of another paper", other, page, line
        yield "another page", source, page % len(paper.pages) + 1, line
        yield "a page that is not there", source, len(paper.pages) + random_.randrange(1, 9), line
        yield "page nought", source, 0, line
        yield "a sentence nobody wrote", source, page, f"Wikis of {random_.randrange(99)} teams were found to fail within a year."
        yield "too long", source, page, " ".join(words * 8)


def test_two_thousand_lies_and_none_reaches_the_quotes(tmp_path, capsys):
    papers: dict[str, Paper] = {}
    for number in range(3):
        pages = [
            [f"{line[:-1]}, as team {number} saw in its week {page * 10 + n}." for n, line in enumerate(LINES)]
            for page in range(4)
        ]
        path = reportlab(tmp_path / f"{number}.pdf", pages)
        papers[f"C000{number}"] = Paper(f"C000{number}", pdfs.text(path).pages)
    told = lied = reached = kept_true = 0
    for what, source, page, text in liars(papers, seed=7):
        told += 1
        kept, rejected = quoting.sort_out([{"quote": text, "page": page}], papers.get(source), source)
        assert len(kept) + len(rejected) == 1
        if what == "true":
            kept_true += len(kept)
            assert kept, (text, rejected)
        else:
            lied += 1
            reached += len(kept)
            assert not kept, (what, source, page, text)
        if told == 2200:
            break
    with capsys.disabled():
        print(f"\ninvented items that reached the outputs: {reached} of {lied} (and {kept_true} true ones were kept)")
    assert reached == 0 and kept_true == told - lied


def test_a_rejected_quote_comes_with_the_passage_that_was_probably_meant(tmp_path):
    paper = Paper("C0001", pdfs.text(reportlab(tmp_path / "a.pdf", [LINES[:2], LINES[2:]])).pages)
    changed = LINES[3].replace("nobody", "everybody")
    _, (rejected,) = quoting.sort_out([{"quote": changed, "page": 2}], paper, "C0001")
    assert rejected.nearest == LINES[3]
    assert rejected.nearest_page == 2
    _, (moved,) = quoting.sort_out([{"quote": LINES[3], "page": 1}], paper, "C0001")
    assert "but on page 2" in moved.reason


def test_an_annotation_says_no_number_name_or_doi_that_the_paper_does_not_have():
    paper = Paper("C0001", (" ".join(LINES),), "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    assert quoting.invented("In 2021 Example followed a company wiki (10.5555/strata.1).", paper) == []
    lied = quoting.invented("Later work by Miller over 17 years, such as 10.1000/fake.9, agrees.", paper)
    assert lied == ["10.1000/fake.9", "17", "Miller"]


@pytest.mark.parametrize(
    "said",
    [
        "Miller et al. saw the same.",
        "Miller (2021) followed a wiki.",
        "Miller and Jones agree. They followed pages.",
        "It was a company wiki. Miller found mistakes in it.",
        "Miller's pages were wrong after months.",
        "Reviews kept pages correct (Miller, 2021).",
        "Anna Miller wrote it.",
    ],
)
def test_an_author_nobody_knows_is_found_out_wherever_a_sentence_names_one(said):
    paper = Paper("C0001", (" ".join(LINES),), "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    assert "Miller" in quoting.invented(said, paper)
    assert quoting.invented(said.replace("Miller", "Example").replace("Jones", "Ada").replace("Anna", "Ada"), paper) == []


def test_an_honest_annotation_is_not_thrown_away():
    paper = Paper("C0001", (" ".join(LINES),), "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    honest = (
        "Authors report on a wiki. However, it says nothing of costs. Although small, it is useful; Reviews kept pages correct."
    )
    assert quoting.invented(honest, paper) == []
