"""The live driver: one session of the agent SDK and the CLI it bundles, with its bounds. The SDK itself is handed in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from lib.agent import sandbox
from lib.agent.drivers import WRITE_TOOLS, Answer, Request
from lib.agent.drivers.conversation import Conversation, end_cli, hear, to_answer, watch
from lib.contract import Json, StrataError
from lib.disk import globs, redact
from lib.process import environment, processes
from lib.tool import grant
from lib.workspace.snapshot import IGNORED

INIT_KEYS = ("session_id", "cwd", "tools", "mcp_servers", "model", "permissionMode", "claude_code_version")
BUFFER_BYTES = 256 * 1024 * 1024  # one line of the CLI's output; the SDK's own 1 MB loses large tool results


def live(request: Request, load_sdk: Callable[[], Any]) -> Answer:
    """`load_sdk` imports the agent SDK: after everything was checked, because that takes longer than a whole replay."""
    import asyncio  # here, like all that only a live session needs: a replay is over before it would be imported

    talk = Conversation(request)
    redact.remember()  # the secrets of this environment are still to be kept out of what is written
    os.environ.clear()  # the SDK hands its own environment down, whatever else it is given
    os.environ.update(request.env)
    processes.stop_softly = end_cli
    try:
        asyncio.run(converse(talk, load_sdk()))
    finally:
        processes.stop_softly = None
    return to_answer(talk)


async def converse(talk: Conversation, sdk: Any) -> None:
    import asyncio
    import logging
    import tempfile
    import uuid

    request = talk.request
    sdk_log = logging.getLogger("claude_agent_sdk")  # what it has to say comes as an exception too; stderr is for JSON lines
    sdk_log.addHandler(logging.NullHandler())
    sdk_log.propagate = False
    # The sandbox talks over sockets in the temporary folder, and a socket's path has at most 108 bytes.
    short = "/tmp" if request.sandboxed and len(tempfile.gettempdir()) > 50 else None
    with tempfile.TemporaryDirectory(prefix="strata-", dir=short) as folder:
        system_file = Path(folder) / "system.md"
        system_file.write_text(request.system_prompt, encoding="utf-8")
        options = sdk.ClaudeAgentOptions(
            model=request.model,
            system_prompt=cast(Any, {"type": "file", "path": str(system_file)}) if request.system_prompt else None,
            tools=sorted({grant.tool_name(t) for t in request.tools}),
            allowed_tools=allow_rules(request),
            disallowed_tools=[*request.disallowed_tools, *never_written(request)],
            permission_mode=cast(Any, request.permission_mode),
            cwd=request.cwd,
            add_dirs=[*request.read_dirs, *(d for d in request.write_dirs if d != request.cwd)],
            env=request.env | environment.hide_login(Path(folder), request.env) | ({"TMPDIR": folder} if short else {}),
            sandbox=cast(Any, shell_settings(request, Path(folder))) if request.sandboxed else None,
            hooks=guards(sdk, talk),
            setting_sources=None if request.inherit_settings else [],
            strict_mcp_config=not request.inherit_settings,
            verbatim_prompts=True,
            max_turns=request.max_turns,
            max_budget_usd=request.max_budget_usd,
            output_format={"type": "json_schema", "schema": plain(request.schema)} if request.schema else None,
            resume=request.resume_id,
            session_id=None if request.resume_id else str(uuid.uuid4()),
            max_buffer_size=BUFFER_BYTES,
            stderr=talk.stderr.append,
            cli_path=kept_cli(Path(folder), Path(sdk.__file__).parent),
        )
        clock = asyncio.get_running_loop().call_later(request.timeout_seconds, talk.stop, "timeout")
        watcher = asyncio.create_task(watch(talk))
        try:
            with (request.attempt / "transcript.jsonl").open("a", encoding="utf-8") as transcript:
                async for message in sdk.query(prompt=request.prompt, options=options):
                    note(message, transcript)
                    hear(talk, message)
        except Exception as failure:  # noqa: BLE001 - the SDK raises its own errors, OSError and bare Exception; `classify` sorts them
            talk.failure = failure
        finally:
            clock.cancel()
            watcher.cancel()


def shell_settings(request: Request, folder: Path) -> Json:
    writes = (request.cwd, request.out, *(d for d in request.write_dirs if d.exists()))
    kept = Path(request.env.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / ".credentials.json"
    secrets = tuple(environment.credentials(request.env))
    return sandbox.settings(request.domains, writes, request.closed, (folder / environment.LOGIN_FILE, kept), secrets)


def guards(sdk: Any, talk: Conversation) -> Any:
    """Looks at calls before they are made: how often a tool may be called no rule of the CLI's says, and none with globs says
    `all of this folder but that one`."""
    request = talk.request
    writes = {grant.tool_name(t) for t in request.tools} & set(WRITE_TOOLS)
    watched = sorted({*((*WRITE_TOOLS, "MultiEdit") if writes else ()), *request.max_uses})

    async def look(asked: Any, tool_use_id: str | None, _context: Any) -> Json:
        tool: str = asked["tool_name"]
        given: Json = asked["tool_input"]
        place = request.cwd / str(given.get("file_path") or given.get("notebook_path") or ".")
        closed = (*WRITE_TOOLS, "MultiEdit")
        folder = sandbox.refused(place, request.closed, request.out, request.cwd) if tool in closed else None
        if folder:
            reason = f"{folder} is closed to agents: it holds what others rely on"
            talk.refuse(tool, tool_use_id or "", reason, {"file_path": str(place)})
        elif not talk.may_call(tool):
            reason = f"{tool} may be called {request.max_uses[tool]} times, and has been: go on with what you have"
            talk.refuse(tool, tool_use_id or "", reason)
        else:
            return {}
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
        return {"hookSpecificOutput": decision}

    return {"PreToolUse": [sdk.HookMatcher(matcher="|".join(watched), hooks=[look], on_failure="block")]} if watched else None


def plain(schema: Json) -> Json:
    """The CLI knows no dialect by name, and refuses a schema that names one."""
    return {key: value for key, value in schema.items() if key != "$schema"}


def kept_cli(folder: Path, package: Path) -> Path:
    """A one-line program that starts the CLI under a keeper. The SDK takes a path and adds its own arguments."""
    import shutil
    import stat

    bundled = package / "_bundled" / "claude"
    command = str(bundled) if bundled.exists() else shutil.which("claude")
    if not command:
        raise StrataError(
            "CLI_MISSING", "the agent CLI is not installed", "reinstall claude-agent-sdk: uv cache clean claude-agent-sdk"
        )
    words = processes.kept([command], parent=os.getpid())
    script = folder / "claude"
    quoted = " ".join("'" + w.replace("'", "'\\''") + "'" for w in words)
    script.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def never_written(request: Request) -> list[str]:
    """Folders that hold what others run: a file tool has no business there, whatever else it may write."""
    return [f"Edit(/{request.cwd}/**/{name}/**)" for name in sorted(IGNORED)]


def allow_rules(request: Request) -> list[str]:
    """What runs without asking. File tools are let write only below the folders of this request."""
    rules: list[str] = []
    odd = [glob for glob in request.write_globs if globs.unsafe(glob)]
    odd += [str(folder) for folder in (request.cwd, *request.write_dirs) if ")," in str(folder)]
    if odd:
        message = f"{odd[0]!r} cannot be a rule for an agent: it could end the rule and begin another"
        raise StrataError("UNSAFE_PATH", message, "use a path without brackets and commas", final=True)
    for rule in request.tools:
        if rule in WRITE_TOOLS:
            rules += [f"Edit(/{folder}/**)" for folder in request.write_dirs if folder != request.cwd or not request.write_globs]
            rules += [f"Edit(/{request.cwd}/{glob})" for glob in request.write_globs]
        elif rule not in ("Read", "Glob", "Grep"):
            rules.append(rule)
    return sorted(set(rules))


def note(message: Any, transcript: Any) -> None:
    """Every message as a line, as it comes: an answer that was paid for is on disk before it is judged."""
    from dataclasses import asdict

    line: Json = {"type": type(message).__name__, **asdict(message)}
    if line.get("subtype") == "init":  # the rest of it is a list of this machine's commands, sockets and folders
        line["data"] = {key: line["data"].get(key) for key in INIT_KEYS}
    transcript.write(redact.redact(json.dumps(line, default=str, ensure_ascii=False)) + "\n")
    transcript.flush()
