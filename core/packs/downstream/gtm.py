"""The research before downstream: what of it Python does, and what it accepts."""

from __future__ import annotations

from collections.abc import Callable

from lib.attempt.judging import Made

LOOKS: dict[str, Callable[[Made], list[str]]] = {}
