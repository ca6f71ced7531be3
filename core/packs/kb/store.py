"""Versions of a knowledge base: each is built beside the others and becomes the current one in a single step.

    <root>/kb_manifest.json     which version is current, and what every one came from; replaced last
    <root>/kb_v3/               index.json, index.sqlite, domains/, cross_cutting/: never changed once it is there

Who builds holds a lock. A version that was cut off while it was built is in no manifest, and is cleared away by the next. Who
reads pins a version, which is then not pruned.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from lib.contract import StrataError, command
from lib.disk import files, locks, records
from msgspec import Struct
from msgspec.structs import replace

from packs.kb import changes, prose, rendering, search
from packs.kb.records import INDEX, MANIFEST, SEARCH, Document, Index, Manifest, Source, Version
from packs.kb.rendering import Corpus, Names, Recipe

LOCK = ".lock"
PIN = ".pin"  # in a version: held by whoever reads it


class Offered(Struct, frozen=True):
    """A source of a new run, and where its text is."""

    source: Source
    file: Path


class Built(Struct, frozen=True):
    version: Version
    new: bool
    written: int = 0  # documents that were made
    kept: int = 0  # documents that were taken from the version before


class Store:
    def __init__(self, root: Path) -> None:
        self.root = root

    def manifest(self) -> Manifest:
        path = self.root / MANIFEST
        return records.read(path, Manifest) if path.exists() else Manifest()

    def require(self, version: int = 0) -> Version:
        """One that is there; the current one, where none is named."""
        known = self.manifest()
        wanted = version or known.current_version
        found = next((one for one in known.versions if one.version == wanted), None)
        if not found:
            there = ", ".join(str(one.version) for one in known.versions) or "none"
            hint = f"there are: {there}" if known.versions else f"{command('kb')} build RUN --kb {self.root}"
            raise StrataError("NO_VERSION", f"{self.root} has no {f'version {version}' if version else 'knowledge base'}", hint)
        return found

    def folder(self, version: int) -> Path:
        return self.root / f"kb_v{version}"

    @contextmanager
    def pinned(self, version: int = 0) -> Generator[Path]:
        """The folder of a version, which stays as long as it is read."""
        known = self.require(version)
        folder = self.folder(known.version)
        try:
            descriptor = os.open(folder / PIN, os.O_RDONLY)
        except FileNotFoundError:
            hint = "it is being pruned, or somebody removed files of it: name another version, or build it anew"
            raise StrataError("NO_VERSION", f"version {known.version} of {self.root} is no longer whole", hint) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not os.fstat(descriptor).st_nlink:  # it was pruned while we waited
                self.require(known.version)
            yield folder
        finally:
            os.close(descriptor)

    def index(self, version: int) -> Index:
        return records.read(self.folder(version) / INDEX, Index)

    # Building

    def build(self, offered: Iterable[Offered], run: str, manifest: str, created_at: str, names: Names) -> Built:
        """A version with these sources merged into what there is; none, where that changes nothing."""
        self.root.mkdir(parents=True, exist_ok=True)
        with locks.held(self.root / LOCK):
            known = self.manifest()
            before = self.index(known.current_version) if known.current_version else Index()
            merged, texts = self._merged(before, list(offered), known.current_version)
            if merged == list(before.sources) and before.renderer == rendering.RENDERER:
                return Built(self.require(), new=False)
            number = max((one.version for one in known.versions), default=0) + 1
            self._clear(known)
            beside = self.root / f".building-{number}"
            index, written, kept = self._write(beside, Corpus(merged, names), texts, before, known.current_version)
            version = _described(index, number, run, manifest, created_at)
            version = replace(version, changelog=tuple(changes.between(before, index)), index_sha256=files.sha256(beside / INDEX))
            beside.replace(self.folder(number))
            _sync(self.root)
            after = Manifest(current_version=number, versions=(*known.versions, version))
            files.write_json(self.root / MANIFEST, records.document(after))
            return Built(version, True, written, kept)

    def _merged(self, before: Index, offered: list[Offered], current: int) -> tuple[list[Source], dict[str, Path]]:
        """What is new takes the place of what was about the same; what is the same stays what it was; nothing else is lost."""
        sources = {one.key: one for one in before.sources}
        texts = {one.key: self.folder(current) / one.path for one in before.sources}
        for one in offered:
            known = sources.get(one.source.key)
            if not known or known.sha256 != one.source.sha256 or known.type != one.source.type:
                sources[one.source.key] = one.source
                texts[one.source.key] = one.file
        return sorted(sources.values(), key=lambda one: one.key), texts

    def _clear(self, known: Manifest) -> None:
        """What was cut off while it was built."""
        listed = {f"kb_v{one.version}" for one in known.versions}
        for path in self.root.iterdir():
            if path.is_dir() and re.fullmatch(r"\.building-\d+|kb_v\d+", path.name) and path.name not in listed:
                _remove(path)

    def _write(self, beside: Path, corpus: Corpus, texts: dict[str, Path], before: Index, current: int) -> tuple[Index, int, int]:
        same = {one.made_of: one for one in before.documents if before.renderer == rendering.RENDERER}
        nothing = set(before.empty)
        beside.mkdir()
        documents: list[Document] = []
        empty: list[str] = []
        fresh: list[Document] = []

        def read(source: Source) -> str:
            return prose.body(texts[source.key].read_text(encoding="utf-8", errors="replace")).strip()

        for recipe in rendering.recipes(corpus):
            made_of = recipe.made_of
            if made_of in nothing:
                empty.append(made_of)
            elif made_of in same and self._take(current, beside, recipe):
                documents.append(same[made_of])
            else:
                made = _made(beside, recipe, read)
                if made:
                    documents.append(made)
                    fresh.append(made)
                else:
                    empty.append(made_of)
        index = Index(tuple(documents), tuple(corpus.sources), tuple(empty), rendering.RENDERER)
        files.write_json(beside / INDEX, records.document(index))
        was = self.folder(current) / SEARCH if same and current else None
        search.build(beside / SEARCH, was, before, index, beside)
        (beside / PIN).touch()
        for folder, _, _ in os.walk(beside):
            _sync(Path(folder))
        return index, len(fresh), len(documents) - len(fresh)

    def _take(self, current: int, beside: Path, recipe: Recipe) -> bool:
        """A document of the version before, as a second name of the same file: neither is ever changed."""
        source, target = self.folder(current) / recipe.path, beside / recipe.path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileNotFoundError:
            return False
        except OSError:  # a file system without links
            shutil.copyfile(source, target)
        return True

    # Afterwards

    def prune(self, keep: int, remove: bool) -> tuple[list[int], list[int]]:
        """Which versions could go: all but the newest, and none that somebody reads. Returns those, and those that are read."""
        with locks.held(self.root / LOCK):
            known = self.manifest()
            all_but = known.versions[: max(len(known.versions) - keep, 0)]
            old = [one.version for one in all_but if one.version != known.current_version]
            held = {number: descriptor for number in old if (descriptor := self._hold(number)) is not None}
            try:
                if remove and held:
                    left = tuple(one for one in known.versions if one.version not in held)
                    files.write_json(self.root / MANIFEST, records.document(replace(known, versions=left)))
                    for number in held:
                        _remove(self.folder(number))
            finally:
                for descriptor in held.values():
                    os.close(descriptor)
        return list(held), [number for number in old if number not in held]

    def _hold(self, version: int) -> int | None:
        """A version that nobody reads, and that nobody begins to read as long as this is held."""
        path = self.folder(version) / PIN
        path.parent.mkdir(exist_ok=True)  # somebody may have removed it by hand
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if locks.take(descriptor):
            return descriptor
        os.close(descriptor)
        return None


def _made(beside: Path, recipe: Recipe, read: Callable[[Source], str]) -> Document | None:
    text = recipe.text(read)
    if not text:
        return None
    path = beside / recipe.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o444)
    return recipe.document(text)


def _described(index: Index, number: int, run: str, manifest: str, created_at: str) -> Version:
    def values(name: str) -> tuple[str, ...]:
        return tuple(sorted({getattr(one, name) for one in index.sources} - {"", "general"}))

    return Version(
        version=number,
        created_at=created_at,
        source_execution_id=run,
        source_manifest=manifest,
        domains=values("domain"),
        verticals=values("vertical"),
        personas=values("persona"),
        total_documents=len(index.documents),
        total_size_bytes=sum(one.size for one in index.documents),
    )


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
