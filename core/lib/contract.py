"""The words every tool agrees on: exit codes, statuses, and the one exception that carries them."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

Json = dict[str, Any]

CORE = Path(__file__).resolve().parent.parent
HOUSE = CORE.parent


class ExitCode(IntEnum):
    SUCCESS = 0
    FAILURE = 1
    DEPTH_EXCEEDED = 2
    HUMAN_INPUT = 3
    NEEDS_REFINEMENT = 10
    NEEDS_ESCALATION = 11
    PARTIAL_SUCCESS = 12
    INTERRUPTED = 20
    TIMEOUT = 21


STATUS: dict[int, str] = {
    ExitCode.SUCCESS: "success",
    ExitCode.FAILURE: "failure",
    ExitCode.DEPTH_EXCEEDED: "depth-exceeded",
    ExitCode.HUMAN_INPUT: "human-input",
    ExitCode.NEEDS_REFINEMENT: "needs-refinement",
    ExitCode.NEEDS_ESCALATION: "needs-escalation",
    ExitCode.PARTIAL_SUCCESS: "partial",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TIMEOUT: "timeout",
}


class StrataError(Exception):
    """Something a user can act on: what happened, what to do, and how the tool must exit."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        exit_code: ExitCode = ExitCode.FAILURE,
        detail: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.detail = detail or {}

    def document(self) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        if self.hint:
            error["hint"] = self.hint
        return error | self.detail


class Interrupted(StrataError):  # noqa: N818 - a role, like KeyboardInterrupt, not a fault
    def __init__(self, message: str = "interrupted") -> None:
        super().__init__("INTERRUPTED", message, "run the same command again to go on from here", ExitCode.INTERRUPTED)


def nearest(word: str, known: Iterable[str], label: str = "there are") -> str:
    """The hint for a name that is not known: the one that was probably meant, or all there are."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"{label}: {', '.join(names) or 'none'}"


def usage(message: str, hint: str = "") -> NoReturn:
    raise StrataError("USAGE", message, hint or "see --help")


def finite_cost(value: Any) -> float | None:
    """A reported cost, or None when it says nothing. NaN, infinite or negative money is refused, not believed."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise StrataError("BAD_COST", f"a cost must be a finite number of at least 0, not {value!r}")
    return float(value)


def command(tool: str) -> str:
    """How a person calls a tool from where they stand."""
    try:
        at_home = Path.cwd() == HOUSE
    except FileNotFoundError:  # standing in a folder that is gone
        at_home = False
    return f"uv run core/{tool}.py" if at_home else f"uv run {shlex.quote(str(CORE / f'{tool}.py'))}"
