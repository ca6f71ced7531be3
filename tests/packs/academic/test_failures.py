"""The failure table of the seed, row by row: what is tried again and how often, what is skipped, what stops, who is asked.

The rows of browsers are in test_browsing, those of setup in test_people, those of what agents leave in test_gate.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from io import BytesIO
from pathlib import Path

import pikepdf
import pytest
from packs.academic.folder import HANDOVERS, Folder
from packs.academic.state import PHASES
from scripted_model import academic_papers
from scripted_model.academic_desk import Desk
from scripted_model.academic_library import times
from support import ROOT, House, Ran

pytestmark = pytest.mark.rehearsed
EXAMPLES = ROOT / "config/packs/academic/examples"


def errors(desk: Desk) -> Counter[tuple[int, str, str]]:
    return Counter((e["phase"], e["item"], e["error"].partition(":")[0]) for e in desk.state["errors"])


def damaged() -> bytes:
    """A PDF whose second half is missing."""
    whole = academic_papers.pdf(academic_papers.PAPERS[1])
    return whole[: len(whole) // 2]


def scanned() -> bytes:
    """Pictures of pages, and nothing else."""
    from PIL import Image

    made = BytesIO()
    Image.new("RGB", (300, 400), "white").save(made, "PDF")
    return made.getvalue()


def armed() -> bytes:
    made = BytesIO()
    with pikepdf.open(BytesIO(academic_papers.pdf(academic_papers.PAPERS[0]))) as pdf:
        pdf.Root.OpenAction = pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS="app.alert(1)")
        pdf.save(made)
    return made.getvalue()


@pytest.mark.long
def test_one_run_with_every_kind_of_trouble_goes_on_and_says_what_it_did(desk: Desk) -> None:
    """A service that is down, one that has nothing, one that is busy for a moment; a damaged paper, one with a script in it, one
    behind a paywall, one that is gone, one that comes with the second try."""
    library = desk.library
    library.trouble["/crossref/works?"] = lambda: (500, {}, b"{}")
    library.trouble["/arxiv"] = lambda: (
        200,
        {"Content-Type": "application/atom+xml"},
        b'<feed xmlns="http://www.w3.org/2005/Atom"></feed>',
    )
    library.trouble["/s2"] = times(2, (429, {}, b"{}"))  # the first is the probe's
    library.files |= {"sleep": damaged(), "limits": armed()}
    library.trouble["/pdf/night"] = times(1, (503, {}, b"later"))
    library.trouble["/doi/10.5555/strata.2024.night"] = times(1, (503, {}, b"later"))
    ran = desk.configure(search={"max_iterations": 2}).run()
    assert ran.code == 0, ran.stderr[-3000:]

    found = desk.read("metadata/candidates.json")
    assert [s["database"] for s in found["skipped"]] == ["Crossref"] and "500" in found["skipped"][0]["reason"]
    assert set(found["databases_searched"]) == {"OpenAlex", "Semantic Scholar", "arXiv"}
    again = errors(desk)
    assert again[2, "Crossref", "HTTP_500"] == 3, "tried twice more, then skipped, and not asked in the next round"
    assert [(r["item"], r["after_seconds"]) for r in desk.state["retries"]][:1] == [("Semantic Scholar", 0.05)], "busy: it waited"
    said = (desk.root / "logs/phase_2.log").read_text()
    assert "Crossref is skipped" in said and "arXiv has nothing for" in said

    papers = {d["id"]: d for d in desk.read("downloads/downloads.json")["downloads"]}
    names = {c["id"]: next(p["name"] for p in academic_papers.PAPERS if p["title"] == c["title"]) for c in found["candidates"]}
    codes = {names[one]: d["code"] for one, d in papers.items()}
    assert codes == {
        "night": None, "sleep": "CORRUPT_PDF", "limits": "UNSAFE_PDF", "roofs": "NOT_A_PDF", "albedo": "HTTP_403",
        "survey": "HTTP_404", "withdrawn": "NOT_A_PDF",
    }  # fmt: skip
    tries = {names[one]: d["tries"] for one, d in papers.items()}
    assert tries["night"] == 2, "what may come right is tried twice"
    assert {tries[n] for n in ("albedo", "survey", "sleep", "limits")} == {1}, "what no retry helps is not tried again"
    assert [p.name for p in (desk.root / "downloads").glob("*.pdf")] == [d["filename"] for d in papers.values() if d["filename"]]

    assert len(desk.read("outputs/quote_library.json")["quotes"]) == 3
    report = (desk.root / "outputs/search_report.md").read_text()
    assert "skipped: " in report and "critical" in report, "few candidates, few papers, few quotes: an alarm each"
    assert {a["level"] for a in desk.state["alarms"].values()} == {"critical"}


@pytest.mark.long
def test_no_database_answers_and_the_run_stops_with_all_reasons(desk: Desk) -> None:
    for path in ("/openalex", "/crossref", "/s2", "/arxiv"):
        desk.library.trouble[path] = lambda: (500, {}, b"{}")
    ran = desk.configure(search={"max_iterations": 2}).run()
    assert ran.code == 1
    told = json.dumps(ran.document)
    assert "ALL_DATABASES" in told and all(name in told for name in ("OpenAlex", "Crossref", "Semantic Scholar", "arXiv"))
    assert not [one for one in desk.scholars.asked if one.startswith("candidate-assessor")]
    assert [count for (_, _, code), count in errors(desk).items() if code == "HTTP_500"] == [3] * 4


@pytest.mark.long
def test_a_question_that_is_too_broad_asks_whatever_was_answered_beforehand(desk: Desk) -> None:
    ran = desk.configure(search={"max_iterations": 1, "too_broad": 2}).run()
    assert ran.code == 3
    assert "too broad" in desk.state["waiting"]["question"] and desk.state["waiting"]["stage"] == "check1"
    assert desk.library.asked("/pdf/") == 0
    assert desk.run("--answer", "check1=yes").code == 0, "a person may say that it is meant so"


@pytest.mark.long
def test_a_scanned_paper_without_ocr_and_one_without_an_answer_are_said_to_be_so(desk: Desk) -> None:
    desk.library.files["sleep"] = scanned()
    desk.scholars.lies = lambda source, honest: [] if any("Light crowns" in q["quote"] for q in honest) else honest
    desk.scholars.annotation = lambda source, said: None if said and "120 street canyons" in said else said
    ran = desk.configure(search={"max_iterations": 1}, papers={"ocr": False}).run()
    assert ran.code == 0, ran.stderr[-2000:]
    skipped = [p["skipped"] for p in desk.read("outputs/quotes.json")["papers"]]
    assert len(skipped) == 3 and [one for one in skipped if one] == ["its pages are pictures, and this machine has no OCR"]
    assert len(desk.read("outputs/quote_library.json")["quotes"]) == 3
    assert "is not read: its pages are pictures" in (desk.root / "logs/phase_5.log").read_text()
    flow = (desk.root / "outputs/prisma.svg").read_text()
    assert "Reports excluded (n = 2)" in flow


@pytest.mark.long
def test_when_nobody_could_read_a_good_bibliography_stays(desk: Desk) -> None:
    """Agents that give up for all papers are no review without quotes."""
    assert desk.configure(search={"max_iterations": 1}).run().code == 0
    before = (desk.root / "outputs/quote_library.json").read_text()
    desk.scholars.fails = {"quote-extractor"}
    ran = desk.run("--from", "text")
    assert ran.code == 1 and "NOBODY_READ" in json.dumps(ran.document)
    assert (desk.root / "outputs/quote_library.json").read_text() == before
    assert desk.state["phase_status"]["5"] == "failed"
    desk.scholars.fails = {"candidate-assessor"}
    assert "NOBODY_ASSESSED" in json.dumps(desk.run("--from", "open3").document)


# One step at a time, over a folder


def folder(house: House, name: str = "run") -> Path:
    """A run whose every handover is the example of its contract."""
    root = house.workspace / name
    for known, handover in HANDOVERS.items():
        (root / handover.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(EXAMPLES / f"{known}.json", root / handover.file)
    (root / "logs").mkdir()
    return root


def step(house: House, tool: str, action: str, *outputs: str, **env: str) -> Ran:
    wanted = [word for one in outputs for word in ("--output", f"{one}={one}.json")]
    return house.json(tool, action, "run", *wanted, **env)


# By step of the phase that takes it: which handovers it needs.
TAKES: list[tuple[str, str, str, str]] = [
    ("academic_step", "begin", "entries", "run_config"),
    ("academic_step", "open1", "brief", "databases"),
    ("academic_search", "open2", "entries", "search_strings"),
    ("academic_step", "open3", "batches", "candidates"),
    ("academic_paper", "text", "entries", "downloads"),
]


@pytest.mark.parametrize(("tool", "action", "output", "needs"), TAKES, ids=str)
def test_a_phase_does_not_begin_with_what_is_missing_or_broken_and_says_who_owes_it(
    house: House, tool: str, action: str, output: str, needs: str
) -> None:
    root = folder(house)
    handover = HANDOVERS[needs]
    owner = "setup" if handover.phase is None else f"phase {handover.phase} ({PHASES[handover.phase]})"
    path = root / handover.file
    whole = json.loads(path.read_text())
    for broken, code in ((None, "MISSING_HANDOVER"), ("{", "BAD_HANDOVER"), (json.dumps({**whole, "odd": 1}), "BAD_HANDOVER")):
        path.unlink(missing_ok=True)
        if broken is not None:
            path.write_text(broken)
        ran = step(house, tool, action, output)
        assert (ran.code, ran.error["code"]) == (1, code), ran.error
        assert handover.file in ran.error["message"] and owner in ran.error["hint"], ran.error


def test_a_choice_is_of_the_ranking_that_was_seen_and_an_edit_behind_it_is_a_choice(house: House) -> None:
    root = folder(house)
    ranking = root / "metadata/ranked_candidates.json"
    seen = json.loads(ranking.read_text())
    first = seen["ranked"][0] | {"selected": True}
    seen["ranked"] = [first, *(first | {"id": f"C000{n}", "rank": n} for n in (2, 3))]
    found = json.loads((root / "metadata/candidates.json").read_text())
    found["candidates"] = [found["candidates"][0] | {"id": f"C000{n}"} for n in (1, 2, 3)]
    (root / "metadata/candidates.json").write_text(json.dumps(found))
    Folder(root).give("ranked_candidates", seen)
    (root / "answer.json").write_text(json.dumps({"answer": "1,3", "at": "T"}))
    wanted = ("--input", "answer=run/answer.json", "--output", "entries=entries.json")

    def selected() -> list[int]:
        ran = house.json("academic_step", "open4", "run", *wanted)
        assert ran.code == 0, ran.stderr
        (entries,) = (Path(one["path"]) for one in ran.document["outputs"])
        marked = [one["id"] for one in json.loads(ranking.read_text())["ranked"] if one["selected"]]
        assert [one["id"] for one in json.loads(entries.read_text())["entries"]] == marked, "what is marked is what is fetched"
        return [one["rank"] for one in json.loads(ranking.read_text())["ranked"] if one["selected"]]

    assert selected() == [1, 3]
    Folder(root).give("ranked_candidates", seen)
    assert selected() == [1, 3], "it was ranked again, and came to the same: the choice is of that, too"
    ranking.write_text(json.dumps(seen | {"ranked": [one | {"selected": True} for one in seen["ranked"]]}))
    assert selected() == [1, 2, 3], "what a person marks behind that is their choice"


def test_one_run_belongs_to_one_session(house: House) -> None:
    root = folder(house)
    first = house.json(
        "academic_step", "begin", "run", "--output", "entries=entries.json", "--session-dir", str(house.folder / "s1")
    )
    assert first.code == 0
    second = house.json(
        "academic_step", "begin", "run", "--output", "entries=entries.json", "--session-dir", str(house.folder / "s2")
    )
    assert second.code == 1 and second.error["code"] == "RUN_IN_USE" and "s1" in second.error["hint"]
    shutil.rmtree(house.folder / "s1")
    third = house.json(
        "academic_step", "begin", "run", "--output", "entries=entries.json", "--session-dir", str(house.folder / "s2")
    )
    assert third.code == 0 and root.is_dir()


def small_disk() -> bool:
    """Whether this machine lets us have a disk of a few pages."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.skipif(not small_disk(), reason="a small disk takes root and a mount namespace")
def test_a_full_disk_stops_at_once_and_is_not_tried_again(house: House) -> None:
    """A real one: the run lies on a disk of 96 kB, of which a file has taken all but a little."""
    root = folder(house)
    kept = house.workspace / "kept"
    shutil.copytree(root, kept)
    argv = house.argv("academic_step", "open3", "run", "--output", "batches=batches.json", "--output-format", "json")
    fill = (
        f"mount -t tmpfs -o size=96k none {root} && cp -r {kept}/. {root}/ && dd if=/dev/zero of={root}/full bs=1k 2>/dev/null; "
    )
    script = fill + 'exec "$@"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *argv],
        cwd=house.workspace,
        env=house.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    document = json.loads(ran.stdout)
    assert ran.returncode == 11, ran.stderr
    assert document["error"]["code"] == "DISK_FULL" and "make room" in document["error"]["hint"]
