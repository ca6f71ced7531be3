"""The list of what a run produced: types, dimensions and tags, how each came about, and finding some of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lib.disk import files
from scripted_model.server import Request, say, tool
from support import WORKER, House, plan

pytestmark = pytest.mark.rehearsed
STAGES = """version: 1
name: trial
params: {verticals: {type: list, default: [{id: health, cat: security}, {id: retail, cat: cloud}]}}
stages:
  - name: research
    agent: researcher2
    target: "{item.id}"
    type: vertical
    layer: layer_2
    dimensions: {vertical: "{item.id}", service_category: "{item.cat}"}
    tags: [research, "{item.id}"]
    foreach: {items: param.verticals, key: id}
  - {name: sum, tool: worker.py, args: [sum], inputs: {all: research.*.report}, outputs: {made: {path: made.json}}}
"""


def script(r: Request) -> Any:
    place = next(line.split(": ", 1)[1] for line in r.prompt.splitlines() if line.startswith("- report: "))
    return say(tool("Write", file_path=place.split(" (")[0], content="# Report\n")) if r.turn == 0 else say("DONE: yes")


@pytest.fixture
def trial(house: House, model) -> House:
    house.tool("worker", WORKER)
    house.agent(
        "researcher2", tools="Read, Write", strata={"completion": "cluster", "outputs": {"report": {"path": "report.md"}}}
    )
    house.orchestrator(STAGES)
    plan(house)
    model(script)
    return house


def test_every_output_is_listed_with_what_it_is_and_how_it_came_about(trial: House) -> None:
    session = trial.folder / "s"
    ran = trial.json("orchestrator", "trial", "--session-dir", str(session))
    assert ran.code == 0, ran.stderr
    kept = json.loads((session / "outputs.json").read_text())
    assert kept["schema_version"] == "1.0.0" and kept["execution_id"] == "s"
    first, _, last = kept["outputs"]
    assert first["id"] == "trial/research/health/report"
    assert (first["type"], first["layer"]) == ("vertical", "layer_2")
    assert first["dimensions"] == {"vertical": "health", "service_category": "security"}
    assert first["tags"] == ["research", "health"]
    assert first["path"] == "artifacts/trial/01-research/health/report.md"
    assert first["sha256"] == files.sha256(session / first["path"])
    assert first["size"] == 9 and first["cost_usd"] > 0 and first["tool_uses"] == {"Write": 1}
    assert first["agent_name"] == "researcher2" and first["agent_version"] and first["model"] and first["completed_at"]
    assert (first["completion_status"], first["searches_performed"]) == ("complete", 0)
    assert (last["type"], last["layer"], last["agent_name"]) == ("made", "sum", "worker"), "without a word, its name is its type"
    assert kept["summary"] == {
        "total_outputs": 3,
        "by_layer": {"layer_2": 2, "sum": 1},
        "by_type": {"vertical": 2, "made": 1},
        "verticals": ["health", "retail"],
        "service_categories": ["security", "cloud"],
    }
    assert ran.document["outputs"] == kept["outputs"]
    before = kept["outputs"]
    assert trial.json("orchestrator", "trial", "--session-dir", str(session)).code == 0
    assert json.loads((session / "outputs.json").read_text())["outputs"] == before, "a second run says the same"


def test_some_of_them_are_found_by_type_dimension_and_tag(trial: House) -> None:
    session = str(trial.folder / "s")
    trial.json("orchestrator", "trial", "--session-dir", session)

    def found(*flags: str) -> list[str]:
        return [o["id"] for o in trial.json("session", "outputs", session, *flags).document["outputs"]]

    assert len(found()) == 3
    assert found("--type", "vertical", "--dimension", "vertical=retail") == ["trial/research/retail/report"]
    assert found("--dimension", "vertical=health", "--dimension", "service_category=security") == ["trial/research/health/report"]
    assert found("--tag", "retail") == ["trial/research/retail/report"]
    wrong = trial.json("session", "outputs", session, "--type", "playbook")
    assert wrong.code == 1 and "types: made, vertical" in wrong.error["hint"]
    text = trial.run("session", "outputs", session, "--type", "vertical", "--output-format", "text").stdout
    assert "vertical=health" in text and "report.md" in text


def test_a_campaign_lists_those_of_all_its_phases(trial: House) -> None:
    text = "version: 1\nname: p\nphases:\n  - {name: one, run: [{orchestrator: trial}], verify: {none: a trial}}\n"
    (trial.workspace / "plan.yaml").write_text(text)
    ran = trial.json("campaign", "plan.yaml", "--session-dir", str(trial.folder / "c"))
    assert ran.code == 0, ran.stderr
    kept = json.loads((trial.folder / "c/outputs.json").read_text())
    assert kept["outputs"][0]["id"] == "phase-01-one/trial/research/health/report"
    assert json.loads((trial.folder / "c/manifest.json").read_text())["outputs"] == kept["outputs"]


def test_a_label_that_refers_to_nothing_is_refused(trial: House) -> None:
    trial.orchestrator(STAGES.replace("{item.cat}", "{param.nope}"))
    assert "nope" in trial.json("orchestrator", "trial").error["message"]
