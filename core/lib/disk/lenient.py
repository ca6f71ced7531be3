"""Reading what anybody may have changed since it was written: each value is taken for what it is, and nothing stops a view."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from lib.contract import Json


def read(path: Path) -> Json:
    """A JSON object, or nothing: whoever looks on does not stop at a file that is damaged or not there yet."""
    try:
        return obj(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, RecursionError, OSError):
        return {}


def obj(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def objs(value: object) -> list[Json]:
    return [cast(Json, v) for v in cast(list[Any], value) if isinstance(v, dict)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    return [str(v) for v in cast(list[Any], value)] if isinstance(value, list) else []


def figure(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
