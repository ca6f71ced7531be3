"""Values on a command line: numbers with bounds, `name=value` pairs, and files that hold a text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lib.contract import StrataError, usage


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of at least 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def keyword(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """`--input name=value` flags as a table."""
    table: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            usage(f"{flag} takes name=value, not {pair!r}")
        table[name] = value
    return table


def read_text(path: str, what: str) -> str:
    """A text file named on the command line; `-` is stdin."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise StrataError("FILE_UNREADABLE", f"{what} {path}: {error.strerror}", "check the path") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise StrataError("FILE_UNREADABLE", f"{what} {path} is not UTF-8 text", "convert it first") from None
