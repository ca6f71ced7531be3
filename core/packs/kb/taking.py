"""Taking a run into a knowledge base: which of its outputs are sources, and what each is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lib.contract import StrataError

from packs.downstream.upstream import OutputEntry
from packs.kb.records import GENERAL, Source
from packs.kb.store import Offered

# By kind: the dimensions that say what it is about. Others it may have say nothing here.
NEEDS = {
    "service_category": ("service_category",),
    "horizontal": ("report",),
    "vertical": ("vertical",),
    "title": ("title",),
    "playbook_2d": ("vertical", "title"),
    "playbook_3d": ("vertical", "title", "service_category"),
}
KINDS = tuple(NEEDS)
ALIGNED = "brand_alignment"


def sources(entries: Iterable[OutputEntry], run: str) -> list[Offered]:
    """Each once; of a playbook that was aligned with the brand, the aligned text. Two that say different things about the same,
    and of which neither is newer, are an error: one of them would be lost."""
    found: dict[str, tuple[bool, Offered]] = {}
    for entry in entries:
        aligned = entry.type == ALIGNED
        kind = _kind_of_aligned(entry) if aligned else entry.type
        if kind not in KINDS:
            continue
        one = _offered(entry, kind, run)
        known = found.get(one.source.key)
        if known and known[0] == aligned and known[1].source.sha256 != one.source.sha256:
            one = _later(known[1], one)
        if not known or aligned or not known[0]:
            found[one.source.key] = (aligned, one)
    return [one for _, one in found.values()]


def _later(one: Offered, other: Offered) -> Offered:
    """Of two that say different things about the same, the newer: a session may research something twice."""
    if one.source.date == other.source.date:
        message = f"{one.file.name} and {other.file.name} are both {one.source.key}, and say different things"
        raise StrataError("SAME_SOURCE", message, "tell them apart by a dimension: `report` for a horizontal one", final=True)
    return max(one, other, key=lambda offered: offered.source.date)


def _kind_of_aligned(entry: OutputEntry) -> str:
    return "playbook_3d" if "service_category" in entry.dimensions else "playbook_2d"


def _offered(entry: OutputEntry, kind: str, run: str) -> Offered:
    about = {name: entry.dimensions.get(name, "") for name in NEEDS[kind]}
    if kind == "horizontal":
        about["report"] = about["report"] or entry.agent_name
    for name, value in about.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", value):
            message = f"{entry.path}: a {kind} needs the dimension {name} as a plain word, and not {value[:80]!r}"
            raise StrataError("BAD_DIMENSION", message, "letters, digits, _ and -", final=True)
    vertical, persona, name = (about.get(field, "") for field in ("vertical", "title", "report"))
    domain = "" if kind == "horizontal" else about.get("service_category", GENERAL)
    key = "/".join(part for part in (kind, domain, vertical, persona, name) if part)
    origin = (entry.sha256, entry.execution_id or run, entry.completed_at, entry.id)
    source = Source(key, kind, domain, vertical, persona, name, *origin)
    return Offered(source, Path(entry.content_path))
