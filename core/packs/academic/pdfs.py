"""A PDF from a stranger: looked at, never executed. Its object tree says what it would do, and its pages what it says."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from lib.contract import StrataError
from lib.disk import files
from lib.evidence import quotes
from msgspec import Struct

MOST_BYTES = 50_000_000
MOST_OBJECTS = 500_000
MOST_PIXELS = 20_000_000
LEAST_CONTRAST = 40  # of 255, between a letter and what is behind it
SCANNED_BELOW = 25  # letters on a page, on the average
# What a reader would do when it opens the file, or keep for somebody to open: keys of the object tree.
ACTIVE = {
    "/JavaScript": "JavaScript",
    "/JS": "JavaScript",
    "/Launch": "a launch action",
    "/EmbeddedFiles": "an embedded file",
    "/EmbeddedFile": "an embedded file",
    "/EF": "an embedded file",
    "/FileAttachment": "an embedded file",
    "/Collection": "a collection of files",
    "/GoToE": "an embedded file",
    "/RichMedia": "rich media",
    "/Rendition": "media that plays",
    "/Movie": "media that plays",
    "/Sound": "media that plays",
    "/SubmitForm": "a form that sends itself away",
    "/ImportData": "an import of data",
    "/XFA": "an XFA form",
}
# Fonts of TeX that do not say what their signs mean: where their two encodings have the ligatures. Nothing else is written so.
LIGATURES = {"\x1b": "ff", "\x1c": "fi", "\x1d": "fl", "\x1e": "ffi", "\x1f": "ffl", "\x0b": "ff", "\x0e": "ffi", "\x0f": "ffl"}
_OLDER = {"\x0c": "fi", "\x0d": "fl"}  # elsewhere these end a page and a line: only between letters


Box = tuple[float, float, float, float]


class Looked(Struct, frozen=True):
    """A file that may be read."""

    pages: int
    size: int
    sha256: str


class Text(Struct, frozen=True):
    pages: tuple[str, ...]
    ocr: bool = False
    scanned: bool = False  # pictures of pages, and no OCR here to read them


def refuse(why: str, code: str = "UNSAFE_PDF") -> StrataError:
    return StrataError(code, why, "no retry helps: the file is what it is", final=True)


def look(path: Path, most_bytes: int = MOST_BYTES) -> Looked:
    """Whether it is a PDF, whole, open to be read, and harmless; raises with what is wrong."""
    import pikepdf

    size = path.stat().st_size
    if size > most_bytes:
        raise refuse(f"it has {size} bytes, and at most {most_bytes} are taken", "TOO_LARGE")
    data = path.read_bytes()
    if b"%PDF-" not in data[:1024]:
        page = data[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml"))
        raise refuse("it is a web page, and no PDF: probably a paywall" if page else "it is no PDF", "NOT_A_PDF")
    try:
        with pikepdf.open(BytesIO(data), attempt_recovery=False, suppress_warnings=True) as pdf:
            if pdf.is_encrypted:
                raise refuse("it is encrypted", "ENCRYPTED_PDF")
            found = sorted(set(_active(pdf)))
            if found:
                raise refuse(f"it carries {', '.join(found)}")
            count = len(pdf.pages)
    except pikepdf.PasswordError:
        raise refuse("it is encrypted, and asks for a password", "ENCRYPTED_PDF") from None
    except pikepdf.PdfError as error:
        raise refuse(f"it is damaged: {str(error).splitlines()[0][:200]}", "CORRUPT_PDF") from None
    if not count:
        raise refuse("it has no pages", "CORRUPT_PDF")
    _require_pages(data, count)
    return Looked(count, size, files.digest_bytes(data))


def _require_pages(data: bytes, count: int) -> None:
    """The reader opens it, too, and counts the same pages."""
    import pypdfium2

    try:
        document: Any = pypdfium2.PdfDocument(data)
        seen = len(document)
        document.close()
    except pypdfium2.PdfiumError as error:
        raise refuse(f"it cannot be read: {error}", "CORRUPT_PDF") from None
    if seen != count:
        raise refuse(f"it says {count} pages, and {seen} can be read", "CORRUPT_PDF")


def _active(pdf: Any) -> Iterator[str]:
    """What of the object tree would act. Every object is looked at, also those that nothing leads to."""
    import pikepdf

    for number, thing in enumerate((pdf.trailer, *pdf.objects)):
        if number > MOST_OBJECTS:
            raise refuse(f"it has more than {MOST_OBJECTS} objects", "TOO_LARGE")
        stack: list[Any] = [thing]
        looked = 0
        while stack:
            looked += 1
            if looked > MOST_OBJECTS:
                raise refuse(f"one of its objects has more than {MOST_OBJECTS} others inside", "TOO_LARGE")
            one = stack.pop()
            if isinstance(one, pikepdf.Stream | pikepdf.Dictionary):
                for key in one.keys():  # noqa: SIM118 - a dictionary of pikepdf
                    value = one.get(key)
                    if key in ACTIVE and not _means_nothing(value):
                        yield ACTIVE[key]
                    if key in ("/S", "/Type", "/Subtype", "/FT") and str(value) in ACTIVE:
                        yield ACTIVE[str(value)]
                    if isinstance(value, pikepdf.Dictionary | pikepdf.Array) and not value.is_indirect:
                        stack.append(value)
            elif isinstance(one, pikepdf.Array):
                stack += [v for v in list(one) if isinstance(v, pikepdf.Dictionary | pikepdf.Array) and not v.is_indirect]  # type: ignore[reportUnknownVariableType]


def _means_nothing(value: Any) -> bool:
    """A list of no files; a font or the like that happens to be called as an action is."""
    import pikepdf

    if not isinstance(value, pikepdf.Dictionary):
        return False
    return (not value.get("/Names") and not value.get("/Kids") and "/Names" in value) or str(value.get("/Type")) in (
        "/Font",
        "/XObject",
    )


def pages(path: Path, most: int) -> Iterator[str]:
    """The text of each page, one at a time: a long file is not held in memory as a whole."""
    import pypdfium2

    document: Any = pypdfium2.PdfDocument(path)
    try:
        for number in range(min(len(document), most)):
            try:
                page = document[number]
                content = page.get_textpage()
                yield _read(content)[0]
            except pypdfium2.PdfiumError as error:
                raise refuse(f"its page {number + 1} cannot be read: {error}", "CORRUPT_PDF") from None
            content.close()
            page.close()
    finally:
        document.close()


def _read(content: Any) -> tuple[str, list[int]]:
    """The text of a page, and by letter where in it the reader has it."""
    written = content.get_text_range()
    digits = [n for n, sign in enumerate(written) if n and sign.isdigit() and _digit_before(written, n) >= 0]
    return spelt_out(written, frozenset(n for n in digits if _apart(content, _digit_before(written, n), n)))


def _digit_before(written: str, at: int) -> int:
    """Where the digit stands that this one would go on; -1 where there is none."""
    before = at - 2 if written[at - 1] in ".," else at - 1
    return before if before >= 0 and written[before].isdigit() else -1


def _apart(content: Any, before: int, at: int) -> bool:
    """Whether a digit stands above or below the line of the one before: a power, or the mark of a note."""
    _, low, _, high = content.get_charbox(before)
    return abs(content.get_charbox(at)[1] - low) > 0.2 * (high - low)


def spelt_out(written: str, apart: frozenset[int] = frozenset()) -> tuple[str, list[int]]:
    """With ligatures as letters and `^` before digits that stand apart; and by letter, where in `written` it stands."""
    made: list[str] = []
    places: list[int] = []
    for at, sign in enumerate(written):
        if sign == "\r" and written[at + 1 : at + 2] == "\n":
            continue
        letters = LIGATURES.get(sign) or (_OLDER[sign] if sign in _OLDER and _inside(written, at) else sign)
        letters = f"^{letters}" if at in apart else letters
        made.append(letters)
        places += [at] * len(letters)
    return "".join(made), places


def _inside(content: str, at: int) -> bool:
    """Whether a sign stands in a word, or begins one."""
    before, after = content[at - 1 : at], content[at + 1 : at + 3]
    return (before.isalpha() and after[:1].isalpha()) or (
        (not before or before.isspace()) and len(after) == 2 and after.isalpha()
    )


def marks(path: Path, number: int, quote: str) -> list[Box]:
    """Where a quote stands on a page: boxes as shares of its width and height, from the top left. `number` counts from 0."""
    import pypdfium2

    document: Any = pypdfium2.PdfDocument(path)
    try:
        return _lines(_boxes(document, number, quote))
    finally:
        document.close()


def is_seen(path: Path, number: int, quote: str) -> bool:
    """Whether somebody who looks at the page sees it: text may be white, covered, cut off, or too small for any eye."""
    import pypdfium2

    document: Any = pypdfium2.PdfDocument(path)
    try:
        page = document[number]
        if page.get_rotation():
            return True  # its boxes lie elsewhere than its picture has them
        drawn = page.render(scale=_scale(page, 2.0), grayscale=True).to_pil()
        boxes = _boxes(document, number, quote)
        return bool(boxes) and all(_has_ink(drawn, box) for box in boxes)
    finally:
        document.close()


def _has_ink(drawn: Any, box: Box) -> bool:
    wide, high = drawn.size
    left, top, right, bottom = box[0] * wide, box[1] * high, box[2] * wide, box[3] * high
    if min(box) < 0 or max(box) > 1 or bottom - top < 1:
        return False
    darkest, brightest = drawn.crop((int(left), int(top), int(right) + 1, int(bottom) + 1)).getextrema()
    return brightest - darkest >= LEAST_CONTRAST


def _boxes(document: Any, number: int, quote: str) -> list[Box]:
    """Of every letter of a quote that is printed."""
    page = document[number]
    content = page.get_textpage()
    read, places = _read(content)
    found = quotes.find(quote, read, 1)
    if not found:
        rest = quotes.find(quote, [read, next_page(document, number + 1)], 1)
        found = [one for one in rest if one.page == 1]
    if not found:
        return []
    wide, high = page.get_size()
    left, bottom, _, _ = page.get_bbox()
    written = content.get_text_range()
    printed = [at for at in sorted(set(places[found[0].offset : found[0].end])) if not written[at].isspace()]
    boxes = [content.get_charbox(at) for at in printed]
    return [
        ((x - left) / wide, 1 - (y - bottom) / high, (r - left) / wide, 1 - (b - bottom) / high) for x, b, r, y in boxes if r > x
    ]


def next_page(document: Any, number: int) -> str:
    return _read(document[number].get_textpage())[0] if number < len(document) else ""


def _scale(page: Any, wanted: float) -> float:
    """As large as it may be: a page of a hundred square metres is drawn small."""
    wide, high = page.get_size()
    return min(wanted, (MOST_PIXELS / max(1.0, wide * high)) ** 0.5)


def _lines(boxes: list[Box]) -> list[Box]:
    """Boxes of letters, as boxes of lines."""
    made: list[Box] = []
    for left, top, right, bottom in boxes:
        last = made[-1] if made else None
        middle = (top + bottom) / 2
        if last and last[1] <= middle <= last[3] and -0.02 <= left - last[2] <= 0.05:
            made[-1] = (last[0], min(last[1], top), max(last[2], right), max(last[3], bottom))
        else:
            made.append((left, top, right, bottom))
    return [tuple(round(v, 4) for v in box) for box in made]  # type: ignore[misc]


def text(path: Path, most: int = 400, ocr: bool = True) -> Text:
    """Page by page. A scanned file is read with OCR where the machine has it, and is said to be scanned where not."""
    read = tuple(pages(path, most))
    if sum(len(page.strip()) for page in read) >= SCANNED_BELOW * max(1, len(read)):
        return Text(read)
    if not ocr or not shutil.which("tesseract"):
        return Text(read, scanned=True)
    return Text(tuple(_recognised(path, number) for number in range(len(read))), ocr=True)


def picture(path: Path, number: int, scale: float = 2.0, colours: int = 0) -> bytes:
    """A page as PNG; `number` counts from 0. With few colours it is small."""
    import pypdfium2

    document: Any = pypdfium2.PdfDocument(path)
    try:
        page = document[number]
        drawn = BytesIO()
        image = page.render(scale=_scale(page, scale)).to_pil()
        (image.convert("RGB").quantize(colours) if colours else image).save(drawn, "PNG", optimize=bool(colours))
        return drawn.getvalue()
    finally:
        document.close()


def _recognised(path: Path, number: int) -> str:
    words = ["tesseract", "stdin", "stdout"]
    try:
        done = subprocess.run(words, input=picture(path, number, 3.0), capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise StrataError("OCR_FAILED", f"tesseract took too long for page {number + 1}", "set papers.ocr to false") from None
    if done.returncode:
        raise StrataError("OCR_FAILED", f"tesseract: {done.stderr.decode(errors='replace')[:200]}", "set papers.ocr to false")
    return done.stdout.decode(errors="replace")
