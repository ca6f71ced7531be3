"""Doing finished work again on purpose: which steps `--from` and `--only` mean, and how they are made to count no more.

Nothing is deleted. Up to which attempt a step's past does not count is written down before anything runs, so that a re-run
that is cut short is gone on with by an ordinary resume.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from lib import fanout, files, orchestrator_file
from lib.contract import nearest, usage
from lib.finished import AGAIN
from lib.orchestration import Orchestration, Stage
from lib.plan import Phase, Plan
from lib.session import Step, every_attempt

Chosen = Callable[[Step], bool]


def from_stage(orchestration: Orchestration, base: Step, text: str, session: Path | None) -> Chosen:
    """`STAGE` or `STAGE/ITEM` of one orchestrator: that, what waits for it, and every stage behind it."""
    name, _, item = text.partition("/")
    stages = [s.name for s in orchestration.stages]
    if name not in stages:
        usage(f"--from {text}: {orchestration.name} has no stage {name!r}", nearest(name, stages))
    stage = orchestration.stages[stages.index(name)]
    place = Step(stage=stage.folder).place
    after = _after(stage, session / base.home / "stages" / stage.folder if session else None)
    waiting = {key for key in after if item in fanout.all_before(after, key)} if item in after else set[str]()
    wanted = {files.safe_name(key) for key in {item, *waiting}} if item else set[str]()

    def chosen(step: Step) -> bool:
        if (step.phase, step.orchestrator) != (base.phase, base.orchestrator):
            return False
        return step.place > place or (step.place == place and (not wanted or step.item in wanted))

    return chosen


def _after(stage: Stage, folder: Path | None) -> dict[str, list[str]]:
    """Who of a stage waits for whom: of members as it is written, of items as they were when they ran."""
    if stage.members:
        return {name: list(worker.after) for name, worker in stage.members.items()}
    if not (stage.foreach and stage.foreach.after and folder and folder.is_dir()):
        return {}
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("task-*.json")):
        item: Any = files.read_json(path).get("item")
        fields = cast(dict[str, Any], item) if isinstance(item, dict) else {}
        others = cast(list[Any], fields.get(stage.foreach.after) or [])
        found[str(fields.get(stage.foreach.key))] = [str(other) for other in others]
    return {key: [other for other in others if other in found] for key, others in found.items()}


def from_step(plan: Plan, text: str, session: Path | None) -> Chosen:
    """`PHASE`, `PHASE/RUN`, `PHASE/RUN/STAGE[/ITEM]` of a plan: that, and all that comes after it by dependency."""
    name, _, rest = text.partition("/")
    phase = _phase(plan, name, "--from")
    later = {
        p.folder for p in plan.phases if phase.name in fanout.all_before({p.name: p.depends_on for p in plan.phases}, p.name)
    }
    within: Chosen = _in_phase(phase, rest, session) if rest else lambda step: True
    return lambda step: step.phase in later or (step.phase == phase.folder and within(step))


def from_run(phase: Phase, text: str, session: Path | None) -> Chosen:
    """The same inside one phase."""
    within = _in_phase(phase, text, session)
    return lambda step: step.phase == phase.folder and within(step)


def only_phase(plan: Plan, name: str) -> Chosen:
    folder = _phase(plan, name, "--only").folder
    return lambda step: step.phase == folder


def _phase(plan: Plan, name: str, flag: str) -> Phase:
    found = next((p for p in plan.phases if name in (p.name, p.folder)), None)
    if not found:
        usage(f"{flag}: there is no phase {name!r}", nearest(name, [p.name for p in plan.phases]))
    return found


def _in_phase(phase: Phase, text: str, session: Path | None) -> Chosen:
    name, _, rest = text.partition("/")
    runs = {r.name: r for r in phase.runs}
    if name == "sentinel" and name not in runs:
        return lambda step: step.orchestrator == "sentinel"
    if name not in runs:
        usage(f"--from: the phase {phase.name} has no run {name!r}", nearest(name, [*runs, "sentinel"]))
    behind = {r.name for r in phase.runs if name in fanout.all_before({r.name: r.depends_on for r in phase.runs}, r.name)}
    run = runs[name]
    orchestration = orchestrator_file.load(run.orchestrator, run.modifier)
    within: Chosen = lambda step: step.orchestrator == name  # noqa: E731
    if rest:
        within = from_stage(orchestration, Step(phase.folder, name), rest, session)
    return lambda step: within(step) or step.orchestrator in behind or step.orchestrator == "sentinel"


def voided(session: Path, chosen: Chosen) -> dict[str, int]:
    """The chosen steps that have been tried, each with its last attempt."""
    found: dict[str, int] = {}
    for step, folder in every_attempt(session):
        if chosen(step):
            found[str(step)] = max(found.get(str(step), 0), int(folder.name.removeprefix("attempt-")))
    return found


def mark(session: Path, chosen: Chosen) -> int:
    """Makes the past of the chosen steps count no more. Loops that led over them are set aside with it."""
    found = voided(session, chosen)
    path = session / AGAIN
    known: dict[str, int] = files.read_json(path) if path.exists() else {}
    files.write_json(path, known | found)
    homes = {str(step.home): step for step, _ in every_attempt(session)}
    for home, step in homes.items():
        for record in sorted((session / home / "loops").glob("*.json")):
            if not led_over(files.read_json(record)["rounds"], found, step):
                continue
            set_aside(record)
    return len(found)


def set_aside(record: Path) -> None:
    """A loop that does not count any more. It stays on disk."""
    number = 1 + len(list(record.parent.glob("before-*")))
    aside = record.parent / f"before-{number}"
    aside.mkdir()
    for part in (record, record.with_suffix(".md")):  # the record first: without it, the loop has not been taken
        if part.exists():
            part.replace(aside / part.name)


def led_over(rounds: dict[str, object], void: dict[str, int], home: Step) -> bool:
    """Whether a loop of the orchestrator at `home` went back over a step whose past does not count."""
    steps = [s for s in map(Step.parse, void) if (s.phase, s.orchestrator) == (home.phase, home.orchestrator)]
    return any(s.stage.partition("-")[2] in rounds for s in steps)
