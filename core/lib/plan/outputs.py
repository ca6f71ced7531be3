"""What a run of a phase produced under a name: `PHASE.RUN.OUTPUT`, looked up in its manifest."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json
from lib.disk import files
from lib.plan.plan import Plan


def of(session: Path, plan: Plan, reference: str) -> Path | None:
    """What the last stage that has such an output produced; None while there is none."""
    phase, run, output = reference.split(".")
    manifest = session / "phases" / plan.phase(phase).folder / run / "manifest.json"
    stages: list[Json] = files.read_json(manifest)["stages"] if manifest.exists() else []
    found = [s["outputs"][output] for s in stages if output in s.get("outputs", {})]
    return session / found[-1] if found else None


def place(session: Path, path: Path) -> str:
    """A path as a person is shown it: from the session where it lies there, whole where it does not."""
    return str(path.relative_to(session)) if path.is_relative_to(session) else str(path)
