"""The lines of `ledger.jsonl`: one for every reservation and settlement, each with the sums after it.

Looking costs one line, or those at the end, and not the file: a session of ten thousand agents is asked ten thousand times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from lib.contract import Json
from lib.session.budget import figure

BLOCK = 64 * 1024

Sums = dict[str, dict[str, float]]  # scope → usd, held, tokens, agents


def parse(text: str) -> Json | None:
    """A line of the ledger, if it is one."""
    try:
        line: Any = json.loads(text)
        datetime.fromisoformat(line["at"])
        sums = cast(dict[str, dict[str, Any]], line["sums"])
        sound = all(figure(v) == v for values in sums.values() for v in values.values())
        sound = sound and isinstance(line["kind"], str) and all(figure(line.get(k, 0)) == line.get(k, 0) for k in ("usd", "held"))
        return cast(Json, line) if sound else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def every(path: Path) -> list[Json | None]:
    """Every whole line, None for one that cannot be read. One without end is being written."""
    data = path.read_bytes() if path.exists() else b""
    return [parse(text) for text in data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()]


def newest_first(path: Path) -> Generator[Json]:
    """The lines that can be read, from the end of the file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        rest = b""
        while end:
            begin = max(end - BLOCK, 0)
            file.seek(begin)
            first, *lines = (file.read(end - begin) + rest).split(b"\n")
            for text in reversed(lines if begin else [first, *lines]):
                known = parse(text.decode("utf-8", "replace")) if text else None
                if known:
                    yield known
            rest, end = first, begin


def is_open(path: Path, place: str) -> bool:
    """Whether what was reserved for an attempt has not been settled."""
    for line in newest_first(path):
        if line.get("id") == place and line["kind"] in ("reserve", "settle"):
            return line["kind"] == "reserve"
    return False


def open_ones(lines: Sequence[Json]) -> dict[str, Json]:
    """What was reserved and has not been settled, by the attempt it is for."""
    found: dict[str, Json] = {}
    for line in lines:
        if line["kind"] == "reserve":
            found[str(line.get("id"))] = line
        elif line["kind"] == "settle":
            found.pop(str(line.get("id")), None)
    return found


def waiting(lines: Sequence[Json]) -> dict[str, str]:
    """Who waits for room, by attempt, with the agent that started it."""
    found: dict[str, str] = {}
    for line in lines:
        if line["kind"] == "wait":
            found[str(line["id"])] = str(line.get("parent", ""))
        elif line["kind"] in ("waited", "reserve"):
            found.pop(str(line["id"]), None)
        elif line["kind"] == "begin" and not line.get("scope"):
            found = {}  # nobody of an earlier run waits any more
    return found


def unknown(lines: Sequence[Json]) -> dict[str, Json]:
    """What was reserved for attempts of which nobody knows what they cost, and is held since."""
    reserved: dict[str, Json] = {}
    found: dict[str, Json] = {}
    for line in lines:
        place = str(line.get("id"))
        if line["kind"] == "reserve":
            reserved[place] = line
        elif line["kind"] == "settle" and line.get("spent_usd") is None and place in reserved:
            found[place] = reserved[place]
        elif line["kind"] == "release":
            found.pop(place, None)
    return found


def spent_on(lines: Sequence[Json]) -> list[Json]:
    """Per agent: how many, what they cost, and what is held for them."""
    table: dict[str, Json] = {}
    names = {line["id"]: line["agent"] for line in lines if line["kind"] == "reserve"}
    for line in lines:
        if line["kind"] in ("reserve", "settle", "release"):
            entry = table.setdefault(names.get(line["id"], "?"), {"agents": 0, "usd": 0.0, "held": 0.0})
            entry["agents"] += line["agents"]
            entry["usd"] = round(entry["usd"] + figure(line.get("usd")), 6)
            entry["held"] = round(entry["held"] + figure(line.get("held")), 6)
    return [{"agent": name, **entry} for name, entry in sorted(table.items(), key=lambda pair: -pair[1]["usd"])]


def add(sums: Sums, phase: str, charged: dict[str, float]) -> Sums:
    after = {scope: dict(values) for scope, values in sums.items()}
    for scope in {"", phase}:
        values = after.setdefault(scope, {"usd": 0.0, "held": 0.0, "tokens": 0, "agents": 0})
        for kind, amount in charged.items():
            values[kind] = round(values.get(kind, 0) + amount, 9)
    return after
