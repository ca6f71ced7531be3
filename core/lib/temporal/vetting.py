"""What a worker looks at before it runs an order: a tool of its own house, in a session below its root, with arguments that lead
out of neither."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

from lib import names
from lib.contract import CORE, HOUSE, Json, StrataError, part
from lib.disk import files, records
from lib.machines import placed
from lib.machines.address import LAYERS
from lib.machines.placed import Order, Ticket
from lib.process import tools

READ = ("--fixtures", "--checks", "--extra-context", "--read-dir", "--task")
WORKED_IN = ("--session-dir", "--session-base", "--cwd")
PATHS = (*WORKED_IN, *READ)  # flags whose values are full paths


class Unfit(StrataError):  # noqa: N818 - a role: why an order is not run, here or anywhere
    def __init__(self, message: str) -> None:
        super().__init__("REFUSED_BY_WORKER", message)


class Misplaced(Unfit):
    """This worker cannot run it; another may."""


def ticket_of(given: Json) -> Ticket:
    try:
        ticket = records.of(given, Ticket)
        bytes.fromhex(ticket.key)
    except ValueError as error:
        raise Unfit(f"its ticket cannot be read: {error}") from None
    return ticket


def argv_of(order: Order, folder: Path, root: Path, place: str) -> list[str]:
    """The words to run."""
    script = CORE / order.tool
    if Path(order.tool).name != order.tool or script.suffix != ".py" or not script.is_file():
        raise Unfit(f"this house has no tool {order.tool!r}")
    if tools.layer_of(script) != LAYERS[place]:
        raise Unfit(f"{order.tool} is not of the layer that this worker runs ({place})")
    if foreign := sorted(set(order.env) - set(placed.TRAVELS)):
        raise Unfit(f"an order does not set {foreign[0]}")
    if any("\0" in word for word in (*order.arguments, *order.env.values())):
        raise Unfit("an argument holds a NUL")
    if folder.parent.parent != Path(order.session) or part(order.env, names.SESSION) != order.session:
        raise Unfit("its session is not the one that its order lies in")
    flags = _flagged(order.arguments)
    for word in (word.partition("=")[0] for word in flags if word.startswith("--")):
        if any(known.startswith(word) and known != word for known in PATHS):
            raise Unfit(f"{word} is no flag: an order spells them out")
    for text in (order.session, *given(order.arguments, WORKED_IN)):
        require_below(root, Path(text))
    for text in (*given(order.arguments, READ), *_absolute(flags)):
        require_below(root, Path(text), HOUSE)
    for text in given(order.arguments, READ):
        if not files.exists(text):
            raise Misplaced(f"{text} is not there: what a task reads lies in a folder that every machine sees")
    block = tools.inline_block(script)
    same = block is not None and block == tools.inline_block(CORE / "check.py")
    return [*([sys.executable, str(script)] if same else tools.tool_argv(script)), *order.arguments]


def cwd_of(order: Order, root: Path) -> str:
    """Where it runs. A run may be started from a folder that only its own machine has: nothing is named from there."""
    there = Path(order.cwd).resolve()
    return str(there) if there.is_relative_to(root) and there.is_dir() else order.session


def require_below(root: Path, path: Path, *others: Path) -> None:
    if not path.is_absolute():
        raise Unfit(f"{path} is no full path")
    there = path.resolve()
    if not any(there.is_relative_to(place) for place in (root, *others)):
        raise Misplaced(f"outside its root: {path} (it works below {root})")


def given(arguments: tuple[str, ...], flags: tuple[str, ...]) -> list[str]:
    """What a command line gives for these flags."""
    flagged = _flagged(arguments)
    joined = [word.partition("=")[2] for word in flagged if word.partition("=")[0] in flags and "=" in word]
    return [value for flag, value in pairwise(flagged) if flag in flags] + joined


def _flagged(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Behind `--` stand words for people and agents."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _absolute(flagged: tuple[str, ...]) -> list[str]:
    """Whatever else is a full path."""
    values = [word.partition("=")[2] if word.startswith("--") else word for word in flagged]
    return [value for value in values if value.startswith("/")]
