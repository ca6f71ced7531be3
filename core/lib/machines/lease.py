"""A lease on a folder that several machines share: who holds it renews it, and who wants it watches whether it still changes.

No clock is compared with another machine's. The holder ends what it does when it has not renewed for HOLD_SECONDS of its own
clock; others take the lease only when they have seen no change for TAKE_SECONDS of theirs, which is longer. Each holder has a
number and a file of its own, `lease-N`, made by whoever is first: a holder that finds a higher number has lost it.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

RENEW_SECONDS = 1.0
HOLD_SECONDS = 4.0
TAKE_SECONDS = 6.0
RELEASED = "released"
HANDED_BACK = "handed back"  # released, too: its holder was asked to stop before the work had ended
_NAME = re.compile(r"lease-([0-9]{1,9})")


def newest(folder: Path) -> int:
    """The number of the last holder; 0 where there never was one."""
    return max((int(m[1]) for name in os.listdir(folder) if (m := _NAME.fullmatch(name))), default=0)  # noqa: PTH208


def text(folder: Path, number: int) -> str:
    path = folder / f"lease-{number}"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")
    return path.read_text(encoding="utf-8", errors="replace").strip()


def lost(folder: Path) -> int:
    """How many holders there were, the last one included, without those that handed it back."""
    return sum(text(folder, number) != HANDED_BACK for number in range(1, newest(folder) + 1))


def holder(folder: Path) -> str:
    """Who holds it, by name; nobody, where it was released or never taken."""
    number = newest(folder)
    name = text(folder, number).rpartition(" ")[0] if number else ""
    return "" if name in ("", HANDED_BACK.rpartition(" ")[0]) else name


class Lease:
    """Held by this process."""

    def __init__(self, folder: Path, number: int, holder: str, since: float) -> None:
        self.number = number
        self.renewed = since
        self._folder = folder
        self._holder = holder
        self._count = 0

    @staticmethod
    def take(folder: Path, number: int, holder: str) -> Lease | None:
        """The lease of this number, if nobody was faster."""
        at = time.monotonic()
        try:
            with (folder / f"lease-{number}").open("x", encoding="utf-8") as file:
                file.write(f"{holder} 0\n")
        except FileExistsError:
            return None
        return Lease(folder, number, holder, at)

    def renew(self) -> bool:
        """Whether it is still ours. The moment that counts is the one before the writing."""
        at = time.monotonic()
        if at - self.renewed > HOLD_SECONDS or newest(self._folder) != self.number:
            return False
        self._count += 1
        self._write(f"{self._holder} {self._count}")
        self.renewed = at
        return True

    @property
    def good(self) -> bool:
        return self.left > 0

    @property
    def left(self) -> float:
        """The seconds for which it still holds, unless it is renewed."""
        return max(self.renewed + HOLD_SECONDS - time.monotonic(), 0.0)

    def release(self, handed_back: bool = False) -> None:
        """All that was done under it has ended: who waits need not wait any longer."""
        self._write(HANDED_BACK if handed_back else RELEASED)

    def _write(self, text: str) -> None:
        """Opened anew each time: closing is what brings a change to other machines."""
        descriptor = os.open(self._folder / f"lease-{self.number}", os.O_WRONLY)
        try:
            os.pwrite(descriptor, text.ljust(200).encode() + b"\n", 0)
        finally:
            os.close(descriptor)


class Watch:
    """Of somebody else: whether the lease on a folder is still held, as far as looking tells."""

    def __init__(self, folder: Path) -> None:
        self.number = 0
        self._folder = folder
        self._seen = ""
        self._since = time.monotonic()

    def free(self) -> bool:
        """Whether nobody holds it: released, never taken, or unchanged for so long that its holder has ended."""
        self.number = newest(self._folder)
        if not self.number:
            return True
        try:
            said = text(self._folder, self.number)
        except OSError:
            return False  # not to be read at the moment says nothing
        if said in (RELEASED, HANDED_BACK):
            return True
        now, seen = time.monotonic(), f"{self.number} {said}"
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since > TAKE_SECONDS
