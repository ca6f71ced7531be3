"""What a run has to give: its outputs with type and dimensions, and its context files. Content is read when it is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lib.contract import HOUSE, StrataError
from lib.disk import files, records
from lib.session import began, catalogue, produced
from lib.session.produced import CONTEXT
from msgspec import Struct
from msgspec.structs import replace

from packs.downstream import old_names
from packs.downstream.settings import KNOWN_LAYERS, Settings

THIS = "this"  # the session that is asked: a plan's own, with all that its earlier phases have left


class OutputEntry(Struct, frozen=True):
    """A single research output. Its content is read when it is asked for, and not kept."""

    agent_name: str
    type: str
    layer: str = ""
    dimensions: dict[str, str] = {}
    path: str = ""  # as the run's manifest has it
    content_path: str = ""  # where it is
    sha256: str = ""
    size: int = 0
    id: str = ""
    agent_version: str = ""
    tags: tuple[str, ...] = ()
    completed_at: str = ""
    execution_id: str = ""

    @property
    def content(self) -> str:
        return Path(self.content_path).read_text(encoding="utf-8", errors="replace")

    def verify(self) -> None:
        """It is there, and as the run left it."""
        there = files.exists(self.content_path)
        if not there or (self.sha256 and files.fingerprint(Path(self.content_path)) != self.sha256):
            message = f"{self.path}: it is {'not as the run left it' if there else 'no longer there'}"
            raise StrataError("CHANGED_INPUT", message, "run the upstream again, or bring the file back", final=True)


class Manifest(Struct, frozen=True):
    """What a run produced, whoever wrote it down."""

    execution_id: str
    path: str
    outputs: tuple[OutputEntry, ...]
    context_files: dict[str, OutputEntry]
    config_source: str = ""


def load(run: str, cwd: Path, settings: Settings, session: Path | None = None, partial: bool = False) -> Manifest:
    """By the session of the run (its folder, its name, `latest`), or by the manifest it left. `session`: the one at hand.
    `partial`: also what was left unfinished."""
    if is_this(run):
        if not session:
            raise StrataError("NO_SESSION", "`this` is the session of a plan, and there is none", "name a run", final=True)
        return _of_session(session, partial, run.partition("/")[2])
    path = cwd / run
    if files.is_file(path) and path.suffix == ".json":
        return _of_file(path.resolve(), settings, partial)
    if path.is_dir() and not (path / ".trace").exists() and (path / "manifest.json").is_file():
        return _of_file((path / "manifest.json").resolve(), settings, partial)
    return _of_session(catalogue.find(str(path) if path.is_dir() else run, HOUSE / "sessions"), partial)


def is_this(run: str) -> bool:
    """`this`, or `this/PHASE`: only what one phase of the plan has left."""
    return run.partition("/")[0] == THIS


def _of_session(session: Path, partial: bool, phase: str = "") -> Manifest:
    found = [one for one in produced.of_session(session) if not phase or _phase(one.id) == phase]
    if not found:
        raise StrataError("NO_OUTPUTS", f"{session} has produced nothing", "let the run come to its end first", final=True)
    roots = {"session": session, "workspace": Path(began.read(session).cwd or ".")}
    name = f"{session.name}/{phase}" if phase else session.name
    entries = tuple(_entry(one, roots[one.root], name) for one in found if partial or one.completion_status == "complete")
    of_phase = sorted(session.glob(f"phases/phase-*-{phase}/*/{produced.FILE}")) if phase else []
    return _parted(name, of_phase[0] if of_phase else session / produced.FILE, entries)


def _phase(identity: str) -> str:
    """By its name, without its number."""
    return re.sub(r"^phase-\d+-", "", identity.partition("/")[0])


def _entry(one: produced.Produced, root: Path, run: str) -> OutputEntry:
    return OutputEntry(
        agent_name=one.agent_name,
        type=one.type,
        layer=one.layer,
        dimensions=one.dimensions,
        path=one.path,
        content_path=str(files.find(root, one.path)),
        sha256=one.sha256,
        size=one.size,
        id=one.id,
        agent_version=one.agent_version,
        tags=one.tags,
        completed_at=one.completed_at,
        execution_id=run,
    )


def _parted(run: str, path: Path, entries: tuple[OutputEntry, ...], source: str = "") -> Manifest:
    context = {one.id.rpartition("/")[2]: one for one in entries if one.type == CONTEXT}
    return Manifest(run, str(path), tuple(one for one in entries if one.type != CONTEXT), context, source)


class _Listed(Struct, frozen=True):
    """An output in a manifest that another program wrote."""

    agent_name: str = ""
    type: str = ""
    layer: str = ""
    dimensions: dict[str, str] | None = None
    tags: tuple[str, ...] = ()
    path: str = ""
    root: str = ""
    sha256: str = ""
    size: int = 0
    id: str = ""
    agent_version: str = ""
    completed_at: str = ""
    completion_status: str = "complete"


class _Written(Struct, frozen=True):
    outputs: tuple[_Listed, ...]
    execution_id: str = ""
    config_source: str = ""
    context_files: dict[str, str] = {}


def _of_file(path: Path, settings: Settings, partial: bool) -> Manifest:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        written = records.of(data, _Written)
    except (ValueError, OSError, RecursionError) as error:
        raise StrataError(
            "BAD_MANIFEST", f"{path} is no manifest of outputs: {error}", "outputs.json of a session, or manifest.json"
        ) from None
    if (path.parent / ".trace").exists() and path.name == produced.FILE:
        return _of_session(path.parent, partial)
    entries: list[OutputEntry] = []
    for one in written.outputs:
        if one.completion_status != "complete" and not partial:
            continue
        known = one if one.type and one.dimensions is not None else _from_name(one, settings)
        _require_layer(path, known)
        place = _place(path, one.path)
        entries.append(
            OutputEntry(
                agent_name=known.agent_name,
                type=known.type,
                layer=known.layer,
                dimensions=known.dimensions or {},
                path=one.path,
                content_path=str(place),
                sha256=one.sha256 or (files.sha256(place) if files.is_file(place) else ""),
                size=one.size or (place.stat().st_size if files.is_file(place) else 0),
                id=one.id or one.path,
                agent_version=one.agent_version,
                tags=one.tags,
                completed_at=one.completed_at,
                execution_id=written.execution_id,
            )
        )
    context = {
        name: OutputEntry("", CONTEXT, path=text, content_path=str(_place(path, text)))
        for name, text in written.context_files.items()
    }
    context = {
        name: replace(one, sha256=files.sha256(Path(one.content_path)) if files.is_file(one.content_path) else "")
        for name, one in context.items()
    }
    made = _parted(written.execution_id, path, tuple(entries), written.config_source)
    return replace(made, context_files=context | made.context_files)


def _place(manifest: Path, text: str) -> Path:
    """Beside the manifest, or where the paths of older ones begin: at most two folders above it. Nothing leads out of there."""
    for folder in (manifest.parent, *list(manifest.parent.parents)[:2]):
        if files.is_file(files.below(folder, text, "the output")):
            return files.inside(folder, text, "the output")
    return manifest.parent / text


def _from_name(one: _Listed, settings: Settings) -> _Listed:
    kind, dimensions = old_names.parse(one.agent_name, settings.vocabulary)
    return replace(one, type=one.type or kind, dimensions=dimensions)


def _require_layer(path: Path, one: _Listed) -> None:
    if one.layer and one.layer.startswith("layer_") and one.layer not in KNOWN_LAYERS:
        raise StrataError("BAD_MANIFEST", f"{path}: there is no layer {one.layer!r}", f"there are {', '.join(KNOWN_LAYERS)}")


def dimensions_of(entries: list[OutputEntry]) -> dict[str, list[str]]:
    """Every value there is, by dimension, in the order they come."""
    found: dict[str, dict[str, None]] = {}
    for one in entries:
        for name, value in one.dimensions.items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}
