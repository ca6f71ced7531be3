"""Tries that were sent back: what failed stays, the retry stands beside it, and both the directive and its use are on record."""

from __future__ import annotations

from pathlib import Path

from lib.disk import files, records
from lib.disk.clock import now
from lib.session.outcome import Outcome
from lib.stages import rosters
from msgspec import Struct

from packs.deep_research.at import At
from packs.deep_research.state import Retry

DIRECTIVES = "retry/retry-directives.json"


class Tried(Struct, frozen=True):
    perspective: str
    attempt: int  # that failed, from 1
    reason: str
    output: Path | None  # what it had written


def tried(session: Path, roster: rosters.Roster) -> list[Tried]:
    """Every attempt of a wave that was not accepted."""
    found: list[Tried] = []
    for entry in roster.entries:
        place = f"**/stages/*-{roster.stage}/{files.safe_name(entry.key)}/attempt-*/outcome.json"
        for path in sorted(session.glob(place)):
            outcome = records.read(path, Outcome)
            if not outcome.good:
                output = path.parent / "out/report.md"
                kept = output if output.is_file() else None
                found.append(Tried(entry.key, outcome.attempt, outcome.message or outcome.verdict, kept))
    return found


def record(at: At, stage: str, roster: rosters.Roster) -> list[Tried]:
    """retry_record: the directives that were given, in the manifest and in the log, each once."""
    manifest = at.run.manifest()
    found = tried(at.call.session.folder, roster)
    known = {(r.stage, r.perspective_id, r.attempt) for r in manifest.retries}
    new = [one for one in found if (stage, one.perspective, one.attempt) not in known]
    if not new:
        return found
    items = [
        {
            "kind": "rerun_agent",
            "perspective_id": one.perspective,
            "attempt": one.attempt + 1,
            "reason": one.reason,
            "backoff_ms": 0,
        }
        for one in found
    ]
    head = {"schema_version": "retry-directives.v1", "run_id": manifest.run_id, "stage": stage, "created_at": now()}
    at.write_json(DIRECTIVES, {**head, "items": items})
    caps = {
        "per_perspective": manifest.limits.max_attempts_per_perspective,
        "per_stage": manifest.limits.max_stage_retry_directives,
    }
    payload = {"directives_path": DIRECTIVES, "items_count": len(items), "caps": caps}
    at.log("retry_directives_written", "outputs did not keep to their contract", **payload)
    for one in new:
        if one.output:
            at.write(
                f"evidence/agents/{stage}/{one.perspective}/attempt-{one.attempt}.md", one.output.read_text(encoding="utf-8")
            )
    made = tuple(Retry(now(), stage, one.perspective, one.attempt, one.reason, "consumed") for one in new)
    arguments = {"retries": len(made)}
    at.tool("retry_record", arguments, lambda: at.run.write_manifest(now(), retries=(*manifest.retries, *made)).revision)
    at.log("retry_directives_consumed", "the agents were asked again", **payload)
    return found
