"""Four systems in small, on one runtime: each is replayed from a session recorded through the real CLI."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import ROOT, House, Ran

FIXTURES = ROOT / "tests" / "fixtures"
sys.path.insert(0, str(FIXTURES))

import make  # noqa: E402 - the script that records them also knows how to run them


def replay(house: House, name: str, *flags: str) -> Ran:
    return make.RUNS[name](house, "--driver", "replay", "--fixtures", str(FIXTURES / name), *flags)


def stages(ran: Ran) -> dict[str, dict]:
    return {s["name"]: s for s in ran.document["stages"]}


def items(stage: dict) -> dict[str, str]:
    return {i["name"]: i["status"] for i in stage["items"]}


def attempts(house: House) -> list[Path]:
    return sorted(house.session.glob("**/attempt-*"))


def test_forge_loops_back_on_findings_and_on_failed_verification(house: House) -> None:
    make.furnish(house, "forge")
    ran = replay(house, "forge")
    assert ran.code == 0, ran.stderr
    found = stages(ran)
    assert [found[n]["round"] for n in ("design", "critique", "merge", "plan", "build")] == [2] * 5
    home = house.session / "forge"
    assert "tokens" in (home / "loops/redesign-1.md").read_text()
    assert "b (it was too hard)" in (home / "loops/replan-1.md").read_text()
    first = json.loads((house.session / "forge/loops/replan-1.json").read_text())
    assert first["stage"] == "build"
    build = home / "stages/05-build"
    assert (build / "round-1/b/attempt-1/outcome.json").exists()
    assert not (build / "round-1/c").exists(), "c waits for b, which failed: it must not have been started"
    assert items(found["build"]) == {"a": "success", "b": "success", "c": "success"}


def test_forge_lean_runs_only_the_stages_it_keeps(house: House) -> None:
    make.furnish(house, "forge")
    ran = replay(house, "forge", "--modifier", "lean", "--accept-drift")
    assert ran.code == 0, ran.stderr
    assert {s["name"]: s["status"] for s in ran.document["stages"]} == dict.fromkeys(("plan", "build", "judge"), "success")


def test_deep_research_has_one_report_done_again_and_deepens_only_the_gaps(house: House) -> None:
    make.furnish(house, "deep_research")
    ran = replay(house, "deep_research")
    assert ran.code == 0, ran.stderr
    found = stages(ran)
    tries = {i["name"]: i["attempts"] for i in found["wave"]["items"]}
    assert tries == {"believer": 1, "sceptic": 2}, "the complaint is that one's, and never the whole wave's"
    assert items(found["second_wave"]) == {"gap-1": "success"}
    lesson = house.session / "deep_research/stages/01-wave/sceptic/lesson-2.md"
    assert "it lacks Sources" in lesson.read_text()


def test_deep_research_without_grave_gaps_has_no_second_wave(house: House) -> None:
    make.furnish(house, "deep_research")
    believer = ("--param", "topic=Does it work?", "--param", "perspectives=believer")
    flags = ("--driver", "replay", "--fixtures", str(FIXTURES / "deep_research"), "--accept-drift")
    ran = house.json("orchestrator", "deep_research", *believer, *flags)
    assert ran.code == 0, ran.stderr
    second = stages(ran)["second_wave"]
    assert (second["status"], second["note"]) == ("success", "0 of 0 succeeded")


def test_academic_waits_for_a_person_then_skips_what_cannot_be_fetched(house: House) -> None:
    make.furnish(house, "academic")
    first = replay(house, "academic")
    assert first.code == 3
    assert first.document["summary"] == {"total": 4, "passed": 1, "failed": 0, "waiting": 1, "warnings": 0, "exit_code": 3}
    waiting = first.document["waiting"]
    assert waiting["question"].startswith("Which of these")
    assert json.loads(Path(waiting["show"][0]).read_text())["candidates"]
    session = ("--session-dir", str(house.session))
    wrong = replay(house, "academic", *session, "--answer", 'choose={"papers": []}')
    assert (wrong.code, wrong.error["code"]) == (1, "USAGE")
    chosen = json.dumps({"ids": ["10.1000/1", "10.1000/2", "10.1000/3"]})
    second = replay(house, "academic", *session, "--answer", f"choose={chosen}")
    assert second.code == 12, second.stderr
    found = stages(second)
    assert found["search"]["skipped"]
    assert items(found["fetch"]) == {"10.1000/1": "success", "10.1000/2": "failure", "10.1000/3": "success"}
    quotes = json.loads(Path(found["quotes"]["artifact"]).read_text())["quotes"]
    assert quotes == ["The text of", "The text of"]
    tried = [i["attempts"] for i in found["fetch"]["items"]]
    assert tried == [1, 1, 1], "no retry helps where there is a wall"
    again = replay(house, "academic", *session)
    assert again.code == 12, "a partial success never turns into a success on a second run"
    assert stages(again)["choose"]["status"] == "success", "an answer that was given is not asked for again"


def test_an_answer_is_asked_for_again_when_what_was_shown_has_changed(house: House) -> None:
    make.furnish(house, "academic")
    replay(house, "academic")
    session = ("--session-dir", str(house.session))
    assert replay(house, "academic", *session, "--answer", 'choose={"ids": ["10.1000/1"]}').code == 0
    assert replay(house, "academic", *session).code == 0
    record = next(house.session.glob("academic/stages/02-choose/answer.json"))
    answer = json.loads(record.read_text())
    assert answer["by"]
    assert list(answer["shown"]) == ["artifacts/academic/01-search/candidates.json"]
    (house.folder / "prompts/executors/searcher.md").write_text(
        (house.folder / "prompts/executors/searcher.md").read_text() + "\nLook twice.\n"
    )
    shown = house.session / "artifacts/academic/01-search/candidates.json"
    fixture = house.folder / "another"
    shutil.copytree(FIXTURES / "academic", fixture)
    first = next(fixture.rglob("attempt-1"))
    second = shutil.copytree(first, first.with_name("attempt-2"))
    meta = second / "meta.json"
    meta.write_text(meta.read_text().replace("Paper 1", "Paper One"))
    flags = ("--driver", "replay", "--fixtures", str(fixture), *session)
    assert make.RUNS["academic"](house, *flags).code == 3, "the search found something else: the choice is open again"
    assert "Paper One" in shown.read_text()


def test_downstream_blocks_what_depends_on_a_failure_and_posts_the_rest(house: House) -> None:
    make.furnish(house, "downstream")
    ran = replay(house, "downstream")
    assert ran.code == 0, ran.stderr
    found = stages(ran)
    assert items(found["derive"]) == {
        "extract": "success",
        "case_study": "failure",
        "gtm": "blocked",
        "knowledge": "success",
    }
    assert json.loads(Path(found["deliver"]["artifact"]).read_text()) == {"received": ["extract", "knowledge"]}


@pytest.mark.parametrize("name", ["forge", "deep_research", "downstream"])
def test_a_second_run_of_a_finished_session_does_nothing_again(house: House, name: str) -> None:
    make.furnish(house, name)
    first = replay(house, name)
    before = attempts(house)
    manifest = first.document["stages"]
    second = replay(house, name, "--session-dir", str(house.session))
    new = [str(p) for p in attempts(house) if p not in before]
    if name == "downstream":
        assert new == [], "its address is the same, and what it said is recorded"
    else:
        assert (second.code, new) == (0, [])
        assert [s["name"] for s in second.document["stages"] if not s["skipped"]] == [
            s["name"] for s in manifest if s["name"] == "second_wave" and not s.get("items")
        ]


@pytest.mark.long
def test_a_recording_made_again_is_the_same(tmp_path: Path) -> None:
    """CI makes one fixture again through the real CLI and compares what does not depend on the clock."""
    again = make.record("deep_research", tmp_path)
    kept = FIXTURES / "deep_research"
    assert {p.relative_to(again) for p in again.rglob("*")} == {p.relative_to(kept) for p in kept.rglob("*")}
    for path in sorted(again.rglob("*")):
        other = kept / path.relative_to(again)
        if path.name in ("prompt.md", "system.md", "output.md") or "files" in path.parts:
            assert path.is_dir() or path.read_bytes() == other.read_bytes(), path
        elif path.name == "meta.json":
            assert comparable(path) == comparable(other), path


def comparable(meta: Path) -> dict:
    document = json.loads(meta.read_text())
    for volatile in ("duration_seconds", "agent_session_id"):
        document["answer"].pop(volatile)
    return document
