"""The sides from which a question is looked at, what each is asked, and which of its outputs counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.contract import Json
from lib.disk import files, lenient
from msgspec import Struct

from packs.deep_research.contract import TRACKS, Contract, Gap

WAVES = {"wave1": "wave-1", "wave2": "wave-2"}  # by stage, the folder of what came of it
PERSPECTIVES = "perspectives.json"


class Perspective(Struct, frozen=True):
    id: str = ""
    title: str = ""
    question: str = ""
    track: str = "standard"
    queries: tuple[str, ...] = ()  # what is searched for, where Python searches


class Chosen(Struct, frozen=True):
    clarify: str = ""
    perspectives: tuple[Perspective, ...] = ()


def read(document: object) -> Chosen:
    return lenient.of(document, Chosen)


def complaints(chosen: Chosen) -> list[str]:
    """What is wrong with the sides, whoever chose them: an agent, or a person who edited the file."""
    ids = [p.id for p in chosen.perspectives]
    found = [] if ids else ["there is no perspective"]
    found += [f"{name!r} is no plain name" for name in ids if not files.is_safe(name)]
    found += [f"two perspectives are called {name}" for name in sorted({n for n in ids if ids.count(n) > 1})]
    found += [
        f"{p.id}: the track {p.track!r} is none of {', '.join(TRACKS)}" for p in chosen.perspectives if p.track not in TRACKS
    ]
    return found + [f"{p.id} has no question" for p in chosen.perspectives if not p.question.strip()]


def entry(run_id: str, query: str, one: Perspective, bounds: Contract, uses: Mapping[str, int]) -> Json:
    """What one agent of a wave is given. `uses`: how often it may call which tool."""
    prompt = f"# {one.title}\n\nThe whole question: {query}\n\nYour part ({one.track}): {one.question}\n"
    return {
        "run_id": run_id,
        "perspective_id": one.id,
        "title": one.title,
        "track": one.track,
        "queries": list(one.queries) or [one.question],
        "max_uses": dict(uses),
        "prompt_md": f"{prompt}\n{bounds.markdown()}",
    }


def gap(number: int, open_one: Gap) -> Perspective:
    return Perspective(f"gap-{number}", f"What is open (P{open_one.priority})", open_one.text, "gap", (open_one.text,))


def entries(root: Path, stage: str) -> list[Any]:
    """As it was planned; nothing where the wave was not."""
    plan = root / plan_of(stage)
    return files.read_json(plan)["entries"] if plan.is_file() else []


def plan_of(stage: str) -> str:
    return f"{WAVES[stage]}/{stage}-plan.json"


def names(root: Path, stage: str) -> list[str]:
    return [str(one["perspective_id"]) for one in entries(root, stage)]


def output(root: Path, stage: str, name: str) -> Path:
    """The output of a perspective that counts: its last retry, or the first. The pointer says which; nothing is guessed."""
    pointer = root / WAVES[stage] / f"{name}.current.json"
    chosen = str(files.read_json(pointer)["path"]) if pointer.is_file() else f"{WAVES[stage]}/{name}.md"
    return root / chosen


def outputs(root: Path) -> dict[str, Path]:
    """Of both waves, by the plans: a retry beside an output is no perspective."""
    found: dict[str, Path] = {}
    for stage, folder in WAVES.items():
        found |= {f"{folder}/{name}": output(root, stage, name) for name in names(root, stage)}
    return {name: path for name, path in found.items() if path.is_file()}
