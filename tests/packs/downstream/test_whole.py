"""Downstream as people meet it: the quickstart, looked at, asked again, killed and resumed; and the research before it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from lib.attempt.judging import Made
from lib.plan.task import Task
from packs.downstream import gtm
from scripted_model import gtm_corpus
from scripted_model.gtm_story import INVENTED, Story
from support import ROOT, House
from tools import test_kills as kills

PLAN = ROOT / "config/plans/downstream-quickstart.yaml"


def research_says_what_it_left_and_what_each_is_about(finished: tuple[House, Path]) -> None:
    """Every type of the seed's table, with its layer and dimensions, recorded and never read from a name."""
    listed = json.loads((finished[1] / "outputs.json").read_text())
    first = [one for one in listed["outputs"] if one["id"].startswith("phase-01-research/")]
    kinds = {(one["type"], one["layer"], tuple(sorted(one["dimensions"]))) for one in first}
    assert kinds >= {
        ("service_category", "layer_0", ("service_category",)),
        ("horizontal", "layer_1", ("report",)),
        ("vertical", "layer_2", ("vertical",)),
        ("title", "layer_3", ("title",)),
        ("playbook_2d", "integrations", ("title", "vertical")),
        ("playbook_3d", "integrations", ("service_category", "title", "vertical")),
        ("validation", "validation", ("title", "vertical")),
        ("brand_alignment", "brand_alignment", ("service_category", "title", "vertical")),
    }
    limits = json.loads((finished[1] / "budget.json").read_text())
    assert limits["phase-02-use"]["usd"] == 30 and "phase-01-research" not in limits
    one = next(o for o in first if o["type"] == "playbook_3d")
    assert one["sha256"] and one["size"] and one["model"] and one["agent_version"] and one["completion_status"] == "complete"
    assert set(listed["context_files"]) == {"baseline", "writing_standards", "glossary", "audience_personas"}
    assert listed["summary"]["verticals"] == ["healthcare", "financial_services"]


def what_was_approved_goes_on_and_what_was_not_does_not(finished: tuple[House, Path]) -> None:
    found = {}
    for phase in ("phase-01-research", "phase-04-again"):
        path = next(finished[1].glob(f"phases/{phase}/artifacts/**/approved.json"))
        data = json.loads(path.read_text())
        found |= {one["id"]: word for word in ("approved", "revise", "rejected") for one in data[word]}
    assert found.pop("healthcare.security_leadership") == "revise"
    assert found.pop("financial_services.security_leadership.cloud") == "rejected"
    assert len(found) == 6 and set(found.values()) == {"approved"}
    aligned = [p for p in finished[1].glob("phases/*/artifacts/**/playbook.md") if "brand" in str(p)]
    assert len(aligned) == 6


def every_case_study_rests_on_passages_and_one_was_sent_back(finished: tuple[House, Path]) -> None:
    session = finished[1]
    studies = sorted(session.glob("phases/*/artifacts/**/downstream/case_study_generator/*_case_study.md"))
    assert len(studies) == 3 and all("[P1]" in path.read_text() for path in studies)
    outcomes = [
        json.loads(p.read_text()) for p in session.glob("phases/*/downstream/stages/02-agents/case*/attempt-*/outcome.json")
    ]
    refused = [one for one in outcomes if one["exit_code"]]
    assert len(outcomes) == 4 and len(refused) == 1 and INVENTED[:20] in json.dumps(refused)
    content = list(session.glob("phases/*/artifacts/**/downstream/gtm_content_creator/*_email_sequence.md"))
    assert len(content) >= 4


def two_versions_and_nothing_lost(finished: tuple[House, Path]) -> None:
    house, session = finished
    kb = session / "workspace/downstream/knowledge_base"
    shown = house.json("kb", "versions", "--kb", str(kb)).document
    assert shown["current_version"] == 2 and shown["versions"][1]["changelog"][0] == "Added the domain cloud (6 documents)"
    first, second = ({str(p.relative_to(kb / v)) for p in (kb / v).rglob("*.md")} for v in ("kb_v1", "kb_v2"))
    assert first < second
    by_hand = house.json("kb", "build", str(session), "--kb", str(session.parent / "kb"))  # both runs of the session at once
    assert by_hand.code == 0, by_hand.stderr
    assert {str(p.relative_to(session.parent / "kb/kb_v1")) for p in (session.parent / "kb/kb_v1").rglob("*.md")} == second
    answers = [p.read_text() for p in sorted(session.glob("phases/*/artifacts/**/answer.md"))]
    assert (
        len(answers) == 4
        and sum("64,000 dollars" in text for text in answers) == 2
        and not any("not in the" in a for a in answers)
    )
    report = (session / "execution-report.md").read_text()
    for words in (
        "Validation: healthcare",
        "Validation: financial services",
        "Downstream of research",
        "Asked of the knowledge base",
        "64,000",
    ):
        assert words in report, words
    rejected = "domains/cloud/verticals/financial_services/playbooks/security_leadership.md"
    assert rejected not in second and rejected.replace("security_leadership", "cfo_cluster") in second


def nothing_of_it_would_be_done_twice(finished: tuple[House, Path]) -> None:
    house, session = finished
    explained = house.json("campaign", "--resume", str(session), "--explain").document["explained"]
    assert len(explained) > 60 and {one["does"] for one in explained} == {"SKIP"}, [e for e in explained if e["does"] != "SKIP"][
        :5
    ]


def a_changed_report_is_noticed_by_all_that_was_made_of_it(finished: tuple[House, Path]) -> None:
    house, session = finished
    copy = session.parent / "copy"
    shutil.copytree(session, copy, symlinks=True)
    report = next(p for p in copy.glob("phases/phase-01-research/artifacts/**/report.md") if "verticals" in str(p))
    report.write_text(report.read_text() + "\nA person's note.\n")
    explained = house.json("campaign", "--resume", str(copy), "--explain").document["explained"]
    redone = {one["step"] for one in explained if one["does"] != "SKIP"}
    assert any("verticals" in step for step in redone), sorted(redone)[:10]


def test_the_quickstart_tells_its_story(tmp_path: Path) -> None:
    """Run once, and looked at from every side: it takes longest of all tests here."""
    house = House(tmp_path / "house")
    ran = house.json("campaign", str(PLAN), "--session-dir", str(tmp_path / "s"), timeout=280)
    assert ran.code == 0, ran.stderr[-3000:]
    for look in (
        research_says_what_it_left_and_what_each_is_about,
        what_was_approved_goes_on_and_what_was_not_does_not,
        every_case_study_rests_on_passages_and_one_was_sent_back,
        two_versions_and_nothing_lost,
        nothing_of_it_would_be_done_twice,
        a_changed_report_is_noticed_by_all_that_was_made_of_it,
    ):
        look((house, tmp_path / "s"))


def came_to(session: Path) -> dict[str, Any]:
    """As of every run; without times, the name of the session, and the search index, whose pages SQLite orders as it likes."""
    found = kills.came_to_of(session)

    def plain(data: bytes) -> bytes:
        data = re.sub(rb"[\w.-]+/(research|again)\b", rb"S/\1", data.replace(str(session).encode(), b"S"))
        # of the session that was copied, where they were made before that
        data = re.sub(rb'"(source_manifest|nonce)": "[^"]*"', b"M", data)
        data = re.sub(rb'"[^"]*/given/', b"G/", data)
        data = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"T", data)
        return re.sub(rb'"(sha256|made_of|index_sha256|digest)": "[0-9a-f-]+"|"(size|total_size_bytes)": \d+', b"H", data)

    return {**found, "files": {name: plain(data) for name, data in found["files"].items() if not name.endswith(".sqlite")}}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "every", [pytest.param(25, marks=pytest.mark.crash), pytest.param(100, marks=pytest.mark.long)], ids=["many", "some"]
)
def test_a_kill_anywhere_leaves_outputs_and_knowledge_as_they_would_have_been(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kills, "came_to_of", kills.came_to, raising=False)
    monkeypatch.setattr(kills, "came_to", came_to)
    house = kills.furnished(tmp_path / "house", None)
    found = kills.killed_everywhere(house, [str(PLAN)], tmp_path / "at", every, 0, copied=every)
    with capsys.disabled():
        print(f"\n{kills.table({'downstream quickstart': found})}")
    assert len(found) >= 8 and not kills.sound(found), "\n".join(kills.sound(found)[:5])


# The research before it


@pytest.mark.long
@pytest.mark.rehearsed
def test_a_plan_of_its_own_and_then_everything_that_run_can_give(house: House, model: Any) -> None:
    """As the guide has it: research, then every contract whose inputs it can give, then a question."""
    model(Story())
    session = house.folder / "sessions/20261118-1000-gtm-research"
    ran = house.json("campaign", "gtm-research", "--param", "titles=cfo_cluster", "--session-dir", str(session), timeout=250)
    assert ran.code == 0, ran.stderr[-2000:]
    ran = house.json("downstream", "run", "gtm-research", "--session-dir", str(house.folder / "s"), timeout=250)
    assert ran.code == 0, ran.stderr[-2000:]
    listed = json.loads(next((house.folder / "s").rglob("downstream.json")).read_text())["agents"]
    assert [one["job"] for one in listed] == [
        "case_study_generator:healthcare.cfo_cluster.security",
        "knowledge_base",
        "gtm_content_creator:healthcare.cfo_cluster",
    ]
    asked = house.json("kb", "ask", "Why do we price security per bed in hospitals?", "--no-model")
    assert asked.document["found"] and "price per bed" in asked.document["text"]
    assert asked.document["documents"][0].startswith("domains/security/verticals/healthcare/")


@pytest.mark.parametrize(
    ("total", "word"), [(100, "approved"), (80, "approved"), (79, "revise"), (60, "revise"), (59, "rejected"), (0, "rejected")]
)
def test_what_points_come_to(total: int, word: str) -> None:
    assert gtm.decision(total) == word


def made(tmp_path: Path, item: dict[str, str] | None = None, inputs: dict[str, Any] | None = None, **outputs: str) -> Made:
    for name, text in outputs.items():
        (tmp_path / name).write_text(text)
    task = Task(item=item, inputs=inputs or {})
    return Made(task, {name: str(tmp_path / name) for name in outputs}, str(tmp_path), str(tmp_path))


def test_a_validation_that_does_not_add_up_is_sent_back(tmp_path: Path) -> None:
    scores = {name: {"points": 16, "why": "so"} for name in gtm.SCORES}
    good = {"playbook": "a.b", "scores": scores, "total": 80, "decision": "approved", "summary": "s", "fixes": []}

    def look(**changes: Any) -> list[str]:
        return gtm.validation(made(tmp_path, {"id": "a.b"}, data=json.dumps(good | changes)))

    assert look() == []
    assert "come to 80" in look(total=90)[0]
    assert "80 points are approved" in look(decision="revise")[0]
    assert "you were asked about 'a.b'" in look(playbook="c.d")[0]


def test_a_playbook_has_its_sections_and_an_aligned_one_no_new_figure(tmp_path: Path) -> None:
    text = gtm_corpus.PLAYBOOKS["healthcare.cfo_cluster"]
    assert gtm.playbook(made(tmp_path, playbook=text)) == []
    assert "no section `## Objections`" in gtm.playbook(made(tmp_path, playbook=text.replace("## Objections", "## Replies")))[0]
    assert gtm.report(made(tmp_path, report=gtm_corpus.VERTICALS["healthcare"])) == []
    assert gtm.report(made(tmp_path, report="# T\n\n## Summary\n\nShort.\n"))
    original = tmp_path / "given/healthcare.cfo_cluster"
    from lib.disk import files

    original = tmp_path / "given" / files.safe_name("healthcare.cfo_cluster")
    original.mkdir(parents=True)
    (original / "playbook.md").write_text(text)
    standards = tmp_path / "standards.yaml"
    standards.write_text("avoid: [seamless]\n")
    inputs = {"two": [str(original / "playbook.md")], "standards": str(standards)}

    def look(changed: str) -> list[str]:
        return gtm.aligned(made(tmp_path, {"id": "healthcare.cfo_cluster"}, inputs, playbook=changed))

    assert look(text) == []
    assert "do not stand in the playbook: 75,000" in look(text.replace("64,000", "75,000"))[0]
    assert "avoid: seamless" in look(text.replace("The finance chief", "The seamless finance chief"))[0]


def test_a_whole_run_has_every_combination_of_the_vocabulary(house: House) -> None:
    words = ("downstream_step", "scope", "whole", "--output", "items=items.json", "--session-dir", str(house.folder / "s"))
    ran = house.json(*words, "--input", "categories=x")
    assert ran.code == 0, ran.stderr
    items = json.loads(next((house.folder / "s").rglob("items.json")).read_text())
    assert [len(items[name]) for name in ("categories", "verticals", "titles", "two", "three")] == [6, 6, 6, 36, 216]


def test_context_is_a_users_own_or_the_houses(house: House) -> None:
    (house.workspace / "ours").mkdir()
    (house.workspace / "ours/writing-standards.yaml").write_text("voice: ours\n")
    words = ("--output", "baseline=b.yaml", "--output", "writing_standards=w.yaml")
    session = ("--session-dir", str(house.folder / "s"))
    assert house.json("downstream_step", "context", "--input", "folder=ours", *words, *session).code == 1  # no baseline
    (house.workspace / "ours/baseline.md").write_text("we are we\n")
    ran = house.json("downstream_step", "context", "--input", "folder=ours", *words, "--session-dir", str(house.folder / "s2"))
    assert ran.code == 0, ran.stderr
    assert next((house.folder / "s2").rglob("w.yaml")).read_text() == "voice: ours\n"
    gone = house.json("downstream_step", "context", "--input", "folder=gone", *words, "--session-dir", str(house.folder / "s3"))
    assert "no folder" in gone.error["message"]
