"""Reading what anybody may have changed since it was written: each field is taken for what it is, and nothing stops a view."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

Record = TypeVar("Record", bound=msgspec.Struct)


def read(path: Path, kind: type[Record]) -> Record:
    """The record in a JSON file. Of one that is damaged, or not there yet, every field has its default."""
    try:
        return parse(path.read_bytes(), kind)
    except OSError:
        return kind()


def parse(text: str | bytes, kind: type[Record]) -> Record:
    """The record in a line of JSON; one that is torn is an empty one."""
    try:
        return of(json.loads(text), kind)
    except (ValueError, RecursionError):
        return kind()


def of(document: object, kind: type[Record]) -> Record:
    """As much of a document as is what the record says it is."""
    values: dict[str, Any] = {}
    known = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    for field in _fields(kind):
        if field.encode_name in known:
            try:
                values[field.name] = _value(known[field.encode_name], field.type)
            except (msgspec.ValidationError, TypeError):
                continue
    return kind(**values)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _value(value: Any, kind: Any) -> Any:
    record, listed = _record(kind)
    if record is None:
        return msgspec.convert(value, kind)
    many: list[Any] = cast(list[Any], value) if listed and isinstance(value, list) else [value]
    found = tuple(of(cast(object, one), record) for one in many if isinstance(one, dict))
    return found if listed else next(iter(found), None)


def prepare(*kinds: type[msgspec.Struct]) -> None:
    """Works out how these are read, once for every process that is forked from this one."""
    for kind in kinds:
        for field in _fields(kind):
            record, _ = _record(field.type)
            if record:
                prepare(record)


@cache
def _record(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The record that a field holds, and whether it holds many."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind, False
    parts = [_record(part)[0] for part in get_args(kind)] if get_origin(kind) in (tuple, UnionType) else []
    found = next((part for part in parts if part), None)
    return found, found is not None and get_origin(kind) is tuple
