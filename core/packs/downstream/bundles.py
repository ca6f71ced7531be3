"""Context bundles: what of a run, and of the agents before it, a downstream agent is given. Content stays where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lib.contract import Json, StrataError
from lib.disk import files, records
from msgspec import Struct
from msgspec.structs import replace

from packs.downstream.contract import AgentContract, InputSpec, Unless
from packs.downstream.upstream import Manifest, OutputEntry, dimensions_of

FILE = "context_bundle.json"
SCHEMA_VERSION = "1.0.0"
Dimensions = dict[str, str]


class Given(Struct, frozen=True):
    """A file that is handed over by name. Its content is read when it is asked for."""

    name: str
    path: str
    content_path: str
    sha256: str = ""
    dimensions: Dimensions = {}

    @property
    def content(self) -> str:
        return Path(self.content_path).read_text(encoding="utf-8", errors="replace")


class ContextBundle(Struct, frozen=True):
    """The data package of one invocation."""

    agent_name: str
    execution_id: str
    manifest_path: str = ""
    research_outputs: dict[str, tuple[OutputEntry, ...]] = {}  # by the id of the input
    context_files: dict[str, Given] = {}
    external_data: dict[str, Given] = {}
    downstream_outputs: dict[str, tuple[Given, ...]] = {}  # by agent
    dimensions: dict[str, list[str]] = {}  # the values there are in what matched
    absent: tuple[str, ...] = ()  # optional inputs that the run does not have
    job: Dimensions = {}  # of a job of several: what this one is about
    output_dir: str = ""
    nonce: str = ""
    model: Json = {}
    budget: Json = {}
    config: Json = {}
    working_dir: str = ""
    settings: Json = {}  # what of the project's settings an agent goes by: output_dir, aliases
    schema_version: str = SCHEMA_VERSION

    @property
    def entries(self) -> list[OutputEntry]:
        """All that matched, each once."""
        found = {one.content_path: one for matched in self.research_outputs.values() for one in matched}
        return list(found.values())

    def verify(self) -> None:
        """Everything it was given is as it was."""
        given = [*self.context_files.values(), *self.external_data.values()]
        given += [one for made in self.downstream_outputs.values() for one in made]
        changed = [one.path for one in given if one.sha256 and files.fingerprint(Path(one.content_path)) != one.sha256]
        if changed:
            message = f"{changed[0]}: it is not as it was given"
            raise StrataError("CHANGED_INPUT", message, "the agent changed what it was to read", final=True)
        for one in self.entries:
            one.verify()

    @property
    def sources(self) -> dict[str, Path]:
        """Everything it was given, by the path it has in the bundle."""
        given = [*self.context_files.values(), *self.external_data.values()]
        given += [one for made in self.downstream_outputs.values() for one in made]
        return {one.path: Path(one.content_path) for one in (*self.entries, *given)}


def read(path: Path) -> ContextBundle:
    return records.read(path, ContextBundle)


def agree(one: Dimensions, other: Dimensions) -> bool:
    """Whether they can be about the same thing: no dimension that both name has two values."""
    return all(other[name] == value for name, value in one.items() if name in other)


def matched(spec: InputSpec, manifest: Manifest, job: Dimensions | None = None) -> tuple[OutputEntry, ...]:
    return tuple(
        one
        for one in (not_barred(manifest, spec.unless) if spec.unless else manifest.outputs)
        if one.type == spec.type
        and all(name in one.dimensions and one.dimensions[name] == value for name, value in spec.dimensions.items())
        and set(spec.tags) <= set(one.tags)
        and (not job or agree(one.dimensions, job))
    )


def _about(one: OutputEntry) -> frozenset[tuple[str, str]]:
    return frozenset(one.dimensions.items())


def not_barred(manifest: Manifest, unless: Unless) -> list[OutputEntry]:
    """All but what another output of the run, about the same, says is not to be used."""
    said = [(one, _value(one, unless.pointer)) for one in manifest.outputs if one.type == unless.type]
    barred = {_about(one) for one, value in said if value in unless.is_}
    return [one for one in manifest.outputs if _about(one) not in barred]


def _value(one: OutputEntry, pointer: str) -> str:
    try:
        value: Any = json.loads(one.content)
        for part in pointer.strip("/").split("/"):
            value = value[part]
    except (ValueError, KeyError, TypeError, OSError) as error:
        message = f"{one.path} does not say {pointer}: {type(error).__name__}"
        raise StrataError("BAD_INPUT", message, "see `unless` in the contract", final=True) from None
    return str(value)


def assemble(
    contract: AgentContract, manifest: Manifest, cwd: Path, job: Dimensions | None = None, only: str = ""
) -> ContextBundle:
    """Everything but what other downstream agents left. `job`: narrowed to what agrees with these dimensions. `only`: the one
    output that the input `each` is about. Raises where something is missing that the agent cannot do without."""
    outputs: dict[str, tuple[OutputEntry, ...]] = {}
    absent: list[str] = []
    for spec in contract.inputs.all:
        found = matched(spec, manifest, job)
        if spec.key == contract.execution.each and only:
            found = tuple(one for one in found if one.content_path == only)
        if not found and spec in contract.inputs.required:
            named = ", ".join(f"{k}={v}" for k, v in (spec.dimensions | (job or {})).items())
            message = f"{contract.name} needs {spec.type}{f' with {named}' if named else ''}, and the run has none"
            raise StrataError("MISSING_REQUIRED_INPUT", message, _there_are(manifest), final=True)
        outputs[spec.key] = found
        absent += [spec.key] if not found else []
    context, no_context = _context(contract, manifest)
    external, no_external = _external(contract, cwd)
    bundle = ContextBundle(
        agent_name=contract.name,
        execution_id=manifest.execution_id,
        manifest_path=manifest.path,
        research_outputs=outputs,
        context_files=context,
        external_data=external,
        absent=(*absent, *no_context, *no_external),
        job=job or {},
        model=records.document(contract.model),
        budget=records.document(contract.budget),
        config=contract.execution.config,
    )
    return replace(bundle, dimensions=dimensions_of(bundle.entries))


def _there_are(manifest: Manifest) -> str:
    return f"it has: {', '.join(sorted({one.type for one in manifest.outputs})) or 'no outputs'}"


def _context(contract: AgentContract, manifest: Manifest) -> tuple[dict[str, Given], list[str]]:
    names = contract.inputs.context_files
    given: dict[str, Given] = {}
    for name in (*names.required, *names.optional):
        one = manifest.context_files.get(name)
        if one and files.is_file(one.content_path):
            given[name] = Given(name, one.path, one.content_path, one.sha256)
        elif name in names.required:
            there = ", ".join(manifest.context_files) or "none"
            message = (
                f"{contract.name} needs the context file {name}, and the run has {'lost it' if one else 'none of that name'}"
            )
            raise StrataError("MISSING_CONTEXT_FILE", message, f"it has: {there}", final=True)
    return given, [name for name in names.optional if name not in given]


def _external(contract: AgentContract, cwd: Path) -> tuple[dict[str, Given], list[str]]:
    given: dict[str, Given] = {}
    for one in contract.inputs.external:
        path = files.inside(cwd, one.path, "the external file")
        if files.is_file(path):
            given[one.name] = Given(one.name, one.path, str(path), files.sha256(path))
        elif one.required:
            message = f"{contract.name} needs {one.name}, and there is no {path}"
            raise StrataError("MISSING_EXTERNAL_DATA", message, "put it there", final=True)
    return given, [one.name for one in contract.inputs.external if one.name not in given]


def digest(bundle: ContextBundle) -> str:
    """Of all that is given, by what is in it: the same for the same inputs, wherever they stand."""
    entries: list[Any] = [
        [key, [(one.id, one.type, one.dimensions, one.sha256) for one in found]] for key, found in bundle.research_outputs.items()
    ]
    given = [(one.name, one.sha256) for one in (*bundle.context_files.values(), *bundle.external_data.values())]
    return files.digest([entries, given, bundle.job, bundle.absent])[:16]


def with_downstream(bundle: ContextBundle, contract: AgentContract, made: dict[str, list[Given]]) -> ContextBundle:
    """`made`: what the agents before it left, by agent."""
    found: dict[str, tuple[Given, ...]] = {}
    absent: list[str] = []
    for one in contract.inputs.downstream_inputs:
        fitting = [g for g in made.get(one.agent, []) if g.name == one.output and agree(g.dimensions, bundle.job)]
        if not fitting and one.required:
            message = f"{contract.name} needs {one.output} of {one.agent}, and it left none"
            raise StrataError("MISSING_DOWNSTREAM_OUTPUT", message, "see what became of it", final=True)
        absent += [f"{one.agent}.{one.output}"] if not fitting else []
        found[one.agent] = (*found.get(one.agent, ()), *fitting)
    return replace(bundle, downstream_outputs=found, absent=(*bundle.absent, *absent))
