"""Where commands are placed, as a person writes it and as tools and the placer tell each other."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from msgspec import Struct

from lib import names
from lib.contract import StrataError, nearest, part
from lib.machines.house import Facts
from lib.machines.placed import Ticket, Word, lease_number

LOCAL = "local"
SCHEME = "temporal"
LAYERS = {"executors": 1, "orchestrators": 2}
_HOST = re.compile(r"[A-Za-z0-9.\-_]+|\[[0-9a-fA-F:.]+\]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")


class Address(Struct, frozen=True):
    """Where commands are placed: `temporal://HOST:PORT/NAMESPACE?cap=N&place=executors`."""

    target: str  # HOST:PORT
    namespace: str = "default"
    cap: int = 0  # how many may be placed at the same time; 0: as many as the plan lets run
    place: str = "executors"  # the layer that runs on workers; those above stay with the submitter

    @staticmethod
    def parse(text: str) -> Address | None:
        """None: on this machine."""
        if text in ("", LOCAL):
            return None
        url = urlsplit(text)
        try:
            port = 7233 if url.port is None else url.port
        except ValueError:
            port = 0
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        unknown = sorted(set(query) - {"cap", "place"})
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
        odd = url.scheme != SCHEME or not _HOST.fullmatch(host) or not port or url.username or url.path.count("/") > 1
        if odd or unknown:
            what = f"has no {unknown[0]!r}, only cap and place" if unknown and not odd else f"is not valid: {text!r}"
            raise StrataError("USAGE", f"a backend {what}", f"{SCHEME}://HOST:7233/NAMESPACE, or {LOCAL}")
        cap, place = part(query, "cap") or "0", part(query, "place") or "executors"
        if not (cap.isascii() and cap.isdigit() and len(cap) < 6):
            raise StrataError("USAGE", f"the cap of a backend is a whole number, not {cap!r}", "cap=40: at most 40 at once")
        if place not in LAYERS:
            raise StrataError("USAGE", f"a backend cannot place {place!r}", nearest(place, LAYERS, "it places"))
        return Address(f"{host}:{port}", url.path.strip("/") or "default", int(cap), place)

    def __str__(self) -> str:
        more = {k: v for k, v in (("cap", self.cap or ""), ("place", self.place)) if v not in ("", "executors")}
        return f"{SCHEME}://{self.target}/{self.namespace}{'?' if more else ''}{urlencode(more)}"


def label(text: str) -> str:
    """A label of machines, checked: it becomes part of the name of a queue."""
    if not _LABEL.fullmatch(text):
        raise StrataError("USAGE", f"{text!r} is no label of a machine", "small letters, digits and dashes, such as gpu")
    return text


def queue(facts: str, place: str, needs: tuple[str, ...]) -> str:
    """Where a worker listens: houses that differ never share a queue, and neither do layers, or machines with other labels."""
    return "-".join(("strata", facts, place, *(["+".join(sorted(set(needs)))] if needs else [])))


def worker_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise StrataError("USAGE", f"{text!r} is no name of a worker", "letters, digits, dots and dashes, such as gpu-box.1")
    return text


class Shown(Struct, frozen=True):
    """What a worker shows of itself to those who look for one."""

    name: str
    facts: Facts
    place: str = "executors"
    labels: tuple[str, ...] = ()


class Way(Struct, frozen=True):
    """How a tool reaches the placer of its run, in the environment."""

    socket: str
    layer: int
    house: str

    @staticmethod
    def read() -> Way | None:
        """None: nothing is placed."""
        text = os.getenv(names.BACKEND, "")
        try:
            return msgspec.json.decode(text.encode(), type=Way) if text else None
        except msgspec.MsgspecError:
            hint = f"unset it: only a run that places commands sets {names.BACKEND}"
            raise StrataError("BAD_ENVIRONMENT", f"{names.BACKEND} says nothing that can be read", hint) from None


class Mandate(Struct, frozen=True):
    """What the outermost tool starts a placer for."""

    backend: str
    session: str
    listen: str  # the socket on which tools ask
    facts: Facts  # of the house that orders


class Asked(Struct, frozen=True):
    """What a tool asks of the placer."""

    id: str
    ticket: Ticket
    needs: tuple[str, ...] = ()
    label: str = ""

    @property
    def begun(self) -> bool:
        """Whether some worker has it, or had it."""
        return lease_number(Path(self.ticket.folder)) > 0


class Told(Struct, frozen=True):
    """What the placer answers: that it has begun to listen, or what became of the command."""

    word: Word | None = None
    lost: str = ""
