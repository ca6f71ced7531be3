"""Ring 1: the rooms of the library import only downwards, hidden and type-only imports included."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from support import CORE, ROOT

LIB = CORE / "lib"
# From the ground up. A room imports those before it, and modules of its own.
ROOMS = ("disk", "evidence", "process", "session", "machines", "tool", "temporal", "plan", "workspace")
ROOMS += ("web", "agent", "attempt", "stages", "campaign", "view")
GROUND, DOORS = ("start", "names", "contract"), ("cli", "observability")
LONGEST_CHAIN = 16
MODULES = {".".join(p.relative_to(LIB).with_suffix("").parts).removesuffix(".__init__"): p for p in LIB.rglob("*.py")}


@cache
def imports(module: str) -> frozenset[str]:
    """Every module of the library that a module imports anywhere: at its top, in a function, or only for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lib":
            base = (node.module or "").removeprefix("lib").removeprefix(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}".removeprefix(".")
                found.add(whole if whole in MODULES else base)
        assert not (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "lib" for a in node.names)), module
    return frozenset(found - {module, ""})


def level(module: str) -> int:
    room = module.split(".", maxsplit=1)[0]
    if room in GROUND:
        return GROUND.index(room) - len(GROUND)
    return len(ROOMS) if room in DOORS else ROOMS.index(room)


def test_every_module_stands_in_a_room_that_says_what_lives_there() -> None:
    for module, path in MODULES.items():
        if path != LIB / "__init__.py":
            assert module.split(".")[0] in (*ROOMS, *GROUND, *DOORS), module
    for room in ROOMS:
        words = (LIB / room / "README.md").read_text()
        assert len(words.strip().splitlines()) == 5, f"{room}/README.md has five lines: what lives there, and what it may import"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_room_imports_only_what_is_below_it(module: str) -> None:
    if module:
        for other in imports(module):
            same = module.split(".", maxsplit=1)[0] == other.split(".")[0]
            assert same or level(other) < level(module), f"{module} imports {other}"


def test_there_is_no_circle_and_the_longest_chain_has_a_bound() -> None:
    def depth(module: str, above: tuple[str, ...] = ()) -> int:
        assert module not in above, " → ".join((*above, module))
        if module not in depths:
            depths[module] = 1 + max((depth(other, (*above, module)) for other in imports(module)), default=0)
        return depths[module]

    depths: dict[str, int] = {}
    assert max(depth(module) for module in MODULES if module) <= LONGEST_CHAIN


def test_the_library_does_not_import_the_facade_of_the_seed() -> None:
    assert not [module for module in MODULES if module and "observability" in imports(module)]


def test_tests_mirror_the_rooms() -> None:
    folders = {p.name for p in (ROOT / "tests/lib").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= set(ROOMS)
    for path in (ROOT / "tests/lib").glob("*/test_*.py"):
        subject = path.stem.removeprefix("test_")
        there = LIB / path.parent.name
        assert (there / f"{subject}.py").exists() or list(there.rglob(f"{subject}.py")), f"{path} mirrors no module"


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_no_corner_grows(path: Path) -> None:
    """Who needs more lines has a second idea in one file, or says in the docstring why it is one."""
    lines = path.read_text().splitlines()
    most = 150 if path.parent == CORE else 350
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert len(lines) <= most or "one module" in docstring, f"{path.name} has {len(lines)} lines, at most {most}"


def test_documents_are_read_as_records_and_not_by_guessing() -> None:
    """A `.get(` on data says that nobody knows what is in it: `session/documents.py` and `plan/written.py` do."""
    read = [path for path in CORE.rglob("*.py") if not {"web", "packs"} & set(path.parts)]  # what others print
    assert sum(path.read_text().count('.get("') for path in read) <= 75
    assert sum(path.read_text().count(".get(") for path in read) <= 225
