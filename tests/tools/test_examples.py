"""The example in every tool's --help is run as it stands, in a folder that has what it names. Real CLI, scripted model."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packs.academic.folder import HANDOVERS
from scripted_model import gtm_base, gtm_corpus
from scripted_model.server import Reply, Request, say, tool
from support import CORE, ROOT, House

pytestmark = pytest.mark.rehearsed

TOOLS = sorted(p.stem for p in CORE.glob("*.py"))


def obliging(request: Request) -> Reply:
    """An agent that writes every output it is asked for, and ends as it is told to."""
    outputs = re.findall(r"^- \w[\w.-]*: (/\S+)", request.prompt.partition("## Outputs")[2].partition("## Finish")[0], re.M)
    if request.turn == 0 and outputs:
        return say(*(tool("Write", file_path=path, content="# Done\n\nAs it was asked for.\n") for path in outputs))
    complete = re.search(r"STAGE_\w+_COMPLETE", request.prompt)
    return say(complete[0] if complete else "DONE: it is there")


@pytest.fixture
def furnished(house: House, model) -> House:
    model(obliging)
    for name in ("tests/fixtures/quickstart", "tests/fixtures/deep-research", ".claude/skills"):
        shutil.copytree(ROOT / name, house.folder / name)
    for folder in (house.folder / "docs", house.folder / "my-project/docs", house.folder / "home/my-project"):
        folder.mkdir(parents=True)
    for folder in (house.folder, house.folder / "my-project"):
        (folder / "docs/spec.md").write_text("# Log in\n\nPeople log in.\n")
    for name in ("security", "clarity"):
        found = [{"severity": "major", "claim": "It says too little", "where": "docs/spec.md"}]
        (house.folder / f"docs/{name}.json").write_text(json.dumps({"findings": found}))
    task = {"id": "a", "goal": "g", "agent": "implementer", "files": ["a.py"], "criteria": [{"id": "a-1", "text": "it holds"}]}
    (house.folder / "plan.json").write_text(json.dumps({"tasks": [task]}))
    playbook = house.folder / "playbook.md"
    playbook.write_text(gtm_corpus.PLAYBOOKS["healthcare.cfo_cluster"])
    made = {"task": {}, "outputs": {"data": str(house.folder / "plan.json"), "playbook": str(playbook)}, "cwd": ".", "out": "."}
    gtm_base.build(house.folder / "downstream/knowledge_base", house.folder / "w")
    shutil.copytree(ROOT / "config/packs/downstream/examples/word_count", house.folder / "my-agents/word_count")
    reports = [{"agent_name": "v", "type": "vertical", "dimensions": {"vertical": "legal"}, "path": "spec.md"}]
    (house.folder / "upstream").mkdir()
    (house.folder / "upstream/spec.md").write_text("# Legal\n\nThey bill by the hour.\n")
    (house.folder / "upstream/manifest.json").write_text(json.dumps({"outputs": reports}))
    (house.folder / "made.json").write_text(json.dumps(made))
    review(house.folder / "run")
    (house.folder / "my-project/test_it.py").write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    (house.folder / "change.patch").write_text("--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n same\n+new = 1\n")
    git = ["git", "-C", str(house.folder / "my-project"), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    return house


def review(run: Path) -> None:
    """An academic run with every handover, and what its strategist made."""
    for name, handover in HANDOVERS.items():
        (run / handover.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / f"config/packs/academic/examples/{name}.json", run / handover.file)
    strings = run / HANDOVERS["search_strings"].file
    (run / "brief.json").write_text(json.dumps({"databases": []}))
    task = {"inputs": {"brief": str(run / "brief.json")}}
    made = {"task": task, "outputs": {"data": str(strings)}, "cwd": ".", "out": "."}
    (run / "made.json").write_text(json.dumps(made))


# The quickstart: tests/tools/test_campaigns.py. The steps of packs (`forge_step`): each pack's own tests run them.
SHOWN_ELSEWHERE = dict.fromkeys([t for t in TOOLS if t == "campaign" or "_" in t], pytest.mark.long)
NEEDS_A_RUN = ("deep_research_fetch", "academic_browse", "worker")  # tests/packs, test_machines.py


@pytest.mark.parametrize("name", [pytest.param(t, marks=SHOWN_ELSEWHERE.get(t, ())) for t in TOOLS if t not in NEEDS_A_RUN])
def test_the_example_of_a_tool_runs(furnished: House, name: str) -> None:
    text = furnished.run(name, "--help").stdout
    example = text.partition("example:\n")[2].strip()
    assert example.startswith(f"uv run core/{name}.py"), text
    words = [re.sub("^~", furnished.env["HOME"], w) for w in shlex.split(example)[2:]]
    if name == "signals":  # it waits for a run that has ended
        said = ("--layer", "orch", "--signal-name", "ospec")
        assert furnished.json("signals", "write", "--session-dir", make(furnished, words), *said).code == 0
    if name == "memory":
        (furnished.folder / "sessions/mine").mkdir(parents=True)
    if name == "session":
        assert furnished.json("check", "ruff", "--cwd", str(furnished.folder / "my-project")).code == 0
    ran = subprocess.run(
        [sys.executable, *words, "--output-format", "json"],
        cwd=furnished.folder,
        env=furnished.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["status"] in ("success", "complete")


def make(house: House, words: list[str]) -> str:
    folder = house.folder / words[words.index("--session-dir") + 1]
    folder.mkdir(parents=True)
    (folder / ".trace").write_text("0123456789abcdef\n")
    return str(Path(folder))
