"""`execution-report.md`: what was asked, what happened, and what to look at first, made from the session folder alone."""

from __future__ import annotations

from pathlib import Path

from lib.disk import files, lenient, records
from lib.session import ledger, signals
from lib.session.attempts import OUTCOME, Attempt, every_attempt
from lib.session.documents import (
    CampaignManifest,
    CheckResult,
    Effective,
    Entry,
    Fixes,
    Manifest,
    PhaseReport,
    PlannedRun,
    Problem,
    Results,
)
from lib.session.outcome import Outcome

Rows = list[list[str]]
Ended = list[tuple[Attempt, Outcome]]
ByStage = dict[tuple[Path, str], list[Outcome]]  # by the orchestrator's folder and the stage's name


def write(session: Path) -> Path:
    path = session / "execution-report.md"
    files.write_atomic(path, text(session))
    return path


def text(session: Path) -> str:
    manifest = lenient.read(session / "manifest.json", CampaignManifest)
    phases = [folder for folder in sorted(session.glob("phases/*")) if (folder / "report.json").exists()]
    reports = [lenient.read(folder / "report.json", PhaseReport) for folder in phases]
    ended = [(a, outcome) for a in every_attempt(session) if (outcome := records.look(a.folder / OUTCOME, Outcome))]
    by_stage: ByStage = {}
    for attempt, outcome in ended:
        by_stage.setdefault((attempt.step.home, attempt.step.stage.partition("-")[2]), []).append(outcome)
    lines = [f"# {manifest.campaign or session.name}", "", _headline(session, manifest, reports, ended), ""]
    lines += _asked(session)
    lines += _goal(manifest)
    error = manifest.error or next((r.error for r in reports if r.error), None)
    if error:
        lines += ["## Look at this first", "", *_first_look(session, error, ended), ""]
    alone = (lenient.read(path, Manifest) for path in sorted(session.glob("*/manifest.json")))
    warnings = _warnings(manifest, reports) or [w for one in alone for w in one.warnings]
    lines += ["## Warnings", "", *(f"- {w}" for w in warnings), ""] if warnings else []
    lines += ["## What happened", ""]
    for folder, report in zip(phases, reports, strict=True):
        lines += _phase(session, folder, report, by_stage)
    lines += _runs(session, session, by_stage)  # of an orchestrator that was run alone
    failed = [f"- `{s.layer}-{s.name}`: {s.status}" for s in signals.present(session) if s.status == "fail"]
    lines += ["## Signals of failure", "", *failed, ""] if failed and (error or not phases) else []
    return "\n".join(lines).rstrip() + "\n"


def _warnings(manifest: CampaignManifest, reports: list[PhaseReport]) -> list[str]:
    return list(manifest.warnings) or [w for report in reports for w in report.warnings]


def _headline(session: Path, manifest: CampaignManifest, reports: list[PhaseReport], ended: Ended) -> str:
    sums = ledger.Ledger(session, strict=False).figures()
    replayed = any(outcome.cost_source == "replayed" for _, outcome in ended)
    status = manifest.status or ", ".join(f"{r.name} {r.status}" for r in reports) or "not ended"
    grade = manifest.grade or next((r.sentinel_grade for r in reports if r.sentinel_grade), "")
    warned = len(_warnings(manifest, reports))
    words = [f"**{status}{f' with {warned} warnings' if warned else ''}**", f"grade {grade}" if grade else ""]
    held = f", {sums.held:.4f} held" if sums.held else ""
    words += [f"{sums.agents} agent sessions", f"{sums.usd:.4f} USD{' (replayed, not spent)' if replayed else ''}{held}"]
    return ", ".join(w for w in words if w) + "."


def _asked(session: Path) -> list[str]:
    plan = lenient.read(session / "effective-config.json", Effective).plan
    if not plan.phases:
        return []
    lines = ["## Asked", "", *([plan.description, ""] if plan.description else [])]
    lines += [*(f"- {name}: {value}" for name, value in plan.params.items()), ""] if plan.params else []
    for phase in plan.phases:
        how = f"checked by {', '.join(phase.checks)}" if phase.checks else f"not checked: {phase.unverified}"
        lines.append(f"- **{phase.name}**: {', '.join(map(_run, phase.runs))}; {how}")
    return [*lines, "", "The plan as it was given is `plan.yaml`; what it resolved to, `effective-config.json`.", ""]


def _goal(manifest: CampaignManifest) -> list[str]:
    """What it was all for, and what the evaluator made of it."""
    if not manifest.goal:
        return []
    rounds = f" (round {manifest.round} of {manifest.rounds})" if manifest.rounds > 1 else ""
    lines = [f"## Goal{rounds}", "", *(f"> {line}" for line in manifest.goal.splitlines()), ""]
    said = manifest.evaluation
    if not said:
        return [*lines, "Nobody has judged yet whether it is met.", ""]
    rows = [[r.requirement, r.status, r.evidence] for r in said.requirements]
    lines += [f"**Met: {said.met}.** {said.summary}", "", *_table(("requirement", "status", "evidence"), rows), ""]
    return lines + ([*(f"- missing: {gap}" for gap in said.gaps), ""] if said.gaps else [])


def _run(run: PlannedRun) -> str:
    given = ", ".join(f"{key}={value}" for key, value in {**run.params, **run.inputs}.items())
    return f"{Path(run.orchestrator).name}{' ' + run.modifier if run.modifier else ''}" + (f" ({given})" if given else "")


def _first_look(session: Path, error: Problem, ended: Ended) -> list[str]:
    lines = [f"{error.code}: {error.message}", *(["", f"→ {error.hint}"] if error.hint else [])]
    failed = sorted(((a, o) for a, o in ended if o.exit_code), key=lambda pair: pair[1].finished_at)
    if failed:
        folder = failed[-1][0].folder
        at = folder.relative_to(session)
        there = [name for name in ("output.md", "refinement.md", OUTCOME) if (folder / name).exists()]
        lines += ["", f"The last attempt that failed is `{at}`; read {', '.join(f'`{name}`' for name in there)} there."]
    return lines


def _phase(session: Path, folder: Path, report: PhaseReport, by_stage: ByStage) -> list[str]:
    own = [o for (home, _), outcomes in by_stage.items() if home.parent == folder.relative_to(session) for o in outcomes]
    spent = f"{sum(o.duration_seconds for o in own):.1f} s, {sum(o.cost_usd or 0 for o in own):.4f} USD"
    head = f"### {report.name or folder.name}: {report.status}, {report.sentinel_grade or 'not graded'}"
    lines = [head, "", f"{len(own)} attempts, {spent}.", ""]
    lines += [f"Nothing was checked: {report.unverified}", ""] if report.unverified else []
    lines += [f"{report.error.code}: {report.error.message}", ""] if report.error else []
    if report.rolled_back:
        lines += [f"The workspace was put back as it was; what failed is kept in git as `{report.rolled_back.ref}`.", ""]
    return lines + _runs(session, folder, by_stage) + _verification(folder / "sentinel")


def _runs(session: Path, folder: Path, by_stage: ByStage) -> list[str]:
    heads = ("stage", "result", "attempts", "time", "USD", "artifact")
    lines: list[str] = []
    for path in sorted(folder.glob("*/manifest.json")):
        judges = path.parent.name == "sentinel"
        stages = [s for s in lenient.read(path, Manifest).stages if s.name != "checks" or not judges]
        rows = [_stage(path.parent.relative_to(session), stage, by_stage) for stage in stages]
        lines += [f"**{path.parent.name}**", "", *_table(heads, rows), ""] if rows else []
    return lines


def _stage(home: Path, stage: Entry, by_stage: ByStage) -> list[str]:
    own = by_stage.get((home, stage.name), [])
    seconds = sum(o.duration_seconds for o in own)
    cost = sum(o.cost_usd or 0 for o in own)
    result = stage.status + (f": {stage.error}" if stage.error else "")
    note = f" (round {stage.round})" if stage.round > 1 else ""
    return [stage.name, result + note, str(len(own)), f"{seconds:.1f} s", f"{cost:.4f}", _artifacts(stage)]


def _artifacts(stage: Entry) -> str:
    found = [i.artifact for i in stage.items if i.artifact] or list(stage.outputs.values())
    found = found or ([stage.artifact] if stage.artifact else [])
    more = f" and {len(found) - 6} more" if len(found) > 6 else ""
    return ", ".join(_link(path) for path in found[:6]) + more


def _verification(sentinel: Path) -> list[str]:
    """Cycle by cycle: what the checks found, and what was to be fixed."""
    lines: list[str] = []
    for cycle in sorted(sentinel.glob("cycle-*"), key=lambda path: int(path.name.removeprefix("cycle-"))):
        results = lenient.read(cycle / "verification-results.json", Results)
        rows = [[c.name, "passed" if c.passed else "**failed**", str(c.errors), _evidence(c)] for c in results.checks]
        if not rows:
            continue
        lines += [f"**Verification, {cycle.name}: {results.overall}**", ""]
        lines += [*_table(("check", "result", "errors", "evidence"), rows), ""]
        fixes = lenient.read(cycle / "fix-list.json", Fixes).fixes
        lines += [f"- {f.severity}: `{f.file}`: {f.issue}" for f in fixes] + ([""] if fixes else [])
    return lines


def _evidence(check: CheckResult) -> str:
    return " ".join(part for part in (check.note, _link(check.evidence)) if part)


def _link(path: str | None) -> str:
    return f"[{Path(path).name}]({path})" if path else ""


def _table(heads: tuple[str, ...], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
