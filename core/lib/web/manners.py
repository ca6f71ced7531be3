"""Manners: what a site asks of robots, and waiting for its turn, for all tools of a session together."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from lib.contract import Interrupted
from lib.disk import files, locks
from lib.process import processes

HOSTS = Path("web/hosts")  # in the session
LONGEST_CRAWL_DELAY = 30.0


def wait_for_turn(session: Path, host: str, delay: float) -> float:
    """Takes the next free moment at a host, and sleeps until then. Returns how long that was."""
    if delay <= 0:
        return 0.0
    with alone(session, host):
        path = session / HOSTS / f"{files.safe_name(host)}.json"
        free = float(files.read_json(path)["free_at"]) if path.exists() else 0.0
        now = time.time()
        mine = max(now, min(free, now + 600))  # a clock that was set back does not stop us for long
        files.write_json(path, {"free_at": mine + delay})
    pause(mine - now)
    return mine - now


@contextmanager
def alone(session: Path, what: str) -> Generator[None]:
    """Nobody else of this session does the same meanwhile."""
    folder = session / HOSTS
    folder.mkdir(parents=True, exist_ok=True)
    with locks.held(folder / f"{files.safe_name(what)}.lock"):
        yield


def pause(seconds: float) -> None:
    if seconds > 0 and processes.stopping.wait(seconds):
        raise Interrupted()


def retry_after(text: str) -> float:
    """Seconds, from either form of the header; 0 where it says nothing."""
    if text.strip().isdecimal():
        return min(float(text), 1e9)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return 0.0


class Robots:
    """What one site's robots.txt says to us. The pattern language is Protego's, which knows wildcards."""

    def __init__(self, status: int, body: bytes, agent: str) -> None:
        """As RFC 9309 says: none is all allowed, and a site that cannot answer is not to be asked for anything."""
        from protego import Protego

        self.agent = agent
        self.closed = status >= 500
        text = body[:512_000].decode("utf-8", "replace") if 200 <= status < 300 else ""
        self.rules: Any = Protego.parse(text)

    def allows(self, url: str) -> bool:
        return not self.closed and bool(self.rules.can_fetch(url, self.agent))

    @property
    def delay(self) -> float:
        return min(float(self.rules.crawl_delay(self.agent) or 0.0), LONGEST_CRAWL_DELAY)
