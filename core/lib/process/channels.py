"""The channels between a nursery and those who ask it: what is said on them, and waiting for it."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence

NUMBER = struct.Struct("i")  # an exit code, or a process id


def readable(sources: Sequence[socket.socket | int], timeout: float | None = None) -> list[int]:
    poll = select.poll()  # select() itself knows no descriptor above 1023
    for source in sources:
        poll.register(source, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if timeout is None else int(timeout * 1000))]
