"""The lines of `ledger.jsonl`: one for every reservation and settlement, each with the sums after it.

Looking costs one line, or those at the end, and not the file: a session of ten thousand agents is asked ten thousand times.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from lib.contract import Json
from lib.disk.clock import now

BLOCK = 64 * 1024


class Sums(Struct, frozen=True):
    """What one scope has come to."""

    usd: float = 0.0
    held: float = 0.0
    tokens: float = 0
    agents: float = 0

    def plus(self, other: Sums) -> Sums:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Sums(*(round(one + more, 9) for one, more in pairs))

    def counted(self, kind: str) -> float:
        """What counts against a limit: of money also what is held."""
        return self.usd + self.held if kind == "usd" else getattr(self, kind, 0.0)


NOTHING = Sums()
Scoped = dict[str, Sums]


class Line(Struct, frozen=True, omit_defaults=True):
    kind: str  # reserve, settle, release, wait, waited, begin or end
    at: str = ""
    id: str = ""  # the attempt it is about
    phase: str = ""
    agent: str = ""
    step: str = ""
    parent: str = ""  # the agent that started it
    driver: str = ""
    usd: float = 0.0  # these four: what the line adds
    held: float = 0.0
    tokens: float = 0
    agents: float = 0
    spent_usd: float | None = None  # of a settlement; None: nobody knows
    source: str = ""
    scope: str = ""
    params: dict[str, Any] = {}  # of the beginning of a campaign: the values its plan was filled with
    wall: float = 0.0  # of a beginning and an end: what all runs before it took
    agent_session_id: str = ""
    session_usd: float | None = None  # what the agent session has come to as a whole
    session_usage: dict[str, Json] = {}
    sums: Scoped = field(default_factory=dict[str, Sums])

    @property
    def charged(self) -> Sums:
        return Sums(self.usd, self.held, self.tokens, self.agents)

    def adding(self, charged: Sums) -> Line:
        return msgspec.structs.replace(self, **msgspec.structs.asdict(charged))

    def text(self) -> str:
        """As it is written: what says nothing is left out, but for amounts."""
        amounts = msgspec.structs.asdict(self.charged) if self.kind in ("reserve", "settle", "release") else {}
        return msgspec.json.encode(msgspec.to_builtins(self) | amounts).decode()


_decoder = msgspec.json.Decoder(Line)


def parse(text: str | bytes) -> Line | None:
    """A line of the ledger, if it is one."""
    try:
        line = _decoder.decode(text)
        datetime.fromisoformat(line.at)
        return line
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def every(path: Path) -> list[Line | None]:
    """Every whole line, None for one that cannot be read. One without end is being written."""
    data = path.read_bytes() if path.exists() else b""
    return [parse(text) for text in data[: data.rfind(b"\n") + 1].splitlines()]


def newest_first(path: Path) -> Generator[Line]:
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
                known = parse(text) if text else None
                if known:
                    yield known
            rest, end = first, begin


def is_open(path: Path, place: str) -> bool:
    """Whether what was reserved for an attempt has not been settled."""
    for line in newest_first(path):
        if line.id == place and line.kind in ("reserve", "settle"):
            return line.kind == "reserve"
    return False


def open_ones(lines: Sequence[Line]) -> dict[str, Line]:
    """What was reserved and has not been settled, by the attempt it is for."""
    found: dict[str, Line] = {}
    for line in lines:
        if line.kind == "reserve":
            found[line.id] = line
        elif line.kind == "settle":
            found.pop(line.id, None)
    return found


def waiting(lines: Sequence[Line]) -> dict[str, str]:
    """Who waits for room, by attempt, with the agent that started it."""
    found: dict[str, str] = {}
    for line in lines:
        if line.kind == "wait":
            found[line.id] = line.parent
        elif line.kind in ("waited", "reserve"):
            found.pop(line.id, None)
        elif line.kind == "begin" and not line.scope:
            found = {}  # nobody of an earlier run waits any more
    return found


def unknown(lines: Sequence[Line]) -> dict[str, Line]:
    """What was reserved for attempts of which nobody knows what they cost, and is held since."""
    reserved: dict[str, Line] = {}
    found: dict[str, Line] = {}
    for line in lines:
        if line.kind == "reserve":
            reserved[line.id] = line
        elif line.kind == "settle" and line.spent_usd is None and line.id in reserved:
            found[line.id] = reserved[line.id]
        elif line.kind == "release":
            found.pop(line.id, None)
    return found


def spent_on(lines: Sequence[Line]) -> list[Json]:
    """Per agent: how many, what they cost, and what is held for them."""
    table: dict[str, Sums] = {}
    names = {line.id: line.agent for line in lines if line.kind == "reserve"}
    for line in lines:
        if line.kind in ("reserve", "settle", "release"):
            name = names.get(line.id, "?")
            table[name] = table.get(name, NOTHING).plus(line.charged)
    ordered = sorted(table.items(), key=lambda pair: -pair[1].usd)
    return [{"agent": name, "agents": sums.agents, "usd": sums.usd, "held": sums.held} for name, sums in ordered]


def add(sums: Scoped, phase: str, charged: Sums) -> Scoped:
    return sums | {scope: sums.get(scope, NOTHING).plus(charged) for scope in {"", phase}}


# Time: what every run of the session took


def wall_until_now(lines: Iterable[Line], scope: str) -> float | None:
    """What the runs of a scope took, the last one until now: the line of its beginning says what those before it took. None where
    it has not begun in this run."""
    for line in lines:
        if line.kind in ("begin", "end") and line.scope == scope:
            return line.wall + (_seconds_since(line.at) if line.kind == "begin" else 0.0)
        if line.kind == "begin" and not line.scope:
            return None
    return None


def wall_total(lines: Sequence[Line], scope: str) -> float:
    """From each beginning to its end, or to the last thing that was written before the next."""
    total, begun, last = 0.0, None, None
    for line in lines:
        at = datetime.fromisoformat(line.at)
        again = line.kind == "begin" and line.scope in ("", scope)
        if again or (line.kind == "end" and line.scope == scope):
            until = at if line.kind == "end" else last
            total += max((until - begun).total_seconds(), 0.0) if begun and until else 0.0  # a clock may have been set back
            begun = at if line.kind == "begin" and line.scope == scope else None
        last = at
    return total + (max((last - begun).total_seconds(), 0.0) if begun and last else 0.0)


def _seconds_since(at: str) -> float:
    return max((datetime.fromisoformat(now()) - datetime.fromisoformat(at)).total_seconds(), 0.0)
