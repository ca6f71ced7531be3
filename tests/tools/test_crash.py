"""Nothing is lost and nothing finished is done twice, wherever the run is cut off.

One campaign with a parallel group, a fan-out, a retry, a loop and a sentinel cycle. Just before every durable write the whole
world is stopped and the session folder is copied: that copy is exactly what a `kill -9` of the whole tree, or a power cut,
leaves behind at that point. Copies are resumed, and must end as if nothing had been. An ordinary run of the tests takes every
sixteenth point, and kills for real at some; `-m crash` resumes every copy, and kills for real at every point: the whole tree, and
each layer alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import House, Ran

# Goes into the house's own copy of `files.py` and `ledger.py`. What happens at a point is in crash.json beside core/.
POINT = '''

def crash_point(path):
    """A durable write is about to happen."""
    import fcntl, json, os, signal, sys, time
    from pathlib import Path
    from lib.process import keeper
    from lib.process import processes as process
    house = Path(__file__).resolve().parents[3]
    try:
        told = json.loads((house / "crash.json").read_text())
    except FileNotFoundError:
        return
    with (house / "points").open("a+") as points:
        fcntl.flock(points, fcntl.LOCK_EX)
        points.seek(0)
        number = len(points.read().splitlines()) + 1
        points.write(f"{Path(sys.argv[0]).stem} {path}\\n")
        points.flush()
        if told["do"] == "copy" and number % told.get("every", 1):
            pass  # not one of those that are looked at
        elif told["do"] == "copy":
            with process.starting:  # a fork of another thread, stopped between fork and exec, would hold this lock for ever
                others = _stop_the_world()
            me, copy = os.getpid(), f"{told['into']}/{number}"
            words = f"kill -STOP {me}; mkdir -p {told['into']}; cp -a {told['session']} {copy}; kill -CONT {me}"
            process.ask(["sh", "-c", words])  # our own other threads stand still too
            for pid in reversed(others):
                keeper.send(pid, signal.SIGCONT)
        elif number == told["at"]:
            (house / "crash.json").unlink()
            layer = told["layer"]
            ours = Path(sys.argv[0]).stem == layer
            with process.starting:
                doomed = _stop_the_world() if layer == "all" else ([] if ours else _above(layer))
            if doomed or ours:
                (house / "killed").write_text(layer)
            me = os.getpid()
            words = [f"kill -9 {' '.join(map(str, doomed))}"] if doomed else []
            if layer == "all" or ours:  # standing still: once its parent is gone it is asked to end, and would end the killer
                words = [f"kill -STOP {me}", *words, f"kill -9 {me}"]
            if words:
                process.ask(["sh", "-c", "; ".join(words)])
            time.sleep(0.5)  # for whoever is still there to notice


def _stop_the_world():
    """Every process of the tree but this one, stopped; nothing is started behind our back."""
    import os, signal
    from lib.process import keeper
    root = _root()
    stopped = []
    while True:
        new = [p for p in [root, *keeper.descendants(root)] if p != os.getpid() and p not in stopped]
        if not new:
            return stopped
        for pid in new:
            keeper.send(pid, signal.SIGSTOP)
            stopped.append(pid)


def _above(layer):
    """The one process of a layer: which tool it is, its command line says; whose child it is does not tell."""
    import os
    from lib.process import keeper
    found = [p for p in keeper.descendants(_root()) if p != os.getpid() and _is(p, layer)]
    return found[:1] or [p for p in [_root()] if _is(p, layer)]


def _root():
    import os
    from lib.process import keeper
    table, root = keeper.parents(), os.getpid()
    while b"core/" in _words(table.get(root, 0)):
        root = table[root]
    return root


def _is(pid, layer):
    words = _words(pid).replace(b"\\0", b" ").split(b" ")
    return bool(words[1:2]) and words[1].endswith(f"core/{layer}.py".encode())


def _words(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
'''
LIVE = '''

def live(request, load_sdk):
    """Agents that do as this test needs: an auditor, a consolidator and a fixer."""
    from lib.contract import ExitCode
    from lib.disk import files
    data = {
        "sentinel-auditor": {
            "grade": "FAIL", "summary": "no", "requirements": [{"requirement": "x", "status": "unmet", "evidence": "x"}]
        },
        "sentinel-consolidator": {
            "fixes": [{"id": 1, "severity": "blocking", "file": "x", "issue": "x", "suggested_fix": "x"}]
        },
    }.get(request.agent)
    said = dict(exit_code=ExitCode.SUCCESS, cost_usd=0.01, cost_source="reported", structured_output=data, turns=1)
    if request.agent == "sentinel-fixer":
        (request.cwd / "mended").write_text("yes")
        (request.out / "diagnosis.md").write_text("It is mended.")
    files.write_atomic(request.attempt / "output.md", "STAGE_TASK_COMPLETE")
    return Answer(result="STAGE_TASK_COMPLETE", agent_session_id="", **said)
'''
WORK = """
def work(task, out, call):
    name = call.options.words[0] if call.options.words else str(task.item)
    ended = list(out.parent.parent.glob("attempt-*/outcome.json"))
    for output in task.outputs:
        (out / output.path).write_text(json.dumps({"name": name, "inputs": task.inputs}))
    if name == "shaky" and not ended:
        raise StrataError("TRIAL", "the first time it fails")
    if name == "look" and "/round-1/" in str(out):
        return Verdict("needs_revision", "once more")
    return Verdict("done")
"""
STAGES = """version: 1
name: trial
loops: {redo: {to: make, max: 1, then: fail}}
stages:
  - name: group
    parallel: {cap: 2}
    members: {left: {tool: worker.py, args: [left]}, right: {tool: worker.py, args: [right]}}
    outputs: {made: {path: made.json}}
  - {name: each, tool: worker.py, foreach: {items: param.names, cap: 2}, outputs: {made: {path: made.json}}}
  - {name: shaky, tool: worker.py, args: [shaky], retry: {max: 1}, outputs: {made: {path: made.json}}}
  - {name: make, tool: worker.py, args: [make], inputs: {all: each.*.made}, outputs: {made: {path: made.json}}}
  - name: look
    tool: worker.py
    args: [look]
    inputs: {made: make.made}
    outputs: {made: {path: made.json}}
    on: {needs_revision: redo}
params: {names: {about: who, type: list, default: "x,y"}}
"""
PLAN = """version: 1
name: crash
workspace: session
files: {start.txt: here}
checks: checks.yaml
budget: {usd: 50, agents: 200}
phases:
  - {name: one, run: [{orchestrator: trial}], verify: {checks: [mended]}}
"""
EVERY = int(os.environ.get("STRATA_EVERY", "1"))  # of the points at which one layer is killed
FINISHED = {"group": 2, "each": 2, "shaky": 1, "make": 2, "look": 2}  # steps per stage, rounds counted


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield furnished(tmp_path_factory.mktemp("crash") / "house")


def furnished(folder: Path) -> House:
    house = House(folder)
    house.tool("worker", WORK)
    house.orchestrator(STAGES, "trial")
    (house.folder / "plan.yaml").write_text(PLAN)
    (house.folder / "checks.yaml").write_text("version: 1\nchecks: {mended: {command: test -f mended}}\n")
    begun = [  # of write_atomic and of append_line
        "    raw = redact(data).encode() if isinstance(data, str) else data\n",
        '    line = redact(json.dumps(document, ensure_ascii=False)) + "\\n"\n',
    ]
    house.rewrite("files", *((line, f"    crash_point(path)\n{line}") for line in begun), more=POINT)
    written = "        os.write(descriptor, text.encode())\n"
    house.rewrite("ledger", (written, f"        files.crash_point(self.path)\n{written}"))
    house.rewrite("live", more=LIVE)
    return house


def begin(house: House, session: Path) -> list[str]:
    return ["campaign", str(house.folder / "plan.yaml"), "--session-dir", str(session), "--driver", "live"]


def go_on(house: House, session: Path) -> Ran:
    """One command, whatever is there: a session that had not begun yet is begun."""
    if (session / "effective-config.json").exists():
        return house.json("campaign", "--resume", str(session))
    return house.json(*begin(house, session))


def points(house: House) -> list[str]:
    return (house.folder / "points").read_text().splitlines()


def files_of(session: Path) -> dict[str, bytes]:
    return {str(p.relative_to(session)): p.read_bytes() for p in session.rglob("*") if p.is_file() and not p.is_symlink()}


def finished_whole(session: Path, before: dict[str, bytes], where: str) -> None:
    """All that must hold after a resume, whatever happened before."""
    now = files_of(session)
    ended = {str(Path(n).parent) for n in before if n.endswith("outcome.json")}
    for name, data in before.items():
        if "/attempt-" in name and ".tmp." not in name:
            sure = any(name.startswith(f"{folder}/") for folder in ended)
            assert now.get(name) == data or not sure, f"{where}: {name} was evidence, and is not as it was"
            assert name in now, f"{where}: {name} is lost"
    steps: dict[str, list[tuple[int, str]]] = {}
    for name in now:
        if name.endswith("/outcome.json"):
            folder, _, number = name.removesuffix("/outcome.json").rpartition("/attempt-")
            steps.setdefault(folder, []).append((int(number), json.loads(now[name])["verdict"]))
    for folder, tries in steps.items():
        good = [n for n, verdict in tries if verdict in ("done", "needs_revision")]
        assert good in ([], [max(n for n, _ in tries)]), f"{where}: {folder} was done again: {sorted(tries)}"
    for stage, count in FINISHED.items():
        found = [f for f in steps if f"-{stage}" in f and "/trial/stages/" in f]
        assert len(found) == count, f"{where}: {stage}: {found}"
    for name, data in now.items():
        if ".tmp." in name:
            raise AssertionError(f"{where}: {name} was left behind")
        text = data.decode("utf-8", "replace")
        attempt, out, _ = name.partition("/out/")
        if out and f"{attempt}/outcome.json" not in now:
            continue  # a tool of this test was killed while it wrote there: no file of ours, and nobody takes it for an output
        if name.endswith(".json"):
            json.loads(text)
        elif name.endswith((".jsonl", ".live-report")):
            [json.loads(line) for line in text.splitlines()]
        elif name.endswith((".yaml", ".session-state", ".done", ".fail", ".refine")):
            yaml.safe_load(text)
    adds_up(session, where)


def adds_up(session: Path, where: str) -> None:
    """Every agent that was started is in the ledger, and its last sums are the sum of its lines."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in (session / "ledger.jsonl").read_text().splitlines()]
    moves = [line for line in lines if line["kind"] in ("reserve", "settle")]
    for kind in ("usd", "tokens", "agents"):
        assert lines[-1]["sums"][""][kind] == pytest.approx(sum(m[kind] for m in moves)), f"{where}: {kind}"
    settled = {m["id"] for m in moves if m["kind"] == "settle"}
    asked = {str(p.parent.relative_to(session)) for p in session.glob("**/attempt-*/prompt.md")}
    assert asked <= {m["id"] for m in moves if m["kind"] == "reserve"}, where
    ended = {str(p.parent.relative_to(session)) for p in session.glob("**/attempt-*/meta.json")}
    assert ended <= settled, f"{where}: what an agent reported is charged"


def resumed(house: House, copy: Path, where: str) -> None:
    before = files_of(copy)
    ran = go_on(house, copy)
    assert ran.code == 0, f"{where}: {ran.stdout}\n{ran.stderr[-3000:]}"
    assert ran.document["grade"] == "PASS", where
    finished_whole(copy, before, where)
    shutil.rmtree(copy)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.crash), pytest.param(16, marks=pytest.mark.long), 40])
def test_the_world_may_end_at_any_durable_write(
    crashing: House, tmp_path: Path, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (crashing.folder / "points").unlink(missing_ok=True)
    session = tmp_path / "session"
    told = {"do": "copy", "session": str(session), "into": str(tmp_path / "copies")}
    (crashing.folder / "crash.json").write_text(json.dumps(told))
    ran = crashing.json(*begin(crashing, session))
    (crashing.folder / "crash.json").unlink()
    assert ran.code == 0, ran.stderr
    finished_whole(session, {}, "uninterrupted")
    numbers = range(1, len(points(crashing)) + 1)
    # Lines of .live-report are for people: they are not among what is written durably.
    durable = [n for n, line in zip(numbers, points(crashing), strict=True) if not line.endswith(".live-report")]
    chosen = durable[::every]
    with ThreadPoolExecutor(2) as pool:
        jobs = {
            n: pool.submit(resumed, crashing, tmp_path / "copies" / str(n), f"{n}: {points(crashing)[n - 1]}") for n in chosen
        }
        wrong = [f"{error}" for job in jobs.values() if (error := job.exception())]
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(chosen)}", *wrong])
    with capsys.disabled():
        print(f"\ncrash matrix: {len(durable)} kill points, {len(chosen)} of them resumed to the end")
    assert len(durable) > 100


def killed_at(house: House, session: Path, at: int, layer: str) -> str:
    """Kills for real, and says where it was."""
    (house.folder / "points").unlink(missing_ok=True)
    (house.folder / "crash.json").write_text(json.dumps({"do": "kill", "at": at, "layer": layer}))
    with house.start(*begin(house, session), "--output-format", "json") as child:
        child.communicate(timeout=120)
    (house.folder / "crash.json").unlink(missing_ok=True)
    found = points(house)
    return found[at - 1] if len(found) >= at else ""


@pytest.mark.parametrize("at", [20, 130])
def test_a_whole_tree_that_is_killed_goes_on(tmp_path: Path, at: int) -> None:
    house = furnished(tmp_path / "house")
    session = tmp_path / "session"
    where = killed_at(house, session, at, "all")
    assert where, "so many writes there are"
    assert (house.folder / "killed").exists()
    resumed(house, session, where)


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "layer", ["all", "campaign", "coordinator", "orchestrator", "sentinel", "worker", "check", "agent", "spawn"]
)
def test_each_layer_alone_killed_at_every_point(tmp_path: Path, layer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Longer than a coffee. What is killed alone is noticed by its parent, which goes on or stops; a resume ends it."""
    house = furnished(tmp_path / "house")
    at, killed, recovered = 0, 0, 0
    wrong: list[str] = []
    while True:
        at += EVERY
        session = tmp_path / f"session-{at}"
        (house.folder / "killed").unlink(missing_ok=True)
        where = killed_at(house, session, at, layer)
        if not where:
            break
        if (house.folder / "killed").exists() and session.exists() and not where.endswith(".live-report"):
            killed += 1
            manifest = session / "manifest.json"
            recovered += manifest.exists() and json.loads(manifest.read_text())["exit_code"] == 0
            try:
                resumed(house, session, f"{layer} at {at}: {where}")
            except AssertionError as error:
                wrong.append(str(error))
        shutil.rmtree(session, ignore_errors=True)
    with capsys.disabled():
        print(f"\n{layer}: killed at {killed} points; {recovered} times its parents made good for it without a resume")
    assert not wrong, "\n\n".join([f"{len(wrong)} of {killed}", *wrong])
