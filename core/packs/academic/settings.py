"""The pack's settings: which services, portals and pages there are. A project's own come first."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from lib.contract import HOUSE, Json, StrataError, nearest
from lib.disk import config, places, records, schemas
from msgspec import Struct

FILE = "academic_settings.yaml"
OF_RUN = f"config/{FILE}"
OURS = HOUSE / "config/packs/academic/settings.yaml"
SERVICES = {
    "openalex": "https://api.openalex.org",
    "crossref": "https://api.crossref.org",
    "semantic_scholar": "https://api.semanticscholar.org",
    "arxiv": "https://export.arxiv.org/api/query",
}


class Service(Struct, frozen=True):
    url: str
    key_env: str = ""
    pause_seconds: float = 0.0


class Known(Struct, frozen=True):
    """What is known of a database."""

    url: str
    syntax: str
    service: str | None = None
    interface: str | None = None


class Interface(Struct, frozen=True):
    """Pages, by selectors."""

    start: str
    row: str
    fields: dict[str, str]
    box: str = ""
    submit: str = ""
    next: str = ""
    count: str = ""
    ready: str = ""
    login: str = ""
    captcha: str = ""
    syntax: str = "generic"
    pages: int = 2


class Browser(Struct, frozen=True):
    command: str = ""
    profiles: str = ""
    headless: bool = True
    retry_seconds: tuple[float, ...] = (5, 15, 45)
    page_seconds: float = 30.0


class Settings(Struct, frozen=True):
    services: dict[str, Service] = {}
    databases: dict[str, Known] = {}
    portals: dict[str, Interface] = {}
    interfaces: dict[str, Interface] = {}
    resolver: str = "https://doi.org/{doi}"
    browser: Browser = Browser()
    busy_seconds: float = 60.0

    def service(self, name: str) -> Service:
        return self.services.get(name) or Service(SERVICES[name])

    def portal(self, name: str) -> Interface:
        if name not in self.portals:
            raise StrataError("UNKNOWN_PORTAL", f"the settings have no portal {name!r}", nearest(name, self.portals), final=True)
        return self.portals[name]

    def interface(self, name: str) -> Interface:
        if name not in self.interfaces:
            raise StrataError(
                "UNKNOWN_INTERFACE",
                f"the settings do not describe the pages {name!r}",
                nearest(name, self.interfaces),
                final=True,
            )
        return self.interfaces[name]

    def known(self, name: str) -> Known | None:
        plain = {_plain(k): v for k, v in self.databases.items()}
        return plain.get(_plain(name))


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def settings(of_run: Path | None = None) -> Settings:
    """The house's, with what the run's own say instead, or the project's."""
    ours = _read(OURS)
    if of_run and of_run.is_file():
        return records.of(_merged(ours, _read(of_run)), Settings)
    for root in places.roots():
        if (root / FILE).is_file() and root / FILE != OURS:
            places.note("settings", places.Found("academic", root / FILE, str(root)))
            return records.of(_merged(ours, _read(root / FILE)), Settings)
    return records.of(ours, Settings)


def _merged(ours: Json, theirs: Json) -> Json:
    both: Json = dict(ours)
    for name, value in theirs.items():
        both[name] = {**both.get(name, {}), **value} if isinstance(value, dict) else value
    return both


def _read(file: Path) -> Json:
    found = config.read(file)
    for path, message in schemas.problems(found.data, schemas.load("academic/settings")):
        raise found.error(
            path, f"{schemas.pointer(path)}: {message}", "the format is in config/packs/academic/schemas/settings.json"
        )
    return {name: value for name, value in cast(Json, found.data).items() if name != "version"}
