"""Records on disk: a frozen Struct says what a file holds. It is read in one place, and each field is checked on the way."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lib.disk import files

Record = TypeVar("Record")


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def prepare(*kinds: type[Any]) -> None:
    """Works out how these are read, once for every process that is forked from this one."""
    for kind in kinds:
        _decoder(kind)


def read(path: Path, kind: type[Record]) -> Record:
    """The record in a state file. One that is torn, or holds something else, stops the run under its name and its place."""
    try:
        return _decoder(kind).decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise files.corrupt(path, f"{path}: {error}") from None


def look(path: Path, kind: type[Record]) -> Record | None:
    """The same for somebody who only looks on: what cannot be read, or is not there, is nothing."""
    try:
        return _decoder(kind).decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError):
        return None


def of(document: object, kind: type[Record]) -> Record:
    """A record from a document that is read already. Raises ValueError with the place."""
    return _decoder(kind).decode(msgspec.json.encode(document))  # convert() works out the type anew at every call


def document(record: object) -> Any:
    """A record as it is written."""
    return msgspec.to_builtins(record)
