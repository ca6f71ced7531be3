"""Reading a session's folder into a scene. Reading changes nothing and needs nobody to answer: the run may be going on in another
process, have ended, or have been killed. What is immutable (outcomes) is read once, what grows from where the last look ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from lib.contract import STATUS
from lib.disk import files, lenient, records
from lib.disk.clock import when
from lib.plan.task import Task
from lib.session import budget, catalogue, ledger
from lib.session.attempts import OUTCOME, Attempt, every_attempt
from lib.session.documents import (
    CampaignManifest,
    Effective,
    Entry,
    Event,
    Manifest,
    PhaseReport,
    PlannedCampaign,
    PlannedPhase,
    Problem,
)
from lib.session.outcome import Outcome
from lib.session.step import Step
from lib.view.tree import CUT_SHORT, GOOD, PARKED, PENDING, RUNNING, Node, Row, Scene
from lib.workspace.history import BEGUN, LATE_SECONDS

WORD = {
    "failure": "failed",
    "needs-refinement": "to be revised",
    "human-input": "waiting",
    "not-run": PENDING,
    "complete": "success",
}


PARKINGS = ("parked", "unparked")


class _Meta(Struct, frozen=True):
    agent: str = ""
    worker: str = ""


class Reader:
    """Looks at a session again and again, and reads only what is new."""

    def __init__(self, session: Path) -> None:
        self.session = session
        self._ended: dict[str, Row] = {}
        self._offset = 0
        self._events: dict[str, list[Event]] = {}  # by step: what its agent did last, and when it was parked
        self._begun: dict[str, float] = {}  # by step: when its executor started last
        self._wanted: dict[str, int] = {}  # by stage: how many items it fans out over

    def look(self, ended: bool = False) -> Scene:
        """`ended`: the process that works in it is this one, and has just come to its end."""
        folder = self.session
        self._hear()
        effective = lenient.read(folder / "effective-config.json", Effective)
        plan = effective.plan
        manifest = catalogue.ended_as(folder)
        going = not ended and catalogue.alive(folder)
        book = ledger.Ledger(folder, strict=False)
        reserved = book.open()
        rows = [self._row(attempt, going) for attempt in every_attempt(folder)]
        for one in rows:
            if not one.agent and one.folder in reserved:
                one.agent = reserved[one.folder].agent
        root = Node("session", manifest.campaign or plan.name or folder.name)
        root.nodes = self._phases(plan, rows, going) + self._loose(rows, going)
        root.status = _root_status(root, manifest, going)
        root.grade = manifest.grade if not going else ""
        return Scene(
            folder,
            root,
            going,
            _state(folder),
            plan.goal or manifest.goal,
            plan.description,
            plan.params,
            manifest,
            book.figures(),
            book.limits.get(budget.WHOLE, {}).get("usd", 0.0),
            effective.settings.driver,
            when(manifest.started_at) or root.started or _first(folder),
            datetime.now().timestamp(),
        )

    # What grows

    def _hear(self) -> None:
        try:
            with (self.session / ".live-report").open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        whole, _, _ = data.rpartition(b"\n")
        self._offset += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            try:
                self._note(lenient.of(json.loads(line), Event))
            except (ValueError, RecursionError):
                continue  # torn by a crash, or none of ours

    def _note(self, event: Event) -> None:
        step, status = event.stage, event.status
        heard = self._events.setdefault(step, [])
        if event.layer == "exec" and status == "started":
            self._begun[step] = when(event.timestamp) or 0.0
            self._events[step] = [e for e in heard if e.status in PARKINGS]
        elif event.layer == "orch" and status == "fan-out":
            items = event.about("items")
            self._wanted[step] = int(items) if items.isdigit() else 0
        elif event.layer == "spawn" and status in (*PARKINGS, "tool-use", "waiting", "denied", "api-retry"):
            if status in PARKINGS or not heard or heard[-1].status in PARKINGS:
                heard.append(event)
            else:
                heard[-1] = event  # of what it does, only the last is of interest

    # The tree

    def _row(self, attempt: Attempt, going: bool) -> Row:
        step, path, number = attempt.step, attempt.folder, attempt.number
        place = os.path.relpath(path, self.session)
        known = self._ended.get(place)
        outcome = records.look(path / OUTCOME, Outcome) if not known else None
        if outcome:
            known = self._ended[place] = _ended(step, place, number, outcome)
        if known:
            known.parked = self._parked(step)
            return known
        task = records.look(path.parent / f"task-{number}.json", Task)
        beat = _made(path / BEGUN)  # an attempt of an earlier run that was cut short has no sign of life any more
        going = going and (beat is None or time.time() - beat < 5 * LATE_SECONDS)
        began = self._begun.get(step.slug) if going else None
        this = Row(step, place, number, RUNNING if going else CUT_SHORT, task.kind if task else "")
        this.agent = lenient.read(path / "meta.json", _Meta).agent
        this.worker = lenient.read(path / BEGUN, _Meta).worker
        this.started = began or _made(path)
        this.ended = None if going else beat or _touched(path)
        this.parked = self._parked(step)
        heard = self._events.get(step.slug, [])
        if going and heard:
            this.doing = _doing(heard[-1])
            this.status = PARKED if heard[-1].status == "parked" else this.status
        return this

    def _parked(self, step: Step) -> list[tuple[float, float | None]]:
        found: list[tuple[float, float | None]] = []
        for event in self._events.get(step.slug, []):
            at = when(event.timestamp) or 0.0
            if event.status == "parked":
                found.append((at, None))
            elif event.status == "unparked" and found:
                found[-1] = (found[-1][0], at)
        return found

    def _phases(self, plan: PlannedCampaign, rows: list[Row], going: bool) -> list[Node]:
        planned = {phase.folder: phase for phase in plan.phases}
        by_phase = _grouped(rows, lambda row: row.step.phase)
        found: list[Node] = []
        for folder in (*planned, *sorted(set(by_phase) - set(planned) - {""})):
            phase = planned.get(folder, PlannedPhase(name=folder))
            report = lenient.read(self.session / "phases" / folder / "report.json", PhaseReport)
            node = Node("phase", phase.name or folder, after=phase.depends_on)
            names = [*(run.name for run in phase.runs), *(["sentinel"] if phase.checks else [])]
            node.nodes = self._runs(f"phases/{folder}", names, by_phase.get(folder, []), going)
            node.grade = report.sentinel_grade
            node.note = _message(report.error)
            node.status = _sum(node, _word(report.status), going)
            found.append(node)
        return found

    def _runs(self, place: str, planned: list[str], rows: list[Row], going: bool) -> list[Node]:
        by_run = _grouped(rows, lambda row: row.step.orchestrator)
        names = [*planned, *sorted(set(by_run) - set(planned))]
        found: list[Node] = []
        for name in names:
            manifest = lenient.read(self.session / place / name / "manifest.json", Manifest)
            node = Node("run", name)
            node.nodes = _stages(manifest, by_run.get(name, []))
            slug = ".".join(p for p in (*Path(place).parts[1:], name) if p != ".")
            for stage in node.nodes:
                stage.turn = "cycle" if name == "sentinel" else "round"
                stage.wanted = self._wanted.get(f"{slug}.{stage.name}", 0)
                if going and 0 < len(stage.nodes) < stage.wanted:
                    stage.status = RUNNING  # the rest waits for its turn
            node.note = _message(manifest.error)
            node.after = tuple(n for n in names if n != name) if name == "sentinel" else ()
            node.status = _sum(node, _word(manifest.status), going)
            found.append(node)
        return found

    def _loose(self, rows: list[Row], going: bool) -> list[Node]:
        """What is in no phase: an orchestrator or an executor run alone, or what a campaign asked for itself."""
        own = [row for row in rows if not row.step.phase]
        runs = self._runs(".", [], [row for row in own if row.step.orchestrator], going)
        return runs + _stages(Manifest(), [row for row in own if not row.step.orchestrator])


def _grouped(rows: list[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _stages(manifest: Manifest, rows: list[Row]) -> list[Node]:
    entries = {entry.name: entry for entry in manifest.stages}
    by_folder = _grouped(rows, lambda row: row.step.stage)
    by_stage: dict[str, list[Row]] = {}
    for folder in sorted(by_folder):
        by_stage.setdefault(folder.partition("-")[2] or folder, []).extend(by_folder[folder])
    names = dict.fromkeys((*entries, *by_stage))
    return [_stage(entries.get(name, Entry(name)), by_stage.get(name, [])) for name in names]


def _stage(entry: Entry, rows: list[Row]) -> Node:
    node = Node("stage", entry.name, note=entry.error or entry.note)
    by_item = _grouped(rows, lambda row: row.step.item)
    node.rows = by_item.pop("", [])
    items = {files.safe_name(item.name): item for item in entry.items}
    for key in dict.fromkeys((*by_item, *items)):
        item = items.get(key, Entry(key))
        child = Node("item", item.name, note=item.error or item.note)
        child.rows = by_item.get(key, [])
        child.status = _stage_status(child, item)
        node.nodes.append(child)
    node.note = node.note or (node.rows[-1].message if node.rows else "")
    node.status = _stage_status(node, entry)
    if node.nodes and node.status == PENDING:
        node.status = _sum(node, "", False)
    return node


def _stage_status(node: Node, entry: Entry) -> str:
    last = node.rows[-1] if node.rows else None
    if last and last.status in (RUNNING, PARKED):
        return last.status
    told = _word(entry.status)
    if node.nodes and any(c.status in (RUNNING, PARKED) for c in node.nodes):
        return RUNNING
    return told if told not in ("", PENDING) else (last.status if last else PENDING)


def _sum(node: Node, told: str, going: bool) -> str:
    """The status of a phase or a run: by what is going on below it, then by what it says of itself."""
    below = [n.status for n in node.nodes]
    if RUNNING in below or PARKED in below:
        return RUNNING if RUNNING in below else PARKED
    if told and told != RUNNING:
        return told
    if going and (told == RUNNING or any(s != PENDING for s in below)):
        return RUNNING
    bad = next((s for s in below if s not in (*GOOD, PENDING)), "")
    if told == RUNNING:
        return bad or CUT_SHORT
    return bad or (PENDING if PENDING in below or not below else "success")


def _root_status(root: Node, manifest: CampaignManifest, going: bool) -> str:
    if going:
        return PARKED if any(n.status == PARKED for n in root.nodes) and not _any(root, RUNNING) else RUNNING
    if manifest.status:
        return _word(manifest.status)
    return _sum(root, "", False) if root.nodes else PENDING


def _any(node: Node, status: str) -> bool:
    return any(t.status == status for t in node.every_row())


def _word(status: str) -> str:
    return WORD.get(status, status)


def _ended(step: Step, place: str, number: int, known: Outcome) -> Row:
    ended = when(known.finished_at)
    return Row(
        step,
        place,
        number,
        _word(STATUS[known.exit_code]),
        known.kind,
        known.agent or known.tool,
        known.model,
        known.note,
        known.error or {},
        ended - known.duration_seconds if ended else None,
        ended,
        known.cost_usd or 0.0,
        known.cost_source,
        known.tokens,
        known.turns,
        known.usage,
        list(known.denials),
        known.stays,
        known.number,
        worker=known.worker,
    )


def _doing(event: Event) -> str:
    if event.status == "parked":
        return f"parked until {event.about('until') or '?'}"
    return f"{event.about('tool', 'for') or event.status} {event.about('what')}".strip()


def _message(problem: Problem | None) -> str:
    return problem.message if problem else ""


def _state(session: Path) -> str:
    try:
        for line in (session / ".session-state").read_text(encoding="utf-8").splitlines():
            if line.startswith("state: "):
                return str(json.loads(line.removeprefix("state: ")))
    except (OSError, ValueError):
        pass  # there is none yet, or it is being replaced
    return ""


def _first(session: Path) -> float | None:
    return _made(session / ".trace")


def _made(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _touched(folder: Path) -> float | None:
    times = [t for p in folder.rglob("*") if (t := _made(p))] or [t for t in [_made(folder)] if t]
    return max(times, default=None)
