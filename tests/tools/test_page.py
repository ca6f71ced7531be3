"""report.html in a real browser: Debian's Chromium, driven by playwright. Without one these are skipped, and say so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lib.view import page, reader
from support import ROOT, WORKER, House, plan, some

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine (Debian: apt-get install chromium)")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"\'\u202eevil'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as known:
        chromium = known.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def shown(browser: Any) -> Iterator[Any]:
    """Opens a report offline and holds everything the browser complains about."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    tab = context.new_page()
    tab.complaints = []
    tab.on("console", lambda message: tab.complaints.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.complaints.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: tab.complaints.append(request.url) if not request.url.startswith("file:") else None)

    def open_report(session: Path) -> Any:
        tab.goto(page.write(session).as_uri())
        return tab

    yield open_report
    context.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart: recorded agents, a loop, a sentinel cycle that mends something."""
    house = House(tmp_path_factory.mktemp("page") / "house")
    shutil.copytree(ROOT / "tests/fixtures/quickstart", house.folder / "tests/fixtures/quickstart")
    ran = house.json("campaign", "quickstart", "--session-dir", str(house.folder / "s"))
    assert ran.code == 0, ran.stderr[-2000:]
    return house.folder / "s"


def failed(house: House) -> Path:
    house.tool("worker", WORKER)
    house.orchestrator(
        "version: 1\nname: trial\nstages:\n  - {name: good, tool: worker.py, args: [good]}\n"
        "  - {name: broken, tool: worker.py, args: [broken], retry: {max: 1}}\n"
        "  - {name: never, tool: worker.py, args: [never]}\n"
    )
    (house.folder / "plan.yaml").write_text(
        f"version: 1\nname: sad\ndescription: {json.dumps(EVIL)}\nphases:\n"
        "  - {name: one, run: [{orchestrator: trial}], verify: {none: a test}}\n"
        "  - {name: two, depends_on: [one], run: [{orchestrator: trial}], verify: {none: a test}}\n"
    )
    plan(house, broken="fail")
    house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"))
    return house.folder / "s"


def test_a_run_leaves_its_report_and_it_loads_nothing_from_elsewhere(finished: Path) -> None:
    text = (finished / "report.html").read_text()
    assert "still going" not in text
    assert "default-src 'none'" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert 'src="' not in text


@needs_browser
def test_a_good_run_opens_folds_filters_and_adds_up(finished: Path, shown) -> None:
    tab = shown(finished)
    assert tab.title() == "quickstart: success"
    lines = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()]
    sums = lines[-1]["sums"][""]
    assert float(tab.inner_text("#total-usd")) == pytest.approx(sums["usd"], abs=1e-6)
    assert int(tab.inner_text("#total-tokens").replace(",", "")) == sums["tokens"]
    rows = tab.locator("table", has_text="in the ledger").locator("tbody tr td:last-child").all_inner_texts()
    assert sum(map(float, rows)) == pytest.approx(sums["usd"], abs=1e-5), "the stages add up to it"
    assert tab.inner_text("#count") == "14 steps"
    tab.fill("#search", "review")
    assert tab.inner_text("#count") == "1 of 14 steps"
    assert tab.locator(".timeline .row:visible").count() == 2, "the axis, and one row"
    assert tab.locator(".steps > details:visible").count() == 1
    tab.press("#search", "Escape")
    assert tab.inner_text("#count") == "14 steps"
    tab.click("#problems")
    assert "build" in tab.locator("details.phase:visible").inner_text()
    tab.click("#problems")
    tab.click("#close")
    assert tab.locator(".steps > details[open]").count() == 0
    tab.click("#open")
    assert tab.locator("details.group:not([open])").count() == 0
    assert tab.complaints == []


@needs_browser
def test_an_attempt_shows_its_prompt_answer_and_tool_calls_when_it_is_opened(finished: Path, shown) -> None:
    tab = shown(finished)
    assert tab.locator("pre", has_text="Working folder").count() == 0, "on demand"
    stage = tab.locator("details.stage", has=tab.locator("> summary .what", has_text="plan")).first
    stage.locator("> summary").click()
    attempt = stage.locator("details.attempt").first
    attempt.locator("> summary").click()
    attempt.locator("pre").first.wait_for()  # it is filled when the browser says that it was opened
    words = attempt.inner_text()
    assert "Working folder" in words
    assert "STAGE_PLAN_COMPLETE" in words
    assert "Tool calls" in words
    assert attempt.locator(".call").count() >= 1
    assert tab.complaints == []


@needs_browser
def test_it_can_be_used_by_keyboard_and_read_aloud(finished: Path, shown) -> None:
    tab = shown(finished)
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.type("audit")
    assert tab.inner_text("#count") == "1 of 14 steps"
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('input,button,svg[role=img],[role=region],nav')].filter(n =>"
        " !(n.getAttribute('aria-label') || n.getAttribute('aria-labelledby') || n.innerText ||"
        " document.querySelector(`label[for='${n.id}']`))).map(n => n.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    assert tab.evaluate("document.documentElement.lang") == "en"
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids)), "every place is one place"
    links = tab.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))")
    broken = [link for link in links if link not in ids]
    assert broken == []


@needs_browser
def test_a_failed_run_says_what_to_look_at_first(house: House, shown) -> None:
    tab = shown(failed(house))
    first = tab.inner_text(".first")
    assert "ESCALATED" in first
    assert "--resolution" in first
    tab.locator(".first a").click()
    assert tab.locator("details.attempt:target").count() == 1
    assert tab.locator("details.attempt:target").is_visible()
    assert tab.locator(".leaf.step", has_text="never").count() == 1, "what did not run any more is there"
    assert "blocked" in tab.locator("details.phase, .leaf", has_text="two").last.inner_text() or tab.locator("#two").count()
    assert tab.complaints == []


@needs_browser
def test_nothing_an_agent_or_a_file_brings_along_runs(house: House, shown) -> None:
    session = failed(house)
    name = '"><svg onload=window.pwned=1>.md'
    attempt = next(session.glob("**/01-good/attempt-1"))
    (attempt / "output.md").write_text(EVIL)
    (attempt / "prompt.md").write_text("</script><script>window.pwned=1</script>" + EVIL)
    (attempt / "transcript.jsonl").write_text(
        json.dumps({"content": [{"id": "1", "name": EVIL, "input": {"command": EVIL}}]})
        + "\n"
        + json.dumps({"content": [{"tool_use_id": "1", "content": EVIL, "is_error": True}]})
        + "\n"
    )
    outcome = json.loads((attempt / "outcome.json").read_text())
    outcome |= {"note": EVIL, "agent": EVIL, "model": EVIL, "denials": [{"tool_name": EVIL, "tool_input": {"x": EVIL}}]}
    (attempt / "outcome.json").write_text(json.dumps(outcome))
    (session / "escalations").mkdir(exist_ok=True)
    (session / "escalations" / name.replace("/", "_")).write_text(EVIL)
    moved = session.with_name(f"s {EVIL[:40]}".replace("/", "_"))
    session.rename(moved)
    tab = shown(moved)
    tab.click("#open")
    for summary in tab.locator("details:not([open]) > summary").all():
        if summary.is_visible():
            summary.click()
    tab.fill("#search", EVIL)
    tab.fill("#search", "")
    assert tab.evaluate("window.pwned") is None
    assert tab.locator("main img, main script, main svg[onload]").count() == 0
    assert "onerror" in tab.inner_text("main"), "it is there, as text"
    assert "\u202e" not in tab.content().replace(json.dumps("\u202e"), ""), "and nothing turns the line around"
    assert tab.complaints == []


@needs_browser
def test_a_thousand_stages_open(house: House, shown, capsys: pytest.CaptureFixture[str]) -> None:
    session = failed(house)
    stages = next(session.glob("phases/phase-01-one/trial/stages"))
    for number in range(1000):
        shutil.copytree(stages / ("02-broken" if number % 100 == 99 else "01-good"), stages / f"{number + 10}-copy-{number}")
    tab = shown(session)
    assert tab.inner_text("#count").endswith("steps")
    assert tab.locator(".timeline .row").count() > 1000
    assert tab.locator("details.phase").first.is_visible()
    tab.fill("#search", "copy-77")
    assert tab.inner_text("#count").startswith("11 of"), "77, and 770 to 779"
    tab.fill("#search", "")
    tab.click("#problems")
    assert int(tab.inner_text("#count").split()[0]) >= 10
    spent = tab.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    with capsys.disabled():
        size = (session / "report.html").stat().st_size // 1000
        print(f"\nreport.html with 1,000 stages: {size} kB, complete after {spent:.0f} ms")
    assert tab.complaints == []


DAMAGE = [
    {"usage": ["x"], "denials": "all", "cost_usd": "much", "turns": "x", "error": "bad", "duration_seconds": "long"},
    {"usage": {"m": 3}, "denials": ["x", 3], "exit_code": [1], "status": {}, "finished_at": 7, "note": ["n"], "agent": 3},
    ["not", "an", "object"],
]


@pytest.mark.parametrize("damage", some(DAMAGE, 3), ids=["words", "figures", "a list"])
def test_what_somebody_did_to_an_outcome_changes_neither_the_run_nor_the_page(house: House, damage: object) -> None:
    session = failed(house)
    path = next(session.glob("**/01-good/attempt-1/outcome.json"))
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | damage if isinstance(damage, dict) else damage))
    assert "sad" in page.text(session)
    assert house.run("session", "show", str(session)).code == 0
    assert house.json("session", "list", "--session-base", str(house.folder)).code == 0


def test_a_report_can_be_made_of_a_run_that_was_killed_at_once(house: House, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/.trace").write_text("0123456789abcdef\n")
    (tmp_path / "s/manifest.json").write_text("{")
    assert "Nothing has run yet" in page.text(tmp_path / "s")
    assert reader.Reader(tmp_path / "s").look().root.status == "pending"
