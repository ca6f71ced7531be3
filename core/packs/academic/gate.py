"""The validation gate: whatever an agent or a web page has said passes here before another phase sees it.

Every text field is cleaned; one that reads like an instruction to a machine is put into quarantine, with place and reason;
then types and fields are held against the schema of the handover. A person can let a text out of quarantine by its digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from lib.contract import StrataError
from lib.disk import files, schemas
from msgspec import Struct

from packs.academic import sanitising

PACK = "academic"
_IDS = {
    "candidates": ("candidates", "id"), "ranked_candidates": ("ranked", "id"), "downloads": ("downloads", "id"),
    "quotes": ("quotes", "quote_id"), "databases": ("databases", "name"),
}  # fmt: skip


class Quarantined(Struct, frozen=True):
    """One field that nobody reads until a person has."""

    field: str  # a pointer into the document
    reason: str
    sha256: str  # of the text: by it a person lets it out
    text: str  # its beginning


class Gated(Struct, frozen=True):
    document: Any  # cleaned
    cleaned: tuple[str, ...]  # what was taken out, and where
    quarantined: tuple[Quarantined, ...]
    problems: tuple[str, ...]  # what the schema has against it

    @property
    def warnings(self) -> list[str]:
        held = [f"{q.field} is in quarantine: it {q.reason} (release it as {q.sha256[:12]})" for q in self.quarantined]
        return [*held, *self.cleaned[:5]]

    def require(self, what: str, owner: str) -> Any:
        if self.problems:
            listed = "; ".join(self.problems[:5])
            raise StrataError(
                "GATE_REFUSED",
                f"{what} breaks its contract: {listed}",
                f"{owner} owes it; see config/packs/academic/schemas",
                detail={"problems": list(self.problems)},
                final=True,
            )
        return self.document


def passed(document: Any, schema: str, released: frozenset[str] = frozenset(), by_person: bool = False) -> Gated:
    """`schema`: by name, as `quotes`; or the path of one. `released`: digests of texts that a person has let out.
    `by_person`: all of it is a person's own words, of which none is taken out."""
    cleaned: list[str] = []
    held: list[Quarantined] = []
    shape = schemas.load(schema if "/" in schema or schema.endswith(".json") else f"{PACK}/{schema}")
    found = document if by_person else _walk(document, "", shape, released, cleaned, held)
    problems = _twice(found, schema) + [f"{schemas.pointer(path)}: {message}" for path, message in schemas.problems(found, shape)]
    return Gated(found, tuple(cleaned), tuple(held), tuple(problems))


def _twice(document: Any, schema: str) -> list[str]:
    """An id names one thing: which of a list stand in it twice."""
    if schema not in _IDS or not isinstance(document, dict):
        return []
    listed, field = _IDS[schema]
    rows: Any = cast(dict[str, Any], document).get(listed)
    ids = (
        [str(cast(dict[str, Any], row).get(field)) for row in cast(list[Any], rows) if isinstance(row, dict)]
        if isinstance(rows, list)
        else []
    )
    return [f"/{listed}: {one} stands there {count} times" for one, count in Counter(ids).items() if count > 1]


def _walk(value: Any, at: str, shape: Any, released: frozenset[str], cleaned: list[str], held: list[Quarantined]) -> Any:
    if isinstance(value, str):
        return _text(value, at, shape, released, cleaned, held)
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [_walk(one, f"{at}/{i}", _below(shape, "items"), released, cleaned, held) for i, one in enumerate(items)]
    if isinstance(value, dict):
        known = cast(dict[str, Any], value)
        return {_key(k, at, held): _walk(v, f"{at}/{k}", _field(shape, k), released, cleaned, held) for k, v in known.items()}
    return value


def _text(value: str, at: str, shape: Any, released: frozenset[str], cleaned: list[str], held: list[Quarantined]) -> str | None:
    clean = sanitising.clean(value)
    cleaned += [f"{at}: {note} taken out" for note in clean.notes]
    reason = sanitising.instruction(value) or sanitising.instruction(clean.text)
    if not reason:
        return clean.text
    digest = files.digest_bytes(value.encode())
    if digest in released or any(len(one) >= 12 and digest.startswith(one) for one in released):
        cleaned.append(f"{at}: let out of quarantine by a person, although it {reason}")
        return clean.text
    held.append(Quarantined(at, reason, digest, value[:300]))
    return None if "null" in _types(shape) else f"[in quarantine: it {reason}]"


def _key(key: str, at: str, held: list[Quarantined]) -> str:
    if reason := sanitising.instruction(key):
        held.append(Quarantined(f"{at} (a name)", reason, files.digest_bytes(key.encode()), key[:300]))
        return f"[in quarantine: it {reason}]"
    return sanitising.clean(key).text


def _field(shape: Any, name: str) -> Any:
    return _below(_below(shape, "properties"), name) or _below(shape, "additionalProperties")


def _below(shape: Any, name: str) -> Any:
    found = cast(dict[str, Any], shape).get(name) if isinstance(shape, dict) else None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _types(shape: Any) -> list[str]:
    said: Any = cast(dict[str, Any], shape).get("type", []) if isinstance(shape, dict) else []
    return cast(list[str], said) if isinstance(said, list) else [str(said)]


def texts(document: Any) -> Iterator[str]:
    """Every text in a document, however deep."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, list):
        for one in cast(list[Any], document):
            yield from texts(one)
    elif isinstance(document, dict):
        for key, one in cast(dict[str, Any], document).items():
            yield key
            yield from texts(one)
