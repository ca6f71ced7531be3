"""Which variables reach whom. An agent gets those on a list and those its definition names; the login reaches the agent CLI,
and neither the commands an agent runs nor the checks.

What an agent starts through Bash may itself be a tool of ours that needs the login. It finds it in a file only this user can
read, which is gone when the session ends: that keeps it out of dumped environments and logs, not from a hostile program.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from lib import names
from lib.disk.redact import credential_name, redact

LOGIN_FILE = "login.json"
_OURS = (
    r"AGENTIC_.*|ANTHROPIC_.*|CLAUDE.*|API_TIMEOUT_MS|BASH_(DEFAULT|MAX)_.*|MAX_.*_TOKENS|DISABLE_.*|MCP_.*|OTEL_.*|TRACEPARENT"
)
_SHELL = r"PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|COLORTERM|NO_COLOR|TZ|LANG|LANGUAGE|LC_.*|TMPDIR|TMP|TEMP|HOSTNAME|CI|IS_SANDBOX"
_TOOLS = r"XDG_.*|UV|UV_.*|PIP_.*|PYTHON.*|VIRTUAL_ENV|NODE_.*|npm_config_.*|GIT_(AUTHOR|COMMITTER|CONFIG)_.*|.*_HOME|.*PATH"
_NETWORK = r"(?i:(https?|no|all)_proxy)|SSL_CERT_.*|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
_USUAL = re.compile(rf"(?:{_SHELL}|{_TOOLS}|{_NETWORK})\Z")
_LISTED = re.compile(rf"(?:{_OURS}|{_SHELL}|{_TOOLS}|{_NETWORK})\Z")
_CLOUD = re.compile(r"(?:AWS_|GOOGLE_|GCLOUD_|VERTEX_|CLOUD_ML_|AZURE_|FOUNDRY_).*\Z")
_LOGIN = re.compile(r"(?:ANTHROPIC|CLAUDE)_.*\Z")
_CLOUD_SWITCHES = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


# What belongs to one process, or to one terminal, and means nothing to another.
_PRIVATE = frozenset(
    {names.LEASE, names.LOCK, names.NURSERY, names.CALLER, names.HEARD, "_", "OLDPWD", "SHLVL", "LINES", "COLUMNS"}
)


def for_tool(env: Mapping[str, str]) -> dict[str, str]:
    """What a tool hands down to those below it, wherever they run: a list of names, and never a descriptor."""
    return {name: env[name] for name in sorted(env) if name not in _PRIVATE}


def for_agent(env: Mapping[str, str], named: tuple[str, ...] = ()) -> dict[str, str]:
    """Of this environment, what the agent CLI gets."""
    clouds = any(env.get(name) for name in _CLOUD_SWITCHES)
    return {
        name: value
        for name, value in env.items()
        if name in named
        or (clouds and _CLOUD.match(name))
        or (_LISTED.match(name) and (_LOGIN.match(name) or not credential_name(name)))
    }


def for_command(env: Mapping[str, str], named: tuple[str, ...] = ()) -> dict[str, str]:
    """What a program gets that is no agent: a check needs the user's tools, and none of their secrets."""
    return {
        name: value
        for name, value in env.items()
        if name in named or not (credential_name(name) or _LOGIN.match(name) or name in (names.LOGIN, names.GRANT))
    }


def for_stranger(env: Mapping[str, str], named: tuple[str, ...] = ()) -> dict[str, str]:
    """What a program of somebody else's gets: what any program needs to run, and what is named. An address with a password in it
    is a secret, whatever its variable is called."""
    return {k: v for k, v in env.items() if k in named or (_USUAL.match(k) and not credential_name(k) and redact(v) == v)}


def credentials(env: Mapping[str, str]) -> dict[str, str]:
    """The login, and what belongs to it."""
    return {k: v for k, v in env.items() if credential_name(k) and (_LOGIN.match(k) or _CLOUD.match(k)) and v}


def hide_login(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Variables that let tools below find the login, and keep it out of the environment of what the agent's shell runs."""
    login = credentials(env)
    if not login:
        return {}
    kept = folder / LOGIN_FILE
    kept.touch(mode=0o600)
    kept.write_text(json.dumps(login), encoding="utf-8")
    script = folder / "shell.sh"
    before = env.get("CLAUDE_ENV_FILE")
    lines = [f". {shlex.quote(before)}"] if before else []
    script.write_text("\n".join([*lines, f"unset {' '.join(sorted(login))}", ""]), encoding="utf-8")
    return {names.LOGIN: str(kept), "CLAUDE_ENV_FILE": str(script)}


def find_login() -> None:
    """Takes up the login of the session this tool was started in, where it has none of its own."""
    path = os.environ.pop(names.LOGIN, "")
    try:
        login: dict[str, str] = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return  # that session has ended: what is missing now is said where it is needed
    for name, value in login.items():
        os.environ.setdefault(name, value)
