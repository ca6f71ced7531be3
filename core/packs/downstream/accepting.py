"""What an agent made is accepted where it is no larger than its contract allows, matches its schema, and rests on its inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from lib.attempt.judging import Made
from lib.contract import StrataError
from lib.disk import files, records, schemas

from packs.downstream import bundles, grounding, helping, launching, loading, working
from packs.downstream import settings as settings_file
from packs.downstream.bundles import Given
from packs.downstream.contract import AgentContract, OutputSpec, schema_of


def look(made: Made) -> list[str]:
    """Of one job. An agent session was given its inputs in its task; every other agent in its bundle."""
    handoff = Path(made.out).parent / "handoff"
    if (handoff / helping.CONTRACT).is_file():
        contract = records.read(handoff / helping.CONTRACT, AgentContract)
        bundle = bundles.read(handoff / bundles.FILE)
        dimensions, sources = bundle.job, bundle.sources
    else:
        contract = loading.one(Path(made.task.accept[-1]), settings_file.read())
        dimensions, sources = cast(dict[str, str], made.task.item["dimensions"]), _given(made.task.inputs)
    left = working.outputs_in(Path(made.out) / launching.FILES, contract, dimensions)
    return [complaint for one in left for complaint in _complaints(contract, one, left, sources)]


def _given(inputs: dict[str, Any]) -> dict[str, Path]:
    values = [v for value in inputs.values() for v in (cast(list[Any], value) if isinstance(value, list) else [value])]
    return {v: Path(v) for v in values if isinstance(v, str) and files.is_file(v)}


def _complaints(contract: AgentContract, one: Given, left: list[Given], sources: dict[str, Path]) -> list[str]:
    spec = contract.output(one.name)
    path = Path(one.content_path)
    if not spec or not path.is_file():
        return []
    size = path.stat().st_size
    if size > spec.max_bytes:
        return [f"{one.name} ({path.name}): {size} bytes, at most {spec.max_bytes}"]
    found = _schema(contract, spec, path)
    return found or (_grounding(spec, one, left, sources) if spec.grounded_by else [])


def _schema(contract: AgentContract, spec: OutputSpec, path: Path) -> list[str]:
    if not spec.schema:
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return [f"{spec.name} ({path.name}): not valid JSON: {error}"]
    return [f"{spec.name} ({path.name}): {wrong}" for wrong in schemas.describe(document, schema_of(contract, spec))]


def _grounding(spec: OutputSpec, one: Given, left: list[Given], sources: dict[str, Path]) -> list[str]:
    beside = next((o for o in left if o.name == spec.grounded_by and o.dimensions == one.dimensions), None)
    if not beside:
        return [f"{spec.name}: the passages it rests on ({spec.grounded_by}) are missing"]
    try:
        passages = grounding.read(Path(beside.content_path))
    except StrataError as error:
        return [f"{spec.grounded_by}: {error.message}"]
    return [f"{one.path}: {wrong}" for wrong in grounding.complaints(one.content, passages, sources)]
