"""Review: what has changed and how deep to look, what the reviewers found, and what of it stands in the way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from lib.attempt.verdicts import Verdict
from lib.disk import files, records
from lib.evidence.findings import Finding
from lib.process import processes
from msgspec.structs import replace

from packs.forge import clusters, depth, knowledge, memory, tables, telling
from packs.forge import tasks as plans
from packs.forge.changes import Changes
from packs.forge.step import REVIEW, Step
from packs.forge.tables import REVISE
from packs.forge.verifying import PLANNERS


def compare(at: Step) -> Verdict:
    """What has changed since the work began, how deep it is to be looked at, and what no reviewer may touch."""
    diff = Changes.of(at.session, at.call.cwd, plans.read(at.data("tasks"))).diff()
    chosen = depth.of(diff, at.words[0] if at.words else "auto")
    (at.out / "diff.patch").write_text(diff or "nothing has changed\n", encoding="utf-8")
    at.leave("depth.json", {"depth": chosen.word, "why": chosen.why})
    at.leave("guarded.json", guarded(at.call.cwd))
    return Verdict("done", f"{chosen.word}: {chosen.why}")


def guarded(cwd: Path) -> dict[str, str]:
    """The files that tell agents how to work, by their content."""
    listed = processes.ask(["git", "-C", str(cwd), "ls-files", "--cached", "--others", "--exclude-standard", "-z"])
    names = [name.decode("utf-8", "replace") for name in listed.stdout.split(b"\0") if name]
    chosen = [n for n in names if plans.is_guarded(n) or n.startswith(".github/")]
    return {name: files.sha256(cwd / name) for name in sorted(chosen) if (cwd / name).is_file()}


def review(at: Step) -> Verdict:
    cluster = clusters.read(at.task.input_path("roster"))
    table = {m.name: m for m in cluster.members}
    scanned = table.pop("r-scan", tables.Member("r-scan", False, why="no scanner ran"))
    security = table.get("r-security", tables.Member("r-security", False))
    if security.ok:
        both = (*security.findings, *(replace(f, who=("r-scan",)) for f in scanned.findings), *_touched(at))
        table["r-security"] = tables.Member("r-security", scanned.ok, both, scanned.why)
    said = tables.review(table.values())
    whole = replace(cluster, members=tuple(m for m in table.values() if m.name != "r-knowledge"))
    clusters.publish(at.artifacts, cluster, "review")
    at.write("review.md", clusters.page("Review", whole, said, "Tradeoffs"))
    at.leave("verdict.json", {"verdict": said.word, "why": said.why, "findings": records.document(whole.merged)})
    known = knowledge.read(json.loads(cluster.data["r-knowledge"].read_text())) if "r-knowledge" in cluster.data else None
    at.write("review/knowledge-suggestions.md", knowledge.suggestions(known or knowledge.Knowledge()))
    at.leave("knowledge.json", records.document(known or knowledge.Knowledge()))
    at.tell(telling.review(said, whole.merged, known or knowledge.Knowledge(), at.data("depth")))
    if known:
        _decide(at, known)
    if said.word == REVISE:
        memory.invalidate(at.session, PLANNERS, said.why)
    notes = memory.Notes(updates=(f"Reviewed: {said.word}.",), decisions=(said.why,))
    warnings = (*said.warnings, *at.end(REVIEW, "review", notes))
    return Verdict("needs_revision" if said.word == REVISE else "done", said.why, warnings)


def _touched(at: Step) -> list[Finding]:
    """Knowledge is proposed, never applied: what tells agents how to work is as it was before the review."""
    before: dict[str, str] = at.data("guarded")
    now = guarded(at.call.cwd)
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    return [Finding("blocker", f"{name} was changed during the review", name, who=("forge",)) for name in changed]


def _decide(at: Step, known: knowledge.Knowledge) -> None:
    path = at.folder / "decisions.md"
    before = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
    after = knowledge.decisions(before, known, datetime.now(UTC).date().isoformat())
    at.artifacts.append("decisions.md", after.encode("utf-8", "surrogateescape"))
