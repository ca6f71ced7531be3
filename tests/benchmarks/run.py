"""Benchmarks: every figure is a ratio measured side by side in one run. `uv run python tests/benchmarks/run.py [a b c d e f g h]`

Prints a table and, last, one line of JSON. Absolute times mean nothing on a shared machine and are not shown.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "core")]

from benchmarks import academic, downstream, machines, research  # noqa: E402
from lib.process import keeper  # noqa: E402
from replayed import AGENT, fan  # noqa: E402
from scripted_model.forge_story import Story  # noqa: E402
from scripted_model.server import say, scripted, turns  # noqa: E402
from support import CORE, House  # noqa: E402

REPEATS = 5


def seconds(argv: list[str], env: dict[str, str], cwd: Path) -> float:
    started = time.monotonic()
    subprocess.run(argv, env=env, cwd=cwd, capture_output=True, check=True)
    return time.monotonic() - started


def ratio(ours: Callable[[], float], theirs: Callable[[], float], repeats: int = REPEATS) -> float:
    """The median of ratios of neighbouring runs: what loads the machine loads both."""
    ours(), theirs()
    return statistics.median(ours() / theirs() for _ in range(repeats))


def house(folder: Path) -> House:
    made = House(folder / "house")
    made.env.pop("PYTHONDONTWRITEBYTECODE", None)  # as a user has it: bytecode is kept
    return made


def empty_chain(folder: Path) -> Path:
    """Five empty scripts with the tools' inline block, each calling the next by `uv run`."""
    block = (CORE / "spawn.py").read_text().split('"""')[0]
    for n in range(5):
        call = (
            f'import subprocess\nsubprocess.run(["uv", "run", "--quiet", "{folder}/empty{n + 1}.py"], check=True)\n'
            if n < 4
            else ""
        )
        (folder / f"empty{n}.py").write_text(block + call)
    return folder / "empty0.py"


def one_stage(made: House) -> Path:
    """A recorded campaign of one agent stage, and the command line that replays it."""
    (made.folder / "prompts/executors/trial.md").write_text(AGENT)
    made.orchestrator("version: 1\nname: one\nstages:\n  - {name: a, agent: trial}\n", "one")
    plan = "version: 1\nname: one\nphases:\n  - {name: p, run: [{orchestrator: one}], verify: {none: a benchmark}}\n"
    (made.workspace / "plan.yaml").write_text(plan)
    recorded = made.folder / "recorded"
    with scripted(turns(say("STAGE_TASK_COMPLETE"))) as model:
        env = model.environment(str(made.folder / "claude"))
        ran = made.json("campaign", "plan.yaml", "--driver", "record", "--session-dir", str(recorded), **env)
        assert ran.code == 0, ran.stderr
    return recorded


def a(folder: Path) -> float:
    made = house(folder)
    recorded, empty = one_stage(made), empty_chain(folder)
    base = ["uv", "run", "--quiet"]
    tool = [*base, str(made.folder / "core/campaign.py"), "plan.yaml", "--driver", "replay", "--fixtures", str(recorded)]
    return ratio(lambda: seconds(tool, made.env, made.workspace), lambda: seconds([*base, str(empty)], made.env, folder))


BARE = """
import asyncio, os, sys
from claude_agent_sdk import ClaudeAgentOptions, query
async def main():
    options = ClaudeAgentOptions(tools=[], setting_sources=[], strict_mcp_config=True, permission_mode="dontAsk", model="sonnet")
    async for message in query(prompt="x", options=options):
        pass
asyncio.run(main())
"""


def b(folder: Path) -> dict[str, float]:
    import claude_agent_sdk

    made = house(folder)
    (folder / "bare.py").write_text(BARE)
    cli = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    with scripted(turns(say("ok"))) as model:
        env = made.env | model.environment(str(made.folder / "claude"))
        ours = lambda: seconds(made.argv("spawn", "--prompt", "x"), env, made.workspace)  # noqa: E731
        bare = lambda: seconds([sys.executable, str(folder / "bare.py")], env, made.workspace)  # noqa: E731
        plain = lambda: seconds([str(cli), "-p", "x", "--tools", ""], env, made.workspace)  # noqa: E731
        return {"b (÷ bare SDK)": ratio(ours, bare), "b (÷ claude -p)": ratio(ours, plain)}


def c(folder: Path, count: int = 200) -> float:
    made = house(folder)
    argv = fan(made, count, 8, "many")

    def empties() -> float:
        started = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: subprocess.run([sys.executable, "-c", ""], env=made.env, check=True), range(count)))
        return time.monotonic() - started

    return ratio(lambda: seconds(argv, made.env, made.workspace), empties, 3)


def cpu(argv: list[str], env: dict[str, str], cwd: Path) -> float:
    """The processor time of a command and of all that ran below it: unlike a clock, it does not mind others on the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, cwd=cwd, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def d(folder: Path, many: int = 10_000, few: int = 100) -> float:
    """What one further stage costs in a large run, against what it costs in a small one."""
    made, times = house(folder), iter(range(100))

    def further(count: int) -> float:
        half, whole = (fan(made, n, 8, f"n{n}-{next(times)}") for n in (count // 2, count))
        return (cpu(whole, made.env, made.workspace) - cpu(half, made.env, made.workspace)) / (count - count // 2)

    small = statistics.median(further(few) for _ in range(3))
    return further(many) / small


def e(folder: Path, count: int = 2000) -> dict[str, float]:
    """A session whose stages are all finished: resumed, and looked at."""
    made = house(folder)
    session = folder / "s"
    argv = [*fan(made, count, 8, "again"), "--session-dir", str(session)]
    first = cpu(argv, made.env, made.workspace)
    again = statistics.median(cpu(argv, made.env, made.workspace) for _ in range(3))
    read = {"show": "outcome.json", "report": "outcome.json prompt.md output.md transcript.jsonl"}  # what each of them shows
    found: dict[str, float] = {}
    for verb, names in read.items():
        argvs = made.argv("session", verb, str(session)), [sys.executable, "-c", READ_ALL, str(session), *names.split()]
        found[f"{verb} ÷ reading"] = ratio(*(lambda a=a: seconds(a, made.env, folder) for a in argvs), 3)
    return {"e": again / first, **found}


READ_ALL = """
import json, os, sys
for place, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name in sys.argv[2:]:
            with open(os.path.join(place, name)) as file:
                text = file.read()
            for line in [text] if name.endswith(".json") else text.splitlines() if name.endswith(".jsonl") else []:
                json.loads(line)
"""


def f(folder: Path) -> str:
    """Memory that is shared is counted once: the proportional set size of every process of the tree, added up."""
    made = house(folder)
    argv = fan(made, 64, 8, "eight")
    child = subprocess.Popen(argv, env=made.env, cwd=made.workspace, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak, processes = 0, 0
    while child.poll() is None:
        found = [proportional(pid) for pid in (child.pid, *keeper.descendants(child.pid))]
        if sum(found) > peak:
            peak, processes = sum(found), len(found)
        time.sleep(0.02)
    return f"{peak / 1024:.0f} MB in {processes} processes"


def proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0  # it has just ended
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


PEER = """
import operator, sqlite3, subprocess, sys
from typing import Annotated, TypedDict
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

class State(TypedDict):
    done: Annotated[list, operator.add]

def work(state):
    subprocess.run([sys.executable, "-c", ""], check=True)
    return {"done": [1]}

graph = StateGraph(State)
graph.add_node("work", work)
graph.add_conditional_edges(START, lambda state: [Send("work", {"n": n}) for n in range(int(sys.argv[1]))], ["work"])
graph.add_edge("work", END)
saver = SqliteSaver(sqlite3.connect(sys.argv[2], check_same_thread=False))
made = graph.compile(checkpointer=saver)
found = made.invoke({"done": []}, {"configurable": {"thread_id": "1"}, "max_concurrency": 8})
assert len(found["done"]) == int(sys.argv[1])
"""


def g(folder: Path, count: int = 200) -> dict[str, float | str]:
    """Against LangGraph with its SQLite checkpoints: the same number of steps, eight at a time, each of which starts an empty
    program there, and is a process of its own here."""
    made = house(folder)
    there = ["uv", "run", "--quiet", "--no-project", "--with", "langgraph", "--with", "langgraph-checkpoint-sqlite", "python"]
    if subprocess.run([*there, "-c", "import langgraph.checkpoint.sqlite"], check=False, capture_output=True).returncode:
        return {"g": "LangGraph cannot be had here"}
    (folder / "peer.py").write_text(PEER)
    numbers = iter(range(1000))
    argv = [*there, str(folder / "peer.py"), str(count)]
    theirs = lambda: seconds([*argv, str(folder / f"{next(numbers)}.db")], os.environ.copy(), folder)  # noqa: E731
    made.tool("nothing", "def work(task, out, call):\n    return Verdict('done')\n")
    items = json.dumps([f"item-{n}" for n in range(count)])
    each = "{items: param.items, cap: 8, max_items: 1000}"
    made.orchestrator(
        f"version: 1\nname: tools\nparams: {{items: {{type: list, default: {items}}}}}\nstages:\n"
        f'  - {{name: a, tool: nothing.py, args: ["{{item}}"], foreach: {each}}}\n',
        "tools",
    )
    tool, agent = made.argv("orchestrator", "tools"), fan(made, count, 8, "many")
    return {
        "tool stage ÷ LangGraph": ratio(lambda: seconds(tool, made.env, made.workspace), theirs, 3),
        "agent stage ÷ LangGraph": ratio(lambda: seconds(agent, made.env, made.workspace), theirs, 3),
    }


def h(folder: Path, seconds_per_answer: float = 2.0) -> dict[str, float]:
    """Forge's clusters against their members one after the other, with a model that takes the same time for every answer."""
    took: dict[str, dict[str, float]] = {}
    for name, cap in (("together", 4), ("one by one", 1)):
        story = Story()
        made = House(folder / name.replace(" ", "-"))
        file = made.folder / "config/packs/forge/orchestrators/forge.yaml"
        file.write_text(file.read_text().replace("cap: 4", f"cap: {cap}"))
        with scripted(lambda request, story=story: replace(story(request), hang_seconds=seconds_per_answer)) as model:
            env = model.environment(str(made.folder / "claude"))
            plan = str(made.folder / "config/plans/forge-quickstart.yaml")
            started = time.monotonic()
            ran = made.json("campaign", plan, "--driver", "live", "--session-dir", str(made.folder / "s"), timeout=1800, **env)
            whole = time.monotonic() - started
        assert ran.code == 0, ran.stderr[-2000:]
        took[name] = {"whole": whole, **stages_of(made.folder / "s")}
    figures = {"CT": "critique", "V": "verify", "R": "review", "research": "research", "pipeline": "whole"}
    one, four = took["one by one"], took["together"]
    found = {f"forge, {word}: one by one ÷ together": one[key] / four[key] for word, key in figures.items()}
    return {**found, "forge: share of the clock outside of agents": 1 - one["agents"] / one["whole"]}


def stages_of(session: Path) -> dict[str, float]:
    """How long each stage took, all rounds together; and how long agents were at work, one after the other."""
    spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
    found = {"agents": 0.0}
    for path in session.glob("phases/*/forge/stages/**/outcome.json"):
        outcome = json.loads(path.read_text())
        end = datetime.fromisoformat(outcome["finished_at"]).timestamp()
        _, _, stage, number, _ = outcome["step"].split("/")
        spans.setdefault((stage.partition("-")[2], number), []).append((end - outcome["duration_seconds"], end))
        found["agents"] += outcome["duration_seconds"] if path.with_name("transcript.jsonl").exists() else 0.0
    for (stage, _), times in spans.items():
        found[stage] = found.get(stage, 0.0) + max(end for _, end in times) - min(start for start, _ in times)
    return found


def i(folder: Path) -> dict[str, float]:
    """Deep research: see research.py."""
    return research.figures(folder)


def j(folder: Path) -> dict[str, float | str]:
    """Downstream and the knowledge base: see downstream.py."""
    return downstream.figures(folder)


def k(folder: Path) -> dict[str, float | str]:
    """Academic: see academic.py."""
    return academic.figures(folder)


def l(folder: Path) -> dict[str, float | str]:  # noqa: E743 - the benchmarks are letters
    """Many machines: see machines.py."""
    return machines.figures(folder)


TARGETS = {
    **{"a": 1.4, "b (÷ bare SDK)": 1.1, "b (÷ claude -p)": 1.5, "c": 3.5, "d": 1.1, "e": 0.02},
    **{"show ÷ reading": 3.0, "report ÷ reading": 3.0, "tool stage ÷ LangGraph": 1.0, "agent stage ÷ LangGraph": 2.3},
    **{"machines: a stage without a backend ÷ with none of it there": 1.05},
    **{"machines: a lost step runs again ÷ 5 s heartbeat": 3.0},
    **{f"forge, {word}: one by one ÷ together": f"at least {n}" for word, n in (("CT", 2), ("V", 1.5), ("R", 2.5))},
}


def main() -> None:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    loaded = f"load {load:.1f} on {cores} cores" if load > cores / 4 else ""
    found: dict[str, float | str] = {}
    for name in sys.argv[1:] or list("abcdefghijkl"):
        folder = Path(tempfile.mkdtemp(prefix="strata-benchmark-"))
        try:
            result = globals()[name](folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        found |= result if isinstance(result, dict) else {name: result}
    if loaded:
        print(f"The machine was busy when this began ({loaded}): such ratios flatter what has many processes.\n")
    print("| figure | measured | at most |\n|---|---|---|")
    for name, value in found.items():
        shown = value if isinstance(value, str) else f"{value:.3f}"
        print(f"| {name} | {shown} | {TARGETS.get(name, '')} |")
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
