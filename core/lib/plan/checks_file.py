"""Which checks there are: named commands, read from `config/checks.yaml` or a file of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lib.contract import Json, StrataError
from lib.disk import config

DEFAULT_FILE = config.CONFIG / "checks.yaml"
ARTIFACTS = "artifacts"  # the check that needs no command: what a phase says it produced is there, as it was produced


class Check(Struct, frozen=True):
    name: str
    command: tuple[str, ...]
    timeout_seconds: float = 600.0
    env: tuple[str, ...] = ()  # variables it gets although they look like secrets
    blocking: bool = True
    parser: str = "exit-code"
    report: str = ""  # of the junit parser: the XML file the command writes, in the folder it runs in


def load(path: Path) -> dict[str, Check]:
    document = config.read(path)
    data = document.check("checks")
    table: dict[str, Check] = {}
    for name, spec in cast(Json, data["checks"]).items():
        command: Any = spec["command"]
        words = cast(list[str], command) if isinstance(command, list) else ["sh", "-c", str(command)]
        if not _runs_something(command):
            hint = "what is to be run? Leave the check out if there is nothing"
            raise document.error(["checks", name, "command"], f"the check {name!r} runs nothing", hint)
        if spec.get("parser") == "junit" and not spec.get("report"):
            raise document.error(["checks", name], "the junit parser needs `report`, the XML file", "report: junit.xml")
        table[name] = Check(
            name,
            tuple(w.replace("{python}", sys.executable) for w in words),
            float(spec.get("timeout_seconds", 600)),
            tuple(spec.get("env", ())),
            spec.get("blocking", True),
            spec.get("parser", "exit-code"),
            spec.get("report", ""),
        )
    return table


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _runs_something(command: Any) -> bool:
    """Whether a command is more than blanks and comments."""
    if isinstance(command, list):
        words = [str(word) for word in cast(list[Any], command)]
        script = words[words.index("-c") + 1 :] if "-c" in words and Path(words[0]).name in _SHELLS else ["x"]
        return bool(words) and bool(words[0].strip()) and bool(script) and _runs_something(script[0])
    return any(line.strip() and not line.strip().startswith("#") for line in str(command).splitlines())


def choose(table: dict[str, Check], names: list[str], where: str) -> list[Check]:
    for name in names:
        if name == ARTIFACTS:
            continue
        if name not in table:
            raise StrataError("UNKNOWN_CHECK", f"there is no check {name!r} in {where}", f"it has: {', '.join(table)}")
    return [table[name] for name in names if name != ARTIFACTS]
