"""`execution-report.md`: what was asked, what happened, and what to look at first, made from the session folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lib import files, signals
from lib.contract import Json


def write(session: Path) -> Path:
    path = session / "execution-report.md"
    files.write_atomic(path, text(session))
    return path


def text(session: Path) -> str:
    manifest = _read(session / "manifest.json")
    outcomes = [_read(p) | {"at": str(p.parent.relative_to(session))} for p in sorted(session.glob("**/attempt-*/outcome.json"))]
    name = manifest.get("campaign") or session.name
    lines = [f"# {name}", "", _headline(manifest, outcomes), ""]
    plan = session / "plan.yaml"
    lines += (
        ["## Asked", "", "The plan is in `plan.yaml`; what it resolved to in `effective-config.json`.", ""]
        if plan.exists()
        else []
    )
    if manifest.get("error"):
        lines += ["## Look at this first", "", *_first_look(manifest, outcomes), ""]
    lines += ["## What happened", ""]
    for folder in sorted(session.glob("phases/*")) or [session]:
        lines += _phase(session, folder, outcomes)
    open_signals = [f"- `{s.layer}-{s.name}`: {s.status}" for s in signals.present(session) if s.status != "done"]
    lines += ["## Signals that are not done", "", *open_signals, ""] if open_signals else []
    return "\n".join(lines).rstrip() + "\n"


def _headline(manifest: Json, outcomes: list[Json]) -> str:
    cost = sum(o.get("cost_usd") or 0 for o in outcomes)
    replayed = any(o.get("cost_source") == "replayed" for o in outcomes)
    agents = sum(1 for o in outcomes if o.get("turns"))
    words = [f"**{manifest.get('status', 'not ended')}**", f"grade {manifest['grade']}" if manifest.get("grade") else ""]
    words += [f"{agents} agent sessions", f"{cost:.4f} USD{' (replayed, not spent)' if replayed else ''}"]
    return ", ".join(w for w in words if w) + "."


def _first_look(manifest: Json, outcomes: list[Json]) -> list[str]:
    lines = [f"{manifest['error'].get('code')}: {manifest['error'].get('message')}"]
    failed = [o for o in outcomes if o.get("exit_code") not in (0, None)]
    if failed:
        lines += ["", f"The last attempt that failed is `{failed[-1]['at']}`; its answer is in `output.md` there."]
    return lines


def _phase(session: Path, folder: Path, outcomes: list[Json]) -> list[str]:
    report = _read(folder / "report.json")
    lines: list[str] = []
    if report:
        grade = report.get("sentinel_grade") or "not graded"
        lines += [f"### {report.get('name', folder.name)}: {report.get('status')}, {grade}", ""]
        lines += [f"Nothing was checked: {report['unverified']}", ""] if report.get("unverified") else []
    for path in sorted(folder.glob("*/manifest.json")):
        manifest = _read(path)
        lines += [
            f"**{path.parent.name}**",
            "",
            "| stage | result | attempts | time | cost | artifact |",
            "|---|---|---|---|---|---|",
        ]
        stages: list[dict[str, Any]] = manifest.get("stages", [])
        for stage in stages:
            lines.append(_row(session, path.parent, stage, outcomes))
        lines.append("")
    return lines


def _row(session: Path, home: Path, stage: dict[str, Any], outcomes: list[Json]) -> str:
    prefix = f"{home.relative_to(session)}/stages/"
    own = [
        o
        for o in outcomes
        if o["at"].startswith(prefix) and o["at"][len(prefix) :].split("/")[0].split("-", 1)[1] == stage["name"]
    ]
    seconds = sum(o.get("duration_seconds") or 0 for o in own)
    cost = sum(o.get("cost_usd") or 0 for o in own)
    result = stage["status"] + (f": {stage['error']}" if stage.get("error") else "")
    note = f" (round {stage['round']})" if stage.get("round", 0) > 1 else ""
    artifact = f"[{Path(stage['artifact']).name}]({stage['artifact']})" if stage.get("artifact") else ""
    cells = [stage["name"], result + note, str(len(own)), f"{seconds:.1f} s", f"{cost:.4f}", artifact]
    return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def _read(path: Path) -> Json:
    return files.read_json(path) if path.is_file() else {}
