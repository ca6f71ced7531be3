"""config/run_config.json as a record, with the defaults of what it leaves open."""

from __future__ import annotations

from lib.contract import Json
from lib.disk import records
from msgspec import Struct, field

from packs.academic.records import Scoring


class Period(Struct, frozen=True):
    from_: int | None = field(default=None, name="from")
    to: int | None = None


class Database(Struct, frozen=True):
    name: str
    url: str = ""
    relevance: str = "unknown"
    discipline: str = "unknown"
    interface: str | None = None


class Search(Struct, frozen=True):
    max_iterations: int = 10
    stop_after: int = 2
    per_query: int = 25
    too_broad: int = 1_000_000


class Papers(Struct, frozen=True):
    max_bytes: int = 50_000_000
    max_pages: int = 400
    ocr: bool = True


class Config(Struct, frozen=True):
    version: int
    run_id: str
    project: str
    research_question: str
    keywords: tuple[str, ...]
    disciplines: tuple[str, ...]
    period: Period = Period()
    context: str = ""
    mail: str = ""
    portal: str | None = None
    databases: tuple[Database, ...] = ()
    search: Search = Search()
    scoring: Scoring = Scoring()
    papers: Papers = Papers()
    quotes_per_paper: int = 6
    styles: tuple[str, ...] = ("apa", "ieee", "chicago-author-date")
    checkpoints: dict[str, str] = {}


def of(document: Json) -> Config:
    return records.of(document, Config)
