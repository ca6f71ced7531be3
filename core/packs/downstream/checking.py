"""What is wrong with a contract, said with file and line: alone, and together with the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from lib.contract import Json, StrataError, nearest
from lib.disk import config

from packs.downstream import hosts
from packs.downstream.contract import AgentContract, Contracts, OutputSpec, definition, schema_of
from packs.downstream.settings import Settings

OURS = ("agent", "version", "schema_version")  # variables of a template besides the dimensions
RESERVED = ("context_bundle.json", "result.json", "contract.json", "asked.json", "error.json")
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_.{}/-]+")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
# By type of execution: what it must say, and what it may say besides.
_NEEDS = {"agent": ("agent",), "python": ("module", "class"), "subprocess": ("command",), "webhook": ("url",), "mcp": ("tool",)}
_MAY = {
    "agent": (),
    "python": ("env",),
    "subprocess": ("working_dir", "env"),
    "webhook": ("method", "headers", "poll_seconds", "env"),
    "mcp": ("server", "command", "env"),
}


def alone(document: config.Document, contract: AgentContract, settings: Settings) -> None:
    if contract.name != contract.home.name:
        raise document.error(
            ["name"], f"it is called {contract.name!r}, and its folder {contract.home.name!r}", "make them equal"
        )
    _inputs(document, contract, settings)
    _outputs(document, contract, settings)
    _execution(document, contract, settings)


def _inputs(document: config.Document, contract: AgentContract, settings: Settings) -> None:
    seen: set[str] = set()
    for kind in ("required", "optional"):
        for position, spec in enumerate(getattr(contract.inputs, kind)):
            place = ["inputs", kind, position]
            if spec.key in seen:
                raise document.error(place, f"two inputs are called {spec.key!r}", "give one of them an id of its own")
            seen.add(spec.key)
            for name in spec.dimensions:
                if name not in settings.dimensions:
                    message = f"{name!r} is no dimension"
                    raise document.error([*place, "dimensions", name], message, nearest(name, settings.dimensions))
    for position, external in enumerate(contract.inputs.external):
        path = Path(external.path)
        if path.is_absolute() or ".." in path.parts:
            raise document.error(
                ["inputs", "external", position, "path"], f"{external.path!r} leaves the working folder", "a plain relative path"
            )
    named = [one.name for one in contract.inputs.external]
    if len(set(named)) < len(named):
        raise document.error(["inputs", "external"], "two external files have the same name", "each has its own")


def _outputs(document: config.Document, contract: AgentContract, settings: Settings) -> None:
    allowed = (*settings.dimensions, *OURS)
    names = [one.name for one in contract.outputs]
    for position, output in enumerate(contract.outputs):
        place: list[Any] = ["outputs", position]
        template = output.path_template
        if names.count(output.name) > 1:
            raise document.error(place, f"two outputs are called {output.name!r}", "each has its own name")
        if (
            not _PLAIN.fullmatch(template)
            or Path(template).is_absolute()
            or {"..", "."} & set(template.split("/"))
            or "//" in template
        ):
            hint = "a plain path in the agent's own folder: letters, digits, _ . - / and {variables}"
            raise document.error([*place, "path_template"], f"the template {template!r} cannot be used", hint)
        used = _VARIABLE.findall(template)
        if re.search(r"[{}]", _VARIABLE.sub("", template)):
            raise document.error([*place, "path_template"], f"the template {template!r} has a brace too many", "{variable}")
        for name in (*used, *output.variables):
            if name not in allowed:
                raise document.error([*place, "path_template"], f"{name!r} is no variable", nearest(name, allowed))
        if sorted(set(used)) != sorted(output.variables):
            lists = ", ".join(output.variables) or "none"
            says = f"the template uses {', '.join(sorted(set(used))) or 'none'}, variables: lists {lists}"
            raise document.error([*place, "variables"], says, "list exactly those the template uses")
        if Path(template).parts[0] in RESERVED:
            raise document.error(
                [*place, "path_template"], f"{template!r} is a file of the handoff itself", "choose another name"
            )
        if template.endswith("/") and (output.schema or output.grounded_by):
            raise document.error(place, f"{output.name} is a folder: schema and grounded_by are for files", "declare the files")
        _promises(document, contract, output, place)
    twice = [one for one in contract.outputs if [o.path_template for o in contract.outputs].count(one.path_template) > 1]
    if twice:
        raise document.error(["outputs"], f"two outputs stand at {twice[0].path_template!r}", "give each a path of its own")


def _promises(document: config.Document, contract: AgentContract, output: OutputSpec, place: list[Any]) -> None:
    if output.schema:
        try:
            schema_of(contract, output)
        except StrataError as error:
            raise document.error([*place, "schema"], error.message, error.hint or "a file beside agent.yaml, or a name") from None
    if output.grounded_by:
        other = contract.output(output.grounded_by)
        if not other or other.name == output.name:
            message = f"grounded_by names {output.grounded_by!r}, which is no other output"
            raise document.error(
                [*place, "grounded_by"], message, nearest(output.grounded_by, [o.name for o in contract.outputs])
            )
        if sorted(other.variables) != sorted(output.variables):
            message = f"{output.name} and {other.name} have different variables"
            raise document.error([*place, "grounded_by"], message, "each text has its own passages")


def _execution(document: config.Document, contract: AgentContract, settings: Settings) -> None:
    said = cast(Json, document.data)["execution"]
    kind = contract.execution.type
    for name in _NEEDS[kind]:
        if name not in said:
            raise document.error(["execution"], f"{kind} needs {name}", f"execution: {{type: {kind}, {name}: …}}")
    allowed = ("type", "config", "each", *_NEEDS[kind], *_MAY[kind])
    for name in said:
        if name not in allowed:
            raise document.error(["execution", name], f"{name!r} means nothing to {kind}", f"it takes {', '.join(allowed[1:])}")
    each = contract.execution.each
    if each and each not in [spec.key for spec in contract.inputs.required]:
        raise document.error(["execution", "each"], f"{each!r} is no required input", "the id of one under inputs.required")
    if kind == "agent":
        try:
            definition(contract)
        except StrataError as error:
            raise document.error(["execution", "agent"], error.message, error.hint) from None
    if kind == "mcp" and bool(contract.execution.server) == bool(contract.execution.command):
        raise document.error(
            ["execution"], "mcp needs a server by name, or a command, and not both", "see mcp_servers in the settings"
        )
    if kind == "mcp" and contract.execution.server and contract.execution.server not in settings.mcp_servers:
        message = f"there is no MCP server {contract.execution.server!r} in the settings"
        raise document.error(["execution", "server"], message, nearest(contract.execution.server, settings.mcp_servers))
    for name, value in contract.execution.headers.items():
        for variable in _REFERENCE.findall(value):
            if variable not in contract.execution.env:
                raise document.error(
                    ["execution", "headers", name],
                    f"the header {name} uses ${{{variable}}}, which env: does not list",
                    f"env: [{variable}]",
                )
    if kind == "webhook":
        try:
            hosts.allowed(contract.execution.url, settings.webhook_allowed_hosts, settings.webhook_allow_insecure)
        except StrataError as error:
            raise document.error(["execution", "url"], error.message, error.hint) from None


def before(contracts: Contracts, name: str) -> set[str]:
    """All it depends on, directly or not; itself, where there is a circle. What is not there is not followed."""
    found: set[str] = set()
    ahead = list(contracts[name].depends_on)
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead += contracts[other].depends_on if other in contracts else ()
    return found


def together(document: config.Document, contract: AgentContract, every: Contracts) -> None:
    for position, name in enumerate(contract.depends_on):
        if name not in every:
            message = f"{contract.name} depends on {name!r}, which does not exist"
            raise document.error(["depends_on", position], message, nearest(name, set(every) - {contract.name}))
    chain = before(every, contract.name)
    if contract.name in chain:
        circle = " → ".join([contract.name, *_circle(every, contract.name)])
        raise document.error(["depends_on"], f"the agents wait for each other: {circle}", "take one of these dependencies out")
    for position, one in enumerate(contract.inputs.downstream_inputs):
        place = ["inputs", "downstream_inputs", position]
        if one.agent not in chain:
            message = f"{contract.name} reads {one.agent!r}, and does not depend on it"
            raise document.error([*place, "agent"], message, f"depends_on: [{one.agent}]")
        if not every[one.agent].output(one.output):
            message = f"{one.agent} has no output {one.output!r}"
            raise document.error([*place, "output"], message, nearest(one.output, [o.name for o in every[one.agent].outputs]))


def _circle(every: Contracts, name: str) -> list[str]:
    """The way from an agent back to itself."""
    ways: list[list[str]] = [[other] for other in every[name].depends_on]
    while ways:
        way = ways.pop(0)
        if way[-1] == name:
            return way
        ways += [[*way, other] for other in every[way[-1]].depends_on if other == name or other not in way]
    return []
