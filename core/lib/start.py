"""What makes every tool start faster. The door imports it before the rest of the library."""

from __future__ import annotations

import gc
import importlib
import sys

# Importing makes nothing but what stays: with Python's own threshold (700), a part of every start is looking for rubbish in it.
gc.set_threshold(50_000)

if "typing_extensions" not in sys.modules:  # msgspec works as well without it, and it imports half of the compiler
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    importlib.import_module("msgspec")
    del sys.modules["typing_extensions"]
