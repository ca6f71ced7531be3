"""The door of every tool: its edge, with the views beside it. A tool hands `main` to `run`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from lib import start  # noqa: F401 # pyright: ignore[reportUnusedImport] - before the rest
from lib.contract import Json
from lib.tool import edge
from lib.tool.call import Call, Tool
from lib.view import onlookers

__all__ = ["Call", "Tool", "run"]


def run(
    tool: Tool,
    arguments: Callable[[argparse.ArgumentParser], None],
    main: Callable[[Call], Json],
    words: edge.Words | None = None,
) -> NoReturn:
    onlookers.attend()
    edge.run(tool, arguments, main, words)
