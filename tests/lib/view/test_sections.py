"""What a tool leaves as a section is read in the report and on the page, as text and nothing else."""

from __future__ import annotations

import pytest
from lib.session.documents import Part, Section
from lib.view import report
from lib.view.page import outcomes
from support import House

TOOL = """
def work(task, out, call):
    rows = [["AC-1", "met", "<b>x</b> | y"], ["AC-2", "not met", "nobody looked"]]
    table = {"title": "Criteria", "head": ["id", "result", "why"], "rows": rows}
    section = {"title": "What was asked", "parts": [{"text": "Loud."}, table]}
    (out / "section.json").write_text(json.dumps(section))
    return Verdict("done")
"""


def test_a_section_of_a_tool_stands_in_the_report_and_on_the_page(house: House) -> None:
    house.tool("teller", TOOL)
    outputs = "{section: {path: section.json, schema: section}}"
    house.orchestrator(f"version: 1\nname: trial\nstages:\n  - {{name: tell, tool: teller.py, outputs: {outputs}}}\n")
    ran = house.json("orchestrator", "trial", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr
    page = (house.folder / "s/report.html").read_text()
    assert "<h3>What was asked</h3>" in page and "<b>x</b>" not in page and "&lt;b&gt;x&lt;/b&gt;" in page
    assert 'class="badge good">✓ met' in page and 'class="badge bad">✗ not met' in page
    text = (house.folder / "s/execution-report.md").read_text()
    lines = ["## What was asked", "", "Loud.", "", "### Criteria", "", "| id | result | why |", "| --- | --- | --- |"]
    assert "\n".join([*lines, "| AC-1 | met | <b>x</b> \\| y |"]) in text


@pytest.mark.parametrize("rows", [0, 3, 500])
def test_a_long_table_is_cut_on_the_page_and_it_is_said(rows: int) -> None:
    section = Section("T", (Part(head=("n",), rows=tuple((str(n),) for n in range(rows))),))
    shown = "".join(outcomes._told(section))  # pyright: ignore[reportPrivateUsage]
    assert shown.count("<tr>") == (min(rows, outcomes.MOST_ROWS) + 1 if rows else 0)
    assert ("and 300 more" in shown) == (rows == 500)
    assert len(report._told(section)) >= 2  # pyright: ignore[reportPrivateUsage]
