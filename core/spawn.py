# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 0: one agent session, and the only file that imports the agent SDK. `uv run core/spawn.py --prompt "Say hello"`"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

from lib import cli, names
from lib.agent import sandbox
from lib.agent.drivers import Answer, Request, record
from lib.agent.drivers.conversation import AGENT_SESSION, Conversation, end_cli, hear, to_answer, watch
from lib.agent.drivers.replay import replay
from lib.agent.drivers.stand_in import standing_in
from lib.agent.parking import Parking
from lib.cli import Call, Tool
from lib.contract import CORE, ExitCode, Interrupted, Json, StrataError, usage
from lib.disk import config, files, redact, schemas
from lib.disk.clock import now
from lib.plan import agents
from lib.process import environment, processes
from lib.session.attempts import Attempt
from lib.session.ledger import CUT_OFF, Ledger, Reservation
from lib.session.outcome import Outcome
from lib.session.step import Step, bare_step
from lib.tool import grant
from lib.tool.arguments import count, positive, read_text
from lib.workspace.snapshot import IGNORED, Hidden, Snapshot

TOOL = Tool(
    "spawn",
    layer=0,
    summary="Run one agent session.",
    example='uv run core/spawn.py --prompt "List the files here" --allowed-tools Glob',
)
DEFAULT_TIMEOUT_SECONDS = 600.0
WRITE_TOOLS = ("Write", "Edit", "NotebookEdit")
INIT_KEYS = ("session_id", "cwd", "tools", "mcp_servers", "model", "permissionMode", "claude_code_version")
GO_ON = "The model could not be reached for a while. Go on with your task where you were."
LARGE_PROMPT_BYTES = 1024 * 1024
BUFFER_BYTES = 256 * 1024 * 1024  # one line of the CLI's output; the SDK's own 1 MB loses large tool results


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompt", help="what to do")
    add("--prompt-file", metavar="FILE", help="the prompt as a file of any size; - is stdin")
    add("--system-prompt", metavar="FILE", help="who the agent is and how it works")
    add("--extra-context", metavar="FILE", action="append", default=[], help="text added to the prompt (repeatable)")
    add("--allowed-tools", metavar="LIST", default="", help="comma list; only these tools exist for the agent")
    add("--name", default="spawn", help="what to call this session (letters, digits, dashes)")
    add("--permission-mode", choices=grant.PERMISSION_MODES, default="dontAsk")
    add("--add-dir", metavar="DIR", action="append", default=[], help="a further folder the agent may use")
    add("--schema", metavar="FILE", help="a JSON Schema the answer must match")
    add("--timeout", type=positive, metavar="SECONDS", default=DEFAULT_TIMEOUT_SECONDS)
    add("--stall-timeout", type=positive, metavar="SECONDS", default=600.0, help="stop an agent silent for so long (600)")
    add("--max-turns", type=count, metavar="N")
    add("--max-budget-usd", type=positive, metavar="USD", help="checked after each answer, so one answer can overshoot it")
    add("--resume-id", metavar="ID", help="continue this agent session")
    add("--inherit-settings", action="store_true", help="load CLAUDE.md, settings, hooks and MCP servers of the folder")
    add("--step", help=argparse.SUPPRESS)
    add("--attempt-dir", help=argparse.SUPPRESS)
    add("--out-dir", help=argparse.SUPPRESS)
    add("--open", action="append", default=[], help=argparse.SUPPRESS)  # globs a plan opens on purpose
    add("--write-dir", action="append", default=[], help=argparse.SUPPRESS)
    add("--write-glob", action="append", default=[], help=argparse.SUPPRESS)
    add(
        "--sandbox",
        choices=sandbox.MODES,
        default="prefer",
        help="the CLI's sandbox for shell commands (default: if there is one)",
    )
    add("--domain", action="append", default=[], metavar="NAME", help="what a sandboxed shell may reach (repeatable)")
    add(
        "--env", action="append", default=[], metavar="NAME", help="a variable the agent gets besides the usual ones (repeatable)"
    )
    add("--disallowed-tools", metavar="LIST", default="", help="comma list of tools or rules that are denied in any mode")
    add("--read-dir", action="append", default=[], help=argparse.SUPPRESS)


def main(call: Call) -> Json:
    options = call.options
    environment.find_login()
    prompt, system_prompt, schema = read_texts(call)
    tools = read_tools(call)
    call.depth.require(1)
    shell = any(grant.tool_name(t) == "Bash" for t in tools)
    sandboxed = call.driver != "replay" and sandbox.wanted(options.sandbox, shell)
    step = Step.parse(call.options.step) if call.options.step else bare_step(call.options.name)
    call.open_session(call.options.name if call.options.name != "spawn" else prompt[:60], step.slug)
    if call.depth.remaining == 1:
        call.report("depth-warning", "this is the last level: the agent cannot start another, and cannot be healed")
    ordinal = len(call.session.ended(step)) + 1
    attempt = given_attempt(call, step) or call.session.new_attempt(step)
    ledger = Ledger(call.session.folder)
    place = call.session.relative(attempt.folder)
    parent = os.environ.get(names.AGENT, "")
    tell = partial(call.report, "waiting", {"for": "room in the budget: others hold what it needs"})
    again = options.resume_id or ""
    room = ledger.reserve(step, options.name, place, options.max_budget_usd, parent, call.driver, again, tell)
    options.max_budget_usd = room.cap_usd
    heard: list[Answer] = []
    before_it = ledger.session(again)
    try:
        request = make_request(call, attempt, prompt, system_prompt, schema, tools)
        request = dataclasses.replace(request, sandboxed=sandboxed, domains=tuple(options.domain))
        files.write_atomic(attempt.folder / "prompt.md", prompt)
        files.write_atomic(attempt.folder / "system.md", system_prompt)
        roots = watched(request)
        before = Snapshot(roots, exclude=(call.session.folder,))
        hidden = Hidden(request.cwd)
        answer = ask_patiently(call, request, step, ordinal, roots, heard).without(before_it)
    finally:  # whatever became of it, also where it was asked to stop: what it had cost by then is known, or is not
        for near in settle(ledger, room, heard, before_it, begun=(attempt.folder / AGENT_SESSION).exists()):
            call.report("budget-warning", near)
    changes = before.changes()
    meta = record.describe(request, answer, changes)
    if call.driver == "record":
        record.keep(request, answer, changes, roots)
    else:
        files.write_json(attempt.folder / "meta.json", meta)
    outcome = Outcome(
        answer.exit_code,
        verdict="done" if answer.exit_code == ExitCode.SUCCESS else "failed",
        error=answer.error,
        tool="spawn",
        agent=request.agent,
        model=request.model,
        step=str(step),
        attempt=attempt.number,
        changes=tuple(c for c in (*changes, *hidden.changes()) if c.kind != "folder"),
        driver=call.driver,
        result=answer.result,
        structured_output=answer.structured_output,
        cost_usd=answer.cost_usd,
        cost_source=answer.cost_source,
        usage=answer.usage,
        turns=answer.turns,
        agent_session_id=answer.agent_session_id,
        duration_seconds=round(answer.duration_seconds, 3),
        denials=tuple(answer.denials),
        confinement=confinement(request),
        grant=json.loads(request.env[names.GRANT]),
        depth=call.depth.current + 1,
        max_depth=call.depth.maximum,
        trace_id=call.trace_id,
    )
    if not call.options.attempt_dir:
        outcome = dataclasses.replace(outcome, number=call.session.next_number(), finished_at=now())
        attempt.finish(request.names.hide_in(outcome.document()) if call.driver == "record" else outcome.document())
    document = outcome.document() | {"session_dir": str(call.session.folder), "attempt_dir": str(attempt.folder)}
    call.artifact = attempt.folder / "output.md"
    return document


def settle(ledger: Ledger, room: Reservation, heard: list[Answer], before_it: Json, begun: bool) -> list[str]:
    if heard:
        part = heard[-1].without(before_it)
        return ledger.settle(room, part.cost_usd, part.tokens, part.cost_source, so_far(heard[-1]))
    return ledger.settle(room, None, 0, CUT_OFF) if begun else ledger.settle(room, 0.0, 0, "not-begun")


def read_texts(call: Call) -> tuple[str, str, Json | None]:
    options = call.options
    if (options.prompt is None) == (options.prompt_file is None):
        usage("give the prompt with --prompt or with --prompt-file", "--prompt-file - reads it from stdin")
    prompt = options.prompt if options.prompt is not None else read_text(options.prompt_file, "--prompt-file")
    if not prompt.strip():
        usage("the prompt is empty")
    for folder in options.add_dir:
        if not Path(folder).is_dir():
            usage(f"--add-dir {folder}: there is no such folder")
    if call.driver == "replay" and not options.fixtures:
        usage("--driver replay needs --fixtures DIR", "the folder of a session recorded with --driver record")
    config.model_id(options.model or "medium-tier")
    for path in options.extra_context:
        prompt += f"\n\n## Additional context\n\n{read_text(path, '--extra-context').strip()}\n"
    system_prompt = read_text(options.system_prompt, "--system-prompt") if options.system_prompt else ""
    schema = None
    if options.schema:
        try:
            schema = schemas.check_schema(json.loads(read_text(options.schema, "--schema")), options.schema)
        except ValueError as error:
            raise StrataError("BAD_SCHEMA", f"--schema {options.schema} is not JSON: {error}") from None
    return prompt, system_prompt, schema


def read_tools(call: Call) -> tuple[str, ...]:
    tools = agents.split_rules(call.options.allowed_tools)
    agents.check_tools(tools, "--allowed-tools")
    grant.check(
        call.grant,
        tools=tools,
        permission_mode=call.options.permission_mode,
        folders=tuple(Path(d) for d in (*call.options.add_dir, *call.options.write_dir, *call.options.read_dir)),
        max_budget_usd=call.options.max_budget_usd,
        inherit_settings=call.options.inherit_settings,
    )
    if call.grant and call.options.max_budget_usd is None:
        call.options.max_budget_usd = call.grant.max_budget_usd  # leaving a cap out does not lift it
    return tools


def given_attempt(call: Call, step: Step) -> Attempt | None:
    """The attempt folder an executor made for us; the outcome is then the executor's to write."""
    if not call.options.attempt_dir:
        return None
    folder = Path(call.options.attempt_dir)
    return Attempt(step, folder)


def make_request(
    call: Call, attempt: Attempt, prompt: str, system_prompt: str, schema: Json | None, tools: tuple[str, ...]
) -> Request:
    options = call.options
    # A folder may be spoken of by the name it was given, which may be a link, and by its real one.
    added = tuple(dict.fromkeys(p for d in options.add_dir for p in (Path(d).resolve(), Path(os.path.abspath(d)))))  # noqa: PTH100
    write_dirs = tuple(Path(d) for d in options.write_dir) or (call.cwd, *added, attempt.out)
    read_dirs = (*added, *(Path(d) for d in options.read_dir))
    given = grant.Grant(
        tuple(tools),
        options.permission_mode,
        tuple(str(p.resolve()) for p in {call.cwd, *added, *write_dirs, call.session.folder}),
        options.max_budget_usd,
        options.inherit_settings,
    )
    milliseconds = str(int(options.timeout * 1000))
    # Whether a very large prompt fits is the model's to say; the CLI's own guess would refuse it unasked.
    large = {"CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "1000000000"} if len(prompt) > LARGE_PROMPT_BYTES else {}
    env = environment.for_agent(call.child_env(), tuple(options.env))
    env |= {
        names.DEPTH: str(call.depth.current + 1),
        names.CHECKED: "",  # what an agent starts is checked from the beginning
        names.GRANT: given.text(),
        names.AGENT: call.session.relative(attempt.folder),
        # A Bash command that is moved to the background would outlive its answer; a long child tool needs its time.
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "BASH_DEFAULT_TIMEOUT_MS": milliseconds,
        "BASH_MAX_TIMEOUT_MS": milliseconds,
        **large,
    }
    return Request(
        agent=options.name,
        prompt=prompt,
        system_prompt=system_prompt,
        model=config.model_id(options.model or "medium-tier"),
        tools=tools,
        permission_mode=options.permission_mode,
        cwd=call.cwd,
        out=Path(options.out_dir) if options.out_dir else attempt.out,
        session=call.session.folder,
        attempt=attempt.folder,
        write_dirs=write_dirs,
        write_globs=tuple(options.write_glob),
        disallowed_tools=agents.split_rules(options.disallowed_tools),
        read_dirs=read_dirs,
        env=env,
        timeout_seconds=options.timeout,
        stall_seconds=options.stall_timeout,
        schema=schema,
        max_turns=options.max_turns,
        max_budget_usd=options.max_budget_usd,
        resume_id=options.resume_id,
        inherit_settings=options.inherit_settings,
        closed=sandbox.closed(call.session.folder, tuple(options.open), call.cwd),
        on_event=call.report,
    )


def unconfined(request: Request) -> bool:
    """Whether writes could go past the rules for file tools: through Bash, a wide mode, or settings of the folder."""
    wide = request.permission_mode not in ("plan", "default", "dontAsk")
    return wide or request.inherit_settings or any(grant.tool_name(t) in agents.UNCONFINED_TOOLS for t in request.tools)


def watched(request: Request) -> dict[str, Path]:
    """The folders whose changes are this agent's. Where Bash could write anywhere, the working folder is watched too."""
    folders: dict[str, Path] = {"out": request.out}
    if request.cwd in request.write_dirs or unconfined(request):
        folders["workspace"] = request.cwd
    for folder in request.write_dirs:
        if folder not in folders.values():
            folders[f"dir-{len(folders)}"] = folder
    return folders


def confinement(request: Request) -> str:
    names = {grant.tool_name(t) for t in request.tools}
    others = dataclasses.replace(request, tools=tuple(t for t in request.tools if grant.tool_name(t) != "Bash"))
    if request.sandboxed and not unconfined(others):
        return "sandbox"
    if unconfined(request):
        return "none"
    return "folders" if names & set(WRITE_TOOLS) else "read-only"


def so_far(answer: Answer) -> Json:
    """What an agent session has come to as a whole."""
    return {"agent_session_id": answer.agent_session_id, "session_usd": answer.cost_usd, "session_usage": answer.usage}


def ask_patiently(call: Call, request: Request, step: Step, ordinal: int, roots: dict[str, Path], heard: list[Answer]) -> Answer:
    """The answer, after as many rate limits as it takes to get one and `--max-wait` allows. A session that had got somewhere
    is gone on with. What was heard so far is in `heard`, also of a session that was cut short."""
    parking = Parking(call)
    denials: list[Json] = []
    while True:
        answer = ask(call, request, step, ordinal, roots, heard)
        denials += [d for d in answer.denials if d not in denials]
        wait = parking.seconds(answer)
        if not wait:
            return dataclasses.replace(answer, denials=denials)
        parking.park(wait, answer)
        if answer.turns > 1 and answer.agent_session_id:
            request = dataclasses.replace(request, resume_id=answer.agent_session_id, prompt=GO_ON)


def ask(call: Call, request: Request, step: Step, ordinal: int, roots: dict[str, Path], heard: list[Answer]) -> Answer:
    if call.driver != "replay":
        heard.append(live(request))
    else:
        heard.append(replay(request, Path(call.options.fixtures), step, ordinal, call.options.accept_drift, roots))
    if processes.stopping.is_set():
        raise Interrupted()
    return heard[-1]


# The live driver: the SDK and the CLI it bundles


def live(request: Request) -> Answer:
    import asyncio  # here, like all that only a live session needs: a replay is over before it would be imported

    talk = Conversation(request)
    redact.remember()  # the secrets of this environment are still to be kept out of what is written
    os.environ.clear()  # the SDK hands its own environment down, whatever else it is given
    os.environ.update(request.env)
    processes.stop_softly = end_cli
    try:
        asyncio.run(converse(talk))
    finally:
        processes.stop_softly = None
    return to_answer(talk)


async def converse(talk: Conversation) -> None:
    import asyncio
    import logging
    import tempfile
    import uuid

    # After everything was checked: importing it takes longer than a whole replay, and most of that is mcp.
    with contextlib.suppress(ImportError, AttributeError, TypeError, RuntimeError), standing_in("mcp", "claude_agent_sdk"):
        import claude_agent_sdk as sdk
    import claude_agent_sdk as sdk  # for a version that needs the real mcp

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
    """Looks at every call of a file tool before it is made: rules with globs cannot say `all of this folder but that one`."""
    if not {grant.tool_name(t) for t in talk.request.tools} & set(WRITE_TOOLS):
        return None

    async def look(asked: Any, tool_use_id: str | None, _context: Any) -> Json:
        given: Json = asked["tool_input"]
        place = talk.request.cwd / str(given.get("file_path") or given.get("notebook_path") or ".")
        folder = sandbox.refused(place, talk.request.closed, talk.request.out, talk.request.cwd)
        if not folder:
            return {}
        reason = f"{folder} is closed to agents: it holds what others rely on"
        talk.refuse(asked["tool_name"], tool_use_id or "", reason, {"file_path": str(place)})
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
        return {"hookSpecificOutput": decision}

    matcher = sdk.HookMatcher(matcher="|".join((*WRITE_TOOLS, "MultiEdit")), hooks=[look], on_failure="block")
    return {"PreToolUse": [matcher]}


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
    words = [sys.executable, "-S", "-E", str(CORE / "lib" / "process" / "keeper.py"), "--parent", str(os.getpid()), "--", command]
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
    for rule in request.tools:
        if rule in WRITE_TOOLS:
            rules += [f"Edit(/{folder}/**)" for folder in request.write_dirs if folder != request.cwd or not request.write_globs]
            rules += [f"Edit(/{request.cwd}/{glob})" for glob in request.write_globs]
        elif rule not in ("Read", "Glob", "Grep"):
            rules.append(rule)
    return sorted(set(rules))


def note(message: Any, transcript: Any) -> None:
    """Every message as a line, as it comes: an answer that was paid for is on disk before it is judged."""
    line: Json = {"type": type(message).__name__, **dataclasses.asdict(message)}
    if line.get("subtype") == "init":  # the rest of it is a list of this machine's commands, sockets and folders
        line["data"] = {key: line["data"].get(key) for key in INIT_KEYS}
    transcript.write(redact.redact(json.dumps(line, default=str, ensure_ascii=False)) + "\n")
    transcript.flush()


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
