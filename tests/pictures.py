"""Makes the pictures of the guides again, from real runs: `uv run python tests/pictures.py`. Needs Chromium.

The runs go through the real agent CLI against the scripted model. What a terminal shows is drawn by the code that draws it there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS), str(ROOT / "core")]

from lib.view import page, reader  # noqa: E402
from lib.view import terminal as live  # noqa: E402
from scripted_model.server import Reply, Request, Script, fail, say, scripted, tool  # noqa: E402
from support import House, wait_for  # noqa: E402

INTO = ROOT / "config" / "pictures"
WIDTH = 100
PLAN = """version: 1
name: wikis
budget: {usd: 4}
phases:
  - name: research
    run: [{orchestrator: oresearch, params: {topic: Self-hosted wikis}}]
    verify: {checks: [artifacts]}
  - name: build
    depends_on: [research]
    run: [{orchestrator: ospec, modifier: lean, params: {target: docs/wiki.md}}]
    verify: {checks: [pytest, ruff]}
"""


def main() -> None:
    INTO.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        terminal(House(Path(folder) / "running"), INTO / "tree.png")
        report(good(House(Path(folder) / "good")), INTO / "report.png", 1150)
        report(bad(House(Path(folder) / "bad")), INTO / "failed.png", 900)


def researchers(request: Request) -> Reply:
    """One is done, one searches, one waits for its rate limit."""
    agent = request.prompt.split()[0]
    if agent == "/researcher-tech":
        return fail(429)
    if request.turn == 0:
        done = agent == "/researcher-market"
        return (
            say(tool("Write", file_path=request.path("report"), content="# Findings\n"))
            if done
            else say(tool("Grep", pattern="wiki|knowledge base", path=str(Path.cwd())))
        )
    return say("STAGE_RESEARCH_COMPLETE", hang_seconds=0 if agent == "/researcher-market" else 120)


def terminal(house: House, into: Path) -> None:
    from rich.console import Console

    (house.folder / "plan.yaml").write_text(PLAN)
    with played(house, researchers):
        argv = ("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "s"))
        with house.start(*argv, CLAUDE_CODE_MAX_RETRIES="0") as child:
            wait_for(lambda: list((house.folder / "s/.signals").glob("spawn-*tech.parked")), 60, "one is parked")
            wait_for(lambda: '"Grep"' in (house.folder / "s/.live-report").read_text(), 60, "one searches")
            wait_for(lambda: list((house.folder / "s").glob("**/market/attempt-1/outcome.json")), 60, "one is done")
            time.sleep(4)
            seen = reader.Reader(house.folder / "s").look()
            out = Console(record=True, width=WIDTH, force_terminal=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
            for line in live.picture(seen, WIDTH, 30):
                out.print(line)
            child.terminate()
            child.communicate(timeout=60)
    text = out.export_html(inline_styles=True)
    font = "pre{font:15px/1.45 'DejaVu Sans Mono',monospace!important}"
    style = f"<style>body{{background:#14181e;color:#e4e8ee;margin:18px}}{font}</style>"
    path = house.folder / "terminal.html"
    path.write_text(text.replace("</head>", f"{style}</head>").replace("color: #000000; background-color: #ffffff", ""))
    shoot(path, into, 980, 300, dark=True)


def good(house: House) -> Path:
    shutil.copytree(ROOT / "tests/fixtures/quickstart", house.folder / "tests/fixtures/quickstart")
    assert house.json("campaign", "quickstart", "--session-dir", str(house.folder / "quickstart")).code == 0
    return house.folder / "quickstart"


def bad(house: House) -> Path:
    """A researcher that cannot write where it wants to, and one that never delivers."""

    def script(request: Request) -> Reply:
        agent = request.prompt.split()[0]
        if agent == "/researcher-ux":
            wrong = tool("Write", file_path="/etc/report.md", content="x")
            return say(wrong) if not request.turn else say("STAGE_FAILED: no sources")
        if request.turn == 0:
            return say(tool("Write", file_path=request.path("report"), content="# Findings\n"))
        return say("STAGE_CONSOLIDATE_COMPLETE" if "consolidator" in agent else "STAGE_RESEARCH_COMPLETE")

    tight = PLAN.replace("verify: {checks: [artifacts]}", "verify: {checks: [artifacts]}\n    budget: {agents: 5}")
    (house.folder / "plan.yaml").write_text(tight)
    with played(house, script):
        house.json("campaign", str(house.folder / "plan.yaml"), "--session-dir", str(house.folder / "wikis"), timeout=300)
    return house.folder / "wikis"


@contextmanager
def played(house: House, script: Script) -> Iterator[None]:
    with scripted(script) as model:
        house.env |= model.environment(str(house.folder / "claude"))
        yield


def report(session: Path, into: Path, height: int) -> None:
    shoot(page.write(session), into, 1100, height)


def shoot(path: Path, into: Path, width: int, height: int, dark: bool = False) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as known:
        browser = known.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        scheme = "dark" if dark else "light"
        tab = browser.new_context(offline=True, viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
        tab.goto(path.as_uri())
        tab.screenshot(path=into)
        browser.close()
    print(into.relative_to(ROOT))


if __name__ == "__main__":
    main()
