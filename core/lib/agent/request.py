"""From a command line to one agent session: the prompt, the tools, the folders, and what the agent is granted."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace

from lib import names
from lib.agent import sandbox
from lib.agent.drivers import WRITE_TOOLS, Request
from lib.contract import Json, StrataError, usage
from lib.disk import config, schemas
from lib.plan import agents
from lib.process import environment
from lib.session.attempts import Attempt
from lib.session.step import Step
from lib.tool import grant
from lib.tool.arguments import keyword, read_text
from lib.tool.call import Call

LARGE_PROMPT_BYTES = 1024 * 1024


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


def read_caps(words: list[str]) -> dict[str, int]:
    """`--max-uses WebSearch=4`"""
    caps: dict[str, int] = {}
    for name, number in keyword(words, "--max-uses").items():
        agents.check_tools((name,), "--max-uses")
        if not number.isdecimal():
            usage(f"--max-uses {name}={number}: that is no number", f"--max-uses {name}=4")
        caps[name] = int(number)
    return caps


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
        tuple(dict.fromkeys(map(os.path.realpath, dict.fromkeys((call.cwd, *added, *write_dirs, call.session.folder))))),
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
        max_uses=read_caps(options.max_uses),
        closed=sandbox.closed(call.session.folder, tuple(options.open), call.cwd),
        on_event=call.report,
    )


def has_shell(tools: tuple[str, ...]) -> bool:
    return any(grant.tool_name(t) == "Bash" for t in tools)


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
    others = replace(request, tools=tuple(t for t in request.tools if grant.tool_name(t) != "Bash"))
    if request.sandboxed and not unconfined(others):
        return "sandbox"
    if unconfined(request):
        return "none"
    return "folders" if names & set(WRITE_TOOLS) else "read-only"
