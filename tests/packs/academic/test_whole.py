"""The quickstart, replayed once and looked at from every side: what it promises is true, offline, and stays true on a resume."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import bibtexparser
import pytest
from lib.disk import schemas
from lib.evidence import quotes
from packs.academic import pdfs
from packs.academic.folder import HANDOVERS
from scripted_model.academic_desk import CHROMIUM
from support import ROOT, House
from tools import test_kills as kills

PLAN = ROOT / "config/plans/academic-quickstart.yaml"


class Finished:
    """A run that has ended."""

    def __init__(self, house: House, session: Path, root: Path) -> None:
        self.house, self.session, self.root = house, session, root

    def read(self, name: str) -> Any:
        return json.loads((self.root / name).read_text())

    def text(self, name: str) -> str:
        return (self.root / "outputs" / name).read_text()


def every_handover_keeps_its_contract(run: Finished) -> None:
    for name, handover in HANDOVERS.items():
        assert schemas.describe(run.read(handover.file), schemas.load(f"academic/{name}")) == [], name
    assert schemas.describe(run.read("research_state.json"), schemas.load("academic/research_state")) == []
    assert set(run.read("research_state.json")["phase_status"].values()) == {"completed"}
    assert all((run.root / f"logs/phase_{n}.log").stat().st_size for n in range(7))


def every_quote_stands_on_its_page_and_the_changed_one_does_not(run: Finished) -> None:
    """Read with the bare library, page by page: nothing of the pack is asked."""
    library = run.read("outputs/quote_library.json")
    names = {s["source_id"]: s["filename"] for s in library["sources"]}
    assert len(library["quotes"]) == 8
    for quote in library["quotes"]:
        pages = pdfs.text(run.root / "downloads" / names[quote["source_id"]]).pages
        assert quotes.find(quote["quote"], pages[quote["page"] - 1]), quote
        assert len(quote["quote"].split()) <= 35
    (rejected,) = run.read("outputs/rejected_quotes.json")["rejected"]
    assert "most of the benefit" in rejected["quote"] and "much of the benefit" in rejected["nearest"]
    everything = "".join(p.read_text() for p in (run.root / "outputs").glob("*") if p.name != "rejected_quotes.json")
    assert "most of the benefit" not in everything


def every_paper_that_is_said_to_be_there_is_there(run: Finished) -> None:
    listed = run.read("downloads/downloads.json")
    on_disk = {p.name for p in (run.root / "downloads").glob("*.pdf")}
    assert {d["filename"] for d in listed["downloads"] if d["status"] == "success"} == on_disk
    assert listed["success_count"] == len(on_disk) == 3
    for one in listed["downloads"]:
        if one["status"] == "success":
            data = (run.root / "downloads" / one["filename"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == one["sha256"] and len(data) == one["bytes"]
        else:
            assert one["reason"] and one["code"]


def the_flow_adds_up(run: Finished) -> None:
    """Counted here from the handovers, and compared with what was drawn."""
    found, ranked = run.read("metadata/candidates.json"), run.read("metadata/ranked_candidates.json")["ranked"]
    chosen = sum(one["selected"] for one in ranked)
    there = run.read("downloads/downloads.json")["success_count"]
    counts = {
        "Records identified": sum(q["taken"] for q in found["queries"]),
        "duplicates removed": found["duplicates_removed"],
        "Records screened": len(found["candidates"]),
        "Records not chosen": len(ranked) - chosen,
        "Reports sought": chosen,
        "Reports not retrieved": chosen - there,
        "Reports assessed": there,
    }
    drawn = run.text("prisma.svg")
    assert {name: int(re.findall(rf"{name} \(n = (\d+)\)", drawn)[0]) for name in counts} == counts
    assert counts["Records identified"] - counts["duplicates removed"] == counts["Records screened"]
    for query in found["queries"]:
        assert query["query"].replace("|", "\\|") in run.text("search_report.md")


def the_bibliography_is_one(run: Finished) -> None:
    parsed = bibtexparser.parse_string(run.text("bibliography.bib"))
    assert not parsed.failed_blocks and len(parsed.entries) == 3
    authors = {e.key: e["author"] for e in parsed.entries}
    assert authors["odegard2025when"] == "Ødegård, Jørgen and Peña, Ana-Lucía"
    fields = {e.key: {f.key: f.value for f in e.fields} for e in parsed.entries}
    printed = {name: fields["lindqvist2024street"][name] for name in ("volume", "number", "pages")}
    assert printed == {"volume": "12", "number": "3", "pages": "201--219"}
    assert "ahead of print" not in run.text("references_chicago-author-date.txt")
    for style, sign in (("apa", "(2024)"), ("ieee", "[1]"), ("chicago-author-date", "2024.")):
        assert sign in run.text(f"references_{style}.txt")
    said = run.text("Annotated_Bibliography.md")
    assert "8 quotes from 3 papers" in said and "1 other that was proposed was not" in said
    assert "Chosen, and not available" in said and "paywall" in said


def nothing_is_done_again(run: Finished) -> None:
    before = {p: p.read_bytes() for p in run.root.rglob("*") if p.is_file()}
    explained = run.house.json("campaign", "--resume", str(run.session), "--explain").document["explained"]
    assert {one["does"] for one in explained} == {"SKIP"}
    assert run.house.json("campaign", "--resume", str(run.session)).code == 0
    assert {p: p.read_bytes() for p in run.root.rglob("*") if p.is_file()} == before


def its_page_shows_the_passage(run: Finished) -> None:
    """In a browser: a click marks the passage on the picture of its page, and nothing is loaded from anywhere."""
    if not CHROMIUM:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"])
        tab = browser.new_page(viewport={"width": 1300, "height": 900})
        asked: list[str] = []
        wrong: list[str] = []
        tab.on("request", lambda r: asked.append(r.url))
        tab.on("console", lambda m: wrong.append(m.text))
        tab.on("pageerror", lambda e: wrong.append(str(e)))
        tab.goto((run.root / "outputs/quotes.html").as_uri())
        shown = tab.locator("button.q")
        assert shown.count() == 8
        for number in range(8):
            shown.nth(number).click()
            assert tab.locator("figure i").count() >= 1
            box, picture = tab.locator("figure i").first.bounding_box(), tab.locator("figure img").bounding_box()
            assert box and picture and picture["y"] <= box["y"] <= picture["y"] + picture["height"]
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert wrong == []


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    house = House(tmp_path / "house")
    session = house.sessions / "quickstart"
    ran = house.json("campaign", str(PLAN), "--session-dir", str(session), timeout=250)
    assert ran.code == 0, ran.stderr[-3000:]
    assert ran.document["agent_sessions"] == 5
    return Finished(house, session, session / "workspace/trees")


def test_the_quickstart_ends_with_a_bibliography_a_person_would_keep(finished: Finished) -> None:
    for claim in (
        every_handover_keeps_its_contract,
        every_quote_stands_on_its_page_and_the_changed_one_does_not,
        every_paper_that_is_said_to_be_there_is_there,
        the_flow_adds_up,
        the_bibliography_is_one,
        its_page_shows_the_passage,
        nothing_is_done_again,
    ):
        claim(finished)


def came_to(session: Path) -> dict[str, Any]:
    """As of every run; without times, names of folders, and logs that say when."""
    found = kills.came_to_of(session)

    def plain(name: str, data: bytes) -> bytes:
        data = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"T", data)
        data = re.sub(rb'"session": "[^"]*"', b"S", data)
        return re.sub(rb'"[\w/.]+\.json(?: as edited)?": "[0-9a-f]{64}"', b"H", data) if name.endswith("given.json") else data

    kept = {n: plain(n, d) for n, d in found["files"].items() if "/logs/" not in n or n.endswith("given.json")}
    return {**found, "files": {n: b"" if n.endswith("research_state.json") else d for n, d in kept.items()}}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "every", [pytest.param(10, marks=pytest.mark.crash), pytest.param(60, marks=pytest.mark.long)], ids=["many", "some"]
)
def test_a_kill_anywhere_leaves_the_review_as_it_would_have_been(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kills, "came_to_of", kills.came_to, raising=False)
    monkeypatch.setattr(kills, "came_to", came_to)
    house = kills.furnished(tmp_path / "house", None)
    shutil.rmtree(tmp_path / "at", ignore_errors=True)
    found = kills.killed_everywhere(house, [str(PLAN)], tmp_path / "at", every, 0, copied=every)
    with capsys.disabled():
        print(f"\n{kills.table({'academic quickstart': found})}")
    assert len(found) >= 8 and not kills.sound(found), "\n".join(kills.sound(found)[:5])
