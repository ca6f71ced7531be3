"""Every property of every schema says what it means: an editor shows it, and so does the skill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT


def silent(node: Any, definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """The properties that say nothing of themselves, nor by what they refer to."""
    if isinstance(node, list):
        for place, part in enumerate(node):
            yield from silent(part, definitions, f"{path}/{place}")
    if not isinstance(node, dict):
        return
    for name, given in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
        meant = definitions.get(str(given.get("$ref", "")).rpartition("/")[2], {}) | given
        if "const" not in given and len(meant.get("description", "")) < 3:
            yield f"{path}/{name}"
    for name, part in node.items():
        yield from silent(part, definitions, f"{path}/{name}")


@pytest.mark.parametrize("file", sorted((ROOT / "config").rglob("schemas/*.json")), ids=lambda p: p.stem)
def test_every_property_has_a_description(file: Path) -> None:
    schema = json.loads(file.read_text())
    assert list(silent(schema, schema.get("$defs", {}))) == []
