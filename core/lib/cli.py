"""The door of every tool: its edge, with the views beside it. A tool hands `main` to `run`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from lib import edge, onlookers
from lib.call import Call, Tool
from lib.contract import Json

__all__ = ["Call", "Tool", "run"]


def run(
    tool: Tool,
    arguments: Callable[[argparse.ArgumentParser], None],
    main: Callable[[Call], Json],
    words: edge.Words | None = None,
) -> NoReturn:
    onlookers.attend()
    edge.run(tool, arguments, main, words)
