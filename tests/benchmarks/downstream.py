"""Figures of downstream and its knowledge base: what grows with the number of outputs, and what does not; and how questions fare."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support import ROOT

# Each in a process of its own: CPU and memory are those of this and nothing else.
MATCH = """
import hashlib, json, resource, sys, time
from pathlib import Path
from packs.downstream import bundles, jobs, upstream
from packs.downstream.contract import AgentContract, Execution, Inputs, InputSpec, OutputSpec
from packs.downstream.settings import Settings

folder, count = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True)
text = "A line of research that says something. " * 500
listed = []
for n in range(count):
    (folder / f"{n}.md").write_text(f"{n} {text}")
    listed.append({"agent_name": f"a{n}", "id": f"a{n}", "type": "vertical" if n % 2 else "horizontal", "dimensions": {"vertical": f"v{n}"} if n % 2 else {},
                   "path": f"{n}.md", "sha256": hashlib.sha256(f"{n} {text}".encode()).hexdigest(), "size": len(text), "completion_status": "complete"})
(folder / "manifest.json").write_text(json.dumps({"execution_id": "r", "outputs": listed}))
start, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
manifest = upstream.load(str(folder / "manifest.json"), folder, Settings())
one = AgentContract("a", "1.0.0", Inputs(required=(InputSpec("vertical"), InputSpec("horizontal"))), (OutputSpec("o", "o.md"),), Execution("python"))
job = jobs.plan({"a": one}, manifest, folder, Settings()).jobs[0]
bundle = jobs.bundle_of(job, one, manifest, folder)
planned = time.process_time() - start
letters = 0
for entry in bundle.entries:
    entry.verify()
    letters += len(entry.content)
took = time.process_time() - start
assert len(bundle.entries) == count
print(json.dumps({"planned": planned / count, "per": took / count, "kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory, "read": letters / 1024}))
"""

BASE = """
import hashlib, json, sys, time
from pathlib import Path
from packs.kb.asking import Base
from packs.kb.records import Source
from packs.kb.store import Offered, Store

root, count = Path(sys.argv[1]), int(sys.argv[2])
words = "downtime audit privilege invoice ward keys region budget renewal broker examiner drill".split()

def offered(n, edition):
    vertical, title, domain = f"v{n % 25}", f"t{n // 25 % 10}", f"d{n // 250}"
    lines = " ".join(f"{words[(n + k) % len(words)]} {n} {edition}." for k in range(60))
    text = f"# Playbook {n}\\n\\n## Summary\\n\\n{lines}\\n\\n## Messaging\\n\\n{lines}\\n\\n## Proof points\\n\\n- {lines}\\n"
    path = root / f"{n}-{edition}.md"
    path.write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    return Offered(Source(f"playbook_3d/{domain}/{vertical}/{title}", "playbook_3d", domain, vertical, title, "", sha, edition, "2026"), path)

def timed(work):
    start = time.process_time()
    made = work()
    return time.process_time() - start, made

root.mkdir(parents=True)
first = [offered(n, "one") for n in range(count)]
names = {}
whole, built = timed(lambda: Store(root / "kb").build(first, "one", "m", "2026", names))
changed = [offered(3, "two")]
step, second = timed(lambda: Store(root / "kb").build(changed, "two", "m", "2026", names))
folder = root / "kb" / f"kb_v{second.version.version}"
opening = asking = 0.0
for n in range(5):
    took, base = timed(lambda: Base(folder, 2, names))
    opening += took
    for question in ("What does the examiner ask about keys?", "How is the ward budget for v3 and t1?", "Which region failed the drill?", "Who reads the audit?"):
        asking += timed(lambda: base.ask(question))[0] / 4
    base.close()
print(json.dumps({"documents": built.version.total_documents, "incremental": step / whole, "made": second.written, "ask": asking / opening}))
"""


def run(script: str, *words: str) -> dict[str, float]:
    argv = [sys.executable, "-c", script, *words]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT / "core")
    return json.loads(done.stdout)


def questions(folder: Path) -> dict[str, float | str]:
    """The hundred questions, on the knowledge base of the story."""
    sys.path.insert(0, str(ROOT / "tests/packs/kb"))
    import measure
    from packs.downstream import settings
    from packs.kb.asking import Base
    from scripted_model import gtm_base

    gtm_base.build(folder / "kb", folder / "w")
    base = Base(folder / "kb/kb_v2", 2, settings.read().aliases)
    made = measure.measure(base)
    base.close()
    return {
        f"questions, hit rate at 5 (of {made.answerable})": made.hits / made.answerable,
        "questions, hit rate at 1": made.firsts / made.answerable,
        "questions, answered": made.answered / made.answerable,
        f"questions that nothing answers, told so (of {made.unanswerable})": made.refused / made.unanswerable,
        "questions, tokens of an answer ÷ of reading everything": made.shown / made.answerable / made.whole,
    }


def figures(folder: Path) -> dict[str, float | str]:
    small, large = (run(MATCH, str(folder / f"m{n}"), str(n)) for n in (100, 10_000))
    thousand = run(MATCH, str(folder / "m1000"), "1000")
    base = run(BASE, str(folder / "base"), "1000")
    return {
        "downstream, CPU per output of manifest, match and bundle at 10,000 ÷ at 100": large["planned"] / small["planned"],
        "downstream, the same with every content read": large["per"] / small["per"],
        "downstream, memory at 1,000 outputs ÷ what was read": thousand["kb"] / thousand["read"],
        f"knowledge base of {int(base['documents'])} documents, one changed ÷ built whole": base["incremental"],
        "knowledge base, a question ÷ opening the index": base["ask"],
        **questions(folder / "questions"),
    }
