"""A research run from its question to its report: agents are scripted, the web is a server on loopback, the rest is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from packs.deep_research.state import KINDS
from scripted_model.research_agents import Agents, serving
from support import ROOT, House, Ran

pytestmark = pytest.mark.rehearsed


@pytest.fixture
def site() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture
def agents(house: House, model, site: str) -> Agents:
    (house.workspace / ".strata").mkdir()
    (house.workspace / ".strata/web.yaml").write_text(f"version: 1\nprivate: ['{site.removeprefix('http://')}']\nrobots: false\n")
    made = Agents(site)
    model(made)
    return made


def research(house: House, *flags: str, name: str = "s") -> Ran:
    words = ["--param", "query=Which wikis last?", "--param", "run_id=wikis", "--param", "effort=quick", "--modifier", "approved"]
    return house.json("orchestrator", "deep_research", *words, "--session-dir", str(house.folder / name), *flags, timeout=250)


def run_of(house: House, name: str = "s") -> Path:
    return house.folder / name / "research/wikis"


def test_a_question_becomes_a_report_whose_every_claim_can_be_looked_up(house: House, agents: Agents) -> None:
    """M2 and M3, without a second wave; the print of the machine on disk"""
    ran = research(house)
    assert ran.code == 0, ran.stderr[-2500:]
    root = run_of(house)
    manifest, gates = (json.loads((root / name).read_text()) for name in ("manifest.json", "gates.json"))
    assert (manifest["stage"]["current"], manifest["status"]) == ("finalize", "completed")
    assert [m["to"] for m in manifest["stage"]["history"]] == [
        "perspectives", "wave1", "pivot", "citations", "summaries", "synthesis", "review", "finalize"
    ]  # fmt: skip
    assert {g["status"] for g in gates["gates"].values()} == {"pass"}
    events = [json.loads(line) for line in (root / "logs/audit.jsonl").read_text().splitlines()]
    ends = [(e["reason"], e["outcome"]) for e in events if e["kind"] == "tick_end"]
    assert ends[0] == ("init", "advanced") and ("ingest", "no_op") in ends and ends[-1] == ("report", "no_op")
    assert len(ends) == sum(e["kind"] == "tick_start" for e in events)
    assert {e["kind"] for e in events} <= set(KINDS) and all(e["run_id"] == "wikis" and e["tick_id"] for e in events[1:])
    claims = [json.loads(line) for line in (root / "citations/claims.jsonl").read_text().splitlines()]
    assert len(claims) == 2 and all(c["supported"] for c in claims)
    report = next((house.folder / "s").glob("**/*-report/**/article.jsonl")).with_name("report.md")
    text = report.read_text()
    assert "2002-01-01" not in text, "a year in a text is not the date of the page"
    assert "[1]" in text and "## References" in text and "fabricated citations: 0" in text and "unsupported numbers: 0" in text
    page = report.with_name("report.html").read_text()
    assert "MediaWiki was first released in 2002" in page and "<script" not in page
    article = json.loads(report.with_name("article.jsonl").read_text())
    assert set(article) == {"id", "prompt", "article"}
    before = len(agents.asked)
    assert research(house).code == 0 and len(agents.asked) == before, "nothing finished is done twice"


@pytest.mark.long
def test_a_gap_that_matters_brings_a_second_wave_which_is_summarised_and_cited_too(house: House, agents: Agents) -> None:
    """Mistake 3: wave-2 outputs were never summarised"""
    agents.gap = "(P0) nobody measured it #speed"
    ran = research(house)
    assert ran.code == 0, ran.stderr[-2500:]
    root = run_of(house)
    assert (root / "wave-2/gap-1.md").is_file() and "wave-summariser wave-2-gap-1" in agents.asked
    assert json.loads((root / "pivot.json").read_text())["rule"] == "P0 >= 1"


@pytest.mark.long
def test_an_output_of_3000_words_is_told_so_and_tried_once_more(house: House, agents: Agents) -> None:
    agents.lies = "long once"
    ran = research(house)
    assert ran.code == 0, ran.stderr[-2500:]
    assert agents.asked.count("wave-researcher history") == 2
    assert any("words, at most 900" in p for p in agents.prompts["wave-researcher"])
    root = run_of(house)
    assert len((root / "wave-1/history.md").read_text().split()) > 3000, "what failed stays"
    assert len((root / "wave-1/history.retry-1.md").read_text().split()) < 100, "and the retry stands beside it"
    directives = json.loads((root / "retry/retry-directives.json").read_text())
    assert {(i["perspective_id"], i["attempt"]) for i in directives["items"]} == {("history", 2), ("files", 2)}
    retries = json.loads((root / "manifest.json").read_text())["retries"]
    assert [r["event"] for r in retries] == ["created", "created", "consumed", "consumed"]
    assert "words, at most 900" in retries[0]["reason"]
    plan = json.loads((root / "summaries/summary-pack.json").read_text())["summaries"]
    assert len(plan) == 2, "a retry is no perspective of its own"


@pytest.mark.parametrize(
    ("lie", "code", "where"),
    [
        pytest.param("long", "RETRY_CAP_EXHAUSTED", "logs/blocked.json", marks=pytest.mark.long),
        pytest.param("url", "GATE_BLOCKED", "logs/blocked.json", marks=pytest.mark.long),
    ],
)
def test_who_breaks_the_contract_or_invents_an_address_is_stopped_by_name(
    house: House, agents: Agents, lie: str, code: str, where: str
) -> None:
    """Mistake 10: a tick that failed is never 0"""
    agents.lies = lie
    ran = research(house)
    assert ran.code != 0 and ran.error["code"] == code, ran.error
    root = run_of(house)
    assert json.loads((root / where).read_text())["code"] == code
    events = [json.loads(line)["kind"] for line in (root / "logs/audit.jsonl").read_text().splitlines()]
    assert "run_halted" in events and not (root / "synthesis/final-synthesis.md").exists()


@pytest.mark.long
def test_a_quote_that_is_almost_there_is_not_used(house: House, agents: Agents) -> None:
    """A hyphen more than the page has: the claim is left out, and counted."""
    agents.lies = "quote"
    ran = research(house)
    assert ran.code == 0, ran.stderr[-2500:]
    claims = [json.loads(line) for line in (run_of(house) / "citations/claims.jsonl").read_text().splitlines()]
    assert [c["supported"] for c in claims] == [True, False]
    pack = json.loads((run_of(house) / "summaries/summary-pack.json").read_text())
    assert len(pack["claims"]) == 1 and any("do not stand in its source" in w for w in ran.document["warnings"])


@pytest.mark.long
@pytest.mark.parametrize("lie", ["number", "citation"])
def test_a_number_or_a_citation_that_nobody_read_does_not_get_into_the_report(house: House, agents: Agents, lie: str) -> None:
    agents.lies = lie
    ran = research(house)
    assert ran.code != 0
    assert "deep_research" in ran.document["orchestrator"] and not list((house.folder / "s").glob("**/report/report.md"))


@pytest.mark.long
def test_the_review_reaches_the_next_synthesis_and_the_best_round_is_kept(house: House, agents: Agents) -> None:
    """Mistake 1: the synthesis never received the directives"""
    agents.wants_change = 2
    ran = research(house)
    assert ran.code == 0, ran.stderr[-2500:]
    prompts = agents.prompts["report-writer"]
    assert len(prompts) == 3 and all("directives:" in p and "before:" in p for p in prompts[1:])
    root = run_of(house)
    assert sorted(p.name for p in (root / "synthesis").glob("round-*.md")) == ["round-1.md", "round-2.md", "round-3.md"]
    assert "round III" in (root / "synthesis/final-synthesis.md").read_text()


def test_what_cannot_be_served_is_refused_before_anything_is_spent(house: House, agents: Agents) -> None:
    """Mistake 5: F is decided at the beginning"""
    ran = research(house, "--param", "sensitivity=no_web")
    assert ran.error["code"] == "GATE_BLOCKED" and agents.asked == []


def door(house: House, *words: str) -> Ran:
    return house.json("deep_research", *words, timeout=250)


@pytest.mark.long
def test_the_door_plans_ticks_and_says_where_a_run_stands(house: House, agents: Agents) -> None:
    """The seed's modes and its print; a tick does exactly one stage."""
    session = str(house.folder / "s")
    ran = door(house, "plan", "Which wikis last?", "--run-id", "wikis", "--effort", "quick", "--session-dir", session)
    assert ran.code == 0, ran.stderr[-2000:]
    assert agents.asked == ["perspective-planner"], "no agent of a wave"
    assert {"run_id", "run_root", "manifest_path", "gates_path", "stage.current", "run_status"} <= set(ran.document)
    assert (ran.document["run_id"], ran.document["stage.current"]) == ("wikis", "perspectives")
    stages = []
    while ran.document["stage.current"] != "finalize":
        ran = door(house, "tick", session, "--approve-plan")
        assert ran.code == 0 and ran.document["tick"] == "advanced", ran.stderr[-2000:]
        stages.append(ran.document["stage.current"])
        if stages[-1] == "citations":  # by hand, and the next tick finds it done
            assert door(house, "citations_validate", session).code == 0
    assert stages == ["wave1", "pivot", "citations", "summaries", "synthesis", "review", "finalize"]
    assert "What to do: read the report" in door(house, "triage", session).document["text"]
    assert (
        door(house, "tick", session).document["tick"] == "no_op"
        and door(house, "status", session).document["run_status"] == "completed"
    )
    assert list((house.folder / "s").glob("**/*-report/**/report.html")), "the last tick makes the report"


@pytest.mark.long
def test_a_run_is_paused_resumed_and_cancelled_from_elsewhere(house: House, agents: Agents) -> None:
    session = str(house.folder / "s")
    assert door(house, "plan", "Which wikis last?", "--run-id", "wikis", "--effort", "quick", "--session-dir", session).code == 0
    assert door(house, "pause", session).document["run_status"] == "paused"
    assert door(house, "tick", session).error["code"] == "PAUSED"
    ran = door(house, "resume", session, "--approve-plan")
    assert ran.code == 0 and ran.document["run_status"] == "completed", ran.stderr[-2000:]
    other = str(house.folder / "t")
    assert door(house, "plan", "Which wikis last?", "--run-id", "wikis", "--effort", "quick", "--session-dir", other).code == 0
    assert door(house, "cancel", other).document["run_status"] == "cancelled"
    assert door(house, "resume", other).error["code"] == "INVALID_STATE"
    assert "begin another run" in door(house, "triage", other).document["text"]
    assert door(house, "status", str(house.folder)).code == 1


@pytest.mark.long
def test_the_recorded_run_replays_offline_from_anywhere(house: House, tmp_path: Path) -> None:
    """The quickstart: no key, no network, the same decisions."""
    recorded = ROOT / "tests/fixtures/deep-research"
    words = ["fixture", "Which self-hosted wikis survive ten years?", "--effort", "quick", "--fixtures", str(recorded)]
    documents = []
    for name in ("one", "two"):
        ran = door(house, *words, "--session-dir", str(tmp_path / name))
        assert ran.code == 0, ran.stderr[-2000:]
        root = Path(ran.document["run_root"])
        documents.append(
            [(root / n).read_bytes() for n in ("citations/claims.jsonl", "synthesis/final-synthesis.md", "pivot.json")]
        )
        history = json.loads((root / "manifest.json").read_text())["stage"]["history"]
        documents[-1].append([(m["frm"], m["to"], m["inputs_digest"]) for m in history])
    assert documents[0] == documents[1], "byte by byte"
    assert any("these words do not stand in its source" in w for w in ran.document["warnings"])
    assert [m[1] for m in documents[0][-1]].count("synthesis") == 2, "the review sent it back once"
