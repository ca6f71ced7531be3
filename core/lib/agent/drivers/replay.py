"""Answers from a recorded session folder: no network, no model, the same exit codes and the same file changes."""

from __future__ import annotations

from pathlib import Path

from lib.agent.drivers import Answer, Request
from lib.agent.drivers.record import restore
from lib.contract import ExitCode, StrataError, close_to
from lib.disk import files
from lib.disk.redact import redact
from lib.session.folder import Session
from lib.session.step import Step


def replay(request: Request, fixtures: Path, step: Step, ordinal: int, accept_drift: bool, roots: dict[str, Path]) -> Answer:
    """The answer the `ordinal`th ended attempt at `step` got when it was recorded."""
    recorded = _find(request, fixtures, step, ordinal)
    meta = files.read_json(recorded / "meta.json")
    if meta["agent"] != request.agent:
        raise StrataError(
            "FIXTURE_MISSING",
            f"{recorded} was recorded by the agent {meta['agent']!r}, not by {request.agent!r}",
            "record it again with --driver record",
        )
    _check_drift(request, recorded, meta["prompt_sha256"], accept_drift)
    restore(request, recorded, meta, roots)
    names = request.names
    stored = names.show_in(meta["answer"])
    for name in ("output.md", "transcript.jsonl"):
        path = recorded / name
        if path.exists():
            files.write_atomic(request.attempt / name, names.show(path.read_text(encoding="utf-8")))
    return Answer(
        exit_code=ExitCode(stored["exit_code"]),
        error=stored["error"],
        result=stored["result"],
        structured_output=stored["structured_output"],
        cost_usd=stored["cost_usd"],
        cost_source="replayed",
        usage=stored["usage"],
        turns=stored["turns"],
        agent_session_id=stored["agent_session_id"],
        duration_seconds=stored["duration_seconds"],
        denials=stored["denials"],
        tool_uses=stored.get("tool_uses", {}),  # a recording from before they were counted
    )


def _find(request: Request, fixtures: Path, step: Step, ordinal: int) -> Path:
    if not fixtures.is_dir():
        raise StrataError("FIXTURE_MISSING", f"there is no recorded session at {fixtures}", "check --fixtures")
    attempts = [a.folder for a in Session(fixtures, None).attempts(step) if (a.folder / "meta.json").exists()]
    if ordinal <= len(attempts):
        return attempts[ordinal - 1]
    looked = f"{step.folder} (attempt {ordinal}, agent {request.agent})"
    recorded = [str(p.parent.relative_to(fixtures)) for p in sorted(fixtures.glob("**/meta.json"))]
    near = close_to(f"{step.folder}/attempt-{ordinal}", recorded, 0.0)
    if attempts:
        differs = f"this step has only {len(attempts)} recorded attempt{'s' if len(attempts) > 1 else ''}"
    elif near:
        differs = f"the nearest recorded one is {near}; it differs in: {_difference(str(step.folder), near)}"
    else:
        differs = "it holds no recorded attempt at all"
    raise StrataError(
        "FIXTURE_MISSING",
        f"no recorded attempt for {looked} in {fixtures}: {differs}",
        "record it with --driver record, or give the --fixtures it was recorded into",
    )


def _difference(wanted: str, nearest: str) -> str:
    ours, theirs = wanted.split("/"), [p for p in nearest.split("/") if not p.startswith("attempt-")]
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
    if len(ours) != len(theirs):
        pairs.append((f"{len(ours)} parts", f"{len(theirs)} parts"))
    return ", ".join(f"{a!r} is {b!r} there" for a, b in pairs) or "the attempt's number"


def _check_drift(request: Request, recorded: Path, stored_hash: str, accept: bool) -> None:
    if files.sha256_text(redact(request.names.told(request.prompt))) == stored_hash:
        return
    prompt = redact(request.names.hide(request.prompt))
    stored = (recorded / "prompt.md").read_text(encoding="utf-8")
    import difflib

    lines = difflib.unified_diff(stored.splitlines(), prompt.splitlines(), "recorded prompt", "this prompt", lineterm="", n=1)
    diff = "\n".join(list(lines)[:40])
    if accept:
        request.on_event("drift-accepted", {"recorded": str(recorded), "diff": diff})
        return
    raise StrataError(
        "FIXTURE_DRIFT",
        f"the prompt differs from the one recorded in {recorded}:\n{diff}",
        "record it again, or accept it with --accept-drift if the difference does not matter",
        detail={"diff": diff},
    )
