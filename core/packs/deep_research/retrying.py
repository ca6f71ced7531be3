"""Retries: a directive is written when an output is sent back, within caps, and used when its agent is asked again."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lib.contract import StrataError
from lib.disk import files, locks, records
from lib.disk.clock import now
from lib.session.outcome import Outcome
from lib.stages import rosters
from msgspec import Struct

from packs.deep_research import tools
from packs.deep_research.at import At, Desk
from packs.deep_research.state import Limits
from packs.deep_research.tools import DIRECTIVES

CAPPED = "RETRY_CAP_EXHAUSTED"


class Directive(Struct, frozen=True):
    perspective_id: str
    attempt: int  # that is made now
    reason: str
    kind: str = "rerun_agent"
    backoff_ms: int = 0


class Directives(Struct, frozen=True):
    run_id: str
    stage: str
    created_at: str
    items: tuple[Directive, ...] = ()
    schema_version: str = "retry-directives.v1"


def direct(desk: Desk, stage: str, perspective: str, attempt: int, reason: str) -> None:
    """The output of this attempt is sent back: once more, or, where a cap is reached, never. Each caller at its turn."""
    with locks.held(desk.root / "logs/.retries.lock"):
        manifest = desk.run.manifest()
        known = _read(desk, stage)
        if any((one.perspective_id, one.attempt) == (perspective, attempt + 1) for one in known.items):
            return
        caps = _caps(manifest.limits)
        if attempt >= caps["per_perspective"] or len(known.items) >= caps["per_stage"]:
            which = (
                f"{attempt} attempts at {perspective}"
                if attempt >= caps["per_perspective"]
                else f"{len(known.items)} retries of {stage}"
            )
            hint = f"resume RUN --from {stage} --max-attempts 3 (or --max-retries) allows more"
            raise StrataError(CAPPED, f"{which}: no more are allowed; {reason}", hint, final=True)
        made = Directives(manifest.run_id, stage, now(), (*known.items, Directive(perspective, attempt + 1, reason)))
        desk.write_json(DIRECTIVES, made)
        desk.log("retry_directives_written", reason, directives_path=DIRECTIVES, items_count=len(made.items), caps=caps)
        tools.use(desk, "retry_record", stage=stage, perspective_id=perspective, attempt=attempt + 1, reason=reason)


def _read(desk: Desk, stage: str) -> Directives:
    path = desk.root / DIRECTIVES
    found = records.read(path, Directives) if path.is_file() else None
    return found if found and found.stage == stage else Directives(desk.run.manifest().run_id, stage, now())


def _caps(limits: Limits) -> dict[str, int]:
    return {"per_perspective": limits.max_attempts_per_perspective, "per_stage": limits.max_stage_retry_directives}


class Tried(Struct, frozen=True):
    perspective: str
    attempt: int  # that failed, from 1
    reason: str
    output: Path | None  # what it had written


def tried(session: Path, roster: rosters.Roster) -> list[Tried]:
    """Every attempt of a wave that was not accepted."""
    return [
        Tried(entry.key, one.attempt, one.message or one.verdict, output if output.is_file() else None)
        for entry in roster.entries
        for path, one in _attempts(session, roster.stage, entry.key)
        if not one.good and (output := path.parent / "out/report.md")
    ]


def _attempts(session: Path, stage: str, key: str) -> list[tuple[Path, Outcome]]:
    place = f"**/stages/*-{stage}/{files.safe_name(key)}/attempt-*/outcome.json"
    found = [(path, records.read(path, Outcome)) for path in session.glob(place)]
    return sorted(found, key=lambda one: one[1].attempt)


def consume(at: At, stage: str, found: list[Tried]) -> None:
    """That the directives were used: the agents were asked again."""
    known = _read(at, stage)
    used = [one for one in known.items if any((t.perspective, t.attempt + 1) == (one.perspective_id, one.attempt) for t in found)]
    done = {(r.stage, r.perspective_id, r.attempt) for r in at.run.manifest().retries if r.event == "consumed"}
    new = [one for one in used if (stage, one.perspective_id, one.attempt) not in done]
    for one in new:
        arguments = {"stage": stage, "perspective_id": one.perspective_id, "attempt": one.attempt, "reason": one.reason}
        tools.use(at, "retry_record", **arguments, event="consumed")
    if new:
        caps = _caps(at.run.manifest().limits)
        at.log(
            "retry_directives_consumed",
            "the agents were asked again",
            directives_path=DIRECTIVES,
            items_count=len(new),
            caps=caps,
        )


def evidence(at: At, stage: str, entry: Any) -> None:
    """The prompt as it was asked, by its hash; who worked on it, when, and with which tools how often."""
    prompt = normal(str(entry.item["prompt_md"]))
    place = f"evidence/agents/{stage}/{entry.key}"
    at.write(f"{place}/prompt.md", prompt)
    every = [one for _, one in _attempts(at.session, rosters.read(at.task.input_path("roster")).stage, entry.key)]
    meta: dict[str, Any] = {
        "agent_type": "wave-researcher",
        "perspective_id": entry.key,
        "prompt_hash": files.sha256_text(prompt),
        "tool_uses": {},
        "attempts": len(every),
    }
    if every:
        last, first = every[-1], every[0]
        meta |= {"agent_run_id": last.agent_session_id, "started_at": _started(first), "finished_at": last.finished_at}
        meta["tool_uses"] = dict(sum((Counter(one.tool_uses) for one in every), Counter[str]()))
        meta |= {"error": last.error} if last.error else {}
    at.write_json(f"{place}/meta.json", meta)


def _started(one: Outcome) -> str:
    if not one.finished_at:
        return ""
    ended = datetime.fromisoformat(one.finished_at.replace("Z", "+00:00"))
    return (ended - timedelta(seconds=one.duration_seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def normal(prompt: str) -> str:
    """As the hash of a prompt is made: one kind of line end, nothing behind a line, a line end at the end."""
    return "\n".join(line.rstrip() for line in prompt.replace("\r\n", "\n").replace("\r", "\n").split("\n")).rstrip("\n") + "\n"
