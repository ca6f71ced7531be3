"""Ring 1: two houses are the same if their files, their Python and their libraries are; if not, a person is told in what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lib.machines import house
from lib.machines.house import Facts
from msgspec.structs import replace
from support import House

KNOWN = Facts("/shared/strata", "a" * 64, "3.12", {"msgspec": "1.0", "rich": "14.0"})


def test_it_knows_what_its_tools_import() -> None:
    assert {"claude-agent-sdk", "jsonschema", "msgspec", "pyyaml", "rich"} <= set(house.needed())
    assert "missing" not in house.facts().packages.values()
    assert house.facts() == house.facts()


@pytest.mark.parametrize("name", ["core/agent.py", "core/lib/names.py", "config/checks.yaml", "prompts/executors/more.md"])
def test_every_file_that_counts_counts(tmp_path: Path, name: str) -> None:
    made = House(tmp_path / "house")
    before = house.code(made.folder), house.stamp(made.folder)
    (made.folder / "sessions").mkdir()
    (made.folder / "sessions/x.py").write_text("x")
    (made.folder / "core/lib/__pycache__").mkdir(exist_ok=True)
    (made.folder / "core/lib/__pycache__/x.pyc").write_text("x")
    assert before == (house.code(made.folder), house.stamp(made.folder)), "what a run leaves behind is not the house"
    path = made.folder / name
    text = path.read_text() if path.exists() else ""
    if path.exists():
        path.unlink()
    path.write_text(text + "\n")
    os.utime(path, ns=(1, 1))
    assert house.code(made.folder) != before[0]
    assert house.stamp(made.folder) != before[1]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (replace(KNOWN, place="/home/strata"), "/home/strata there"),
        (replace(KNOWN, code="b" * 64), "core, config or prompts differ"),
        (replace(KNOWN, python="3.11"), "3.11 there"),
        (replace(KNOWN, packages={"msgspec": "1.1", "rich": "14.0"}), "msgspec"),
        (replace(KNOWN, packages={"rich": "14.0"}), "msgspec"),
    ],
)
def test_it_says_in_what_two_differ(other: Facts, says: str) -> None:
    assert KNOWN.differs(KNOWN) == ""
    assert says in KNOWN.differs(other)
    assert KNOWN.name != other.name, "they never share a queue"
