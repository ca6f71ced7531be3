"""Tools of the last stages: the synthesis of a round, its review, the best round, and gate E over it."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json
from lib.disk import files, lenient
from lib.evidence.gates import Decision
from msgspec import Struct

from packs.deep_research import citing, claims, gating, sources
from packs.deep_research.at import Desk, given

BUNDLE = "review/review-bundle.json"
FINAL = "synthesis/final-synthesis.md"


def synthesis_write(desk: Desk, report: str) -> Json:
    """This round's text, beside those of earlier rounds. `report` is a file."""
    text, number = given(report).read_text(encoding="utf-8", errors="replace"), desk.run.manifest().review_iterations + 1
    desk.write(f"synthesis/round-{number}.md", text)
    desk.write(FINAL, text)
    return {"round": number, "path": FINAL, "bytes": len(text.encode())}


class Reviewed(Struct, frozen=True):
    decision: str = ""
    directives: tuple[str, ...] = ()


def review_factory_run(desk: Desk, data: str) -> Json:
    """The reviewer's word and the checker's, as one bundle. `data` is a file. What was reviewed in this round stays reviewed."""
    number = desk.run.manifest().review_iterations + 1
    place = f"review/review-{number}.json"
    if (desk.root / place).is_file():
        desk.log("artifact_skipped", f"round {number} is reviewed", path=place)
        known: Json = files.read_json(desk.root / place)
        desk.write_json(BUNDLE, known)  # whoever was cut off had not come so far
        return known
    said = lenient.of(files.read_json(given(data)), Reviewed)
    here = judged(desk.root, number)
    wants = said.decision != "PASS" or not here.passed
    bundle: Json = {
        "iteration": number,
        "decision": "CHANGES_REQUIRED" if wants else "PASS",
        "reviewer": said.decision,
        "directives": [*said.directives, *here.reasons],
    }
    desk.write_json(place, bundle)
    desk.write_json(BUNDLE, bundle)
    return bundle


class Revision(Struct, frozen=True):
    again: bool
    best: int  # the round that is kept where there is no other


def revision_control(desk: Desk) -> Revision:
    """One more round, or the end with the best round, which need not be the last."""
    manifest = desk.run.manifest()
    number = manifest.review_iterations + 1
    wants = files.read_json(desk.root / BUNDLE)["decision"] == "CHANGES_REQUIRED"
    rounds = {n: judged(desk.root, n) for n in range(1, number + 1)}
    passed = {n: files.read_json(desk.root / f"review/review-{n}.json")["reviewer"] == "PASS" for n in rounds}
    best = max(rounds, key=lambda n: (rounds[n].passed, passed[n], -len(rounds[n].warnings), n))
    return Revision(wants and manifest.review_iterations < manifest.limits.max_review_iterations, best)


def judged(root: Path, number: int) -> Decision:
    text = (root / f"synthesis/round-{number}.md").read_text(encoding="utf-8")
    return _synthesis(root, text)


def _synthesis(root: Path, text: str) -> Decision:
    looked = sources.read_claims(root)
    return gating.synthesis(text, sorted({c.cid for c in looked if c.supported}), claims.unsupported(text, looked))


def gate_e_evaluate(desk: Desk) -> Decision:
    return _synthesis(desk.root, (desk.root / FINAL).read_text(encoding="utf-8"))


def gate_e_reports(desk: Desk) -> Json:
    """What the gate counts, for people and programs."""
    decision = gate_e_evaluate(desk)
    figures = {rule.name: rule.found for rule in decision.evaluated if rule.found is not None}
    found = citing.look((desk.root / FINAL).read_text(encoding="utf-8"))
    document: Json = {"decision": decision.decision, "figures": figures, "uncited": list(found.numeric), "missing": found.missing}
    desk.write_json("review/gate-e.json", document)
    return document
