"""What a person does with a research run: answers, edits, calls a tool by hand, brings a folder or a search service, waits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from packs.deep_research import operating, watching
from packs.deep_research.state import CREATED, PAUSED, Limits, Manifest, Query, Stage
from scripted_model.research_agents import SAID, Agents, Answer, plainly, serving
from support import House, Ran

pytestmark = pytest.mark.rehearsed
QUERY = "Which wikis last?"
SEED = {
    "run_init", "wave1_plan", "wave_output_ingest", "wave_output_validate", "wave_review", "gate_b_derive",
    "pivot_decide", "citations_extract_urls", "citations_normalize", "citations_validate", "gate_c_compute",
    "summary_pack_build", "gate_d_evaluate", "synthesis_write", "review_factory_run", "revision_control",
    "gate_e_evaluate", "gate_e_reports", "gates_write", "manifest_write", "stage_advance",
    "retry_record", "telemetry_append",
}  # fmt: skip


def answer(path: str) -> Answer:
    """The pages, and a search service like SearXNG."""
    if not path.startswith("/search"):
        return plainly(path)
    words = parse_qs(urlsplit(path).query)["q"][0]
    rows = [{"url": f"{HERE[0]}{page}", "title": page, "content": words} for page in SAID]
    return 200, {"content-type": "application/json"}, json.dumps({"results": rows}).encode()


HERE: list[str] = []


@pytest.fixture
def site() -> Iterator[str]:
    with serving(answer) as address:
        HERE[:] = [address]
        yield address


@pytest.fixture
def agents(house: House, model, site: str) -> Agents:
    (house.workspace / ".strata").mkdir()
    web(house, site)
    made = Agents(site)
    model(made)
    return made


def web(house: House, site: str, more: str = "") -> None:
    rules = f"version: 1\nprivate: ['{site.removeprefix('http://')}']\nrobots: false\ndelay_seconds: 0\n"
    (house.workspace / ".strata/web.yaml").write_text(rules + more)


def settings(house: House, text: str) -> None:
    (house.workspace / ".strata/deep_research.yaml").write_text(f"version: 1\n{text}\n")


def door(house: House, *words: str) -> Ran:
    return house.json("deep_research", *words, timeout=250)


def live(house: House, *words: str, name: str = "s") -> Ran:
    return door(house, "live", QUERY, "--run-id", "wikis", "--effort", "quick", "--session-dir", str(house.folder / name), *words)


def root(house: House, name: str = "s") -> Path:
    return house.folder / name / "research/wikis"


def events(house: House, kind: str) -> list[dict[str, object]]:
    lines = (root(house) / "logs/audit.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.mark.long
def test_perspectives_are_shown_edited_and_approved_before_anything_is_spent_on_them(house: House, agents: Agents) -> None:
    ran = live(house)
    assert ran.code == 3 and agents.asked == ["perspective-planner"]
    assert "Shall these sides be researched?" in json.dumps(ran.document["waiting"])
    file = root(house) / "perspectives.json"
    edited = json.loads(file.read_text())
    edited["perspectives"] = [edited["perspectives"][0], {**edited["perspectives"][0], "id": "files", "question": ""}]
    file.write_text(json.dumps(edited))
    session = str(house.folder / "s")
    refused = door(house, "resume", session, "--approve-plan")
    assert refused.error["code"] == "SCHEMA_VALIDATION_FAILED" and "files has no question" in refused.error["message"]
    assert events(house, "artifact_invalid") and agents.asked == ["perspective-planner"]
    edited["perspectives"][1]["question"] = "What would a file say?"
    file.write_text(json.dumps(edited))
    ran = door(house, "resume", session)
    assert ran.code == 0, ran.stderr[-2000:]
    assert any("What would a file say?" in prompt for prompt in agents.prompts["wave-researcher"])
    plan = json.loads((root(house) / "wave-1/wave1-plan.json").read_text())
    assert [one["perspective_id"] for one in plan["entries"]] == ["history", "files"]


def test_an_ambiguous_question_is_asked_back_and_the_answer_reaches_the_planner(house: House, agents: Agents) -> None:
    agents.unclear = "As software, or as communities?"
    ran = live(house, "--approve-plan")
    assert ran.code == 3 and "As software, or as communities?" in json.dumps(ran.document["waiting"])
    ran = house.json("deep_research", "--resume", str(house.folder / "s"), "--answer", "plan=As software.", timeout=250)
    assert ran.code == 0, ran.stderr[-2000:]
    assert agents.asked.count("perspective-planner") == 2
    given = next((house.folder / "s").glob("**/loops/clarify*"), None)
    assert given and any("answer" in prompt for prompt in agents.prompts["perspective-planner"][1:])


def test_every_tool_of_the_machine_is_a_verb(house: House, agents: Agents) -> None:
    """An operator takes a run from its plan to the first wave by hand, and every call is an event with its bundle."""
    assert set(operating.BY_HAND) == SEED
    session = str(house.folder / "s")
    assert door(house, "plan", QUERY, "--run-id", "wikis", "--effort", "quick", "--session-dir", session).code == 0
    refused = door(house, "stage_advance", session, "requested_next=pivot")
    assert refused.code == 1 and refused.error["code"] == "REQUESTED_NEXT_NOT_ALLOWED" and refused.error["inputs_digest"]
    assert door(house, "stage_advance", session, "expected_revision=1").error["code"] == "REVISION_MISMATCH"
    wrong = door(house, "gates_write", session)
    assert wrong.code == 1 and "it needs gate" in wrong.error["message"] and "gate=…" in wrong.error["hint"]
    assert door(house, "gates_write", session, "gate=A").document["result"]["decision"] == "pass"
    assert door(house, "stage_advance", session).document["stage.current"] == "wave1"
    report, data = house.folder / "r.md", house.folder / "d.json"
    report.write_text(agents.wave("history", False))
    data.write_text(json.dumps({"claims": agents.claims("history")}))
    words = ["stage=wave1", f"report={report}", f"data={data}"]
    assert door(house, "wave_output_ingest", session, *words, "perspective_id=nobody").error["code"] == "NOT_FOUND"
    assert door(house, "wave_output_ingest", session, *words, "perspective_id=history").code == 0
    report.write_text("other words")
    again = door(house, "wave_output_ingest", session, *words, "perspective_id=history")
    assert again.error["code"] == "INVALID_STATE" and "evidence is not written over" in again.error["message"]
    assert door(house, "wave_review", session, "stage=wave1").document["result"]["missing"] == ["files"]
    assert door(house, "gates_write", session, "gate=B").document["result"]["decision"] == "revise"
    assert door(house, "stage_advance", session).error["code"] == "MISSING_ARTIFACT"
    assert door(house, "citations_normalize", session).code == 0
    for name, word in (("citations_validate", "belongs to citations"), ("pivot_decide", "belongs to pivot")):
        early = door(house, name, session)
        assert early.error["code"] == "INVALID_STATE" and word in early.error["message"]
    assert door(house, "gate_e_evaluate", session).error["code"] == "MISSING_ARTIFACT"
    assert door(house, "manifest_write", session, "status=completed").error["code"] == "INVALID_STATE"
    called = {event["tool_id"] for event in events(house, "tool_call_end")}
    assert {"gates_write", "stage_advance", "wave_output_ingest"} <= called
    assert all(list((root(house) / "evidence/tools" / str(name)).glob("*.md")) for name in called)


@pytest.mark.long
def test_a_folder_is_enough_without_the_web_and_its_recording_without_the_folder(house: House, agents: Agents) -> None:
    folder = house.folder / "papers"
    (folder / "deep").mkdir(parents=True)
    (folder / "history.md").write_text("# Wikis\n\nMediaWiki was first released in 2002 and is still maintained.\n")
    (folder / "deep/files.txt").write_text("DokuWiki keeps its pages in plain text files, without a database.\n")
    (folder / ".secret.md").write_text("MediaWiki MediaWiki MediaWiki")
    agents.places = {"/history": "http://corpus.invalid/history.md", "/files": "http://corpus.invalid/deep/files.txt"}
    agents.queries = ["MediaWiki released", "pages of DokuWiki"]
    words = ["--sensitivity", "no_web", "--corpus", str(folder), "--approve-plan"]
    ran = live(house, *words, "--driver", "record")
    assert ran.code == 0, ran.stderr[-2500:]
    prompt = agents.prompts["wave-researcher"][0]
    assert "http://corpus.invalid/history.md" in prompt and ".secret" not in prompt
    assert '"WebSearch": 0' in prompt
    cited = [json.loads(line) for line in (root(house) / "citations/citations.jsonl").read_text().splitlines()]
    assert {(c["status"], c["sort"]) for c in cited} == {("valid", "a document of the corpus")}
    report = next((house.folder / "s").glob("**/*-report/**/report.md")).read_text()
    assert "<deep/files.txt>" in report and "Searched, wave1, history: MediaWiki released" in report
    assert "fabricated citations: 0" in report
    shutil.rmtree(folder)
    asked = len(agents.asked)
    again = live(house, *words, "--driver", "replay", "--fixtures", str(house.folder / "s"), name="t")
    assert again.code == 0 and len(agents.asked) == asked, again.stderr[-2000:]
    for name in ("citations/claims.jsonl", "synthesis/final-synthesis.md", "pivot.json"):
        assert (root(house, "t") / name).read_bytes() == (root(house) / name).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("sensitivity", ["no_web", "restricted"])
def test_without_the_web_an_address_on_it_is_not_fetched(house: House, agents: Agents, sensitivity: str) -> None:
    """restricted: no list says which hosts may be asked, so none is."""
    (house.folder / "papers").mkdir()
    (house.folder / "papers/a.md").write_text("nothing of use\n")
    ran = live(house, "--sensitivity", sensitivity, "--corpus", str(house.folder / "papers"), "--approve-plan")
    assert ran.error["code"] == "GATE_BLOCKED"
    cited = [json.loads(line) for line in (root(house) / "citations/citations.jsonl").read_text().splitlines()]
    assert {(c["status"], c["note"]) for c in cited} == {("blocked", "NO_WEB: nothing is fetched")}


@pytest.mark.long
def test_restricted_asks_a_search_service_and_listed_hosts_and_nobody_else(house: House, agents: Agents, site: str) -> None:
    ran = live(house, "--sensitivity", "restricted", "--approve-plan")
    assert ran.error["code"] == "GATE_BLOCKED" and agents.asked == [], "any host may be asked, and nobody searches"
    settings(house, f"search: {{url: '{site}/search?q={{query}}'}}")
    web(house, site, "hosts: ['127.0.0.1']\n")
    ran = live(house, "--sensitivity", "restricted", "--approve-plan", name="t")
    assert ran.code == 0, ran.stderr[-2500:]
    prompt = agents.prompts["wave-researcher"][0]
    assert f"{site}/history" in prompt and "in the folder `found`" in prompt
    assert list((house.folder / "t").glob("**/found/history/01.md")), "Python has read for it what it found"


@pytest.mark.parametrize(
    ("text", "code"), [("enabled: false", "DISABLED"), ("no_web: true", "GATE_BLOCKED"), ("no_wbe: true", "BAD_CONFIG")]
)
def test_settings_hold_whatever_is_asked_for(house: House, agents: Agents, text: str, code: str) -> None:
    settings(house, text)
    ran = live(house, "--approve-plan")
    assert ran.code == 1 and ran.error["code"] == code and agents.asked == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "asked"), [(("--max-attempts", "1"), 1), pytest.param(("--max-retries", "0"), 1, marks=pytest.mark.long)]
)
def test_retries_end_at_their_caps_and_a_resume_may_allow_more(
    house: House, agents: Agents, flags: tuple[str, ...], asked: int
) -> None:
    agents.lies = "long"
    ran = live(house, "--approve-plan", *flags)
    assert ran.error["code"] == "RETRY_CAP_EXHAUSTED", ran.error
    assert agents.asked.count("wave-researcher history") == asked
    assert json.loads((root(house) / "logs/blocked.json").read_text())["code"] == "RETRY_CAP_EXHAUSTED"
    agents.lies = ""
    again = door(house, "resume", str(house.folder / "s"), "--from", "wave1", "--max-attempts", "3", "--max-retries", "9")
    assert again.code == 0 and again.document["run_status"] == "completed", again.stderr[-2000:]


def test_a_run_in_which_nothing_happens_is_ended_and_can_be_resumed(house: House, agents: Agents) -> None:
    agents.silent = 60
    ran = live(house, "--approve-plan", "--watchdog", "3")
    assert (ran.code, ran.error["code"]) == (21, "WATCHDOG_TIMEOUT"), ran.error
    assert any("WATCHDOG_TIMEOUT" in str(event["reason"]) for event in events(house, "run_halted"))
    agents.silent = 0
    ran = door(house, "resume", str(house.folder / "s"), "--watchdog", "300")
    assert ran.code == 0 and ran.document["run_status"] == "completed", ran.stderr[-2000:]
    assert agents.asked.count("perspective-planner") == 1, "what was finished is not done again"


def test_the_watchdog_counts_from_the_last_sign_of_life_and_not_while_paused() -> None:
    at = 1_000_000.0
    wave = Stage("wave1", "1970-01-12T13:46:40Z")  # at that moment
    manifest = Manifest("r", Query("?"), "", stage=wave, status=CREATED)
    assert watching.overdue(manifest, 0, at + 600) == 0 and watching.overdue(manifest, 0, at + 601) == 1
    assert watching.overdue(manifest, at + 500, at + 1100) == 0, "an agent has said something"
    assert watching.overdue(manifest, at + 500, at + 1102) == 2
    paused = Manifest("r", Query("?"), "", stage=wave, status=PAUSED)
    assert watching.overdue(paused, 0, at + 10_000) == 0
    short = Manifest("r", Query("?"), "", stage=wave, limits=Limits(watchdog_seconds=5))
    assert watching.overdue(short, 0, at + 7) == 2


@pytest.mark.long
def test_evidence_says_who_worked_when_and_with_what(house: House, agents: Agents) -> None:
    assert live(house, "--approve-plan").code == 0
    meta = json.loads((root(house) / "evidence/agents/wave1/history/meta.json").read_text())
    assert {"agent_type", "perspective_id", "prompt_hash", "agent_run_id", "started_at", "finished_at", "tool_uses"} <= set(meta)
    assert meta["agent_run_id"] and meta["started_at"] < meta["finished_at"]
    prompt = (root(house) / "evidence/agents/wave1/history/prompt.md").read_text()
    assert prompt.endswith("\n") and not any(line != line.rstrip() for line in prompt.splitlines())
    page = next((house.folder / "s").glob("**/*-report/**/report.md")).read_text()
    assert "web page" in page and "Cost:" in page and "agent sessions" in page


NEXT = """version: 1
name: two
phases:
  - name: research
    run:
      - {orchestrator: deep_research, modifier: approved, params: {query: "Which wikis last?", run_id: wikis, effort: quick}}
    verify: {checks: [artifacts]}
  - name: use
    depends_on: [research]
    run: [{orchestrator: reader, inputs: {text: research.deep_research.report}}]
    verify: {checks: [artifacts]}
"""
READER = """version: 1
name: reader
params: {text: {about: a report, type: file}}
stages:
  - {name: read, tool: reads.py, inputs: {text: param.text}, outputs: {line: {path: line.md}}}
"""


@pytest.mark.long
def test_a_plan_hands_the_report_to_its_next_phase(house: House, agents: Agents) -> None:
    work = (
        "def work(task, out, call):\n    words = task.input_path('text').read_text()\n    (out / 'line.md').write_text(words)\n"
    )
    house.tool("reads", work + "    return Verdict('done')\n")
    house.orchestrator(READER, "reader")
    (house.folder / "plan.yaml").write_text(NEXT)
    ran = house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"), timeout=250)
    assert ran.code == 0 and ran.document["grade"] == "PASS", ran.stderr[-2000:]
    read = next((house.folder / "s").glob("phases/*-use/artifacts/**/line.md")).read_text()
    assert "## References" in read and "fabricated citations: 0" in read
