"""Where things are found by their names: a user's own, the packs', and the house's.

A user's own files are beside the plan and under `.strata/` of the working folder, and are found first; tools are the exception:
a user's tool never replaces one of ours. A pack's files share its name: `forge/findings` is what the pack forge calls findings,
and names in a pack's own files are looked up in that pack first. The outermost tool records in the session where it looked, and
all tools below look in the same places.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from lib import names
from lib.contract import HOUSE, Json

OWN = ".strata"  # of a working folder: what the user brings
KEPT = "places.json"  # in the session: where this run looks, and what it found outside the house
CHECKS = "checks.yaml"
LAYERS = ("executors", "orchestrators", "coordinators", "campaigns")  # folders of prompts/ that are no pack's


class Kind(Struct, frozen=True):
    folder: str  # below a user's folder, or a user's pack
    suffix: str
    house: tuple[str, ...]
    pack: str = ""  # of a pack of the house


KINDS = {
    "agent": Kind("agents", ".md", tuple(f"prompts/{layer}" for layer in LAYERS), "prompts/{}"),
    "orchestrator": Kind("orchestrators", ".yaml", ("config/orchestrators",), "config/packs/{}/orchestrators"),
    "schema": Kind("schemas", ".json", ("config/schemas",), "config/packs/{}/schemas"),
    "plan": Kind("plans", ".yaml", ("config/plans",), "config/packs/{}/plans"),
    "tool": Kind("tools", ".py", ("core",)),
}


class Found(Struct, frozen=True):
    name: str  # with its pack
    file: Path
    where: str  # in words

    @property
    def ours(self) -> bool:
        return is_ours(self.file)


def is_ours(path: Path) -> bool:
    """Whether it is the house's own: a project may stand in the house's folder, too."""
    return any(path.is_relative_to(HOUSE / name) for name in ("core", "config", "prompts"))


class _Spot(Struct, frozen=True):
    folder: Path
    pack: str
    where: str


_roots: tuple[Path, ...] | None = None
_found: dict[str, str] = {}


def stand(cwd: Path) -> None:
    """The outermost tool works in this folder: what its user brings is there."""
    _look_in((cwd / OWN,))


def beside(folder: Path) -> None:
    """A plan, or an orchestrator, was given by its path: what stands beside it is found before everything else."""
    if not is_ours(folder):
        _look_in((folder, *(root for root in roots() if root != folder)))


def also(cwd: Path) -> None:
    """The plan says that agents work there."""
    _look_in((*(root for root in roots() if root != cwd / OWN), cwd / OWN))


def _look_in(found: tuple[Path, ...]) -> None:
    global _roots
    if not inherited():
        _roots = tuple(path.absolute() for path in found)
        find.cache_clear()


def forget() -> None:
    """As if nothing had been looked for: a process that serves many runs begins each like the first."""
    global _roots
    _roots = None
    _found.clear()
    find.cache_clear()


def inherited() -> bool:
    """Whether this tool runs inside a session, where the outermost tool has said where to look."""
    return bool(os.getenv(names.SESSION))


def roots() -> tuple[Path, ...]:
    global _roots
    if _roots is None:
        kept = Path(os.getenv(names.SESSION, "")) / KEPT
        known: Json = json.loads(kept.read_text(encoding="utf-8")) if inherited() and kept.is_file() else {"roots": []}
        _roots = tuple(Path(root) for root in known["roots"])
    return _roots


def kept() -> Json:
    """What is written down for the tools below, and for people: where it was looked, and what was found outside the house."""
    return {"roots": [str(root) for root in roots()], "found": dict(sorted(_found.items()))}


def brought() -> list[Path]:
    """The user's own files that this run found: agents have no business there."""
    kept = Path(os.getenv(names.SESSION, "")) / KEPT
    known: Json = json.loads(kept.read_text(encoding="utf-8")) if inherited() and kept.is_file() else {"found": _found}
    return [Path(path) for path in known["found"].values() if not is_ours(Path(path))]


def note(kind: str, found: Found) -> Found:
    """For people: everything that came from elsewhere than the house's own folders."""
    if "/" in found.name or not found.ours:
        _found[f"{kind} {found.name}"] = str(found.file)
    return found


@cache
def find(kind: str, name: str, within: str = "") -> Found | None:
    """By its name, for who stands in the pack `within`."""
    pack, _, plain = name.rpartition("/")
    for spot in _spots(kind, plain, pack, within):
        file = spot.folder / f"{plain}{KINDS[kind].suffix}"
        if _is_name(plain) and file.is_file():
            return note(kind, Found(f"{spot.pack}/{plain}" if spot.pack else plain, file, spot.where))
    return None


def every(kind: str) -> list[Found]:
    """All there are, each as it would be found."""
    spots = [*_plain(kind), *(spot for pack in packs() for spot in _of_pack(kind, pack))]
    listed: dict[str, Found] = {}
    for spot in spots:
        for file in sorted(spot.folder.glob(f"*{KINDS[kind].suffix}")) if spot.folder.is_dir() else []:
            name = f"{spot.pack}/{file.stem}" if spot.pack else file.stem
            if not file.stem.startswith(("_", "README")):
                listed.setdefault(name, Found(name, file, spot.where))
    return list(listed.values())


def packs() -> list[str]:
    own = {p.name for root in roots() if (root / "packs").is_dir() for p in (root / "packs").iterdir() if p.is_dir()}
    ours = {p.name for p in (HOUSE / "config/packs").iterdir() if p.is_dir()} if (HOUSE / "config/packs").is_dir() else set[str]()
    return sorted(own | ours)


def pack_of(file: Path) -> str:
    """The pack a file belongs to."""
    for folder in (HOUSE / "config/packs", HOUSE / "core/packs", *(root / "packs" for root in roots())):
        if file.is_relative_to(folder):
            return file.relative_to(folder).parts[0]
    agents = HOUSE / "prompts"
    first = file.relative_to(agents).parts[0] if file.is_relative_to(agents) else ""
    return first if first not in (*LAYERS, "README.md") else ""


def checks_files(pack: str = "") -> list[Found]:
    """The files that define checks, those that are found first at the beginning. Those of a pack are named with it."""
    spots = [(root / CHECKS, "", _where(root)) for root in roots()]
    for name in [pack] if pack else packs():
        spots += [(root / "packs" / name / CHECKS, name, _where(root)) for root in roots()]
        spots.append((HOUSE / "config/packs" / name / CHECKS, name, f"the pack {name}"))
    spots.append((HOUSE / "config" / CHECKS, "", "the house"))
    return [Found(name, file, where) for file, name, where in spots if file.is_file()]


def _spots(kind: str, plain: str, pack: str, within: str) -> Iterator[_Spot]:
    if pack:
        yield from _of_pack(kind, pack)
        return
    if within:
        yield from _of_pack(kind, within)
    yield from _plain(kind)
    for other in packs() if kind == "tool" else [plain]:  # a tool is called by its file's name, wherever its pack is
        yield from _of_pack(kind, other)


def _plain(kind: str) -> list[_Spot]:
    known = KINDS[kind]
    own = [_Spot(root / known.folder, "", _where(root)) for root in roots()]
    house = [_Spot(HOUSE / folder, "", "the house") for folder in known.house]
    return [*house, *own] if kind == "tool" else [*own, *house]


def _of_pack(kind: str, pack: str) -> list[_Spot]:
    known = KINDS[kind]
    if not _is_name(pack):
        return []
    own = [_Spot(root / "packs" / pack / known.folder, pack, f"{_where(root)}, pack {pack}") for root in roots()]
    there = known.pack and (HOUSE / "config/packs" / pack).is_dir()
    return [*own, *([_Spot(HOUSE / known.pack.format(pack), pack, f"the pack {pack}")] if there else [])]


def _where(root: Path) -> str:
    return f"{OWN} of {root.parent}" if root.name == OWN else f"beside the plan, in {root}"


def _is_name(text: str) -> bool:
    return bool(text) and "/" not in text and not text.startswith(".")
