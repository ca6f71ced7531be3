"""Real shapes, with agents on replay and live, killed at many points: each resumes to what it would have been undisturbed.

Two phases that edit the same files; nested loops with a fan-out that skips; the quickstart, with its loop and its sentinel's fix.
Just before durable writes the world is stopped and the session, with the workspace in it, is copied: what `kill -9` of everything
leaves behind. `-m crash` takes all such points (more than 500) and kills 40 live runs for real; `-m long` takes a few.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lib.session.ledger import Ledger
from scripted_model.server import Reply, Request, Script, by_agent, say, scripted, tool
from support import ROOT, House, wait_for, with_marker
from tools.test_crash import POINT

SAME_FILES = """version: 1
name: trial
workspace: session
files: {doc.md: "first\\n"}
checks: checks.yaml
budget: {usd: 50}
phases:
  - {name: one, run: [{orchestrator: oa}], verify: {checks: [there], fix: false}}
  - {name: two, depends_on: [one], run: [{orchestrator: ob}], verify: {checks: [there], fix: false}}
"""
LOOPS = """version: 1
name: oa
params: {names: {type: list, default: "x,y,z"}}
loops: {inner: {to: look, max: 1, then: continue}, outer: {to: make, max: 1, then: continue}}
stages:
  - {name: make, agent: maker, action: DO}
  - name: each
    agent: helper
    action: DO
    target: "{item}"
    foreach: {items: param.names, cap: 2}
    on_item_failure: skip
  - {name: look, agent: critic, action: DO, inputs: {given: make.note}, on: {needs_revision: inner}}
  - {name: judge, agent: critic, action: DO, inputs: {given: look.note, all: each.*.note}, on: {needs_revision: outer}}
"""
LOOPING = """version: 1
name: trial
workspace: session
files: {doc.md: "first\\n"}
checks: checks.yaml
budget: {usd: 50}
phases:
  - {name: one, run: [{orchestrator: oa}], verify: {checks: [there], fix: false}}
"""
NOTE = {"note": {"path": "note.md"}}


@dataclass(frozen=True)
class Shape:
    plan: str
    orchestrators: dict[str, str]
    agents: dict[str, dict[str, Any]]
    script: Script
    code: int


def note(request: Request, words: str = "DONE: yes", **more: str) -> Reply:
    """Writes its note and, below the working folder the prompt names, what else is asked for; then its last words."""
    cwd = next(line for line in request.prompt.splitlines() if line.startswith("Working folder: ")).partition(": ")[2]
    calls = [tool("Write", file_path=request.path("note"), content=f"a note on {words}\\n")]
    calls += [tool("Write", file_path=f"{cwd}/{name}", content=text) for name, text in more.items()]
    reads = [tool("Read", file_path=f"{cwd}/{name}") for name in more]
    steps = [*([say(*reads)] if reads else []), say(*calls), say(words)]
    return steps[min(request.turn, len(steps) - 1)]


def critic(request: Request) -> Reply:
    first = "/round-1/" in request.path("note")
    return note(request, "NEEDS_REVISION: once more" if first else "DONE: good")


def stage(name: str, agent: str) -> str:
    return f"  - {{name: {name}, agent: {agent}, action: DO}}\n"


def shapes() -> dict[str, Shape]:
    writer = {"tools": "Write, Read", "strata": {"completion": "cluster", "outputs": NOTE, "scope": ["*.md"]}}
    plain = {"tools": "Write", "strata": {"completion": "cluster", "outputs": NOTE}}
    edits: dict[str, Callable[[Request], Reply]] = {
        name: (lambda r, name=name: note(r, **{"doc.md": f"by {name}\\n"})) for name in ("maker", "editor", "finisher")
    }
    helper = lambda r: say("ERROR: no luck") if " y" in r.prompt.splitlines()[0] else note(r)  # noqa: E731
    return {
        "two phases, same files": Shape(
            SAME_FILES,
            {
                "oa": "version: 1\nname: oa\nstages:\n" + stage("make", "maker"),
                "ob": "version: 1\nname: ob\nstages:\n" + stage("edit", "editor") + stage("finish", "finisher"),
            },
            dict.fromkeys(edits, writer),
            by_agent(**edits),
            0,
        ),
        "nested loops and skips": Shape(
            LOOPING,
            {"oa": LOOPS},
            {"maker": plain, "helper": plain, "critic": plain},
            by_agent(maker=note, helper=helper, critic=critic),
            12,
        ),
    }


def furnished(folder: Path, shape: Shape | None) -> House:
    house = House(folder)
    begun = [  # of write_atomic and of append_line
        "    raw = redact(data).encode() if isinstance(data, str) else data\n",
        '    line = redact(json.dumps(document, ensure_ascii=False)) + "\\n"\n',
    ]
    house.rewrite("files", *((line, f"    crash_point(path)\n{line}") for line in begun), more=POINT)
    if shape:
        for name, body in shape.orchestrators.items():
            house.orchestrator(body, name)
        for name, front in shape.agents.items():
            house.agent(name, **front)
        (house.folder / "plan.yaml").write_text(shape.plan)
        (house.folder / "checks.yaml").write_text("version: 1\nchecks: {there: {command: test -s doc.md}}\n")
    return house


def recorded(house: House, shape: Shape) -> Path:
    fixtures = house.folder / "recorded"
    with scripted(shape.script) as model:
        env = model.environment(str(house.folder / "claude"))
        ran = house.json("campaign", str(house.folder / "plan.yaml"), "--driver", "record", "--session-dir", str(fixtures), **env)
    assert ran.code == shape.code, ran.stdout + ran.stderr[-2000:]
    return fixtures


def came_to(session: Path) -> dict[str, Any]:
    """All that must be the same however often it was killed: artifacts, workspace, grade, code, and what was done how often."""
    steps: Counter[str] = Counter()
    for path in session.glob("**/stages/**/outcome.json"):
        outcome = json.loads(path.read_text())
        steps[outcome["step"]] += outcome["verdict"] in ("done", "needs_revision")
    made = [*session.glob("phases/*/artifacts/**/*"), *session.glob("workspace/**/*")]
    kept = {str(p.relative_to(session)): p.read_bytes() for p in made if p.is_file() and "__pycache__" not in p.parts}
    manifest = json.loads((session / "manifest.json").read_text())
    return {"files": kept, "finished": +steps, "code": manifest["exit_code"], "grade": manifest["grade"]}


def unparsable(session: Path) -> list[str]:
    wrong: list[str] = []
    for path in session.rglob("*"):
        if not path.is_file() or ("attempt-" in str(path.parent) and "/out" in str(path)):
            continue
        text = path.read_text(errors="replace")
        try:
            if path.suffix == ".json":
                json.loads(text)
            elif path.suffix in (".jsonl", ".live-report"):
                [json.loads(line) for line in text.splitlines()]
            elif path.suffix in (".yaml", ".done", ".fail", ".refine"):
                yaml.safe_load(text)
        except (ValueError, yaml.YAMLError):
            wrong.append(str(path.relative_to(session)))
    return wrong


def verdict(house: House, copy: Path, whole: dict[str, Any], begin: list[str], tool: str = "campaign") -> dict[str, Any]:
    words = ["--resume", str(copy)] if (copy / "effective-config.json").exists() else [*begin, "--session-dir", str(copy)]
    ran = house.json(tool, *words)
    ended = came_to(copy) if (copy / "manifest.json").exists() or tool != "campaign" else {"finished": Counter[str]()}
    again = ended["finished"] - whole["finished"]
    found = {
        "equal": ended == whole,
        "again": sum(again.values()),
        "open": len(Ledger(copy).open()) if (copy / "ledger.jsonl").exists() else 0,
        "unparsable": len(unparsable(copy)),
    }
    if ended != whole:
        differ = [k for k in whole if ended.get(k) != whole[k]]
        ours, theirs = ended.get("files", {}), whole.get("files", {})
        apart = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)][:6]
        found["why"] = f"{differ}: {apart}: {ran.code}, again {dict(again)}, {ran.stdout[-600:]} {ran.stderr[-1500:]}"
    shutil.rmtree(copy)
    return found


def killed_everywhere(
    house: House, begin: list[str], folder: Path, every: int, code: int, copied: int = 1, tool: str = "campaign"
) -> list[dict[str, Any]]:
    """`copied`: of how many points one is copied at all, where a session is large."""
    session = folder / "session"
    (house.folder / "points").unlink(missing_ok=True)
    aims = {"do": "copy", "session": str(session), "into": str(folder / "copies"), "every": copied}
    (house.folder / "crash.json").write_text(json.dumps(aims))
    ran = house.json(tool, *begin, "--session-dir", str(session), timeout=600)
    (house.folder / "crash.json").unlink()
    assert ran.code == code, ran.stdout
    whole = came_to(session)
    points = (house.folder / "points").read_text().splitlines()
    durable = [n for n, line in enumerate(points, 1) if not line.endswith(".live-report")]
    there = [n for n in durable if (folder / "copies" / str(n)).exists()]
    chosen = there[:: max(1, every // copied)]
    with ThreadPoolExecutor(2) as pool:
        resumed = pool.map(
            lambda n: verdict(house, folder / "copies" / str(n), whole, begin, tool) | {"at": points[n - 1]}, chosen
        )
        return list(resumed)


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    lines = [f"{'':26} kills  equal  run again  open  unparsable"]
    for name, found in rows.items():
        sums = {key: sum(f[key] for f in found) for key in ("equal", "again", "open", "unparsable")}
        lines.append(f"{name:26} {len(found):5} {sums['equal']:6} {sums['again']:10} {sums['open']:5} {sums['unparsable']:11}")
    return "\n".join(lines)


def sound(found: list[dict[str, Any]]) -> list[str]:
    bad = [f for f in found if not f["equal"] or f["again"] or f["open"] or f["unparsable"]]
    return [f"{f.get('at')}: {f}" for f in bad]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.crash), pytest.param(60, marks=pytest.mark.long)], ids=["every", "some"]
)
def test_a_kill_at_any_durable_write_changes_nothing(tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, (name, shape) in enumerate(shapes().items()):
        house = furnished(tmp_path / f"house-{number}", shape)
        replay = ["--driver", "replay", "--fixtures", str(recorded(house, shape))]
        begin = [str(house.folder / "plan.yaml"), *replay]
        rows[name] = killed_everywhere(house, begin, tmp_path / f"at-{number}", every, shape.code)
    house = furnished(tmp_path / "house-quick", None)
    begin = [str(ROOT / "config/plans/quickstart.yaml")]
    rows["quickstart, sentinel's fix"] = killed_everywhere(house, begin, tmp_path / "at-quick", every * 2, 0)
    with capsys.disabled():
        print(f"\n{table(rows)}")
    wrong = [line for found in rows.values() for line in sound(found)]
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_live_runs_that_are_killed_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agents through the real CLI; the whole tree is killed at a random moment, and the run resumed until it ends."""
    seed = int(os.environ.get("STRATA_SEED", "0")) or random.randrange(10**6)
    chance = random.Random(seed)
    shape = shapes()["two phases, same files"]
    house = furnished(tmp_path / "house", shape)
    rows: list[dict[str, Any]] = []
    with scripted(shape.script) as model:
        house.env |= model.environment(str(house.folder / "claude"))
        begin = [str(house.folder / "plan.yaml"), "--driver", "live"]
        assert house.json("campaign", *begin, "--session-dir", str(tmp_path / "whole")).code == 0
        whole = came_to(tmp_path / "whole")
        while len(rows) < 40:
            session = tmp_path / f"s-{len(rows)}"
            words = [*begin, "--session-dir", str(session)]
            with house.start("campaign", *words) as child:
                try:
                    child.wait(chance.uniform(0.3, 9.0))
                except Exception:  # noqa: BLE001 - it still runs, which is what was waited for
                    pass
                for pid in with_marker(str(house.folder / "core")):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                child.communicate(timeout=60)
            wait_for(lambda: not with_marker(str(house.folder)), what="nothing is left")
            if session.exists():  # or it was killed before it had begun
                rows.append(verdict(house, session, whole, begin))
    with capsys.disabled():
        print(f"\nseed {seed}\n{table({'live, whole tree': rows})}")
    assert not sound(rows), "\n".join(sound(rows)[:5])
