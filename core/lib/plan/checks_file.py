"""Which checks there are: named commands, from a file of the plan's own, or from the user's, the packs' and the house's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lib.contract import StrataError, nearest
from lib.disk import config, files, places, records
from lib.plan import written

ARTIFACTS = "artifacts"  # the check that needs no command: what a phase says it produced is there, as it was produced


class Check(Struct, frozen=True):
    name: str
    command: tuple[str, ...]  # `{python}` in it is the interpreter Strata runs on
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
        table[name] = Check(name, **asdict(replace(spec, command=words)))
    return table


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def _runs_something(command: str | tuple[str, ...]) -> bool:
    """Whether a command is more than blanks and comments."""
    if not isinstance(command, str):
        words = list(command)
        script = words[words.index("-c") + 1 :] if "-c" in words and Path(words[0]).name in _SHELLS else ["x"]
        return bool(words) and bool(words[0].strip()) and bool(script) and _runs_something(script[0])
    return any(line.strip() and not line.strip().startswith("#") for line in command.splitlines())


class Known(Struct, frozen=True):
    """The checks that can be named, each with the file that defines it."""

    table: dict[str, Check]
    files: dict[str, Path]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.table, ARTIFACTS)

    def choose(self, names: Sequence[str]) -> list[Check]:
        for name in names:
            if name not in self.names:
                raise StrataError("UNKNOWN_CHECK", f"there is no check {name!r}", nearest(name, self.table))
        return [self.table[name] for name in names if name != ARTIFACTS]

    def digest(self, names: Sequence[str]) -> str:
        """Of how these are defined, wherever that is."""
        return files.digest({name: records.document(self.table[name]) for name in names if name in self.table})


def known(source: str = "") -> Known:
    """Those of a plan's own file, or else those of the user and of the house; and always those of packs, as `pack/name`."""
    table: dict[str, Check] = {}
    defined: dict[str, Path] = {}
    own = [places.Found("", Path(source), "the plan")] if source else []
    for found in (*own, *places.checks_files()):
        if source and not found.name and found.file != Path(source):
            continue
        for name, check in load(found.file).items():
            whole = f"{found.name}/{name}" if found.name else name
            if whole not in table:
                table[whole], defined[whole] = replace(check, name=whole), found.file
    return Known(table, defined)
