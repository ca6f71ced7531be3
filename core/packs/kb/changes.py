"""What changed between two versions, in sentences made from the documents themselves."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct

from packs.kb.prose import named
from packs.kb.records import GENERAL, Document, Index


class Change(Struct, frozen=True):
    kind: str  # added, changed or removed
    path: str
    title: str


def changed(before: Index, after: Index) -> list[Change]:
    old, new = ({one.path: one for one in index.documents} for index in (before, after))
    found = [Change("added", path, new[path].title) for path in new if path not in old]
    found += [Change("changed", path, new[path].title) for path in new if path in old and old[path].sha256 != new[path].sha256]
    return found + [Change("removed", path, old[path].title) for path in old if path not in new]


def between(before: Index, after: Index) -> list[str]:
    """The changelog. Domains and verticals that are new are said once, with all their documents; of the first version nothing."""
    if not before.documents:
        return []
    lines: list[str] = []
    told: set[str] = set()
    new = {one.path: one for one in after.documents}
    found = changed(before, after)
    added = [new[one.path] for one in found if one.kind == "added"]
    for field, word in (("domain", "domain"), ("vertical", "vertical"), ("persona", "persona")):
        was = {getattr(one, field) for one in before.documents}
        for value in sorted({getattr(one, field) for one in added} - was - {"", GENERAL}):
            theirs = [one for one in added if getattr(one, field) == value and one.path not in told]
            told |= {one.path for one in theirs}
            lines += [f"Added the {word} {named(value)} ({_documents(len(theirs))})"] if theirs else []
    lines += _grouped("Added to", [one for one in added if one.path not in told])
    lines += _grouped("Updated", [new[one.path] for one in found if one.kind == "changed"])
    old = {one.path: one for one in before.documents}
    return lines + _grouped("Removed from", [old[one.path] for one in found if one.kind == "removed"])


def _grouped(word: str, documents: list[Document]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for one in documents:
        place = "/".join(v for v in (one.domain, one.vertical) if v) or "cross-cutting"
        groups[place].append(one.title)
    return [f"{word} {place}: {', '.join(titles)}" for place, titles in sorted(groups.items())]


def _documents(count: int) -> str:
    return f"{count} document{'s' if count != 1 else ''}"
