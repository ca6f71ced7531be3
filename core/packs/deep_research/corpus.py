"""A folder of documents as a place to search: full text by SQLite, each document with an address that only a run knows.

The address is `http://corpus.invalid/PATH`: a name that leads nowhere on any network, so that a document is cited, looked up and
counted exactly like a page.
"""

from __future__ import annotations

import mimetypes
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lib.contract import StrataError
from lib.disk import files
from lib.web import reading
from lib.web.reading import Readable
from msgspec import Struct

HOST = "corpus.invalid"
KINDS = (".md", ".txt", ".rst", ".html", ".htm", ".pdf", ".json", ".csv")
MOST_BYTES = 20_000_000  # of one document


class Hit(Struct, frozen=True):
    url: str
    title: str
    text: str = ""  # a few words around what was found


def address(name: str) -> str:
    return f"http://{HOST}/{quote(name)}"


def is_ours(url: str) -> bool:
    return urlsplit(url).hostname == HOST


def name(url: str) -> str:
    return unquote(urlsplit(url).path).lstrip("/")


class Corpus(Struct, frozen=True):
    folder: Path
    index: Path  # of a run

    def names(self) -> list[str]:
        """Every document that may be read."""
        found = (str(p.relative_to(self.folder)) for p in sorted(self.folder.rglob("*")))
        return [name for name in found if self._is_document(name)]

    def _is_document(self, name: str) -> bool:
        """No link on the way, which may lead anywhere; nothing hidden; no name that is no text: nobody could cite it."""
        place = self.folder / name
        steps = [place, *(p for p in place.parents if p != self.folder and p.is_relative_to(self.folder))]
        plain = name.isprintable() and not any(part.startswith(".") for part in Path(name).parts)
        return plain and place.suffix.lower() in KINDS and not any(p.is_symlink() for p in steps) and place.is_file()

    def read(self, name: str) -> Readable:
        """One document, which lies in the folder."""
        path = files.inside(self.folder, name, "a document")
        if not self._is_document(name):  # whoever cites something else of the folder, or beyond it, does not get it
            raise StrataError("NOT_FOUND", f"{name} is no document of the corpus", "", final=True)
        if path.stat().st_size > MOST_BYTES:
            raise StrataError(
                "TOO_LARGE", f"{name} has {path.stat().st_size} bytes, at most {MOST_BYTES}", "divide it", final=True
            )
        kind = mimetypes.guess_type(path.name)[0] or "text/plain"
        found = reading.read(path.read_bytes(), kind if kind in ("text/html", "application/pdf") else "text/plain", address(name))
        return found if found.title else Readable(found.text, _title(found.text, path), found.date, found.pages)

    def build(self) -> int:
        """The index, anew where the folder is another than it was indexed. Returns how many documents are in it."""
        stats = [(name, (self.folder / name).stat()) for name in self.names()]
        state = files.digest([(name, s.st_size, s.st_mtime_ns) for name, s in stats])
        self.index.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.index)) as base, base:
            base.execute("create table if not exists state (digest text)")
            base.execute(
                "create virtual table if not exists documents using fts5(name unindexed, title, text, tokenize='porter')"
            )
            if [state] == [row[0] for row in base.execute("select digest from state")]:
                return len(stats)
            base.execute("delete from state")
            base.execute("delete from documents")
            for name, _ in stats:
                try:
                    found = self.read(name)
                except (StrataError, OSError):
                    continue  # one that cannot be read cannot be found; who cites it is told why
                base.execute("insert into documents values (?, ?, ?)", (name, found.title, found.text))
            base.execute("insert into state values (?)", (state,))
        return len(stats)

    def search(self, query: str, most: int) -> list[Hit]:
        terms = [f'"{word}"' for word in re.findall(r"\w+", query)]
        if not terms:
            return []
        found = "select name, title, snippet(documents, 2, '', '', ' … ', 40) from documents"
        asked = f"{found} where documents match ? order by rank limit ?"
        with closing(sqlite3.connect(self.index)) as base:
            return [Hit(address(name), title, text) for name, title, text in base.execute(asked, (" OR ".join(terms), most))]

    def get(self, url: str) -> Readable:
        return self.read(name(url))


def _title(text: str, path: Path) -> str:
    first = next((line.strip("# ").strip() for line in text.splitlines() if line.strip()), "")
    return first[:120] or path.name
