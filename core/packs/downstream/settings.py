"""What downstream may do, for a project or for the house: `downstream.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from lib.contract import HOUSE, Json, StrataError
from lib.disk import config, places, records, schemas
from msgspec import Struct

FILE = "downstream.yaml"  # of a project, beside its plan or under .strata/
OURS = HOUSE / "config/packs/downstream/settings.yaml"
# Where an output belongs in the whole, from first to last.
KNOWN_LAYERS = ("layer_0", "layer_1", "layer_2", "layer_3", "integrations", "validation", "brand_alignment", "downstream")


class TogetherBudget(Struct, frozen=True):
    max_cost_usd: float = 30.0  # of all downstream agents of a run
    max_searches: int = 0  # the most any of them may search


class Server(Struct, frozen=True):
    """An MCP server that is started by a command."""

    command: tuple[str, ...]
    env: tuple[str, ...] = ()


class Vocabulary(Struct, frozen=True, eq=True):
    """The values of each dimension: what a whole run researches, and what the names of old runs are read by."""

    vertical: tuple[str, ...] = ()
    title: tuple[str, ...] = ()
    service_category: tuple[str, ...] = ()
    horizontal: tuple[str, ...] = ()


class Settings(Struct, frozen=True):
    enabled: bool = True
    agents_dir: str = "downstream/agents"
    enabled_agents: tuple[str, ...] = ("*",)
    output_dir: str = "downstream"
    budget: TogetherBudget = TogetherBudget()
    webhook_allowed_hosts: tuple[str, ...] = ()
    webhook_allow_insecure: bool = False
    webhook_allow_private: bool = False
    after_downstream: bool = False  # a person looks at it before it counts
    dimensions: tuple[str, ...] = ("vertical", "title", "service_category")
    mcp_servers: dict[str, Server] = {}
    aliases: dict[str, tuple[str, ...]] = {}  # by value of a dimension: what people call it
    vocabulary: Vocabulary = Vocabulary()


def read() -> Settings:
    """The project's own, or the house's."""
    for root in places.roots():
        if (root / FILE).is_file():
            places.note("settings", places.Found("downstream", root / FILE, str(root)))
            return _read(root / FILE)
    return _read(OURS)


def _read(file: Path) -> Settings:
    found = config.read(file)
    for path, message in schemas.problems(found.data, schemas.load("downstream/settings")):
        hint = "the format is in config/packs/downstream/schemas/settings.json"
        raise found.error(path, f"{schemas.pointer(path)}: {message}", hint)
    return records.of({name: value for name, value in cast(Json, found.data).items() if name != "version"}, Settings)


def require_enabled() -> Settings:
    known = read()
    if not known.enabled:
        raise StrataError("DISABLED", "downstream is switched off by its settings", f"enabled: true in {FILE}, or in {OURS}")
    return known
