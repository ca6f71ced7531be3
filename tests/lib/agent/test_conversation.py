"""Every way a session can end has a code, an error and an exit: the SDK's results and exceptions, in a table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lib.agent.drivers import Request
from lib.agent.drivers.conversation import Conversation, classify


def request() -> Request:
    here = Path()
    folders: dict[str, Any] = {"cwd": here, "out": here, "session": here, "attempt": here}
    nothing: dict[str, Any] = dict.fromkeys(("tools", "write_dirs", "write_globs", "read_dirs", "disallowed_tools"), ())
    return Request(
        agent="x", prompt="x", system_prompt="", model="m", permission_mode="dontAsk", env={}, timeout_seconds=9, max_turns=3,
        stall_seconds=7, max_budget_usd=0.5, **folders, **nothing,
    )  # fmt: skip


def result(**fields: Any) -> SimpleNamespace:
    base = {"subtype": "success", "is_error": False, "errors": None, "result": "text", "structured_output": None}
    return SimpleNamespace(**(base | {"total_cost_usd": None, "api_error_status": None} | fields))


def named(name: str, **fields: Any) -> Exception:
    error = type(name, (Exception,), {})("what it said")
    for key, value in fields.items():
        setattr(error, key, value)
    return error


@pytest.mark.parametrize(
    ("said", "failure", "code", "exit_code"),
    [
        (result(), None, None, 0),
        (None, None, "NO_RESULT", 1),
        (result(is_error=True), None, "AGENT_ABORTED", 1),
        (result(), named("ProcessError", exit_code=1), "AGENT_ABORTED", 1),
        (result(subtype="error_during_execution"), None, "AGENT_ABORTED", 1),
        (result(subtype="error_max_turns", is_error=True), None, "MAX_TURNS", 1),
        (result(subtype="error_max_budget_usd", is_error=True), None, "BUDGET_EXCEEDED", 11),
        (result(subtype="error_max_structured_output_retries", is_error=True), None, "SCHEMA_RETRIES", 1),
        (result(is_error=True, api_error_status=400), None, "API_REFUSED", 1),
        (result(is_error=True, api_error_status=400, result="Prompt is too long"), None, "PROMPT_TOO_LONG", 1),
        (result(is_error=True, api_error_status=401), None, "LOGIN_REFUSED", 1),
        (result(is_error=True, api_error_status=429), None, "RATE_LIMITED", 1),
        (result(is_error=True, api_error_status=503), None, "API_ERROR", 1),
        (result(is_error=True, api_error_status=529), None, "API_OVERLOADED", 1),
        (None, named("CLINotFoundError"), "CLI_MISSING", 1),
        (None, named("CLIConnectionError"), "CLI_UNREACHABLE", 1),
        (None, named("CLIJSONDecodeError"), "CLI_BAD_OUTPUT", 1),
        (None, named("MessageParseError"), "CLI_BAD_OUTPUT", 1),
        (None, named("ProcessError", exit_code=143), "CLI_DIED", 1),
        (None, Exception("Control request timeout: initialize"), "CLI_DID_NOT_START", 1),
    ],
)
def test_every_end_is_classified(said: Any, failure: Exception | None, code: str | None, exit_code: int) -> None:
    talk = Conversation(request())
    talk.result, talk.failure = said, failure
    found, error = classify(talk)
    assert found == exit_code
    assert (error or {}).get("code") == code
    if error:
        assert error["message"]
        assert error["hint"]


def test_a_timeout_counts_more_than_what_came_after_it() -> None:
    talk = Conversation(request())
    talk.cut_short, talk.result = "timeout", result()
    assert classify(talk)[0] == 21
