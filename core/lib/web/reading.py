"""Readable text out of what came back: of HTML without its menus, with its date; of PDF, page by page."""

from __future__ import annotations

import io
from typing import Any

from msgspec import Struct

from lib.contract import StrataError
from lib.evidence import quotes


class Readable(Struct, frozen=True):
    text: str
    title: str = ""
    date: str = ""  # as the page says it, YYYY-MM-DD
    pages: tuple[str, ...] = ()  # of a PDF


def read(content: bytes, content_type: str, url: str) -> Readable:
    kind = content_type.partition(";")[0].strip().lower()
    if content.startswith(b"%PDF-") or kind == "application/pdf":
        pages = pdf(content, url)
        return Readable("\f".join(pages), pages=pages)
    head = content[:1000].lstrip().lower()
    if kind in ("text/html", "application/xhtml+xml") or head.startswith((b"<!doctype html", b"<html")):
        return html(content, url)
    if kind.startswith("text/") or kind in ("application/json", "application/xml", ""):
        return Readable(content.decode("utf-8", "replace"))
    raise StrataError("UNREADABLE", f"{url} is {kind}: there is no text to read in it", "download it instead", final=True)


def html(content: bytes, url: str) -> Readable:
    import trafilatura

    dates = {"extensive_search": False, "original_date": True}  # as the page says it; a year in its text is not its date
    found: Any = trafilatura.bare_extraction(
        content, url=url, include_comments=False, with_metadata=True, date_extraction_params=dates
    )
    if not found:
        return Readable("")
    return Readable(found.text or "", found.title or "", found.date or "")


def pdf(content: bytes, url: str) -> tuple[str, ...]:
    import pypdfium2

    try:
        document: Any = pypdfium2.PdfDocument(io.BytesIO(content))
    except pypdfium2.PdfiumError as error:
        raise StrataError("UNREADABLE", f"{url} is no PDF that can be opened: {error}", "", final=True) from None
    try:
        return tuple(_page(page) for page in document)
    except pypdfium2.PdfiumError as error:
        raise StrataError("UNREADABLE", f"{url}: a page of it cannot be read: {error}", "", final=True) from None
    finally:
        document.close()


def _page(page: Any) -> str:
    layer: Any = page.get_textpage()
    try:
        text = str(layer.get_text_range())
    finally:
        layer.close()
        page.close()
    return quotes.rejoined(text.replace("\r\n", "\n"))
