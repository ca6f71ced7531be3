"""What an agent session says, message by message, and what it came to: every way it can end, as a code, an error and an exit.

The messages are the agent SDK's, known here by their names and fields only: spawn alone imports the SDK.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from typing import Any, cast

from lib.agent.drivers import Answer, Request
from lib.contract import ExitCode, Json, StrataError, finite_cost
from lib.disk import files
from lib.process import keeper
from lib.session.events import HEARTBEAT_SECONDS
from lib.tool import grant

WATCH_SECONDS = 5.0
STRUCTURED = "StructuredOutput"  # the CLI's own tool, for answers that match a schema
AGENT_SESSION = "agent-session.json"  # in the attempt's folder as soon as there is one: what an interrupted attempt leaves


class Conversation:
    """What has been heard of a session so far, and why it was cut short if it was."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.result: Any = None
        self.failure: Exception | None = None
        self.cut_short = ""  # timeout, stalled, login or unknown-tool
        self.login = False
        self.last_text = ""
        self.last_data: Any = None
        self.resets_at: int | None = None
        self.stderr: list[str] = []
        self.started = time.monotonic()
        self.heard_at = time.monotonic()
        self.refused: list[Json] = []  # calls of tools it does not have; the CLI reports only those it has and may not use
        self.doing: dict[str, str] = {}  # tool calls that have not come back, by id
        self.called: dict[str, str] = {}  # all of them, by id
        self.stopped: set[str] = set()  # those that were not let through
        self.asked_for: Counter[str] = Counter()  # of tools that may be called only so often

    def refuse(self, tool: str, tool_use_id: str, reason: str, arguments: Json | None = None, ran: bool = False) -> None:
        """A call that was not let through, or not with all it tried, for the record: the CLI reports only some of them."""
        self.stopped |= set() if ran else {tool_use_id}
        self.refused.append(
            {"tool_name": tool, "tool_use_id": tool_use_id, "reason": reason, **({"tool_input": arguments} if arguments else {})}
        )
        self.request.on_event("denied", {"tool": tool, "why": reason})

    def may_call(self, tool: str) -> bool:
        """Whether one more call of a tool is within its cap. Counted here, where it is decided: answers come later."""
        self.asked_for[tool] += 1
        return tool not in self.request.max_uses or self.asked_for[tool] <= self.request.max_uses[tool]

    def stop(self, reason: str) -> None:
        self.cut_short = self.cut_short or reason
        end_cli()


def end_cli() -> None:
    """Asks the keeper above the CLI to end it. The CLI is never killed first: it still has Bash children to stop, and asked by
    SIGINT it says what the session has cost."""
    me = os.getpid()
    for pid, parent in keeper.parents().items():
        if parent == me:
            keeper.send(pid, signal.SIGINT)


async def watch(talk: Conversation) -> None:
    """A hung agent is stopped, and a silent one is seen. While a tool of its own runs, silence is no sign of anything."""
    import asyncio

    request, told = talk.request, time.monotonic()
    while True:
        await asyncio.sleep(min(WATCH_SECONDS, request.stall_seconds / 4))
        now = time.monotonic()
        silent = now - talk.heard_at
        if silent >= request.stall_seconds and not talk.doing:
            talk.stop("stalled")
            return
        if now - max(talk.heard_at, told) >= HEARTBEAT_SECONDS:
            told = now
            request.on_event("waiting", {"silent_seconds": round(silent), "for": ", ".join(talk.doing.values()) or "the model"})


def hear(talk: Conversation, message: Any) -> None:
    kind = type(message).__name__
    talk.heard_at = time.monotonic()
    if kind == "SystemMessage":
        data: Json = message.data
        if message.subtype == "init":
            files.write_json(talk.request.attempt / AGENT_SESSION, {"id": data.get("session_id", "")})
            check_init(talk, data)
        elif message.subtype == "api_retry":
            detail = {k: data.get(k) for k in ("attempt", "max_retries", "error_status", "error", "retry_delay_ms")}
            talk.request.on_event("api-retry", detail)
            if data.get("error") == "authentication_failed" or data.get("error_status") in (401, 403):
                talk.login = True
                talk.stop("login")
    elif kind == "AssistantMessage":
        if message.error == "authentication_failed":
            talk.login = True
        for block in message.content:
            if type(block).__name__ == "TextBlock":
                talk.last_text = block.text
            elif type(block).__name__ == "ToolUseBlock":
                if block.name == STRUCTURED:
                    talk.last_data = block.input
                talk.doing[block.id] = talk.called[block.id] = block.name
                if not given(talk.request, block.name):
                    talk.refuse(block.name, block.id, "it was not given this tool")
                talk.request.on_event("tool-use", {"tool": block.name, **brief(block.input)})
    elif kind == "UserMessage":
        for block in cast(list[Any], message.content):  # or a text, of which no letter has an id
            tool = talk.doing.pop(getattr(block, "tool_use_id", ""), None)
            if tool == "Bash" and talk.request.sandboxed:
                note_sandbox(talk, block)
    elif kind == "RateLimitEvent":
        talk.resets_at = message.rate_limit_info.resets_at
        talk.request.on_event("rate-limit", {"status": message.rate_limit_info.status, "resets_at": talk.resets_at})
    elif kind == "ResultMessage":
        talk.result = message  # several can come; the last counts


def note_sandbox(talk: Conversation, block: Any) -> None:
    """What the sandbox did not let a command write is refused too, though only the command was told."""
    content: Any = block.content
    parts = cast(list[Any], content) if isinstance(content, list) else [content]
    text = "\n".join(str(cast(Json, p).get("text", "")) if isinstance(p, dict) else str(p) for p in parts)
    lines = [line.strip() for line in text.splitlines() if "Read-only file system" in line]
    for line in lines[:20]:
        talk.refuse("Bash", block.tool_use_id, f"the sandbox did not let it write: {line[:300]}", ran=True)


def brief(arguments: Json) -> Json:
    """The one argument that says most about a tool call, short enough for a line."""
    for name in ("command", "file_path", "pattern", "path", "url", "query", "description"):
        if isinstance(arguments.get(name), str):
            words = " ".join(str(arguments[name]).split())
            return {"what": words if len(words) <= 80 else f"{words[:38]} … {words[-38:]}"}
    return {}


def given(request: Request, name: str) -> bool:
    """Whether a tool is one the agent was to have. The CLI adds some of its own for structured answers."""
    names = {grant.tool_name(rule) for rule in request.tools}
    names |= {"Agent", "Task"} if names & {"Agent", "Task"} else set()
    return name in names or name in (STRUCTURED, "ToolSearch") or request.inherit_settings


def check_init(talk: Conversation, data: Json) -> None:
    """The CLI leaves out a tool it does not have without saying so."""
    there = {"Agent" if t == "Task" else t for t in data.get("tools", [])}
    missing = [t for t in talk.request.tools if ("Agent" if grant.tool_name(t) == "Task" else grant.tool_name(t)) not in there]
    if missing:
        talk.failure = StrataError(
            "UNKNOWN_AGENT_TOOL", f"the agent CLI has no tool {', '.join(missing)}", "ask only for tools it has"
        )
        talk.stop("unknown-tool")


def to_answer(talk: Conversation) -> Answer:
    result = talk.result
    text = keep_text(talk)
    code, error = classify(talk)
    answer = Answer(exit_code=code, error=error, result=text, duration_seconds=time.monotonic() - talk.started)
    if result:
        answer.structured_output = result.structured_output
        answer.cost_usd = finite_cost(result.total_cost_usd)
        answer.cost_source = "reported" if answer.cost_usd is not None else "unknown"
        answer.usage = dict(result.model_usage or {})
        answer.turns = result.num_turns
        answer.agent_session_id = result.session_id
        answer.denials = list(result.permission_denials or [])
    ours = {d["tool_use_id"] for d in talk.refused}
    stopped = talk.stopped | {str(d.get("tool_use_id")) for d in answer.denials}
    answer.denials = [d for d in answer.denials if d.get("tool_use_id") not in ours] + talk.refused
    answer.tool_uses = dict(
        Counter(name for use, name in talk.called.items() if use not in stopped and name != "StructuredOutput")
    )
    return answer


def keep_text(talk: Conversation) -> str:
    """The answer as it stands, on disk before anything is made of it: it was paid for, whatever it turns out to be."""
    text = (talk.result.result if talk.result else None) or talk.last_text
    if not text and talk.last_data is not None:
        text = json.dumps(talk.last_data, ensure_ascii=False)  # data that failed its schema
    files.write_atomic(talk.request.attempt / "output.md", text)
    return text


LOGIN_HINT = "set ANTHROPIC_API_KEY, or run `claude` once and log in"


def classify(talk: Conversation) -> tuple[ExitCode, Json | None]:
    """Every way a session can end, as a code, a clear error and an exit. Only a last, unblemished result is a success."""
    result, failure = talk.result, talk.failure

    def failed(code: str, message: str, hint: str = "", exit_code: ExitCode = ExitCode.FAILURE, **detail: Any):
        return exit_code, StrataError(code, message, hint, detail={k: v for k, v in detail.items() if v}).document()

    if talk.cut_short == "timeout":
        seconds = talk.request.timeout_seconds
        return failed("TIMEOUT", f"no answer after {seconds:g} s", "give it more with --timeout", ExitCode.TIMEOUT)
    if talk.cut_short == "stalled":
        said = f"no word from the agent for {talk.request.stall_seconds:g} s"
        return failed("STALLED", said, "give it more with --stall-timeout, or try again", ExitCode.TIMEOUT)
    if isinstance(failure, StrataError):
        return failure.exit_code, failure.document()
    status = getattr(result, "api_error_status", None) or getattr(failure, "api_error_status", None)
    if talk.login or status in (401, 403):
        refused = status or talk.cut_short
        what = "the model refused the login" if refused else "no login was found"
        return failed("LOGIN_REFUSED" if refused else "LOGIN_MISSING", what, LOGIN_HINT)
    if result is None:
        return failed(*_no_result(failure, talk))
    words = "; ".join(result.errors or []) or result.result or talk.last_text
    if result.subtype == "error_max_turns":
        return failed("MAX_TURNS", f"not finished after {talk.request.max_turns} turns", "raise --max-turns, or ask for less")
    if result.subtype == "error_max_budget_usd":
        spent = f"{result.total_cost_usd or 0:.4f} USD spent of {talk.request.max_budget_usd}"
        return failed("BUDGET_EXCEEDED", spent, "raise --max-budget-usd", ExitCode.NEEDS_ESCALATION)
    if result.subtype == "error_max_structured_output_retries":
        return failed("SCHEMA_RETRIES", words, "the last answer is kept in output.md; simplify the schema or the question")
    if status == 429:
        return failed("RATE_LIMITED", words, "wait for the reset and run it again", resets_at=talk.resets_at)
    if status and status >= 500:
        return failed("API_OVERLOADED" if status == 529 else "API_ERROR", words, "try again later", api_status=status)
    if result.is_error and "prompt is too long" in words.lower():
        return failed("PROMPT_TOO_LONG", words, "put the material into files and let the agent read them")
    if status:
        hint = "check the model's name" if status == 404 else "the request itself was refused"
        return failed("API_REFUSED", words, hint, api_status=status)
    if result.is_error or result.subtype != "success" or failure:
        return failed("AGENT_ABORTED", words or f"the session ended with {result.subtype}", "look at transcript.jsonl")
    if talk.request.schema and result.structured_output is None:
        return failed(
            "NO_STRUCTURED_OUTPUT", "the agent answered in prose instead of the schema", "its text is kept in output.md"
        )
    return ExitCode.SUCCESS, None


def _no_result(failure: Exception | None, talk: Conversation) -> tuple[str, str, str]:
    tail = " | ".join(talk.stderr[-3:])
    kind = type(failure).__name__
    if kind == "CLINotFoundError":
        return "CLI_MISSING", "the agent CLI is not installed", "reinstall claude-agent-sdk: uv cache clean claude-agent-sdk"
    if kind == "CLIConnectionError":
        return "CLI_UNREACHABLE", str(failure), "check --cwd and that the CLI can be run"
    if kind in ("CLIJSONDecodeError", "MessageParseError"):
        return "CLI_BAD_OUTPUT", f"the agent CLI printed something unreadable: {str(failure)[:200]}", "look at transcript.jsonl"
    if talk.request.resume_id and ("No conversation found" in tail or "UUID" in tail):
        hint = "check --resume-id; a session is found only with the --cwd and CLAUDE_CONFIG_DIR it was made with"
        return "UNKNOWN_AGENT_SESSION", f"there is no agent session {talk.request.resume_id}", hint
    if kind in ("ProcessError", "ResultError"):
        code = getattr(failure, "exit_code", None)
        return "CLI_DIED", f"the agent CLI ended with {code} before it answered{': ' + tail if tail else ''}", "run it again"
    if failure:
        return (
            "CLI_DID_NOT_START",
            f"{failure}{': ' + tail if tail else ''}",
            "run it again; if it stays, reinstall claude-agent-sdk",
        )
    return "NO_RESULT", "the session ended without a result", "look at transcript.jsonl"
