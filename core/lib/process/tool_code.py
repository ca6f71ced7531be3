"""What a tool does, as a digest of its code: a stage whose tool does something else is done again."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path


@cache
def digest(script: Path) -> str:
    """Of what a tool does: its code and that of the modules beside it, its pack's or its user's; not of its comments."""
    found: dict[str, str] = {}
    queue = [script]
    while queue:
        path = queue.pop()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path.name if path == script else str(path.relative_to(script.parent))] = ast.dump(_without_words(tree))
        queue += [p for p in _imported(tree, script.parent) if str(p.relative_to(script.parent)) not in found and p != script]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _without_words(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _imported(tree: ast.Module, folder: Path) -> list[Path]:
    """The modules of a folder, and below it, that are imported; what all tools share is another thing."""
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    spots = [folder.joinpath(*name.split(".")) for name in named if name.split(".")[0] != "lib"]
    files = [file for spot in spots for file in (spot.with_suffix(".py"), spot / "__init__.py")]
    return [file for file in files if file.is_file()]
