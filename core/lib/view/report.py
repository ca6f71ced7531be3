"""`execution-report.md`: what was asked, what happened, and what to look at first, made from the session folder alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lib.disk import files, lenient
from lib.plan.params import in_words
from lib.session import signals
from lib.session.attempts import OUTCOME
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
    Section,
)
from lib.session.step import in_runs
from lib.view import reader, terminal
from lib.view import result as results
from lib.view.result import Result
from lib.view.tree import Node, Scene

MOST = 20  # of each list that is shown
Rows = list[list[str]]
Nodes = dict[tuple[str, ...], Node]  # by phase, run and stage, or by run and stage


def write(session: Path, seen: Scene | None = None) -> Path:
    """`seen`: what somebody has read of it already."""
    path = session / "execution-report.md"
    files.write_atomic(path, text(session, seen))
    return path


def text(session: Path, seen: Scene | None = None) -> str:
    seen = seen or reader.Reader(session).look(ended=True)
    manifest = seen.manifest
    phases = [folder for folder in sorted(session.glob("phases/*")) if (folder / "report.json").exists()]
    reports = [lenient.read(folder / "report.json", PhaseReport) for folder in phases]
    nodes = dict(_nodes(seen.root))
    lines = [f"# {manifest.campaign or session.name}", "", _headline(seen, reports), ""]
    lines += _asked(session)
    lines += _goal(manifest)
    error = manifest.error or next((r.error for r in reports if r.error), None)
    if error:
        lines += ["## Look at this first", "", *_first_look(seen, error), ""]
    alone = (lenient.read(path, Manifest) for path in in_runs(session, "manifest.json"))
    warnings = _warnings(manifest, reports) or [w for one in alone for w in one.warnings]
    lines += ["## Warnings", "", *(f"- {w}" for w in warnings), ""] if warnings else []
    lines += _result(results.of(seen))
    lines += ["## What happened", ""]
    for folder, report in zip(phases, reports, strict=True):
        lines += _phase(seen, folder, report, nodes)
    lines += _runs(seen, session, nodes, ())  # of an orchestrator that was run alone
    lines += _workers(seen)
    failed = [f"- `{s.layer}-{s.name}`: {s.status}" for s in signals.present(session) if s.status == "fail"]
    lines += ["## Signals of failure", "", *failed, ""] if failed and (error or not phases) else []
    return "\n".join(lines).rstrip() + "\n"


def _workers(seen: Scene) -> list[str]:
    """Which machine did how much, where there were several."""
    did = Counter(one.worker for one in seen.root.every_row() if one.worker)
    lines = [f"- {name}: {number} attempt{'s' if number > 1 else ''}" for name, number in sorted(did.items())]
    return ["## Workers", "", *lines, ""] if lines else []


def _nodes(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    for child in node.nodes:
        yield (*path, child.name), child
        yield from _nodes(child, (*path, child.name))


def _result(came: Result) -> list[str]:
    """What came of it, before how it came about."""
    lines = [f"- [{one.path}]({one.path}): {one.type}" for one in came.delivered[:MOST] if one.root == "session"]
    lines += [f"- `{one.path}` in {came.workspace}: {one.type}" for one in came.delivered[:MOST] if one.root != "session"]
    left = len(came.delivered) - MOST
    lines += [f"- and {left} more, listed in outputs.json"] if left > 0 else []
    changed = [f"- {one.change}: `{one.path}`" for one in came.changed[:MOST]]
    left = len(came.changed) - MOST
    changed += [f"- and {left} more"] if left > 0 else []
    lines += ["", "Files changed; report.html has their diff:", "", *changed] if changed else []
    lines += [""] if came.stories else []
    lines += [f"- **{phase}** verified by {story.words}" for phase, story in came.stories]
    told = [line for section in came.sections for line in _told(section)]
    return [*(["## Result", "", *lines, ""] if lines else []), *told]


def _told(section: Section) -> list[str]:
    """What a tool of the run has to say."""
    lines = [f"## {section.title}", ""]
    for part in section.parts:
        lines += [f"### {part.title}", ""] if part.title else []
        lines += [part.text, ""] if part.text else []
        cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in part.rows]
        rows = [f"| {' | '.join(row)} |" for row in (list(part.head), ["---"] * len(part.head), *cells)]
        lines += [*rows, ""] if part.rows else []
    return lines


def _warnings(manifest: CampaignManifest, reports: list[PhaseReport]) -> list[str]:
    return list(manifest.warnings) or [w for report in reports for w in report.warnings]


def _headline(seen: Scene, reports: list[PhaseReport]) -> str:
    sums, manifest = seen.spent, seen.manifest
    status = manifest.status or ", ".join(f"{r.name} {r.status}" for r in reports) or "not ended"
    grade = manifest.grade or next((r.sentinel_grade for r in reports if r.sentinel_grade), "")
    warned = len(_warnings(manifest, reports))
    words = [f"**{status}{f' with {warned} warnings' if warned else ''}**", f"grade {grade}" if grade else ""]
    held = f", {sums.held:.4f} held" if sums.held else ""
    words += [f"took {terminal.clock(terminal.took(seen))}"]
    words += [f"{sums.agents} agent sessions", f"{sums.usd:.4f} USD{' (replayed, not spent)' if seen.replayed else ''}{held}"]
    return ", ".join(w for w in words if w) + "."


def _asked(session: Path) -> list[str]:
    plan = lenient.read(session / "effective-config.json", Effective).plan
    if not plan.phases:
        return []
    lines = ["## Asked", "", *([plan.description, ""] if plan.description else [])]
    lines += [*(f"- {name}: {in_words(value)}" for name, value in plan.params.items()), ""] if plan.params else []
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
    given = ", ".join(f"{key}={in_words(value)}" for key, value in {**run.params, **run.inputs}.items())
    return f"{Path(run.orchestrator).name}{' ' + run.modifier if run.modifier else ''}" + (f" ({given})" if given else "")


def _first_look(seen: Scene, error: Problem) -> list[str]:
    lines = [f"{error.code}: {error.message}", *(["", f"→ {error.hint}"] if error.hint else [])]
    failed = [row for row in seen.root.every_row() if row.error and row.ended]
    last = max(failed, key=lambda row: row.ended or 0.0, default=None)
    if last:
        there = [name for name in ("output.md", "refinement.md", OUTCOME) if (seen.session / last.folder / name).exists()]
        lines += ["", f"The last attempt that failed is `{last.folder}`; read {', '.join(f'`{name}`' for name in there)} there."]
    return lines


def _phase(seen: Scene, folder: Path, report: PhaseReport, nodes: Nodes) -> list[str]:
    node = nodes[report.name,] if (report.name,) in nodes else Node("phase", report.name)
    spent = f"{terminal.clock(node.seconds(seen.now))}, {node.usd:.4f} USD"
    head = f"### {report.name or folder.name}: {report.status}, {report.sentinel_grade or 'not graded'}"
    lines = [head, "", f"{len(list(node.every_row()))} attempts, {spent}.", ""]
    lines += [f"Nothing was checked: {report.unverified}", ""] if report.unverified else []
    lines += [f"{report.error.code}: {report.error.message}", ""] if report.error else []
    if report.rolled_back:
        lines += [f"The workspace was put back as it was; what failed is kept in git as `{report.rolled_back.ref}`.", ""]
    return lines + _runs(seen, folder, nodes, (report.name,)) + _verification(folder / "sentinel")


def _runs(seen: Scene, folder: Path, nodes: Nodes, above: tuple[str, ...]) -> list[str]:
    heads = ("stage", "result", "attempts", "time", "USD", "artifact")
    lines: list[str] = []
    for path in sorted(folder.glob("*/manifest.json")):
        run = path.parent.name
        stages = [s for s in lenient.read(path, Manifest).stages if s.name != "checks" or run != "sentinel"]
        rows = [_stage(seen, stage, nodes.get((*above, run, stage.name), Node("stage", stage.name))) for stage in stages]
        lines += [f"**{run}**", "", *_table(heads, rows), ""] if rows else []
    return lines


def _stage(seen: Scene, stage: Entry, node: Node) -> list[str]:
    result = stage.status + (f": {stage.error}" if stage.error else "")
    note = f" (round {stage.round})" if stage.round > 1 else ""
    took, tries = terminal.clock(node.seconds(seen.now)), len(list(node.every_row()))
    return [stage.name, result + note, str(tries), took, f"{node.usd:.4f}", _artifacts(stage)]


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
