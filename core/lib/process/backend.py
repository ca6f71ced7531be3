"""The interface through which every tool and every check is started; it hides on which machine a command runs.

A backend starts a command under an id, hands on its lines, stops it, and says how it ended. Lost is a status, never an exit code:
nobody knows what became of the command. `local` runs it on this machine; `machines/placing` hands tools to workers on other
machines and all else to `local`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

OnLine = Callable[[str], None]


class Status(StrEnum):
    EXITED = "exited"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"


class ToolCall(Struct, frozen=True):
    """A tool of the house, as a machine with a house of its own knows it."""

    name: str
    layer: int
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()  # labels that a machine must have


class Command(Struct, frozen=True):
    """A command to be run: in words, with the environment it gets, and where."""

    id: str  # of one run of one command: the same id is the same run
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None = None
    stdin: bytes | None = None
    stdout_file: Path | None = None  # both streams go there, and neither is kept in memory
    tool: ToolCall | None = None  # where it is one of the house's


class Finished(Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    stdout: bytes = b""
    tail: str = ""  # the last lines of stderr, for an error a person can use
    status: Status = Status.EXITED
    silent: bool = False  # stopped because nothing was heard of it

    @property
    def timed_out(self) -> bool:
        return self.status is Status.TIMEOUT


class Running(Protocol):
    """A command that was started."""

    @property
    def heard(self) -> float:
        """When something was last heard of it, on the monotonic clock."""
        ...

    def wait(self, seconds: float) -> Finished | None:
        """Hands on what it says, for so long at most. What became of it, once it has ended."""
        ...

    def stop(self, grace: float) -> None:
        """Asks it to end; one that has not after `grace` seconds is ended. Returns at once, and may be called again."""
        ...

    def close(self, grace: float) -> None:
        """Nobody waits for it any more: what of it still runs is asked to end, and after `grace` seconds ended."""
        ...


class Backend(Protocol):
    def start(self, command: Command, on_line: OnLine) -> Running: ...
