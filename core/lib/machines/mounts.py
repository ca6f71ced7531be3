"""What the system says of where a folder lies: whether its locks, and what is written there, reach other machines."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

TABLE = Path("/proc/self/mountinfo")
_LOCAL_LOCKS = {"nolock", "local_lock=flock", "local_lock=all", "localflock", "nobrl"}
_NO_MEMORY = {"noac", "acdirmax=0"}  # `actimeo=0` is shown as the second


class Mount(Struct, frozen=True):
    kind: str
    options: tuple[str, ...]

    @property
    def trouble(self) -> str:
        """Why machines that share it cannot rely on it, as far as its options tell; how they can, behind a semicolon."""
        for option in self.options:
            if option in _LOCAL_LOCKS:
                return f"it is mounted with {option}, and its locks hold on one machine only; mount it without"
        if self.kind in ("nfs", "nfs4") and not _NO_MEMORY & set(self.options):
            return "NFS remembers names, so that others see late what was written; mount it with actimeo=0"
        if self.kind == "fuse.sshfs":
            return "sshfs keeps no locks for other machines; take NFS 4, CephFS, Lustre or the like"
        return ""


def of(folder: Path, table: str | None = None) -> Mount | None:
    """The innermost mount that a folder lies in; of two at one place, the upper. None where the system keeps no such table."""
    try:
        lines = (TABLE.read_text(encoding="utf-8", errors="surrogateescape") if table is None else table).splitlines()
    except OSError:
        return None
    place, found = folder.resolve() if table is None else folder, None
    longest = -1
    for line in lines:
        before, _, behind = line.partition(" - ")
        where = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), before.split()[4])
        if place.is_relative_to(where) and len(where) >= longest:
            kind, _, options = behind.split(" ", 2)
            longest, found = len(where), Mount(kind, (*before.split()[5].split(","), *options.split(",")))
    return found
