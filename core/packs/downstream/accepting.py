"""What an agent made is accepted where it is no larger than its contract allows, matches its schema, and rests on its inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from lib.attempt.judging import Made
from lib.contract import Json, StrataError
from lib.disk import files, schemas

from packs.downstream import grounding, loading
from packs.downstream import settings as settings_file
from packs.downstream.bundles import Given
from packs.downstream.contract import AgentContract, OutputSpec, schema_of

FILES = "files"  # in what an attempt leaves: the folder of the outputs


def look(made: Made) -> list[str]:
    """Of an agent session. Every other agent was looked at by whoever ran it, before its outcome was written."""
    item = cast(Json, made.task.item)
    if "dimensions" not in item or "digest" in item:
        return []
    contract = loading.one(Path(made.task.accept[-1]), settings_file.read())
    left = left_by_templates(contract, Path(made.out) / FILES, cast(dict[str, str], item["dimensions"]))
    sources = _given(made.task.inputs)
    return [wrong for one in left for wrong in complaints(contract, one, left, sources)]


def left_by_templates(contract: AgentContract, folder: Path, dimensions: dict[str, str]) -> list[Given]:
    """The outputs of a job, where their templates say they are."""
    listed = [(spec.name, spec.path(dimensions | contract.variables)) for spec in contract.outputs]
    return [given(contract, folder, name, path, dimensions) for name, path in listed if path and (folder / path).exists()]


def given(contract: AgentContract, folder: Path, name: str, path: str, dimensions: dict[str, str]) -> Given:
    return Given(name, f"{contract.name}/{path}", str(folder / path), files.fingerprint(folder / path), dimensions)


def _given(inputs: dict[str, Any]) -> dict[str, Path]:
    values = [v for value in inputs.values() for v in (cast(list[Any], value) if isinstance(value, list) else [value])]
    return {v: Path(v) for v in values if isinstance(v, str) and files.is_file(v)}


def complaints(contract: AgentContract, one: Given, left: list[Given], sources: dict[str, Path]) -> list[str]:
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
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        return [f"{spec.name} ({path.name}): not valid JSON: {error}"]
    return [f"{spec.name} ({path.name}): {wrong}" for wrong in schemas.describe(document, schema_of(contract, spec))]


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> Json:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name is used twice in one object: {next(n for n in names if names.count(n) > 1)}")
    return dict(pairs)


def _grounding(spec: OutputSpec, one: Given, left: list[Given], sources: dict[str, Path]) -> list[str]:
    beside = next((o for o in left if o.name == spec.grounded_by and o.dimensions == one.dimensions), None)
    if not beside:
        return [f"{spec.name}: the passages it rests on ({spec.grounded_by}) are missing"]
    try:
        passages = grounding.read(Path(beside.content_path))
    except StrataError as error:
        return [f"{spec.grounded_by}: {error.message}"]
    return [f"{one.path}: {wrong}" for wrong in grounding.complaints(one.content, passages, sources)]
