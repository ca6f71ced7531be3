"""A tool starts with what it needs: importing costs more than most steps do. No clock is asked, only what was loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import CORE

NEVER = {
    "typing_extensions",
    "inspect",
    "dataclasses",
    "difflib",
    "jsonschema",
    "asyncio",
    "xml",
    "email",
    "html",
    "http",
    "rich",
}
LATE = ("lib.view.page", "lib.view.reader", "lib.temporal", "lib.machines", "lib.web")


@pytest.mark.parametrize("tool", ["spawn", "agent", "orchestrator", "coordinator", "campaign"])
def test_a_tool_starts_without_what_few_need(tool: str) -> None:
    words = f"import {tool}, sys; print(*sys.modules)"
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    loaded = subprocess.run(
        [sys.executable, "-c", words], cwd=CORE, env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not NEVER & set(loaded)
    assert not [module for module in loaded if module.startswith(LATE)]
