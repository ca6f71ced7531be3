"""Figures of deep research: a wave together against one by one, the cost of its ticks, and citations by the hundred."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from scripted_model.research_agents import Agents, serving
from scripted_model.research_story import QUERY
from scripted_model.server import scripted
from support import ROOT, House

SIDES = 6


class Sides(Agents):
    def perspectives(self) -> list[dict[str, object]]:
        made = [f"side-{n}" for n in range(SIDES)]
        return [{"id": name, "title": name, "question": f"What of {name}?", "track": "standard"} for name in made]


def wave(folder: Path, seconds_per_answer: float = 2.0) -> float:
    """Six sides one by one ÷ together, with a model that takes the same time for every answer."""
    took: dict[int, float] = {}
    for cap in (SIDES, 1):
        made = House(folder / f"cap-{cap}")
        file = made.folder / "config/packs/deep_research/orchestrators/deep_research.yaml"
        file.write_text(file.read_text().replace("cap: 6, max_items: 50", f"cap: {cap}, max_items: 50"))
        with serving() as site:
            agents = Sides(site)
            (made.workspace / ".strata").mkdir(exist_ok=True)
            rules = f"version: 1\nprivate: ['{site.removeprefix('http://')}']\nrobots: false\ndelay_seconds: 0\n"
            (made.workspace / ".strata/web.yaml").write_text(rules)
            with scripted(lambda r, agents=agents: replace(agents(r), hang_seconds=seconds_per_answer)) as model:
                env = model.environment(str(made.folder / "claude"))
                words = ["live", QUERY, "--approve-plan", "--until", "ingest1", "--session-dir", str(made.folder / "s")]
                ran = made.json("deep_research", *words, timeout=900, **env)
        assert ran.code == 0, ran.stderr[-2000:]
        took[cap] = next(s["elapsed_seconds"] for s in ran.document["stages"] if s["name"] == "wave1")
    return took[1] / took[SIDES]


def ticks(folder: Path) -> float:
    """The recorded run ÷ an orchestrator with as many stages that do nothing."""
    made = House(folder / "ticks")
    made.tool("nothing", "def work(task, out, call):\n    return Verdict('done')\n")
    stages = "".join(f"  - {{name: s{n}, tool: nothing.py}}\n" for n in range(20))
    made.orchestrator(f"version: 1\nname: empty\nstages:\n{stages}", "empty")
    begin = ["fixture", QUERY, "--effort", "quick", "--fixtures", str(ROOT / "tests/fixtures/deep-research")]

    def timed(*words: str) -> float:
        started = time.monotonic()
        ran = made.json(*words, timeout=300)
        assert ran.code == 0, ran.stderr[-2000:]
        return time.monotonic() - started

    pairs = [
        (timed("deep_research", *begin, "--session-dir", str(folder / f"r{n}")), timed("orchestrator", "empty")) for n in range(3)
    ]
    return sorted(one / other for one, other in pairs)[1]


MANY = """
import json, resource, sys, time
from pathlib import Path
from packs.deep_research import planning, sources
from packs.deep_research.at import Desk
from packs.deep_research.state import Manifest, Query, Run

root, sides, each = Path(sys.argv[1]), int(sys.argv[2]), 10
Run(root).begin(Manifest("r", Query("?"), "2026-01-01T00:00:00Z"))
text = " ".join(f"Fact {n} is known." for n in range(1000))
names = [f"p{n}" for n in range(sides)]
(root / "wave-1/wave1-plan.json").write_text(json.dumps({"entries": [{"perspective_id": n} for n in names]}))
for name in names:
    urls = [f"http://example.org/{name}/{k}" for k in range(each)]
    (root / f"wave-1/{name}.md").write_text("# Sources\\n\\n" + "".join(f"- {u}\\n" for u in urls))
    claims = [{"text": "t", "url": u, "quote": "Fact 500 is known."} for u in urls]
    (root / f"wave-1/{name}.claims.json").write_text(json.dumps({"claims": claims}))
started = time.process_time()
counts = sources.validate(Desk(root), lambda url: sources.Got(200, url, "t", "", f"{url} {text}"))
took = time.process_time() - started
assert counts["valid"] == sides * each and all(c.supported for c in sources.read_claims(root))
print(json.dumps({"per": took / (sides * each), "kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


def citations(folder: Path) -> dict[str, float]:
    """500 citations of 50 sides against 50 of 5: CPU per citation, and the memory at the top."""
    found: dict[int, dict[str, float]] = {}
    for sides in (5, 50):
        argv = [sys.executable, "-c", MANY, str(folder / f"run-{sides}"), str(sides)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT / "core")
        found[sides] = json.loads(done.stdout)
    return {
        "research, CPU per citation at 500 ÷ at 50": found[50]["per"] / found[5]["per"],
        "research, memory at 500 citations ÷ at 50": found[50]["kb"] / found[5]["kb"],
    }


def figures(folder: Path) -> dict[str, float]:
    waves = {"research, six sides: one by one ÷ together": wave(folder)}
    return {**waves, "research, recorded run ÷ 20 empty stages": ticks(folder), **citations(folder)}
