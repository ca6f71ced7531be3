"""The words every tool agrees on: exit codes and what each means to each layer, and the one exception that carries them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

Json = dict[str, Any]

CORE = Path(__file__).resolve().parent.parent
HOUSE = CORE.parent


class ExitCode(IntEnum):
    SUCCESS = 0
    FAILURE = 1
    DEPTH_EXCEEDED = 2
    HUMAN_INPUT = 3
    NEEDS_REFINEMENT = 10
    NEEDS_ESCALATION = 11
    PARTIAL_SUCCESS = 12
    INTERRUPTED = 20
    TIMEOUT = 21


class Meaning(Struct, frozen=True):
    """What an exit code means to whoever hears it."""

    status: str
    stage: str  # what layer 2 does about it: absorb, retry, once (one more try), raise
    phase: str  # layer 3: absorb, again (what failed is run once more), answer, raise
    campaign: str  # layer 4: absorb, answer, ask (a person), escalate, raise
    signal: str = "fail"  # what the tool leaves behind: success, fail or needs-refinement
    mark: str = "✗"
    done: bool = False  # there is a result, whole or in part
    absorbed: bool = True  # an optional stage or a policy for failed items may go on in spite of it
    unfinished: bool = False  # it resumes where it is: nothing is to be undone


# The whole policy, the gravest first. What is not absorbed is about the run and not about the work: no try at it counts either.
MEANING: dict[ExitCode, Meaning] = {
    ExitCode.INTERRUPTED: Meaning("interrupted", "raise", "raise", "raise", absorbed=False, unfinished=True),
    ExitCode.DEPTH_EXCEEDED: Meaning("depth-exceeded", "raise", "raise", "raise", absorbed=False),
    ExitCode.HUMAN_INPUT: Meaning(
        "human-input", "raise", "raise", "ask", signal="needs-refinement", mark="?", absorbed=False, unfinished=True
    ),
    ExitCode.NEEDS_ESCALATION: Meaning(
        "needs-escalation", "raise", "raise", "escalate", signal="needs-refinement", absorbed=False
    ),
    ExitCode.NEEDS_REFINEMENT: Meaning("needs-refinement", "raise", "answer", "answer", signal="needs-refinement"),
    ExitCode.TIMEOUT: Meaning("timeout", "once", "raise", "escalate"),
    ExitCode.FAILURE: Meaning("failure", "retry", "again", "escalate"),
    ExitCode.PARTIAL_SUCCESS: Meaning("partial", "absorb", "again", "absorb", signal="success", mark="≈", done=True),
    ExitCode.SUCCESS: Meaning("success", "absorb", "absorb", "absorb", signal="success", mark="✓", done=True),
}
STATUS: dict[int, str] = {code: meaning.status for code, meaning in MEANING.items()}
GRAVEST_FIRST = tuple(MEANING)
DONE = tuple(c for c, m in MEANING.items() if m.done)
NEVER_ABSORBED = tuple(c for c, m in MEANING.items() if not m.absorbed)
ALWAYS_RAISED = tuple(c for c, m in MEANING.items() if m.campaign == "raise")
UNFINISHED = tuple(c for c, m in MEANING.items() if m.unfinished)
REPEATED = tuple(c for c, m in MEANING.items() if m.stage in ("retry", "once"))
RUN_AGAIN = tuple(c for c, m in MEANING.items() if m.phase == "again")
ASKS_PARENT = tuple(c for c, m in MEANING.items() if m.signal == "needs-refinement" and not m.unfinished)

# Error codes of what more of the same cannot fix. Other errors may say so themselves (`final`).
HOPELESS = frozenset(
    {
        *("LOGIN_MISSING", "LOGIN_REFUSED", "RATE_LIMITED", "API_REFUSED", "PROMPT_TOO_LONG", "CLI_MISSING"),
        *("UNKNOWN_AGENT_TOOL", "UNKNOWN_AGENT", "UNKNOWN_CHECK", "UNKNOWN_SCHEMA", "BAD_SCHEMA", "BAD_CONFIG"),
        *("FIXTURE_MISSING", "FIXTURE_DRIFT", "WIDENING_REFUSED", "LAYER_VIOLATION", "UNSAFE_PATH"),
        *("CORRUPT_STATE", "USAGE", "CANNOT_LEAVE_OUTPUT", "BAD_ENVIRONMENT", "MISSING_INPUT", "UNKNOWN_MODEL"),
        *("NOT_JUDGED",),
    }
)

HANDED = "outcome"  # the event by which an executor tells its parent, and nobody else, what it is about to write
HANDING_OVER = f'{{"event": "{HANDED}"'  # so its line begins
LAYER_NAMES = {0: "spawn", 1: "exec", 2: "orch", 3: "coord", 4: "campaign"}
MINIMUM_STACK = {2: 2, 3: 2, 4: 3}  # the depth a whole stack needs in tool mode, by the layer it starts at


def gravest(codes: Iterable[ExitCode]) -> ExitCode:
    return min(codes, key=GRAVEST_FIRST.index)


class StrataError(Exception):
    """Something a user can act on: what happened, what to do, and how the tool must exit."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        exit_code: ExitCode = ExitCode.FAILURE,
        detail: Json | None = None,
        final: bool = False,
    ) -> None:
        """`final`: no retry helps, at any layer."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.detail = (detail or {}) | ({"final": True} if final else {})

    def document(self) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        if self.hint:
            error["hint"] = self.hint
        return error | self.detail


def part(error: Json | None, name: str) -> str:
    """What an error says under a name, or nothing."""
    return str(error[name]) if error and error.get(name) else ""


def is_final(error: Json | None) -> bool:
    """Whether more of the same cannot fix it: repeating it would only spend."""
    return bool(error) and (part(error, "code") in HOPELESS or bool(part(error, "final")))


class AsksPerson(StrataError):  # noqa: N818 - a role: the work goes on when somebody has answered
    """Raised by a tool that cannot go on without a person. `show`: files to look at, such as a picture of a page."""

    def __init__(self, question: str, show: Iterable[Path] = (), choices: Iterable[str] = (), answer_schema: str = "") -> None:
        detail: Json = {"show": [str(p) for p in show], "choices": list(choices), "answer_schema": answer_schema}
        super().__init__("HUMAN_INPUT", question, "answer it, and resume", ExitCode.HUMAN_INPUT, detail)


class Interrupted(StrataError):  # noqa: N818 - a role, like KeyboardInterrupt, not a fault
    def __init__(self, message: str = "interrupted") -> None:
        super().__init__("INTERRUPTED", message, "run the same command again to go on from here", ExitCode.INTERRUPTED)


def close_to(word: str, names: Iterable[str], alike: float = 0.6) -> str:
    """Of these names the one that was probably meant; nothing where none is near."""
    import difflib  # only where something went wrong: no other start of a tool pays for it

    return next(iter(difflib.get_close_matches(word, list(names), 1, alike)), "")


def nearest(word: str, known: Iterable[str], label: str = "there are") -> str:
    """The hint for a name that is not known: the one that was probably meant, or all there are."""
    names = sorted(known)
    near = close_to(word, names, 0.5)
    return f"did you mean {near}?" if near else f"{label}: {', '.join(names) or 'none'}"


def usage(message: str, hint: str = "") -> NoReturn:
    raise StrataError("USAGE", message, hint or "see --help")


def finite_cost(value: Any) -> float | None:
    """A reported cost, or None when it says nothing. NaN, infinite or negative money is refused, not believed."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise StrataError("BAD_COST", f"a cost must be a finite number of at least 0, not {value!r}")
    return float(value)


def command(tool: str) -> str:
    """How a person calls a tool from where they stand."""
    try:
        at_home = Path.cwd() == HOUSE
    except FileNotFoundError:  # standing in a folder that is gone
        at_home = False
    return f"uv run core/{tool}.py" if at_home else f"uv run {shlex.quote(str(CORE / f'{tool}.py'))}"
