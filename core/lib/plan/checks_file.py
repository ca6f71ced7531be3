"""Which checks there are: named commands, read from `config/checks.yaml` or a file of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lib.contract import StrataError
from lib.disk import config, records
from lib.plan import written

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
    table: dict[str, Check] = {}
    for name, spec in records.of(document.check("checks"), written.Checks).checks.items():
        words = ("sh", "-c", spec.command) if isinstance(spec.command, str) else spec.command
        if not _runs_something(spec.command):
            hint = "what is to be run? Leave the check out if there is nothing"
            raise document.error(["checks", name, "command"], f"the check {name!r} runs nothing", hint)
        if spec.parser == "junit" and not spec.report:
            raise document.error(["checks", name], "the junit parser needs `report`, the XML file", "report: junit.xml")
        command = tuple(w.replace("{python}", sys.executable) for w in words)
        table[name] = Check(name, **asdict(replace(spec, command=command)))
    return table


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _runs_something(command: str | tuple[str, ...]) -> bool:
    """Whether a command is more than blanks and comments."""
    if not isinstance(command, str):
        words = list(command)
        script = words[words.index("-c") + 1 :] if "-c" in words and Path(words[0]).name in _SHELLS else ["x"]
        return bool(words) and bool(words[0].strip()) and bool(script) and _runs_something(script[0])
    return any(line.strip() and not line.strip().startswith("#") for line in command.splitlines())


def choose(table: dict[str, Check], names: list[str], where: str) -> list[Check]:
    for name in names:
        if name == ARTIFACTS:
            continue
        if name not in table:
            raise StrataError("UNKNOWN_CHECK", f"there is no check {name!r} in {where}", f"it has: {', '.join(table)}")
    return [table[name] for name in names if name != ARTIFACTS]
