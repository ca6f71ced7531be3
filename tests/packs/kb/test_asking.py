"""Questions: routed in Python, answered at a depth, with documents; a set of them measured; by hand, by MCP and on a page."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packs.downstream import settings
from packs.kb import page, serving
from packs.kb.asking import NOT_THERE, Base, after
from packs.kb.records import DETAIL, FULL, SUMMARY
from packs.kb.routing import ConversationState
from scripted_model import gtm_base
from scripted_model.server import Reply, Request, say, tool
from support import House, at_a_terminal

sys.path.insert(0, str(Path(__file__).parent))
import measure

needs_browser = pytest.mark.skipif(
    not shutil.which("chromium"), reason="no Chromium on this machine (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kb")
    gtm_base.build(made / "kb", made / "w")
    return made / "kb"


@pytest.fixture
def base(folder: Path) -> Iterator[Base]:
    opened = Base(folder / "kb_v2", 2, settings.read().aliases)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("question", "domains", "verticals", "personas", "tier", "across"),
    [
        ("What does a CFO in healthcare fear?", (), ("healthcare",), ("cfo_cluster",), SUMMARY, False),
        ("Tell me everything about ransomware in hospitals", ("security",), ("healthcare",), (), FULL, False),
        ("Explain cloud cost to a bank's CISO", ("cloud",), ("financial_services",), ("security_leadership",), DETAIL, False),
        ("What do security leaders ask?", (), (), ("security_leadership",), SUMMARY, False),  # and not the domain security
        ("Compare healthcare and banking", (), ("financial_services", "healthcare"), (), SUMMARY, True),
        ("Which verticals care about downtime?", (), (), (), SUMMARY, True),
        ("cybersecurity vs cloud", ("cloud", "security"), (), (), SUMMARY, True),
        ("Give me the full playbook for hospital CFOs", (), ("healthcare",), ("cfo_cluster",), FULL, False),
        ("What about cloudy weather?", (), (), (), SUMMARY, False),  # at the bounds of words
    ],
)
def test_where_a_question_belongs(
    base: Base, question: str, domains: Any, verticals: Any, personas: Any, tier: str, across: bool
) -> None:
    route = base.route(question)
    assert (route.domains, route.verticals, route.personas) == (domains, verticals, personas)
    assert (route.tier, route.cross_cutting) == (tier, across)
    assert bool(route.doubt) == (not (domains or verticals or personas or across))


def test_a_conversation_goes_deeper_and_changes_its_subject(base: Base) -> None:
    state = ConversationState(session_id="x")
    depths: list[str] = []
    shown: list[str] = []
    for question in (
        "What hurts a CFO in healthcare?",
        "tell me more",
        "go on",
        "And what does a CISO at a bank fear?",
        "What about retail?",
    ):
        answer = base.ask(question, state)
        state = after(state, answer)
        depths.append(answer.route.tier)
        shown.append(answer.text)
    assert depths[:4] == [SUMMARY, DETAIL, FULL, SUMMARY]
    assert len(shown[0]) < len(shown[1]) < len(shown[2]) and shown[2].startswith("# ")
    assert (state.current_persona, state.current_vertical, state.turn_count) == ("security_leadership", "financial_services", 5)
    assert NOT_THERE in shown[4] and "retail" in shown[4]
    assert state.documents_referenced and all(path in base.by_path for path in state.documents_referenced)


@pytest.mark.parametrize(
    "question", ["", "   ", '"', "a OR b", "x" * 5000, "NEAR(a b)", "); DROP TABLE documents;--", "ヘルスケア", "-", "*"]
)
def test_no_question_breaks_it(base: Base, question: str) -> None:
    answer = base.ask(question)
    assert answer.found in (True, False) and answer.text


def test_answers_name_their_documents_and_say_nothing_else(base: Base) -> None:
    """An answer of sentences is made of sentences that stand in its documents."""
    everything = {one.path: " ".join(base.read(one.path).split()) for one in base.index.documents}
    for one in measure.questions():
        answer = base.ask(one.question)
        if not answer.found:
            assert answer.text.startswith(NOT_THERE) and not answer.documents
            continue
        assert answer.documents and all(path in answer.text for path in answer.documents[:1])
        said = answer.text.partition("\n\n[1]")[0]
        for sentence in said.split(". ")[:1]:
            plain = " ".join(sentence.replace("- ", "").split()).rstrip(".")
            assert any(plain in text.replace("- ", "") for text in everything.values()), sentence


def test_questions_find_their_documents(base: Base) -> None:
    """A hundred and six questions, written by hand, and twelve that nothing answers. The figures are in the benchmark's table."""
    made = measure.measure(base)
    assert made.answerable >= 100 and made.unanswerable >= 10
    assert made.hits / made.answerable >= 0.95, made.misses
    assert made.firsts / made.answerable >= 0.65, made.misses
    assert made.answered / made.answerable >= 0.95, made.misses
    assert made.refused / made.unanswerable >= 0.9, made.misses
    assert made.shown / made.answerable <= 0.02 * made.whole  # tokens of an answer, against reading everything


# By hand


def put(house: House, folder: Path) -> None:
    shutil.copytree(folder, house.workspace / "downstream/knowledge_base")


def test_a_person_asks_and_looks_at_versions(house: House, folder: Path) -> None:
    put(house, folder)
    asked = house.json("kb", "ask", "What does an hour without the record cost a hospital?", "--no-model")
    assert asked.code == 0 and asked.document["found"] and "64,000 dollars" in asked.document["text"]
    assert asked.document["documents"][0].startswith("domains/general/verticals/healthcare/")
    gone = house.json("kb", "ask", "Who won the football championship?", "--no-model")
    assert gone.code == 0 and not gone.document["found"] and gone.document["text"] == NOT_THERE
    old = house.json("kb", "ask", "Which share of the cloud bill has no owner?", "--no-model", "--version", "1")
    assert not old.document["found"]
    more = [
        house.json("kb", "ask", q, "--no-model", "--conversation", "mine").document["tier"]
        for q in ("What do CFOs fear?", "more", "more")
    ]
    assert more == [SUMMARY, DETAIL, FULL]
    assert house.json("kb", "versions").document["current_version"] == 2
    kinds = {one["kind"] for one in house.json("kb", "diff", "1", "2").document["changes"]}
    assert kinds == {"added", "changed"}
    assert (
        house.json("kb", "prune", "--keep", "1").document["versions"] == [1]
        and (house.workspace / "downstream/knowledge_base/kb_v1").exists()
    )
    assert house.json("kb", "prune", "--keep", "1", "--yes").document["removed"]
    assert "no version 1" in house.json("kb", "diff", "1", "2").error["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ask",), "what do you want to know?"),
        (("ask", "two", "words"), "put it into quotes"),
        (("ask", "x", "--kb", "nowhere"), "kb.py build RUN"),
        (("ask", "x", "--conversation", "../x"), "no plain name"),
        (("diff", "1"), "two versions"),
        (("build",), "of which run?"),
        (("chat",), "for a terminal"),
    ],
)
def test_a_wrong_word_is_told_what_to_do(house: House, folder: Path, words: tuple[str, ...], says: str) -> None:
    put(house, folder)
    error = house.json("kb", *words).error
    assert says in f"{error['message']} {error['hint']}", error


def test_a_run_becomes_a_knowledge_base_by_hand(house: House, tmp_path: Path) -> None:
    listed = gtm_base.entries(house.workspace / "up", "security", "healthcare", False, "run_1")
    outputs = [
        {"agent_name": "x", "type": one.type, "dimensions": one.dimensions, "path": one.path, "completion_status": "complete"}
        for one in listed
    ]
    (house.workspace / "up/manifest.json").write_text(json.dumps({"execution_id": "run_1", "outputs": outputs}))
    built = house.json("kb", "build", "up", "--kb", "base")
    assert built.code == 0 and built.document["new"] and built.document["total_documents"] == 24, built.stderr
    again = house.json("kb", "build", "up", "--kb", "base")
    assert not again.document["new"] and "Nothing changed" in again.document["text"]


@pytest.mark.rehearsed
def test_a_librarian_is_asked_only_in_doubt_and_believed_only_as_far_as_it_quotes(house: House, folder: Path, model: Any) -> None:
    put(house, folder)
    path = "cross_cutting/reports/gtm_synthesis.md"
    quotes = ["If introductions by brokers close no faster than others for two quarters", "words that stand nowhere at all"]

    def script(request: Request) -> Reply:
        if request.turn:
            return say("Done.")
        assert path in request.prompt
        passages = [
            {"path": path, "quote": quotes[0]},
            {"path": path, "quote": quotes[1]},
            {"path": "made/up.md", "quote": quotes[0]},
        ]
        return say(tool("StructuredOutput", found=True, answer="The channel would be a habit.", passages=passages))

    scripted = model(script)
    sure = house.json("kb", "ask", "What do CFOs fear?")
    assert sure.document["found"] and not scripted.requests
    doubted = house.json("kb", "ask", "What would make us change our minds?")
    assert doubted.code == 0, doubted.stderr
    assert doubted.document["found"] and doubted.document["documents"] == [path] and doubted.document["dropped"] == 2
    assert "habit" in doubted.document["text"] and path in doubted.document["text"]
    quotes[0] = "this does not stand there either"
    refused = house.json("kb", "ask", "What would make us change our minds?")
    assert not refused.document["found"] and refused.document["text"] == NOT_THERE


# MCP


def test_a_client_of_somebody_elses_searches_and_reads(house: House, folder: Path) -> None:
    """The MCP SDK's own client, over stdio."""
    put(house, folder)
    from mcp import Client, StdioServerParameters

    async def talk() -> dict[str, Any]:
        server = StdioServerParameters(
            command=sys.executable, args=[str(house.folder / "core/kb.py"), "serve"], env=house.env, cwd=str(house.workspace)
        )
        async with Client(server) as client:
            tools = [one.name for one in (await client.list_tools()).tools]
            found = (
                await client.call_tool("search", {"query": "cost of an hour without the record", "vertical": "healthcare"})
            ).structured_content
            best = found["results"][0]["path"]
            texts = [
                (await client.call_tool("read", {"path": best, "depth": d})).structured_content["text"]
                for d in (SUMMARY, DETAIL, FULL)
            ]
            wrong = await client.call_tool("read", {"path": "../../etc/passwd"})
            there = (await client.call_tool("dimensions", {})).structured_content
            asked = [
                (await client.call_tool("ask", {"question": q, "conversation": "c"})).structured_content
                for q in ("What do CFOs fear?", "more")
            ]
            return {"tools": tools, "best": best, "texts": texts, "wrong": wrong, "there": there, "asked": asked}

    said = asyncio.run(talk())
    assert set(said["tools"]) == {"search", "read", "dimensions", "ask"}
    assert "healthcare" in said["best"] and len(said["texts"][0]) < len(said["texts"][1]) < len(said["texts"][2])
    assert said["wrong"].is_error and "no document" in said["wrong"].content[0].text
    assert said["there"]["version"] == 2 and said["there"]["vertical"] == ["financial_services", "healthcare"]
    assert [one["depth"] for one in said["asked"]] == [SUMMARY, DETAIL]


def test_the_real_cli_calls_it(house: House, folder: Path, model: Any) -> None:
    """Claude Code with one line of configuration."""
    put(house, folder)
    import claude_agent_sdk

    def script(request: Request) -> Reply:
        if request.turn == 0:
            return say(tool("mcp__kb__search", query="What do security leaders fear?"))
        return say(f"heard: {'a tool that nobody watches' in request.heard.lower()}")

    model(script)
    configured = {"mcpServers": {"kb": {"command": sys.executable, "args": [str(house.folder / "core/kb.py"), "serve"]}}}
    (house.workspace / "mcp.json").write_text(json.dumps(configured))
    cli = str(Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude")
    words = [cli, "-p", "what do they fear?", "--output-format", "json", "--mcp-config", "mcp.json", "--strict-mcp-config"]
    words += ["--allowedTools", "mcp__kb__search", "--permission-mode", "dontAsk"]
    done = subprocess.run(words, cwd=house.workspace, env=house.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"] == "heard: True", done.stdout


def test_a_document_at_three_depths(base: Base) -> None:
    path = "domains/general/verticals/healthcare/report.md"
    summary, detail, full = (serving.at_depth(base, path, depth) for depth in (SUMMARY, DETAIL, FULL))
    assert summary in " ".join(full.split()) and "## Regulation" in detail and len(summary) < len(detail) < len(full)


# The page


@needs_browser
def test_the_page_is_searched_offline(base: Base, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    place = tmp_path / "kb.html"
    place.write_text(page.html(base))
    complaints: list[str] = []
    with sync_playwright() as known:
        chromium = known.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        tab = chromium.new_context(offline=True).new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: complaints.append(request.url) if not request.url.startswith("file:") else None)
        tab.goto(place.as_uri())
        assert tab.locator("article").count() == 38
        tab.fill("#words", "64,000 dollars")
        assert any("healthcare" in text for text in tab.locator("article .path").all_inner_texts()[:3])
        assert tab.locator("mark").first.inner_text() == "64,000"
        tab.fill("#words", "football")
        assert tab.locator("#count").inner_text() == NOT_THERE and tab.locator("article").count() == 0
        tab.fill("#words", "")
        tab.select_option("select[data-field=domain]", "cloud")
        assert tab.locator("article").count() == 8
        tab.click("article .origin a >> nth=0")
        assert tab.locator("article").count() == 38
        chromium.close()
    assert not complaints


def test_a_page_does_what_no_document_says(base: Base) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    base.by_path = {path: one for path, one in base.by_path.items()}
    first = base.index.documents[0]
    base.index = type(base.index)((type(first)(**{**{n: getattr(first, n) for n in first.__struct_fields__}, "title": evil}),))
    made = page.html(base)
    assert evil not in made and made.count("<script") == 2


def test_a_chat_at_a_terminal(house: House, folder: Path) -> None:
    put(house, folder)
    code, shown = at_a_terminal(house, "kb", [("? ", "What do CFOs fear?\n"), ("? ", "tell me more\n"), ("? ", "\n")], "chat")
    assert code == 0 and "A cost that grows by itself" in shown
