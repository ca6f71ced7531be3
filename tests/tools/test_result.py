"""What came of a run comes first: deliverables, diffs, what verification caught; and every view says the same of time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lib.view import reader, report
from lib.view import result as results
from support import ROOT, WORKER, House, plan


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, Path, Any]:
    house = House(tmp_path_factory.mktemp("quick") / "house")
    session = house.folder / "s"
    recorded = str(ROOT / "tests/fixtures/quickstart")
    words = [str(ROOT / "config/plans/quickstart.yaml"), "--session-dir", str(session), "--fixtures", recorded]
    ran = house.json("campaign", *words)
    assert ran.code == 0, ran.stderr
    return house, session, ran


def test_the_first_section_of_the_page_is_the_result_and_it_stands_alone(quickstart: tuple[House, Path, Any]) -> None:
    _, session, _ = quickstart
    page = (session / "report.html").read_text()
    assert [name for name in re.findall(r'<h2 id="(\w+)"', page)][:2] == ["result", "graph"]
    assert "Delivered (8)" in page and 'href="./phases/phase-01-research/artifacts/oresearch/02-consolidate/report.md"' in page
    section = page[page.index('id="result"') : page.index('id="graph"')]
    assert "greet.py" in section and '<span class="add">+def greet(' in section, "files changed, with their diff"
    assert "first failed pytest (1 error), ruff (1 error); 2 to fix, PASS after 2 looks" in section
    assert "F401 [*] `re` imported but unused" in section, "the failing lines are there, and not only a link"
    rest = page[page.index('id="verification"') :]
    assert "AssertionError" in rest and "Found 1 error." in rest


def test_the_last_words_and_the_report_say_what_was_verified(quickstart: tuple[House, Path, Any]) -> None:
    _, session, ran = quickstart
    build = ran.document["phases"][1]
    assert build["verified"].startswith("pytest, ruff: first failed pytest")
    text = (session / "execution-report.md").read_text()
    assert text.index("## Result") < text.index("## What happened")
    assert "- created: `greet.py`" in text and "verified by pytest, ruff" in text


def test_every_view_says_the_same_of_time(quickstart: tuple[House, Path, Any]) -> None:
    house, session, _ = quickstart
    took = re.search(r"took (\S+),", report.text(session))
    assert took
    page = house.json("session", "report", str(session)).document["report"]
    assert f"<b>{took[1]}</b><span>took</span>" in Path(page).read_text()
    shown = house.json("session", "show", str(session)).document
    assert took[1] in shown["text"].splitlines()[0]
    stage = re.search(r"\| implement \| .*? \| 2 \| (\S+) \|", report.text(session))
    assert stage and re.search(rf"implement.{{0,200}}?{re.escape(stage[1])}", shown["text"], re.S)


CHANGES = """
def work(task, out, call):
    here = Path(call.cwd)
    (here / "old.py").write_text("def f():\\n    return  2\\n")
    (here / "gone.txt").unlink()
    (here / "new <b>.txt").write_text("<script>alert(1)</script>\\n")
    (out / "made.json").write_text("{}")
    return Verdict("done")
"""


def test_files_are_shown_against_the_commit_the_run_began_at(house: House) -> None:
    git = ["git", "-C", str(house.workspace), "-c", "user.name=x", "-c", "user.email=x@x"]
    (house.workspace / "old.py").write_text("def f():\n    return 1\n")
    (house.workspace / "gone.txt").write_text("bye\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    house.tool("changes", CHANGES)
    outputs = "{made: {path: made.json}, old: {path: old.py, in: workspace}, new: {path: new <b>.txt, in: workspace}}"
    house.orchestrator(f"version: 1\nname: trial\nstages:\n  - {{name: one, tool: changes.py, outputs: {outputs}}}\n")
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    came = results.of(reader.Reader(house.folder / "s").look())
    found = {one.path: one for one in came.changed}
    assert {path: one.change for path, one in found.items()} == {
        "old.py": "changed",
        "gone.txt": "deleted",
        "new <b>.txt": "created",
    }
    assert "-    return 1\n+    return  2" in found["old.py"].diff
    assert "-bye" in found["gone.txt"].diff
    assert "where the run began" in came.against
    page = (house.folder / "s/report.html").read_text()
    assert "return  2" in page, "white space is kept"
    assert "<script>alert" not in page


LOOPS = """version: 1
name: trial
loops: {again: {to: draft, max: 1, then: continue}}
stages:
  - {name: draft, tool: worker.py, args: [draft], outputs: {made: {path: made.json}}}
  - name: look
    parallel: {cap: 2}
    members: {a: {tool: worker.py, args: [a]}, b: {tool: worker.py, args: [b]}}
    on: {failure: again}
"""


def test_the_graph_draws_loops_checkpoints_and_members(house: House) -> None:
    house.tool("worker", WORKER)
    house.orchestrator(LOOPS)
    text = "version: 1\nname: p\nphases:\n  - name: one\n    checkpoint: {at: before, question: Begin?}\n"
    text += "    run: [{orchestrator: trial}]\n    verify: {none: a trial}\n"
    (house.workspace / "plan.yaml").write_text(text)
    planned = house.json("session", "graph", "plan.yaml").document["graph"]
    assert "-. again .->" in planned and '{{"Begin#63;"}}' in planned and "<br>a, b" in planned
    plan(house, a="fail")
    session = str(house.folder / "s")
    assert house.json("campaign", "plan.yaml", "--session-dir", session).code == 3
    assert house.json("campaign", "--resume", session, "--approve").code == 12
    drawn = house.json("session", "graph", session).document["graph"]
    assert "-. again 1x .->" in drawn
    page = (house.folder / "s/report.html").read_text()
    assert "again: look sent the work back to draft, 1 times" in page
    assert "checkpoint: approved by" in page and "<polygon" in page
