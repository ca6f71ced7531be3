"""How deep agents may call agents: a child can tighten the limit, never loosen it."""

from __future__ import annotations

import os

from msgspec import Struct

from lib import names
from lib.contract import ExitCode, StrataError

DEFAULT_MAX_DEPTH = {0: 2, 1: 2, 2: 3, 3: 3, 4: 3}  # the seed's recommendations for tool mode, per layer


class Depth(Struct, frozen=True):
    current: int
    maximum: int

    @property
    def remaining(self) -> int:
        return self.maximum - self.current

    def require(self, needed: int = 1) -> None:
        if self.remaining < needed:
            raise StrataError(
                "DEPTH_EXCEEDED",
                f"{needed} level{'s' if needed > 1 else ''} of agents needed, {max(self.remaining, 0)} left "
                f"(depth {self.current} of {self.maximum})",
                f"start the outermost command with --max-depth {self.current + needed} or more",
                ExitCode.DEPTH_EXCEEDED,
            )


def from_environment(layer: int, current_argument: int | None, maximum_argument: int | None) -> Depth:
    """The larger of both depths and the smaller of both limits."""
    current = max(_variable(names.DEPTH, 0) or 0, current_argument or 0)
    inherited = _variable(names.MAX_DEPTH, 1)
    asked = maximum_argument if maximum_argument is not None else (inherited or DEFAULT_MAX_DEPTH[layer])
    return Depth(current, min(asked, inherited) if inherited is not None else asked)


def _variable(name: str, least: int) -> int | None:
    text = os.getenv(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) < least:
        raise StrataError("BAD_ENVIRONMENT", f"{name} must be a whole number of at least {least}, not {text!r}", "unset it")
    return int(text)
