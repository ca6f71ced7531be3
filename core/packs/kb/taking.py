"""Taking a run into a knowledge base: which of its outputs are sources, and what each is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packs.downstream.upstream import OutputEntry
from packs.kb.records import GENERAL, Source
from packs.kb.store import Offered

KINDS = ("service_category", "horizontal", "vertical", "title", "playbook_2d", "playbook_3d")
ALIGNED = "brand_alignment"


def sources(entries: Iterable[OutputEntry], run: str) -> list[Offered]:
    """Each once. Of a playbook that was aligned with the brand, the aligned text."""
    found: dict[str, tuple[bool, Offered]] = {}
    for entry in entries:
        aligned = entry.type == ALIGNED
        kind = _kind_of_aligned(entry) if aligned else entry.type
        if kind not in KINDS:
            continue
        one = _offered(entry, kind, run)
        known = found.get(one.source.key)
        if not known or aligned or not known[0]:
            found[one.source.key] = (aligned, one)
    return [one for _, one in found.values()]


def _kind_of_aligned(entry: OutputEntry) -> str:
    return "playbook_3d" if "service_category" in entry.dimensions else "playbook_2d"


def _offered(entry: OutputEntry, kind: str, run: str) -> Offered:
    about = entry.dimensions
    vertical, persona = about.get("vertical", ""), about.get("title", "")
    name = about.get("report") or (entry.tags[-1] if entry.tags else entry.agent_name) if kind == "horizontal" else ""
    domain = "" if kind == "horizontal" else about.get("service_category", GENERAL)
    key = "/".join(part for part in (kind, domain, vertical, persona, name) if part)
    source = Source(
        key, kind, domain, vertical, persona, name, entry.sha256, entry.execution_id or run, entry.completed_at, entry.id
    )
    return Offered(source, Path(entry.content_path))
