"""Agent definitions: one markdown file each, in the format of Claude Code subagents, checked before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import CORE, HOUSE, Json, StrataError, nearest
from lib.disk import config, files, places, records, schemas
from lib.plan import written
from lib.plan.task import Output

PROMPTS = HOUSE / "prompts"
LAYERS = {"executors": 1, "orchestrators": 2, "coordinators": 3}
# The built-in tools of the agent CLI. It drops a name it does not know without a word, so we do not send it one.
KNOWN_TOOLS = [
    "Agent",
    "Bash",
    "Edit",
    "Glob",
    "Grep",
    "Monitor",
    "NotebookEdit",
    "Read",
    "Skill",
    "Task",
    "TaskStop",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Write",
]
# Keys Claude Code knows and we cannot honour: refused by name rather than ignored.
_REFUSED = {
    "mcpServers": "an agent gets no MCP servers",
    "hooks": "an agent runs no hooks",
    "skills": "an agent loads no skills",
    "memory": "an agent keeps no memory between sessions",
    "effort": "choose a tier instead",
    "isolation": "isolation belongs to the stage, not to the agent",
    "background": "a stage waits for its agent",
    "initialPrompt": "the task is the prompt",
}
_PATH_IN_PROSE = re.compile(r"(?<![\w.])(?:/(?:home|Users|tmp|etc|var|usr|opt|root)/|~/)\S+")


class Agent(Struct, frozen=True, dict=True):
    id: str  # by which it is found: with its pack
    name: str
    file: Path
    description: str
    system_prompt: str
    tools: tuple[str, ...]
    tier: str
    actions: tuple[str, ...] = ()
    inputs: dict[str, written.Input] = {}
    outputs: tuple[Output, ...] = ()
    structured: str = ""
    completion: str = "stage"
    checks: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    permission_mode: str = "dontAsk"
    max_turns: int | None = None
    calls: str = ""  # in agent mode: the layer below, whose tools are all it may call
    sandbox: str = "prefer"
    domains: tuple[str, ...] = ()  # what its shell may reach from inside the sandbox
    env: tuple[str, ...] = ()  # variables it gets besides the usual ones
    disallowed: tuple[str, ...] = ()
    max_uses: dict[str, int] = {}  # by tool: how often it may call it
    internal: bool = False  # only Strata itself calls it

    @cached_property
    def fingerprint(self) -> str:
        """Of all that makes it this agent: its whole file, and the schemas its outputs must match."""
        used = [schemas.load(o.schema) for o in self.outputs if o.schema]
        return files.digest([files.sha256(self.file), used])

    @property
    def required_inputs(self) -> list[str]:
        return [name for name, given in self.inputs.items() if not given.optional]


_TIERS = {"haiku": "low-tier", "sonnet": "medium-tier", "opus": "high-tier", "inherit": "medium-tier", "": "medium-tier"}
_RULE = re.compile(r"(?:[^,(]|\([^)]*\))+")
_PARTS = re.compile(r"---\n(.*?\n)---\n(.*)\Z", re.S)


def split_rules(text: str) -> tuple[str, ...]:
    """`Read, Bash(git log:*)` → two rules. Commas inside parentheses belong to the rule."""
    rules: list[str] = _RULE.findall(text)
    return tuple(r.strip() for r in rules if r.strip())


def check_tools(rules: tuple[str, ...], where: str) -> None:
    for rule in rules:
        name = rule.partition("(")[0].strip()
        if name not in KNOWN_TOOLS:
            raise StrataError("UNKNOWN_AGENT_TOOL", f"{where}: there is no tool {name!r}", nearest(name, KNOWN_TOOLS))


def find(name: str, within: str = "") -> places.Found:
    """The definition that somebody in the pack `within` calls so; or one that is named by its path."""
    if name.endswith(".md") and Path(name).is_absolute():
        return places.Found(name, Path(name), "a path")
    found = places.find("agent", name, within)
    if not found:
        known = [f.name for f in places.every("agent")]
        raise StrataError("UNKNOWN_AGENT", f"there is no agent {name!r}", nearest(name, known, "see agent.py --list; there are"))
    same = _of_that_name(name) if found.ours else ()
    if len(same) > 1 and found.file in same:
        named = ", ".join(str(p.relative_to(PROMPTS)) for p in same)
        raise StrataError("AMBIGUOUS_AGENT", f"two definitions are called {name!r}: {named}", "rename one")
    return found


@cache
def _of_that_name(name: str) -> tuple[Path, ...]:
    return tuple(f for folder in places.KINDS["agent"].house if (f := HOUSE / folder / f"{name}.md").is_file())


def load(name: str, within: str = "") -> Agent:
    found = find(name, within)
    return _load(found.file, found.name)


@cache
def _load(file: Path, name: str) -> Agent:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise config.ConfigError(file, 0, f"cannot be read: {error}", "it must be UTF-8 text") from None
    found = _PARTS.match(text)
    if not found:
        raise config.ConfigError(file, 1, "no frontmatter", "start the file with --- name, description … ---")
    document = config.Document(file, found[1], first_line=2)
    data: Any = document.data
    given = cast(Json, data) if isinstance(data, dict) else {}
    for key, why in _REFUSED.items():
        if key in given:
            raise document.error([key], f"the key {key!r} is not supported: {why}", "remove it")
    front = records.of(document.check("agent"), written.Agent)
    if front.name != file.stem:
        raise document.error(["name"], f"the name {front.name!r} differs from the file's", f"call it {file.stem}")
    return _agent(file, name, front, found[2].strip(), document)


def _agent(file: Path, name: str, front: written.Agent, system_prompt: str, document: config.Document) -> Agent:
    ours = front.strata
    rules, disallowed = split_rules(front.tools), split_rules(front.disallowed)
    if ours.calls and rules != ("Bash",):
        raise document.error(["tools"], "an agent that calls tools has Bash, and nothing else", "tools: Bash")
    for key, listed in (("tools", rules), ("disallowedTools", disallowed)):
        _at(document, [key], lambda listed=listed: check_tools(listed, "the agent CLI"))
    if not system_prompt:
        raise config.ConfigError(file, 0, "the system prompt is empty", "say who the agent is and how it works")
    path = _PATH_IN_PROSE.search(system_prompt)
    if path:
        whole = file.read_text(encoding="utf-8")
        line = whole[: whole.index(path[0])].count("\n") + 1
        raise config.ConfigError(file, line, f"a path in a system prompt: {path[0]}", "paths come with the task")
    for tool in ours.max_uses:
        if tool not in {rule.partition("(")[0].strip() for rule in rules}:
            at = ["strata", "max_uses", tool]
            raise document.error(at, f"{front.name} has no tool {tool!r} to cap", f"it has: {', '.join(rules) or 'none'}")
    outputs = tuple(_output(document, output.named(key), places.pack_of(file)) for key, output in ours.outputs.items())
    chosen = next((o for o in outputs if o.name == ours.structured), None)
    if ours.structured and not (chosen and chosen.schema):
        raise document.error(["strata", "structured"], f"{ours.structured!r} is no output with a schema", "name one that is")
    made = Agent(
        id=name,
        name=front.name,
        file=file,
        description=front.description,
        system_prompt=system_prompt,
        tools=tuple(f"Bash(uv run {tool}:*)" for tool in tools_of(LAYERS[ours.calls])) if ours.calls else rules,
        disallowed=disallowed,
        tier=ours.tier or _TIERS[front.model],
        actions=ours.actions,
        inputs={name: written.Input(given) if isinstance(given, str) else given for name, given in ours.inputs.items()},
        outputs=outputs,
        structured=ours.structured,
        completion=ours.completion,
        checks=ours.checks,
        scope=ours.scope,
        permission_mode=front.permission_mode,
        max_turns=front.max_turns,
        calls=ours.calls,
        sandbox=ours.sandbox,
        domains=ours.domains,
        env=ours.env,
        max_uses=ours.max_uses,
        internal=ours.internal,
    )
    if why := cannot_leave(made, outputs):
        raise document.error(["tools"], why, "add Write to its tools, or make the output its `structured` one")
    return made


def _output(document: config.Document, output: Output, pack: str) -> Output:
    """An output whose path stays in its folder, and whose schema everybody finds."""
    place = ["strata", "outputs", output.name]
    _at(document, place, lambda: files.below(Path(), output.path.replace("{target}", "x"), "the output path"))
    if not output.schema:
        return output
    _at(document, [*place, "schema"], lambda: schemas.load(schemas.qualified(output.schema, pack)))
    return replace(output, schema=schemas.qualified(output.schema, pack))


def tools_of(layer: int) -> list[Path]:
    """The tools of a layer, by what each says of itself."""
    said = re.compile(rf"^TOOL = Tool\((?:(?!\n\)).)*?\blayer={layer}\b", re.M | re.S)
    return [path for path in sorted(CORE.glob("*.py")) if said.search(path.read_text(encoding="utf-8"))]


def _at(document: config.Document, path: list[Any], check: Callable[[], object]) -> None:
    """Runs a check whose error knows nothing of the file, and gives it its place."""
    try:
        check()
    except StrataError as error:
        raise document.error(path, error.message, error.hint) from None


def prepare_for_forks() -> None:
    records.prepare(written.Agent)


def writes_by_rule(agent: Agent) -> bool:
    """Whether its file tools are let into the working folder."""
    return bool(agent.scope) or any(o.place == "workspace" for o in agent.outputs)


UNCONFINED_TOOLS = ("Bash", "Agent", "Task", "Skill", "Monitor")


def unconfined(agent: Agent) -> bool:
    """Whether it has a tool or a mode that knows no globs."""
    wide = agent.permission_mode not in ("plan", "default", "dontAsk")
    return wide or any(rule.partition("(")[0].strip() in UNCONFINED_TOOLS for rule in agent.tools)


def cannot_leave(agent: Agent, outputs: Sequence[Output]) -> str:
    """Why an agent cannot leave the outputs that are asked of it; nothing where it can."""
    able = {"Write", "Edit", "NotebookEdit", *UNCONFINED_TOOLS}
    names = [o.name for o in outputs if not o.optional and o.name != agent.structured]
    if not names or agent.calls or any(rule.partition("(")[0].strip() in able for rule in agent.tools):
        return ""
    has = ", ".join(agent.tools) or "no tools at all"
    return f"{agent.name} must leave {', '.join(names)} and has no tool to write with: it has {has}"


def can_write_workspace(agent: Agent) -> bool:
    """Whether it could change the working folder at all: by its rules, or through a shell that knows none."""
    return writes_by_rule(agent) or "Bash" in agent.tools
