"""What the helpers share that call services and MCP servers: they are told by a file, and say by a file why they failed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from lib.contract import ExitCode, StrataError
from lib.disk import files, records
from msgspec import Struct

CONTRACT = "contract.json"  # in the handoff folder, as the rest
ASKED = "asked.json"  # what the settings allow, and where evidence goes
ERROR = "error.json"  # why it failed


class Asked(Struct, frozen=True):
    """What the settings allow, and where evidence goes."""

    command: tuple[str, ...] = ()
    session: str = ""
    attempt: str = ""
    driver: str = "live"
    fixtures: str = ""
    hosts: tuple[str, ...] = ()
    insecure: bool = False
    private: bool = False


def run(work: Callable[[Path, Asked], None]) -> None:
    folder = Path(sys.argv[1])
    try:
        work(folder, records.read(folder / ASKED, Asked))
    except StrataError as error:
        known = {"code": error.code, "message": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}
        files.write_json(folder / ERROR, known | {"final": bool(error.detail.get("final"))})
        print(f"{error.code}: {error.message}", file=sys.stderr)
        sys.exit(int(ExitCode.FAILURE))
