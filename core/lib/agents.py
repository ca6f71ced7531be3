"""Agent definitions: one markdown file each, in the format of Claude Code subagents, checked before anything is spent."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from lib import config, files
from lib.contract import HOUSE, Json, StrataError
from lib.task import Output

PROMPTS = HOUSE / "prompts"
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


@dataclass(frozen=True)
class Agent:
    name: str
    file: Path
    description: str
    system_prompt: str
    tools: tuple[str, ...]
    tier: str
    actions: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    outputs: tuple[Output, ...] = ()
    structured: str = ""
    completion: str = "stage"
    checks: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    permission_mode: str = "dontAsk"
    max_turns: int | None = None

    @property
    def fingerprint(self) -> str:
        return files.digest([self.name, self.system_prompt, self.tools, self.tier, [o.document() for o in self.outputs]])


def split_rules(text: str) -> tuple[str, ...]:
    """`Read, Bash(git log:*)` → two rules. Commas inside parentheses belong to the rule."""
    rules = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    return tuple(r.strip() for r in rules if r.strip())


def check_tools(rules: tuple[str, ...], where: str) -> None:
    for rule in rules:
        name = rule.partition("(")[0].strip()
        if name not in KNOWN_TOOLS:
            near = difflib.get_close_matches(name, KNOWN_TOOLS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"the tools are: {', '.join(KNOWN_TOOLS)}"
            raise StrataError("UNKNOWN_AGENT_TOOL", f"{where}: there is no tool {name!r}", hint)


def find(name: str) -> Path:
    matches = [p for p in PROMPTS.glob("*/*.md") if p.stem == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        places = ", ".join(str(p.relative_to(PROMPTS)) for p in matches)
        raise StrataError("AMBIGUOUS_AGENT", f"two definitions are called {name!r}: {places}", "rename one")
    known = sorted(p.stem for p in PROMPTS.glob("*/*.md"))
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"the agents are: {', '.join(known)}"
    raise StrataError("UNKNOWN_AGENT", f"there is no agent {name!r} under prompts/", hint)


@cache
def load(name: str) -> Agent:
    file = find(name)
    text = file.read_text(encoding="utf-8")
    found = re.match(r"---\n(.*?\n)---\n(.*)\Z", text, re.S)
    if not found:
        raise config.ConfigError(file, 1, "no frontmatter", "start the file with --- name, description … ---")
    document = config.Document(file, found[1], first_line=2)
    data: Any = document.data
    given = cast(Json, data) if isinstance(data, dict) else {}
    for key, why in _REFUSED.items():
        if key in given:
            raise document.error([key], f"the key {key!r} is not supported: {why}", "remove it")
    data = document.check("agent")
    if data["name"] != file.stem:
        raise document.error(["name"], f"the name {data['name']!r} differs from the file's", f"call it {file.stem}")
    return _agent(file, data, found[2].strip(), document)


def _agent(file: Path, data: Json, system_prompt: str, document: config.Document) -> Agent:
    strata: Json = data.get("strata", {})
    rules = split_rules(data.get("tools", ""))
    gone = set(split_rules(data.get("disallowedTools", "")))
    check_tools((*rules, *gone), str(file))
    if not system_prompt:
        raise config.ConfigError(file, 0, "the system prompt is empty", "say who the agent is and how it works")
    path = _PATH_IN_PROSE.search(system_prompt)
    if path:
        line = file.read_text(encoding="utf-8")[: file.read_text(encoding="utf-8").index(path[0])].count("\n") + 1
        raise config.ConfigError(file, line, f"a path in a system prompt: {path[0]}", "paths come with the task")
    outputs = tuple(Output.read(name, spec) for name, spec in strata.get("outputs", {}).items())
    structured = strata.get("structured", "")
    chosen = next((o for o in outputs if o.name == structured), None)
    if structured and not (chosen and chosen.schema):
        raise document.error(["strata", "structured"], f"{structured!r} is no output with a schema", "name one that is")
    words: dict[str, str] = {"haiku": "low-tier", "sonnet": "medium-tier", "opus": "high-tier"}
    return Agent(
        name=data["name"],
        file=file,
        description=data["description"],
        system_prompt=system_prompt,
        tools=tuple(r for r in rules if r not in gone and r.partition("(")[0] not in gone),
        tier=strata.get("tier") or words.get(data.get("model", ""), "medium-tier"),
        actions=tuple(strata.get("actions", ())),
        inputs=dict(strata.get("inputs", {})),
        outputs=outputs,
        structured=structured,
        completion=strata.get("completion", "stage"),
        checks=tuple(strata.get("checks", ())),
        scope=tuple(strata.get("scope", ())),
        permission_mode=data.get("permissionMode", "dontAsk"),
        max_turns=data.get("maxTurns"),
    )


def can_write_workspace(agent: Agent) -> bool:
    return bool(agent.scope) or any(o.place == "workspace" for o in agent.outputs)


def brief(agent: Agent) -> dict[str, Any]:
    return {"name": agent.name, "description": agent.description, "tools": list(agent.tools), "tier": agent.tier}
