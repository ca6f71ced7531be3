"""The one function that leaves a stage: what has to be there, which gates have to have passed, and a decision that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.contract import StrataError
from lib.disk import files, records
from lib.evidence.gates import Decision
from msgspec import Struct

from packs.deep_research.state import PASS, Gates, Manifest, Moved, Run


class Look(Struct, frozen=True):
    """One thing that was evaluated."""

    kind: str  # artifact, gate or rule
    name: str
    ok: bool
    details: str = ""
    refusal: str = ""  # by which it is refused, where it does not hold


class Allowed(Struct, frozen=True):
    """What was decided, on what, and by which digest the same question is known again."""

    allowed: bool
    frm: str
    to: str
    evaluated: tuple[Look, ...]
    inputs_digest: str
    refusal: str = ""
    message: str = ""


class Way(Struct, frozen=True):
    """From one stage to another: the artifacts that have to be there, the gates that have to have passed, and other rules."""

    frm: str
    to: str
    artifacts: tuple[str, ...] = ()
    gates: str = ""
    rules: tuple[Callable[[Run, Manifest], Look], ...] = ()


def _planned_outputs(wave: str) -> Callable[[Run, Manifest], Look]:
    """By name: a folder that is not empty proves nothing."""

    def look(run: Run, manifest: Manifest) -> Look:
        plan = run.root / f"wave-{wave}" / f"wave{wave}-plan.json"
        wanted = [entry["perspective_id"] for entry in _json(plan).get("entries", [])]
        missing = [name for name in wanted if not _artifact(run.root, f"wave-{wave}/{name}.md").ok]
        details = f"missing: {', '.join(missing)}" if missing else f"{len(wanted)} outputs"
        return Look("artifact", f"wave-{wave} outputs", bool(wanted) and not missing, details, "MISSING_ARTIFACT")

    return look


def _second_wave(wanted: bool) -> Callable[[Run, Manifest], Look]:
    def look(run: Run, manifest: Manifest) -> Look:
        found = _json(run.root / "pivot.json").get("wave2_required")
        return Look("rule", f"wave2_required is {wanted}", found is wanted, f"it is {found}", "REQUESTED_NEXT_NOT_ALLOWED")

    return look


def _fits(run: Run, manifest: Manifest) -> Look:
    targets, most = len(_json(run.root / "pivot.json").get("targets", [])), manifest.limits.max_wave2_agents
    return Look("rule", "as many gaps as agents", 0 < targets <= most, f"{targets} of at most {most}", "WAVE_CAP_EXCEEDED")


def _verdict(word: str) -> Callable[[Run, Manifest], Look]:
    def look(run: Run, manifest: Manifest) -> Look:
        found = _json(run.root / "review/review-bundle.json").get("decision")
        return Look("rule", f"the review says {word}", found == word, f"it says {found}", "REQUESTED_NEXT_NOT_ALLOWED")

    return look


def _another_round(run: Run, manifest: Manifest) -> Look:
    done, most = manifest.review_iterations, manifest.limits.max_review_iterations
    return Look("rule", "a round is left", done < most, f"{done} of at most {most}", "REVIEW_CAP_EXCEEDED")


OF_STAGE = {"F": "init", "A": "perspectives", "B": "wave1", "C": "citations", "D": "summaries", "E": "review"}
WAYS = (
    Way("init", "perspectives", gates="F"),
    Way("perspectives", "wave1", ("perspectives.json", "wave-1/wave1-plan.json"), "AF"),
    Way("wave1", "pivot", ("wave-1/wave-review.json",), "B", (_planned_outputs("1"),)),
    Way("pivot", "wave2", ("pivot.json",), "", (_second_wave(True), _fits)),
    Way("pivot", "citations", ("pivot.json",), "", (_second_wave(False),)),
    Way("wave2", "citations", ("wave-2/wave2-plan.json",), "", (_planned_outputs("2"),)),
    Way("citations", "summaries", ("citations/citations.jsonl",), "C"),
    Way("summaries", "synthesis", ("summaries/summary-pack.json",), "D"),
    Way("synthesis", "review", ("synthesis/final-synthesis.md",)),
    Way("review", "synthesis", ("review/review-bundle.json",), "", (_verdict("CHANGES_REQUIRED"), _another_round)),
    Way("review", "finalize", ("review/review-bundle.json",), "ABCDEF"),
)


Fresh = Callable[[str], Decision]


def stage_advance(
    run: Run, at: str, reason: str, requested_next: str = "", expected_revision: int | None = None, fresh: Fresh | None = None
) -> Allowed:
    """Moves the run one stage on, or says by name why not; nothing is changed then. `fresh`: decides a gate anew, from what is on
    disk now; a gate that has passed for something else has not passed."""
    manifest, gates = run.manifest(), run.gates()
    if expected_revision is not None and expected_revision != manifest.revision:
        message = f"manifest.json is at revision {manifest.revision}, not {expected_revision}"
        raise StrataError("REVISION_MISMATCH", message, "somebody else has written it: read it again")
    found = decide(run, manifest, gates, requested_next, fresh)
    if found.allowed:
        looked = tuple(records.document(found.evaluated))
        moved = Moved(found.frm, found.to, at, reason, found.inputs_digest, gates.revision, looked)
        run.move(at, moved, manifest.revision)
    return found


def decide(run: Run, manifest: Manifest, gates: Gates, requested_next: str = "", fresh: Fresh | None = None) -> Allowed:
    """Which way is open. Without a wish, the first that is; with one, that or none."""
    here = manifest.stage.current
    ways = [way for way in WAYS if way.frm == here and (not requested_next or way.to == requested_next)]
    if not ways:
        look = Look("rule", "there is such a way", False, f"{here} → {requested_next or 'nothing'}", "REQUESTED_NEXT_NOT_ALLOWED")
        return _decided(manifest, gates, requested_next, here, requested_next, (look,))
    tried = [_decided(manifest, gates, requested_next, here, way.to, _evaluate(run, manifest, gates, way, fresh)) for way in ways]
    return next((one for one in tried if one.allowed), tried[0])


def _evaluate(run: Run, manifest: Manifest, gates: Gates, way: Way, fresh: Fresh | None) -> tuple[Look, ...]:
    looks = [_artifact(run.root, name) for name in way.artifacts]
    if all(look.ok for look in looks):
        looks += [rule(run, manifest) for rule in way.rules]
    for name in way.gates:
        gate = gates.gates[name]
        details, same = gate.status, gate.status == PASS
        if same and fresh and OF_STAGE.get(name) == way.frm and all(look.ok for look in looks):
            now = fresh(name)
            same = now.passed and now.inputs_digest == gate.inputs_digest
            details = details if same else "it passed for something else than is there now"
        looks.append(Look("gate", f"{name} {gate.name}", same, details, "GATE_BLOCKED"))
    return tuple(looks)


def _artifact(root: Path, name: str) -> Look:
    there = files.is_file(root / name) and (root / name).stat().st_size > 0
    return Look("artifact", name, there, "" if there else "it is not there, or empty", "MISSING_ARTIFACT")


def _decided(manifest: Manifest, gates: Gates, wished: str, frm: str, to: str, looks: tuple[Look, ...]) -> Allowed:
    broken = next((look for look in looks if not look.ok), None)
    digest = files.digest(
        {
            "from": frm,
            "to": to,
            "requested_next": wished,
            "manifest_revision": manifest.revision,
            "gates_revision": gates.revision,
            "gates": {name: gate.status for name, gate in gates.gates.items()},
            "evaluated": records.document(looks),
        }
    )
    if broken is None:
        return Allowed(True, frm, to, looks, digest)
    return Allowed(False, frm, to, looks, digest, broken.refusal, f"{broken.name}: {broken.details}")


def _json(path: Path) -> dict[str, Any]:
    """What a rule reads; what is not there has nothing in it."""
    return files.read_json(path) if path.is_file() else {}
