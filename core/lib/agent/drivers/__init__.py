"""How spawn gets its answer. A driver turns a `Request` into an `Answer`; nothing above spawn can tell which one did."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lib.agent.drivers.paths import Names
from lib.contract import ExitCode, Json
from lib.session.ledger_lines import Line

WRITE_TOOLS = ("Write", "Edit", "NotebookEdit")


def _counts(name: str, value: object) -> bool:
    """Whether a field of a model's usage is an amount, and not a property of the model."""
    return isinstance(value, int | float) and not isinstance(value, bool) and name not in ("contextWindow", "maxOutputTokens")


class Request(Struct, frozen=True, dict=True):
    """One agent session to be had."""

    agent: str
    prompt: str
    system_prompt: str
    model: str
    tools: tuple[str, ...]
    permission_mode: str
    cwd: Path
    out: Path
    session: Path
    attempt: Path
    write_dirs: tuple[Path, ...]
    write_globs: tuple[str, ...]  # of the working folder; none: all of it, where it may be written at all
    disallowed_tools: tuple[str, ...]
    read_dirs: tuple[Path, ...]
    env: dict[str, str]
    timeout_seconds: float
    stall_seconds: float
    schema: Json | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    resume_id: str | None = None
    inherit_settings: bool = False
    sandboxed: bool = False
    domains: tuple[str, ...] = ()  # what a sandboxed shell may reach
    max_uses: dict[str, int] = {}  # by tool: how many calls are let through
    closed: tuple[Path, ...] = ()  # folders that no tool of the agent writes, its own `out` excepted
    on_event: Callable[[str, Json], None] = lambda status, detail: None

    @cached_property
    def names(self) -> Names:
        return Names(self.session, self.cwd, self.attempt, self.out)


class Answer(Struct):
    """How the session went, whichever driver it came from."""

    exit_code: ExitCode = ExitCode.FAILURE
    error: Json | None = None
    result: str = ""
    structured_output: Any = None
    cost_usd: float | None = None
    cost_source: str = "unknown"  # reported, replayed or unknown
    usage: Json = {}
    turns: int = 0
    agent_session_id: str = ""
    duration_seconds: float = 0.0
    denials: list[Json] = []
    tool_uses: dict[str, int] = {}  # calls that were let through, by tool

    @property
    def tokens(self) -> int:
        """All that were read or written, by every model that took part."""
        counted = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        return sum(int(model.get(key) or 0) for model in self.usage.values() for key in counted)

    def without(self, before: Line | None) -> Answer:
        """Of a session that was continued, what this part of it came to: the CLI reports the sum of all."""
        if before is None or before.session_usd is None or self.cost_usd is None:
            return self
        earlier = before.session_usd
        usage: Json = {}
        for model, counts in self.usage.items():
            then = before.session_usage.get(model, {})
            usage[model] = {k: v - then.get(k, 0) if _counts(k, v) else v for k, v in counts.items()}
        return replace(self, cost_usd=max(round(self.cost_usd - earlier, 9), 0.0), usage=usage)

    def document(self) -> Json:
        return {
            "exit_code": int(self.exit_code),
            "error": self.error,
            "result": self.result,
            "structured_output": self.structured_output,
            "cost_usd": self.cost_usd,
            "cost_source": self.cost_source,
            "usage": self.usage,
            "turns": self.turns,
            "agent_session_id": self.agent_session_id,
            "duration_seconds": round(self.duration_seconds, 3),
            "denials": self.denials,
            "tool_uses": self.tool_uses,
        }
