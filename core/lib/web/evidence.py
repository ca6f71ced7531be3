"""What was asked of the web and what came back, as records in the attempt that asked; bodies by their hash, once per session."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.disk.redact import REDACTED, credential_name

BODIES = Path("web/bodies")  # in the session
COPIES = Path("web/copies")  # in the session, by address: what is asked for again only if it has changed
FOLDER = "web"  # in an attempt
OUTCOME = "outcome.json"
KEPT_HEADERS = (
    "content-type",
    "content-language",
    "content-disposition",
    "etag",
    "last-modified",
    "date",
    "location",
    "retry-after",
    "link",
    "x-robots-tag",
)


class Hop(Struct, frozen=True):
    """One request on the wire: redirects are several."""

    url: str
    address: str
    status: int


class Fetched(Struct, frozen=True):
    """One request and its answer."""

    method: str
    url: str
    reason: str
    at: str
    final_url: str = ""
    status: int = 0
    headers: dict[str, str] = {}
    sha256: str = ""
    size: int = 0
    body: str = ""  # below the session
    sent_sha256: str = ""  # of what was sent
    asked_with: str = ""  # a digest of the headers it was asked with, credentials excepted
    hops: tuple[Hop, ...] = ()
    unchanged: bool = False  # the session's own copy is still what the site has
    elapsed_seconds: float = 0.0
    error: Json | None = None

    @property
    def key(self) -> str:
        """By which a recording of it is found."""
        return files.digest([self.method, self.url, self.sent_sha256, self.asked_with])[:16]

    def document(self) -> Json:
        """As it is written: an address may hold a credential, and a page is known by its digest anyway."""
        hops = tuple(replace(hop, url=discreet(hop.url)) for hop in self.hops)
        return records.document(replace(self, url=discreet(self.url), final_url=discreet(self.final_url), hops=hops))


class Shelf:
    """The evidence of one attempt, and what of a recording it has taken."""

    def __init__(self, session: Path, attempt: Path, recorded: Path | None = None) -> None:
        """`recorded`: the session this one replays."""
        self.session, self.attempt = session, attempt
        self.recorded = recorded
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}

    def keep(self, fetched: Fetched) -> Fetched:
        with self._lock:
            folder = self.attempt / FOLDER
            number = len(list(folder.glob("*.json"))) + 1 if folder.is_dir() else 1
            files.write_json(folder / f"{number:03d}-{fetched.key}.json", fetched.document())
        return fetched

    def replayed(self, asked: Fetched) -> Fetched:
        """What was recorded for this request: of the same attempt at the same step, and of several the next."""
        assert self.recorded
        step = self.attempt.parent.relative_to(self.session)
        everybody = sorted((self.recorded / step).glob("attempt-*"), key=_number)
        ended = [a for a in everybody if (a / OUTCOME).exists()]  # one that was cut off was done again
        theirs = ended or [a for a in everybody if (a / FOLDER).is_dir()]
        place = sum((a / OUTCOME).exists() for a in self.attempt.parent.glob("attempt-*"))
        found: list[Path] = []
        if place < len(theirs):
            found = sorted((theirs[place] / FOLDER).glob(f"*-{asked.key}.json"))
        with self._lock:
            taken = self._taken.get(asked.key, 0)
            self._taken[asked.key] = taken + 1
        if taken >= len(found):
            message = f"no recorded {asked.method} of {asked.url} for attempt {place + 1} of {step} in {self.recorded}"
            raise StrataError("FIXTURE_MISSING", message, "record it with --driver record", final=True)
        known = records.read(found[taken], Fetched)
        if known.body:
            body = (self.recorded / known.body).read_bytes()
            if files.digest_bytes(body) != known.sha256:
                raise StrataError("CORRUPT_STATE", f"{self.recorded / known.body} is not what was recorded", "record it again")
            files.write_atomic(self.session / known.body, body)
        return self.keep(known)

    def copy_of(self, url: str) -> Fetched | None:
        """What this session has of an address."""
        path = self._copy(url)
        known = records.read(path, Fetched) if path.is_file() else None
        return known if known and (self.session / known.body).is_file() else None

    def keep_copy(self, url: str, fetched: Fetched) -> None:
        files.write_json(self._copy(url), fetched.document())

    def _copy(self, url: str) -> Path:
        return self.session / COPIES / f"{files.digest(url)[:32]}.json"


def discreet(url: str) -> str:
    """Without the value of what looks like a credential in its query."""

    def hidden(found: re.Match[str]) -> str:
        return f"{found[1]}={REDACTED}" if credential_name(found[1].lstrip("?&")) else found[0]

    return re.sub(r"([?&][^=&#]+)=([^&#]*)", hidden, url)


def _number(attempt: Path) -> int:
    return int(attempt.name.rpartition("-")[2])
