"""JSON Schemas: finding one, and saying what is wrong with a document in words a person can act on."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, cast

from lib import names
from lib.contract import HOUSE, Json, StrataError, close_to, nearest
from lib.disk import places
from lib.disk.first_look import surely_valid

FOLDER = HOUSE / "config" / "schemas"


def load(name: str) -> Json:
    """A schema somebody named, checked: by its name, or by the path of a file."""
    return _load(_find(name, "").file)


def qualified(name: str, within: str) -> str:
    """The name under which everybody finds what a file of the pack `within` calls so."""
    found = _find(name, within)
    return str(found.file) if name.endswith(".json") else found.name


@cache
def _load(path: Path) -> Json:
    schema = _read(path)
    return schema if os.getenv(names.CHECKED) else check_schema(schema, str(path))


def read(name: str) -> Json:
    """A schema of our own, as it stands: those are checked by a test. Doing it in every run costs more than reading a plan."""
    return _read(FOLDER / f"{name}.json")


def _find(name: str, within: str) -> places.Found:
    if name.endswith(".json"):
        if not Path(name).is_file():
            raise StrataError("UNKNOWN_SCHEMA", f"there is no schema {name!r}", "give the path of a JSON Schema, or a name")
        return places.Found(name, Path(name), "a path")
    found = places.find("schema", name, within)
    if not found:
        known = (f.name for f in places.every("schema"))
        raise StrataError("UNKNOWN_SCHEMA", f"there is no schema {name!r}", nearest(name, known))
    return found


def _read(path: Path) -> Json:
    try:
        return cast(Json, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise StrataError("BAD_SCHEMA", f"the schema {path} cannot be read: {error}") from None


def check_schema(schema: Any, where: str) -> Json:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        raise StrataError("BAD_SCHEMA", f"{where} is not a JSON Schema object")
    known = cast(Json, schema)
    try:
        validator_for(known).check_schema(known)
    except SchemaError as error:
        raise StrataError("BAD_SCHEMA", f"{where} is not a valid JSON Schema: {error.message}") from None
    except TypeError as error:
        raise StrataError("BAD_SCHEMA", f"{where} is not a valid JSON Schema: {error}") from None
    return known


def problems(document: Any, schema: Json, limit: int = 8) -> list[tuple[list[Any], str]]:
    """What is wrong, as (path, message) pairs; empty when nothing is."""
    if surely_valid(document, schema):
        return []
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator: Any = validator_for(schema)(schema, registry=Registry())  # which fetches nothing
    found: list[tuple[list[Any], str]] = []
    try:
        raised = [_deepest(error) for error in validator.iter_errors(document)]
    except Unresolvable as error:
        message = f"a schema refers to {error}, which is not in it"
        raise StrataError("BAD_SCHEMA", message, "write what it refers to under $defs", final=True) from None
    # An unknown key is often the reason why another one is missing: it is said first.
    for error in sorted(raised, key=lambda e: (not _unknown(e), [str(p) for p in e.absolute_path])):
        found.append(([*error.absolute_path, *_unknown(error)[:1]], _words(error)))
    return found[:limit]


def _deepest(error: Any) -> Any:
    """Inside `oneOf` the useful message is in the branch that came closest."""
    from jsonschema import exceptions

    closest: Any = exceptions.best_match  # type: ignore[reportUnknownMemberType]
    if not error.context:
        return error
    unknown = [inner for inner in error.context if _unknown(inner)]
    branches = [_keys_in_common(inner) for inner in unknown]
    # Of branches that each know other keys, the one meant is the one that knows most of what is there, or nearly does.
    return unknown[branches.index(max(branches))] if unknown else closest([error])


def _keys_in_common(error: Any) -> float:
    known = list(cast(Json, error.schema.get("properties", {})))
    return sum(1.0 if k in known else 0.5 * bool(close_to(str(k), known)) for k in cast(Json, error.instance))


def _unknown(error: Any) -> list[Any]:
    """The keys that should not be there: the place of such an error is theirs, not that of what holds them."""
    if error.validator != "additionalProperties" or error.schema.get("additionalProperties") is not False:
        return []
    known = cast(Json, error.schema.get("properties", {}))
    return [k for k in cast(Json, error.instance) if k not in known]


def _words(error: Any) -> str:
    unknown = _unknown(error)
    if unknown:
        known = list(cast(Json, error.schema.get("properties", {})))
        texts: list[str] = []
        for key in unknown:
            near = close_to(str(key), known)
            texts.append(f"unknown key {key!r}" + (f" (did you mean {near!r}?)" if near else ""))
        return f"{', '.join(texts)}; known keys: {', '.join(known)}"
    if error.validator == "required":
        return f"missing key {error.message.split(' is a required')[0]}"
    return str(error.message)[:300]


def pointer(path: list[Any]) -> str:
    return "/" + "/".join(str(p) for p in path) if path else "the top"


def describe(document: Any, schema: Json) -> list[str]:
    return [f"{pointer(path)}: {message}" for path, message in problems(document, schema)]
