"""The sessions there are: finding one, listing them, drawing its graph, and removing old ones."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from msgspec import Struct

from lib.contract import ExitCode, Json, usage
from lib.disk import lenient, locks
from lib.plan import orchestrator_file, plan_file
from lib.plan.orchestration import Group, Question, Stage
from lib.plan.plan import Plan
from lib.session import catalogue, events, produced
from lib.session.documents import Manifest
from lib.session.owner import LOCK_NAME, PLACED
from lib.session.step import in_runs
from lib.view import reader, terminal, ways
from lib.view.tree import Node, Scene

MEMBERS = 6  # of one stage that are named
LATELY_SECONDS = 60.0
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def listing(base: Path) -> list[Json]:
    return [entry(reader.Reader(path).look()) for path in catalogue.sessions(base)]


def entry(seen: Scene) -> Json:
    path = seen.session
    begun = (path / ".trace").stat().st_mtime
    return {
        "session": path.name,
        "path": str(path),
        "name": seen.root.name,
        "status": seen.root.status,
        "running": seen.alive,
        "grade": seen.root.grade,
        "usd": seen.spent.usd,
        "usd_held": seen.spent.held,
        "replayed": seen.replayed,
        "agents": seen.spent.agents,
        "age_seconds": int(time.time() - begun),
    }


def table(entries: list[Json], base: Path) -> str:
    if not entries:
        return f"no sessions under {base}"
    width = max(len(e["session"]) for e in entries)
    rows: list[str] = []
    for e in entries:
        held = f", {e['usd_held']:.4f} held" if e["usd_held"] else ""
        sums = f"{e['usd']:>9.4f} USD{held}{' replayed' if e['replayed'] else '         '}  {age(e['age_seconds'])}"
        rows.append(f"{terminal.mark(e['status'])[0]} {e['session']:{width}}  {e['status']:15}  {e['grade'] or '-':12}  {sums}")
    return "\n".join(rows)


def age(seconds: float) -> str:
    for unit, size in (("w", 7 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit} ago"
    return "just now" if seconds < 60 else "1m ago"


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text)
    if not found:
        usage(f"--older-than {text!r} is no age", "30d, 12h, 2w, 90m")
    return float(found[1]) * UNITS[found[2]]


def old(base: Path, older_than: float) -> tuple[list[Path], list[Json]]:
    """Which would go, and which stay although they are old: they run, or wait for a person."""
    going: list[Path] = []
    staying: list[Json] = []
    for path in catalogue.sessions(base):
        newest = max((p.lstat().st_mtime for p in path.iterdir()), default=path.stat().st_mtime)
        if time.time() - newest < older_than:
            continue
        if catalogue.alive(path) or locks.is_held(path / LOCK_NAME) or _works_elsewhere(path):
            staying.append({"session": path.name, "why": "it is running"})
        elif _waits(path):
            staying.append({"session": path.name, "why": "it waits for a person"})
        elif path.is_symlink():
            staying.append({"session": path.name, "why": "it is a link"})
        else:
            going.append(path)
    return going, staying


def _works_elsewhere(session: Path) -> bool:
    """Whether a worker renews its lease in it: a run that was killed may have left one that does not know yet."""
    leases = session.glob(f"{PLACED}/*/lease-*")
    return any(time.time() - lease.stat().st_mtime < LATELY_SECONDS for lease in leases)


def _waits(session: Path) -> bool:
    own = session / "manifest.json"
    found = [lenient.read(path, Manifest) for path in (own, *in_runs(session, "manifest.json"))]
    damaged = own.exists() and not found[0].status
    return damaged or any(manifest.exit_code == ExitCode.HUMAN_INPUT for manifest in found)


def remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path)


def size(path: Path) -> int:
    return sum(p.lstat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


# The graph, as Mermaid

_CLASSES = {
    "success": "fill:#d7f0dd,stroke:#2f7d46,color:#123",
    "running": "fill:#d6eaf8,stroke:#2471a3,color:#123",
    "pending": "fill:#f4f4f4,stroke:#999,color:#444",
    "bad": "fill:#f9d9d6,stroke:#b03a2e,color:#311",
    "open": "fill:#fdf0cf,stroke:#b7950b,color:#332",
}


def graph(what: str, base: Path) -> str:
    """Of a plan as it is written, or of a session as it stands."""
    file = Path(what)
    if what.endswith((".yaml", ".yml")) or (file.is_file() and not file.is_dir()):
        return mermaid(*of_plan(plan_file.load(what, needed=False)))
    session = catalogue.find(what, base)
    root = reader.Reader(session).look().root
    back = {
        (phase.name, run.name): ways.loops_of(ways.home(session, phase.name, run.name))
        for phase in root.nodes
        for run in (phase.nodes if phase.kind == "phase" else [phase])
    }
    return mermaid(root, back, ways.gates(session))


Loops = dict[tuple[str, str], list[ways.Back]]  # by phase and run


def of_plan(plan: Plan) -> tuple[Node, Loops, dict[str, ways.Gate]]:
    root = Node("session", plan.name)
    back: Loops = {}
    gates = {p.name: ways.Gate(p.checkpoint.at, p.checkpoint.question) for p in plan.phases if p.checkpoint}
    for phase in plan.phases:
        node = Node("phase", phase.name, after=phase.depends_on)
        for run in phase.runs:
            orchestration = orchestrator_file.load(run.orchestrator, run.modifier)
            stages = [_planned(s) for s in orchestration.stages]
            taken = [(s.name, name) for s in orchestration.stages for name in dict.fromkeys(s.loops)]
            loops = [ways.Back(name, source, orchestration.loops[name].to) for source, name in taken]
            back[phase.name, run.name] = loops
            node.nodes.append(Node("run", run.name, nodes=stages, after=run.depends_on))
        if phase.checks:
            checks = [Node("stage", ", ".join(phase.checks))]
            node.nodes.append(Node("run", "sentinel", nodes=checks, after=tuple(r.name for r in phase.runs)))
        root.nodes.append(node)
    return root, back, gates


def _planned(stage: Stage) -> Node:
    """A stage before it has run: its members by name, its items by a sign."""
    members = [Node("item", key) for key, _, _ in stage.announced()] if isinstance(stage, Group) else []
    return Node("stage", stage.name, note="×" if stage.fans_out else ("?" if isinstance(stage, Question) else ""), nodes=members)


def mermaid(root: Node, back: Loops, gates: dict[str, ways.Gate]) -> str:
    lines = ["flowchart LR"]
    phases: dict[str, str] = {}
    colours: list[str] = []
    for number, phase in enumerate(root.nodes, 1):
        key = f"p{number}"
        phases[phase.name] = key
        lines.append(f'  subgraph {key}["{_label(phase.name)}"]')
        lines.append("    direction TB")
        runs = phase.nodes if phase.kind == "phase" else [phase]
        ends: dict[str, str] = {}
        if phase.name in gates:
            lines.append(f'    {key}_gate{{{{"{_label(gates[phase.name].question or "checkpoint")}"}}}}')
        for place, run in enumerate(runs, 1):
            before = ""
            keys: dict[str, str] = {}
            for turn, stage in enumerate(run.nodes or [run], 1):
                here = f"{key}_{place}_{turn}"
                keys[stage.name] = here
                items = f" ×{len(stage.nodes)}" if stage.nodes else (f" {stage.note}" if stage.note in ("×", "?") else "")
                if 0 < len(stage.nodes) <= MEMBERS:
                    items += f"<br>{_label(', '.join(one.name for one in stage.nodes))}"
                name = f"{run.name}: {stage.name}" if stage is not run else run.name
                lines.append(f'    {here}["{_label(name)}{items}"]')
                colours.append(f"  class {here} {_class(stage.status)}")
                lines += [f"    {before} --> {here}"] if before else []
                lines += [f"    {ends[o]} --> {here}" for o in run.after if o in ends] if turn == 1 else []
                before = here
            ends[run.name] = before
            for loop in back.get((phase.name, run.name), []):
                if loop.source in keys and loop.target in keys:
                    times = f" {loop.times}x" if loop.times else ""
                    lines.append(f"    {keys[loop.source]} -. {_label(loop.name)}{times} .-> {keys[loop.target]}")
        lines.append("  end")
    for phase in root.nodes:
        lines += [f"  {phases[other]} --> {phases[phase.name]}" for other in phase.after if other in phases]
    lines += [f"  classDef {name} {style}" for name, style in _CLASSES.items()]
    return "\n".join([*lines, *colours])


def _class(status: str) -> str:
    if status in ("success", "running", "pending"):
        return status
    return "open" if terminal.mark(status)[1] == "yellow" else "bad"


def _label(text: str) -> str:
    """Nothing in a name is Mermaid's syntax, or markup."""
    return re.sub(r"[^\w ,.:()/+-]", lambda found: f"#{ord(found[0])};", " ".join(text.split()))[:200]


def lines_of(session: Path, count: int) -> list[Json]:
    """The last lines of the live report that are whole."""
    try:
        text = (session / ".live-report").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [event for line in text.splitlines()[-count:] if (event := events.parse(line))]


def outputs(folder: Path, kind: str, dimensions: dict[str, str], tags: list[str]) -> Json:
    found = produced.of_session(folder)
    chosen = [one for one in found if one.fits(kind, dimensions, tags)]
    if not chosen and found and (kind or dimensions or tags):
        usage(f"none of {len(found)} outputs is such a one", f"types: {', '.join(sorted({one.type for one in found}))}")
    lines = [f"{one.type}  {_dimensions(one)}{one.path}  ({one.size} bytes, {one.agent_name})" for one in chosen]
    source = lenient.read(folder / produced.FILE, _Source).config_source
    return produced.document(folder, chosen, source) | {"text": "\n".join(lines) or "it has produced nothing yet"}


class _Source(Struct, frozen=True):
    config_source: str = ""


def _dimensions(one: produced.Produced) -> str:
    return "".join(f"{name}={value}  " for name, value in one.dimensions.items())


def prune(base: Path, older_than: str | None, yes: bool) -> Json:
    if not older_than:
        usage("how old?", "prune --older-than 30d")
    going, staying = old(base, seconds(older_than))
    freed = sum(size(p) for p in going)
    lines = [f"{'removed' if yes else 'would remove'} {p.name}" for p in going]
    lines += [f"stays {s['session']}: {s['why']}" for s in staying]
    done = f"{len(going)} sessions, {freed / 1e6:.1f} MB" + ("" if yes else "; add --yes to do it")
    lines += [done if going else f"no session under {base} was last worked on longer than {older_than} ago"]
    if yes:
        remove(going)
    names = [p.name for p in going]
    shown = {"removed": names if yes else [], "would_remove": [] if yes else names}
    return shown | {"stays": staying, "bytes": freed, "text": "\n".join(lines)}
