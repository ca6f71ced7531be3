"""What a run produced, as a list that programs read: each output with its type, dimensions and tags, and how it came about."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import Json
from lib.disk import files, lenient, records
from lib.disk.clock import now
from lib.session.step import Step, in_runs

FILE = "outputs.json"
SCHEMA_VERSION = "1.0.0"
SEARCH = "WebSearch"
CONTEXT = "context_file"  # the type of what is no finding, but what findings are written by


class Label(Struct, frozen=True):
    """What a stage says of its outputs, for whoever looks for them."""

    type: str = ""
    layer: str = ""
    dimensions: dict[str, str] = {}
    tags: tuple[str, ...] = ()


class Produced(Struct, frozen=True):
    id: str = ""
    type: str = ""
    layer: str = ""
    dimensions: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    output: str = ""
    root: str = "session"  # or workspace
    path: str = ""  # below that root
    sha256: str = ""
    size: int = 0
    agent_name: str = ""  # who made it: an agent, or a tool
    agent_version: str = ""  # the fingerprint of its definition
    model: str = ""
    tool_uses: dict[str, int] = {}
    searches_performed: int = 0
    cost_usd: float | None = None  # all attempts at the step
    completed_at: str = ""
    completion_status: str = "complete"
    step: str = ""

    def fits(self, kind: str, dimensions: dict[str, str], tags: list[str]) -> bool:
        same = all(name in self.dimensions and self.dimensions[name] == value for name, value in dimensions.items())
        return (not kind or self.type == kind) and same and set(tags) <= set(self.tags)


class _Holds(Struct, frozen=True):
    """Of a run's own list."""

    outputs: tuple[Produced, ...] = ()


def identity(step: Step, key: str, output: str) -> str:
    """The same for the same thing in every run: where it stands in the plan, without the rounds it took."""
    parts = (step.phase, step.orchestrator, step.stage.partition("-")[2], key, output)
    return "/".join(part for part in parts if part)


def of_session(session: Path) -> list[Produced]:
    """What its runs have listed so far, in the order of the plan."""
    lists = [*in_runs(session, FILE), *sorted(session.glob(f"phases/*/*/{FILE}"))]
    return [one for path in lists for one in lenient.read(path, _Holds).outputs]


def document(session: Path, found: list[Produced], source: str = "") -> Json:
    """As other programs take it: the list, and what there is in it."""
    dimensions: dict[str, list[str]] = {}
    for one in found:
        for name, value in one.dimensions.items():
            if value not in dimensions.setdefault(_plural(name), []):
                dimensions[_plural(name)].append(value)
    summary: dict[str, Any] = {"total_outputs": len(found), "by_layer": dict(Counter(one.layer for one in found))}
    return {
        "schema_version": SCHEMA_VERSION,
        "execution_id": session.name,
        "produced_at": now(),
        "config_source": source,
        "context_files": {one.output: one.path for one in found if one.type == CONTEXT},
        "outputs": records.document(found),
        "summary": summary | {"by_type": dict(Counter(one.type for one in found))} | dimensions,
    }


def write(session: Path, source: str) -> None:
    """At the end of a run, beside its manifest."""
    files.write_json(session / FILE, document(session, of_session(session), source))


def _plural(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
