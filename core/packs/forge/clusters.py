"""Aggregation without a model: what the members of a cluster found, merged, with who said it, and what is open between them."""

from __future__ import annotations

import json
from pathlib import Path

from lib.contract import StrataError
from lib.disk import lenient
from lib.evidence import findings
from lib.evidence.findings import Finding
from lib.stages import rosters
from msgspec import Struct

from packs.forge.artifacts import Artifacts
from packs.forge.tables import Member, Verdict


class Said(Struct, frozen=True):
    """Of a member's data, besides its findings."""

    cross_cutting: tuple[str, ...] = ()


class Cluster(Struct, frozen=True):
    members: tuple[Member, ...]
    cross_cutting: tuple[tuple[str, str], ...] = ()  # who, and what
    data: dict[str, Path] = {}  # by member: its typed data
    prose: dict[str, Path] = {}

    @property
    def merged(self) -> list[Finding]:
        return findings.merge(f for m in self.members for f in m.findings)


def read(roster: Path) -> Cluster:
    """Everybody who was asked. Who failed, or left something that cannot be read, has failed."""
    members: list[Member] = []
    said: list[tuple[str, str]] = []
    data: dict[str, Path] = {}
    prose: dict[str, Path] = {}
    for entry in rosters.read(roster).entries:
        places = {name: (roster.parent / path).resolve() for name, path in entry.outputs.items()}
        if entry.verdict != "done" or "data" not in places:
            members.append(Member(entry.key, False, why=entry.message or entry.code or entry.status))
            continue
        try:
            document = json.loads(places["data"].read_text(encoding="utf-8"))
            found = findings.of(document, entry.key) if "findings" in document else []
        except (ValueError, TypeError, StrataError) as error:
            members.append(Member(entry.key, False, why=f"what it left cannot be read: {error}"))
            continue
        data[entry.key] = places["data"]
        prose |= {entry.key: places["report"]} if "report" in places else {}
        members.append(Member(entry.key, True, tuple(found)))
        said += [(entry.key, text) for text in lenient.of(document, Said).cross_cutting if text.strip()]
    return Cluster(tuple(members), tuple(said), data, prose)


def publish(artifacts: Artifacts, cluster: Cluster, folder: str) -> None:
    """Every intermediate file stays: the prose, and its typed data beside it."""
    for kind, paths in ((".md", cluster.prose), (".json", cluster.data)):
        for name, path in paths.items():
            artifacts.write(f"{folder}/{name}{kind}", path.read_text(encoding="utf-8"))


def page(title: str, cluster: Cluster, verdict: Verdict, tensions: str = "Unresolved Tensions") -> str:
    """By severity, with who said it; nothing is resolved here."""
    lines = [f"# {title}", "", f"**{verdict.word}**: {verdict.why}", ""]
    lines += ["## Missing coverage", "", *(f"- {warning}" for warning in verdict.warnings), ""] if verdict.warnings else []
    lines += [*findings.by_severity(cluster.merged), *findings.open_between(cluster.merged, tensions)]
    if cluster.cross_cutting:
        lines += ["## Cross-Cutting Concerns", "", *(f"- {text} ({who})" for who, text in cluster.cross_cutting), ""]
    return "\n".join(lines).rstrip() + "\n"


def by_task(found: list[Finding]) -> dict[str, list[Finding]]:
    """What failed, by the task it belongs to; what belongs to none under nothing."""
    table: dict[str, list[Finding]] = {}
    for one in found:
        table.setdefault(one.task, []).append(one)
    return table
