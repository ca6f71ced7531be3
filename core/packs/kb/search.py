"""Searching a version: SQLite's full-text index over the sections of every document, by words and dimensions."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from packs.kb import prose
from packs.kb.records import SEARCH, Document, Index

_TABLES = """
CREATE TABLE IF NOT EXISTS documents(
  path TEXT PRIMARY KEY, title TEXT, domain TEXT, vertical TEXT, persona TEXT, type TEXT, level TEXT,
  first INTEGER, last INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS passages USING fts5(path UNINDEXED, heading, text, about, tokenize='porter unicode61');
"""
_WEIGHTS = "0, 3.0, 1.0, 2.0"  # of the columns


class Passage(Struct, frozen=True):
    path: str
    heading: str
    text: str
    score: float  # the higher, the better


def build(path: Path, was: Path | None, before: Index, after: Index, folder: Path) -> None:
    """The index of a version, from the one before where there is one: only what changed is taken in anew."""
    if was and was.exists():
        shutil.copyfile(was, path)
    old = {one.path: one.sha256 for one in before.documents} if path.exists() else {}
    new = {one.path: one.sha256 for one in after.documents}
    base = sqlite3.connect(path)
    try:
        base.executescript(_TABLES)
        for gone in [p for p in old if new.get(p) != old[p]]:
            spot = base.execute("SELECT first, last FROM documents WHERE path = ?", (gone,)).fetchone()
            base.execute("DELETE FROM passages WHERE rowid BETWEEN ? AND ?", spot)
            base.execute("DELETE FROM documents WHERE path = ?", (gone,))
        for one in [d for d in after.documents if old.get(d.path) != d.sha256]:
            _take_in(base, one, (folder / one.path).read_text(encoding="utf-8"))
        base.commit()
    finally:
        base.close()


def _take_in(base: sqlite3.Connection, one: Document, text: str) -> None:
    about = " ".join([one.title, *(prose.named(v) for v in (one.domain, one.vertical, one.persona) if v)])
    parts = [s for s in prose.sections(prose.body(text)) if s.text]
    last = int(base.execute("SELECT coalesce(max(last), 0) FROM documents").fetchone()[0])
    rows = [(last + n, one.path, s.heading, s.text, about) for n, s in enumerate(parts, 1)]
    base.executemany("INSERT INTO passages(rowid, path, heading, text, about) VALUES (?, ?, ?, ?, ?)", rows)
    known = (one.path, one.title, one.domain, one.vertical, one.persona, one.type, one.detail_level, last + 1, last + len(parts))
    base.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", known)


class Searcher:
    """Of one version; it is only read."""

    def __init__(self, folder: Path) -> None:
        self.base = sqlite3.connect(f"file:{folder / SEARCH}?mode=ro&immutable=1", uri=True, check_same_thread=False)

    def find(self, words: Sequence[str], where: Mapping[str, Sequence[str]] | None = None, most: int = 20) -> list[Passage]:
        """The best passages for any of these words. `where`: by column of the documents, the values it may have."""
        if not words:
            return []
        query = " OR ".join(map(_quoted, words))
        conditions, values = ["passages MATCH ?"], list[str]([query])
        for column, allowed in (where or {}).items():
            conditions.append(f"d.{column} IN ({', '.join('?' * len(allowed))})")
            values += allowed
        statement = (
            f"SELECT p.path, p.heading, p.text, bm25(passages, {_WEIGHTS}) AS score "
            "FROM passages p JOIN documents d ON d.path = p.path "
            f"WHERE {' AND '.join(conditions)} ORDER BY score, p.path, p.rowid LIMIT ?"
        )
        rows = self.base.execute(statement, (*values, most)).fetchall()
        return [Passage(path, heading, text, -score) for path, heading, text, score in rows]

    def count(self, word: str) -> int:
        """In how many passages a word stands."""
        return int(self.base.execute("SELECT count(*) FROM passages WHERE passages MATCH ?", (_quoted(word),)).fetchone()[0])

    def stands(self, word: str, path: str) -> bool:
        """Whether a word stands in a document. Its passages lie side by side."""
        spot = self.base.execute("SELECT first, last FROM documents WHERE path = ?", (path,)).fetchone()
        statement = "SELECT 1 FROM passages WHERE passages MATCH ? AND rowid BETWEEN ? AND ? LIMIT 1"
        return self.base.execute(statement, (_quoted(word), *spot)).fetchone() is not None

    def total(self) -> int:
        return int(self.base.execute("SELECT coalesce(sum(last - first + 1), 0) FROM documents").fetchone()[0])


def _quoted(word: str) -> str:
    """A word as a phrase: nothing in it is an operator."""
    return '"' + word.replace('"', '""') + '"'
