"""Where a run may have its sources from: the open web, listed hosts, a search service, a folder; and the pack's settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from lib.contract import HOUSE, Json, StrataError
from lib.disk import config, places, records, schemas
from msgspec import Struct

FILE = "deep_research.yaml"  # of a project, beside its plan or under .strata/
OURS = HOUSE / "config/packs/deep_research/settings.yaml"


class Served(Struct, frozen=True):
    """Where sources may come from."""

    web: bool = True  # Python may fetch an address
    listed: bool = False  # of hosts that a list names, and no others
    service: bool = False  # a search service of the user's
    corpus: str = ""  # a folder of documents


class Service(Struct, frozen=True):
    """A search service of the user's: SearXNG, or anything that answers with JSON."""

    url: str  # with {query} in it
    results: str = "/results"  # a pointer to the list in the answer
    fields: dict[str, str] = {}  # of a result, where they are called otherwise than url, title and content
    header: str = ""  # that carries the key
    key_env: str = ""  # the variable that has the key

    def headers(self) -> dict[str, str]:
        if not self.header:
            return {}
        key = os.environ.get(self.key_env, "")
        if not key:
            raise StrataError(
                "NO_KEY", f"the search service needs {self.key_env or 'key_env'}", "set it, or take `search` out", final=True
            )
        return {self.header: key}


class Settings(Struct, frozen=True):
    enabled: bool = True
    no_web: bool = False  # whatever is asked for
    live_tests: bool = False  # smoke tests against the real web and a real model may run
    search: Service | None = None


def settings() -> Settings:
    """The project's own, or the house's."""
    for root in places.roots():
        if (root / FILE).is_file():
            places.note("settings", places.Found("deep_research", root / FILE, str(root)))
            return _read(root / FILE)
    return _read(OURS)


def _read(file: Path) -> Settings:
    found = config.read(file)
    for path, message in schemas.problems(found.data, schemas.load("deep_research/settings")):
        raise found.error(
            path, f"{schemas.pointer(path)}: {message}", "the format is in config/packs/deep_research/schemas/settings.json"
        )
    return records.of({name: value for name, value in cast(Json, found.data).items() if name != "version"}, Settings)


def require_enabled() -> Settings:
    known = settings()
    if not known.enabled:
        raise StrataError("DISABLED", "deep research is switched off by its settings", f"enabled: true in {FILE}, or in {OURS}")
    return known


def served(known: Settings, hosts: tuple[str, ...], corpus: str, there: bool = True) -> Served:
    """`hosts`: those that web.yaml lists. `there`: the folder is needed; a replay has what was read of it."""
    if corpus and there and not Path(corpus).is_dir():
        raise StrataError(
            "NOT_FOUND", f"--corpus {corpus} is no folder", "a folder of Markdown, text, HTML or PDF files", final=True
        )
    if corpus and there and not any(Path(corpus).rglob("*.*")):
        raise StrataError("NOT_FOUND", f"--corpus {corpus} holds no document", "Markdown, text, HTML or PDF files", final=True)
    return Served(not known.no_web, "*" not in hosts, known.search is not None, corpus)
