"""PDFs of several producers: what is refused, what is read, and 200 lies about what stands in them."""

import random
import shutil
from pathlib import Path

import pikepdf
import pytest
from lib.contract import StrataError
from packs.academic import annotating, pdfs, quoting
from packs.academic.quoting import Paper
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas
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
    if not shutil.which(producer) or (producer == "groff" and not shutil.which("gropdf")):
        pytest.skip(f"no {producer} here that makes PDFs")
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


@pytest.mark.long
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
    assert annotating.invented("In 2021 Example followed a company wiki (10.5555/strata.1).", paper) == []
    lied = annotating.invented("Later work by Miller over 17 years, such as 10.1000/fake.9, agrees.", paper)
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
    assert "Miller" in annotating.invented(said, paper)
    assert annotating.invented(said.replace("Miller", "Example").replace("Jones", "Ada").replace("Anna", "Ada"), paper) == []


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("The work of Ros supports this.", "Ros"),
        ("\nMiller shows this.", "Miller"),
        ("- Chen says so.", "Chen"),
        ("Oslo was cooler.", "Oslo"),
        ("It is said that NASA funded it.", "NASA"),
        ("Unlike what Østergaard and Çelik showed, it was cool.", "Østergaard"),
        ("It was (see Žižek) cool.", "Žižek"),
        ("miller et al. found the same.", "miller"),
        ("See 10.5555/strata for it.", "10.5555/strata"),
        ("See https://evil.example/x for it.", "https://evil.example/x"),
        ("Ninety percent agreed.", "ninety"),
        ("It was so in 14% of them.", "14 per cent"),
        ("It took seventeen weeks.", "seventeen"),
    ],
)
def test_what_an_annotation_invented_once_and_got_away_with(said, what):
    pages = (" ".join(LINES) + " It took 14 weeks with Rosen and Rosenberg.",)
    paper = Paper("C0001", pages, "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    assert what in annotating.invented(said, paper)


@pytest.mark.parametrize(
    "said",
    [
        "In Section 3 the paper reports it, see Fig. 2.",
        "It follows pages over 4 years.",
        "In contrast, However, it is so.",
        "A study of wikis in English.",
        "Studies show that pages were wrong, in the EU too.",
        "Two teams shared a page.",
    ],
)
def test_what_an_honest_annotation_may_say(said):
    paper = Paper("C0001", (" ".join(LINES),), "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    assert annotating.invented(said, paper) == []


def test_a_power_and_the_mark_of_a_note_are_no_part_of_the_number(tmp_path):
    path = tmp_path / "raised.pdf"
    drawn = canvas.Canvas(str(path), pagesize=A4)
    for height, before, raised, after in (
        (700, "Nights were cooler by 0.4", "3", " kelvin on the average."),
        (650, "The town had a total of 10", "5", " people in it."),
    ):
        text = drawn.beginText(60, height)
        text.setFont("Helvetica", 11)
        text.textOut(before)
        text.setRise(5)
        text.setFont("Helvetica", 7)
        text.textOut(raised)
        text.setRise(0)
        text.setFont("Helvetica", 11)
        text.textOut(after)
        drawn.drawText(text)
    drawn.save()
    paper = Paper("C0001", pdfs.text(path).pages)
    assert quoting.wrong("Nights were cooler by 0.43 kelvin on the average.", 1, paper, "C0001")
    assert quoting.wrong("The town had a total of 105 people in it.", 1, paper, "C0001")
    assert not quoting.wrong("Nights were cooler by 0.4^3 kelvin on the average.", 1, paper, "C0001")
    assert pdfs.marks(path, 0, "a total of 10^5 people in it")


SAID = "Trees cool the night by five kelvin everywhere."


def hidden(path, how):
    drawn = canvas.Canvas(str(path), pagesize=A4)
    drawn.drawString(60, 780, "An ordinary page of a paper that says nothing of the kind at all.")
    place, size = (60, 700), 11.0
    if how == "white":
        drawn.setFillColorRGB(1, 1, 1)
    elif how == "off the page":
        place = (60, -300)
    elif how == "tiny":
        size = 0.01
    elif how == "clipped away":
        clip = drawn.beginPath()
        clip.rect(400, 100, 10, 10)
        drawn.clipPath(clip, stroke=0)
    text = drawn.beginText(*place)
    text.setFont("Helvetica", size)
    text.setTextRenderMode(3 if how == "invisible" else 0)
    text.textOut(SAID)
    drawn.drawText(text)
    if how == "covered":
        drawn.setFillColorRGB(1, 1, 1)
        drawn.rect(0, 650, 600, 100, stroke=0, fill=1)
    drawn.save()
    return path


@pytest.mark.parametrize("how", ["white", "off the page", "tiny", "clipped away", "invisible", "covered"])
def test_what_nobody_sees_on_a_page_is_no_quote(how, tmp_path):
    assert not pdfs.is_seen(hidden(tmp_path / "a.pdf", how), 0, SAID)
    assert pdfs.is_seen(hidden(tmp_path / "b.pdf", "plain"), 0, SAID)


def many(pdf):
    pdf.Root.X = pikepdf.Array([pikepdf.Dictionary(a=1) for _ in range(10_050)])
    javascript(pdf)


def attached(pdf):
    stream = pdf.make_stream(b"MZ")
    spec = pikepdf.Dictionary(F="a.exe", EF=pikepdf.Dictionary(F=stream))
    note = pikepdf.Dictionary(Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.FileAttachment, Rect=[0, 0, 9, 9], FS=spec)
    pdf.pages[0].Annots = pikepdf.Array([note])


def chained(pdf):
    links = [pikepdf.Dictionary(S=pikepdf.Name.URI, URI="https://x.example") for _ in range(10_050)]
    script = pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS="app.alert(1)")
    pdf.Root.OpenAction = pikepdf.Dictionary(S=pikepdf.Name.GoTo, D="a", Next=pikepdf.Array([script, *links]))


@pytest.mark.parametrize("how", [many, attached, chained])
def test_what_was_taken_for_harmless_once_is_refused(how, tmp_path):
    with pytest.raises(StrataError) as refused:
        pdfs.look(crafted(tmp_path / "a.pdf", how))
    assert refused.value.code == "UNSAFE_PDF"


def font_called_js(pdf):
    fonts = pdf.pages[0].Resources.Font
    fonts["/JS"] = next(iter(fonts.values()))


def no_files(pdf):
    pdf.Root.Names = pikepdf.Dictionary(EmbeddedFiles=pikepdf.Dictionary(Names=pikepdf.Array()))


@pytest.mark.parametrize("how", [font_called_js, no_files])
def test_a_harmless_file_is_not_refused(how, tmp_path):
    assert pdfs.look(crafted(tmp_path / "a.pdf", how)).pages == 1


def test_a_page_that_cannot_be_read_and_a_page_of_a_square_mile_end_nothing_but_themselves(tmp_path):
    def odd(pdf):
        pdf.pages[0].Type = pikepdf.Name.Foo

    with pytest.raises(StrataError):
        pdfs.text(crafted(tmp_path / "odd.pdf", odd))
    huge = tmp_path / "huge.pdf"
    drawn = canvas.Canvas(str(huge), pagesize=(14_400, 14_400))
    drawn.drawString(60, 700, SAID)
    drawn.save()
    assert len(pdfs.picture(huge, 0, 1.6, colours=16)) > 100


def test_word_limits_hold_whatever_a_word_is():
    assert quoting.words_of(". . . . — —") == 0
    assert quoting.words_of("w/" * 300) > quoting.MOST_WORDS
    assert 4 <= quoting.words_of("街道树木可以使夜晚更凉爽") <= 8


def test_an_honest_annotation_is_not_thrown_away():
    paper = Paper("C0001", (" ".join(LINES),), "On owners", ("Ada Example",), 2021, "10.5555/strata.1")
    honest = (
        "Authors report on a wiki. However, it says nothing of costs. Although small, it is useful; Reviews kept pages correct."
    )
    assert annotating.invented(honest, paper) == []
