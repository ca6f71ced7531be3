"""Forge from a request to reviewed code, on a small project: agents are scripted, everything else is real."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packs.forge.memory import SECTIONS
from packs.forge.tables import CRITICS
from scripted_model.server import Request, say, tool
from support import House, Ran

pytestmark = pytest.mark.rehearsed
NOTES = {
    "artifacts": [{"path": "x.md", "sections": ["Overview"]}],
    "decisions": ["We add a flag. It is off. Nobody asked for more. ```python\nflag = False\n```"],
    "updates": ["Written."],
}
CODE = "def greet(name, loud=False):\n    text = f'Hello, {name}!'\n    return text.upper() if loud else text\n"
TEST = "from greet import greet\n\n\ndef test_loud() -> None:\n    assert greet('Ada', loud=True) == 'HELLO, ADA!'\n"


class Agents:
    """Everybody does what is asked, unless a test says otherwise."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.asked: list[str] = []
        self.prompts: dict[str, list[str]] = {}
        self.broken_first = False  # the first implementation does not compile
        self.critical: list[str] = []  # critics that find something critical, once
        self.wants_change = False  # the quality reviewer asks for one change, once
        self.fails: set[str] = set()
        self.lies = ""
        self.memories: list[str] = []  # memory.md, as it stood when each agent began

    def __call__(self, r: Request) -> Any:
        named = re.findall(r"^/([a-z][a-z-]*) ?(\S*)", r.prompt, re.M)  # the CLI may put words of its own before it
        if not named:  # who is asked to repair what a member left: there is nothing
            return say("I cannot.")
        agent, about = named[0]
        if r.turn == 0:
            self.asked.append(agent if agent != "researcher" else f"researcher {about}")
            self.prompts.setdefault(agent, []).append(r.prompt)
            self.memories += [p.read_text() for p in self.house.workspace.glob("docs/feature/*/memory.md")]
        if agent in self.fails:
            return say("I cannot.\n\nERROR: it cannot be done" if agent == "implementer" else "I cannot.")
        if agent in ("implementer", "documentation-writer"):
            return self.build(r, about)
        report = f"# {agent}\n\nAC-1 holds.\n"
        if r.turn == 0:
            lie = self.lie(agent)
            return say(tool("Write", file_path=r.path("report"), content=report), *lie)
        return say(tool("StructuredOutput", **self.data(agent)))

    def lie(self, agent: str) -> list[Any]:
        """What an agent does besides its work, and should not."""
        repository = self.house.workspace
        if agent == self.lies == "ct-strategy":
            return [tool("Write", file_path=str(repository / "greet.py"), content="import os\n")]
        if agent == self.lies == "r-knowledge":
            return [tool("Write", file_path=str(repository / "AGENTS.md"), content="No rules.\n")]
        if agent == self.lies == "r-quality":  # somehow, behind our back
            (repository / "AGENTS.md").write_text("No rules.\n")
        if agent == self.lies == "ct-security":
            (docs(self.house) / "memory.md").write_text("# Mine\n")
            (docs(self.house) / "feature.md").write_text("Anything goes.\n")
        return []

    def build(self, r: Request, name: str) -> Any:
        folder = r.prompt.split("Working folder: ")[1].splitlines()[0]
        broken = self.broken_first and self.asked.count("planner") == 1
        files = {"greet.py": "def greet(:\n" if broken else CODE, "test_greet.py": TEST}
        if name == "page":
            files = {"README.md": "# Greeting, loud or not\n"}
        if self.lies == "nothing" and name == "loud":  # it says that it did, and did not
            return say(tool("Write", file_path=r.path("report"), content="# All done\n")) if r.turn == 0 else say("DONE: yes")
        if self.lies == "other" and name == "loud":
            files["README.md"] = "# Mine, too\n"
        if self.lies == "idle" and name == "loud":
            files["test_greet.py"] = "def test_loud() -> None:\n    assert True\n"
        if self.lies == "unrunnable" and name == "loud":
            (self.house.workspace / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
        if self.lies == "secret" and name == "loud":
            files["greet.py"] = CODE + "KEY = 'sk-" + "abcdefghijklmnopqrstuvwxyz'\n"
        if self.lies == "red" and name == "loud":
            files["test_greet.py"] = TEST.replace("HELLO", "HALLO")
        if r.turn == 0:
            return say(*(tool("Read", file_path=f"{folder}/{n}") for n in files))
        if r.turn == 1:
            writes = [tool("Write", file_path=f"{folder}/{n}", content=text) for n, text in files.items()]
            return say(*writes, tool("Write", file_path=r.path("report"), content="# Done\n"))
        return say("DONE: yes")

    def data(self, agent: str) -> dict[str, Any]:
        once = self.asked.count(agent) == 1
        if agent == "researcher":
            return {"findings": [], "cross_cutting": []}
        if agent in ("synthesist", "designer"):
            return {"notes": NOTES}
        if agent == "spec":
            return {"criteria": [{"id": "AC-1", "text": "it can be loud"}], "notes": NOTES}
        if agent == "planner":
            return {"tasks": self.tasks(), "notes": NOTES}
        if agent in ("v-tasks", "v-feature"):
            code = {"file": "greet.py", "line": 3, "text": "return text.upper() if loud"}
            page = {"file": "README.md", "line": 1, "text": "# Greeting, loud or not"}
            seen = {"loud-1": code, "page-1": page} if agent == "v-tasks" else {"AC-1": code}
            return {"criteria": [{"id": n, "result": "pass", "evidence": e} for n, e in seen.items()], "findings": []}
        if agent == "r-knowledge":
            good = {
                "category": "pattern-capture",
                "title": "Flags are off",
                "file": "AGENTS.md",
                "why": "It was asked.",
                "diff": "+Flags are off.",
            }
            bad = {**good, "title": "Fewer tests", "diff": "-Always run the tests."}
            return {"proposals": [good, bad], "decisions": [{"title": "A flag, not a function", "decision": "loud=False"}]}
        grave = agent in self.critical and once
        wanted = agent == "r-quality" and self.wants_change and once
        found = [
            {
                "severity": "critical" if grave else "major" if wanted else "minor",
                "claim": f"{agent} found something",
                "where": "greet.py:1",
            }
        ]
        return {"findings": found, "cross_cutting": [f"{agent} looks beyond"]}

    def tasks(self) -> list[dict[str, Any]]:
        first = {"id": "loud", "goal": "it can be loud", "agent": "implementer", "files": ["greet.py", "test_greet.py"]}
        first |= {"criteria": [{"id": "loud-1", "text": "upper case"}]}
        page = {
            "id": "page",
            "goal": "the page says so",
            "agent": "documentation-writer",
            "files": ["README.md"],
            "depends_on": ["loud"],
        }
        page |= {"criteria": [{"id": "page-1", "text": "it is there"}]}
        return [first, page]


@pytest.fixture
def agents(house: House, model) -> Agents:
    git = ["git", "-C", str(house.workspace), "-c", "user.name=x", "-c", "user.email=x@x"]
    (house.workspace / "greet.py").write_text("def greet(name):\n    return f'Hello, {name}!'\n")
    (house.workspace / "README.md").write_text("# Greeting\n")
    (house.workspace / "pyproject.toml").write_text("[project]\nname = 'greet'\nversion = '1'\n")
    command = "['{python}', -m, pytest, -q, -p, no:cacheprovider]"
    text = f"version: 1\nchecks:\n  quick: {{command: {command}, parser: pytest}}\n"
    (house.workspace / "checks.yaml").write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    made = Agents(house)
    model(made)
    return made


def forge(house: House, *flags: str) -> Ran:
    words = ["Greet loudly", "--slug", "loud", "--tests", "quick", "--checks", str(house.workspace / "checks.yaml")]
    return house.json("forge", *words, "--session-dir", str(house.folder / "s"), *flags, timeout=280)


def docs(house: House) -> Path:
    return house.workspace / "docs/feature/loud"


def test_a_feature_goes_from_its_request_to_reviewed_code(house: House, agents: Agents) -> None:
    """TS-1, TS-8, TS-10, TS-11, TS-12, TS-13; MEM-AC-1, CT-AC-1..9, V-AC-1..10, R-AC-1..11, RES-AC-1..6"""
    ran = forge(house)
    assert ran.code == 0, (ran.document.get("error"), ran.stderr[-2000:])
    assert "upper()" in (house.workspace / "greet.py").read_text() and "loud" in (house.workspace / "README.md").read_text()
    here = sorted(str(p.relative_to(docs(house))) for p in docs(house).rglob("*") if p.is_file())
    for name in (
        "initial-request.md", "memory.md", "analysis.md", "feature.md", "design.md", "design_critical_review.md", "plan.md",
        "tasks.json", "tasks/loud.md", "verifier.md", "review.md", "decisions.md", "verification/v-build.md",
        "review/knowledge-suggestions.md",
        *(f"research/{n}.md" for n in ("architecture", "impact", "dependencies", "patterns")),
        *(f"ct-review/{n}.{kind}" for n in CRITICS for kind in ("md", "json")),
        *(f"verification/v-{n}.md" for n in ("suite", "tests", "tasks", "feature", "proof")),
        *(f"review/r-{n}.md" for n in ("quality", "security", "testing", "knowledge", "scan")),
    ):  # fmt: skip
        assert name in here, name
    memory = (docs(house) / "memory.md").read_text()
    assert memory.startswith("# Operational Memory") and memory.count("\n") <= 200
    critique = (docs(house) / "design_critical_review.md").read_text()
    assert "## Cross-Cutting Concerns" in critique and "(ct-strategy)" in critique
    proposals = (docs(house) / "review/knowledge-suggestions.md").read_text()
    assert "Do NOT apply without human review" in proposals and "## Rejected" in proposals and "Fewer tests" in proposals
    assert not (house.workspace / "AGENTS.md").exists(), "a proposal is no change"
    assert all("## Memory" in p for name in ("designer", "planner", "ct-security", "r-quality") for p in agents.prompts[name])
    # TS-7, TS-15, MEM-AC-7, MEM-AC-8: at every moment an agent began
    entries = [line for text in agents.memories for line in text.splitlines() if line.startswith("- ")]
    assert entries and all(text.count("\n") <= 200 for text in agents.memories)
    assert all(len(re.findall(r"[.!?](?:\s|$)", line)) <= 2 and "flag = False" not in line for line in entries)
    assert all(tuple(re.findall(r"^## (.+)$", text, re.M)) == SECTIONS for text in agents.memories)
    before = len(agents.asked)
    assert forge(house).code == 0 and len(agents.asked) == before, "nothing finished is done twice"


@pytest.mark.long
def test_a_critical_finding_sends_the_design_back_once_and_the_whole_cluster_looks_again(house: House, agents: Agents) -> None:
    """TS-2; CT-AC-6, CT-AC-7, ORCH-AC-8"""
    agents.critical = ["ct-security"]
    ran = forge(house)
    assert ran.code == 0, ran.stderr[-2000:]
    assert agents.asked.count("designer") == 2
    assert all(agents.asked.count(f"ct-{n}") == 2 for n in ("security", "scalability", "maintainability", "strategy"))
    assert "review:" in agents.prompts["designer"][1] and "before:" in agents.prompts["designer"][1], "it is told why"


@pytest.mark.long  # the quickstart has one, too
def test_a_build_that_fails_is_planned_again_and_nobody_verifies_it(house: House, agents: Agents) -> None:
    """TS-3; V-AC-1, V-AC-3, V-AC-5"""
    agents.broken_first = True
    ran = forge(house)
    assert ran.code == 0, ran.stderr[-2000:]
    assert agents.asked.count("planner") == 2 and agents.asked.count("v-tasks") == 1
    assert "upper()" in (house.workspace / "greet.py").read_text()


@pytest.mark.long
def test_a_review_that_asks_for_a_change_has_one_round(house: House, agents: Agents) -> None:
    """R-AC-8"""
    agents.wants_change = True
    ran = forge(house)
    assert ran.code == 0, ran.stderr[-2000:]
    assert agents.asked.count("planner") == 2 and agents.asked.count("r-quality") == 2
    assert "asked:" in agents.prompts["planner"][1]


@pytest.mark.long
def test_a_task_that_was_never_done_is_found_out_and_the_end_is_true(house: House, agents: Agents) -> None:
    """TS-4; phantom work, and three rounds that do not help, end with 12 and never with 0"""
    agents.lies = "nothing"
    ran = forge(house)
    assert ran.code == 12, ran.stderr[-2000:]
    assert agents.asked.count("planner") == 4, "three replans, and no more"
    assert "loud is marked done, and it changed none of its files" in (docs(house) / "verifier.md").read_text()
    report = (house.folder / "s/execution-report.md").read_text()
    assert "loud is marked done" in report.split("## Result")[0], "what stays open stands at the top"


@pytest.mark.long
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("idle", "its tests (test_greet.py) pass without its code (greet.py)"),
        ("red", "quick: 1 error"),  # and every verifier says that all is well
        ("unrunnable", "quick: pytest ended with 4"),  # a suite that cannot run is not one without tests
    ],
)
def test_a_liar_among_implementers_and_verifiers_ends_with_12(house: House, agents: Agents, lie: str, words: str) -> None:
    """A test that calls nothing; a red suite that everybody calls green."""
    agents.lies = lie
    ran = forge(house)
    assert ran.code == 12, ran.stderr[-2000:]
    assert words in (docs(house) / "verifier.md").read_text()
    assert agents.asked.count("planner") == 4


@pytest.mark.long
def test_a_task_does_not_write_into_the_file_of_another(house: House, agents: Agents) -> None:
    agents.lies = "other"
    ran = forge(house)
    assert ran.code == 0 and "Mine, too" not in (house.workspace / "README.md").read_text()
    (outcome,) = [json.loads(p.read_text()) for p in house.folder.glob("s/forge/stages/*-build/**/loud/attempt-*/outcome.json")]
    assert "README.md" in str(outcome["denials"]), "it was refused, and it is on record"


@pytest.mark.long
def test_critics_and_reviewers_write_nothing_besides_their_own_files(house: House, agents: Agents) -> None:
    """A critic that writes code, an R-Knowledge that edits what tells agents how to work: refused, and on record."""
    (house.workspace / "AGENTS.md").write_text("Be kind.\n")
    for agent, place in (("ct-strategy", "greet.py"), ("r-knowledge", "AGENTS.md")):
        before = (house.workspace / place).read_text()
        agents.lies = agent
        ran = forge(house, "--from", "critique" if agent.startswith("ct") else "review") if agents.asked else forge(house)
        assert ran.code == 0, ran.stderr[-2000:]
        assert place == "greet.py" or (house.workspace / place).read_text() == before
        outcomes = [json.loads(p.read_text()) for p in house.folder.glob(f"s/forge/stages/*/**/{agent}/attempt-*/outcome.json")]
        assert any(outcome.get("denials") for outcome in outcomes), f"{agent} was not refused"
    assert "import os" not in (house.workspace / "greet.py").read_text()


@pytest.mark.long
def test_what_tells_agents_how_to_work_is_compared_before_and_after_the_review(house: House, agents: Agents) -> None:
    """R-AC-6, KE-SAFE-1: whoever did it, a changed AGENTS.md stops the feature"""
    agents.lies = "r-quality"
    ran = forge(house)
    assert ran.code == 1, ran.stderr[-2000:]
    assert "AGENTS.md was changed during the review" in (docs(house) / "review.md").read_text()


@pytest.mark.long
def test_a_secret_in_the_code_stops_the_feature_although_a_session_keeps_none(house: House, agents: Agents) -> None:
    """The diff that reviewers are given has its secrets taken out; the scanner reads the repository."""
    agents.lies = "secret"
    ran = forge(house)
    assert ran.code == 1 and "looks like a secret" in ran.error["message"], ran.error
    assert "sk-abcdefghijklmnopqrstuvwxyz" not in (docs(house) / "review.md").read_text()


@pytest.mark.long
def test_an_artifact_that_somebody_else_changed_is_found_out_and_the_memory_is_put_back(house: House, agents: Agents) -> None:
    """MEM-INT-AC-5; one creator per artifact"""
    agents.lies = "ct-security"
    ran = forge(house)
    assert ran.code == 0, ran.stderr[-2000:]
    warnings = " ".join(ran.document["warnings"])
    assert "memory.md was damaged" in warnings and "feature.md was changed by somebody else" in warnings
    assert (docs(house) / "memory.md").read_text().startswith("# Operational Memory")
    assert any("# Mine" in p.read_text() for p in (house.folder / "s/artifacts/theirs").glob("*"))


@pytest.mark.long
def test_a_person_is_asked_after_the_design_and_before_the_commit(house: House, agents: Agents) -> None:
    """The last word is a person's, and what is committed is what the tasks own and the artifacts, nothing else."""
    (house.workspace / "mine.txt").write_text("not part of it\n")
    git = ["git", "-C", str(house.workspace)]
    subprocess.run([*git, "config", "user.name", "x"], check=True)
    subprocess.run([*git, "config", "user.email", "x@x"], check=True)
    ran = forge(house, "--ask")
    assert ran.code == 3 and "planner" not in agents.asked
    assert "approve_design" in str(ran.document["waiting"])
    ran = forge(house, "--ask", "--answer", "approve_design=revise")
    assert ran.code == 3 and agents.asked.count("designer") == 2
    ran = forge(house, "--ask", "--answer", "approve_design=yes")
    assert ran.code == 3 and "approve_merge" in str(ran.document["waiting"])
    log = lambda: subprocess.run([*git, "log", "--oneline"], check=True, capture_output=True, text=True).stdout  # noqa: E731
    assert len(log().splitlines()) == 1
    ran = forge(house, "--ask", "--answer", "approve_merge=yes")
    assert ran.code == 0, ran.stderr[-2000:]
    assert "Greet loudly" in log()
    left = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    assert left.split() == ["??", "mine.txt"]


@pytest.mark.long
def test_a_no_in_the_plan_puts_the_repository_back_and_keeps_the_work(house: House, agents: Agents) -> None:
    plan = (house.folder / "config/plans/forge.yaml").read_text()
    (house.folder / "plan.yaml").write_text(f"{plan}checks: {house.workspace / 'checks.yaml'}\n")
    words = ["--param", "request=Greet loudly", "--param", "slug=loud", "--param", "tests=quick"]
    session = ["--session-dir", str(house.folder / "s")]
    ran = house.json("campaign", str(house.folder / "plan.yaml"), *words, *session, timeout=280)
    assert ran.code == 3 and "planner" not in agents.asked, ran.stderr[-2000:]
    resume = lambda answer: house.json("campaign", "--resume", session[1], "--answer", answer, timeout=280)  # noqa: E731
    assert resume("approve_design=yes").code == 3
    assert "upper()" in (house.workspace / "greet.py").read_text()
    ended = resume("approve_merge=no")
    assert ended.code in (1, 3), ended.stderr[-2000:]
    assert "upper()" not in (house.workspace / "greet.py").read_text(), "it is as it was"
    refs = subprocess.run(["git", "-C", str(house.workspace), "for-each-ref", "refs/strata"], check=True, capture_output=True)
    assert refs.stdout.strip(), "what was built is kept"


@pytest.mark.long
@pytest.mark.parametrize(("who", "code"), [("r-knowledge", 0), ("r-security", 1)])
def test_knowledge_never_blocks_and_security_always_does(house: House, agents: Agents, who: str, code: int) -> None:
    """TS-5, TS-6; R-AC-4, R-AC-5"""
    agents.fails = {who}
    ran = forge(house)
    assert ran.code == code, ran.stderr[-2000:]
    text = (docs(house) / "review.md").read_text()
    assert f"{who}: it is missing" in text


@pytest.mark.long
@pytest.mark.parametrize("failed", [("ct-strategy",), ("ct-strategy", "ct-security")])
def test_one_critic_may_fail_and_two_may_not(house: House, agents: Agents, failed: tuple[str, ...]) -> None:
    """One is asked once more, then its side is named as missing; two fail the cluster, which is run once more."""
    agents.fails = set(failed)
    ran = forge(house)
    if len(failed) == 1:
        assert ran.code == 0, ran.stderr[-2000:]
        assert "ct-strategy: nobody looked at this side" in (docs(house) / "design_critical_review.md").read_text()
        assert any("nobody looked at this side" in warning for warning in ran.document["warnings"])
    else:
        assert ran.code == 1 and "planner" not in agents.asked
        assert (house.folder / "s/forge/loops/recritique-1.json").exists()


def test_every_agent_has_the_shape_of_the_template() -> None:
    """CT-AC-8, V-AC-8, R-AC-10, MEM-INT-AC-1..4, TS-9"""
    from support import ROOT

    heads = [
        "Role",
        "Inputs",
        "Outputs",
        "Operating rules",
        "Workflow",
        "Output format",
        "Completion contract",
        "Anti-drift anchor",
    ]
    found = sorted((ROOT / "prompts/forge").glob("*.md"))
    assert len(found) == 18
    for path in found:
        text = path.read_text()
        assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == heads, path.name
        assert 30 <= len(text.splitlines()) <= 120, path.name
        assert "- `memory`" in text.split("## Inputs")[1].splitlines()[1], "memory is the first input"
        assert text.split("## Workflow")[1].strip().startswith("1. Read the memory"), path.name
        assert "Memory first" in text.split("## Operating rules")[1].split("## ")[0], path.name
    lines = (ROOT / "config/packs/forge/orchestrators/forge.yaml").read_text().splitlines()
    assert len(lines) < 550, "ORCH-AC-14"


def test_a_person_takes_a_proposal_by_its_number(house: House) -> None:
    """KE-SAFE-4: shown as a diff, applied with git, or refused with the reason"""
    from packs.forge.knowledge import Knowledge, Proposal, suggestions

    subprocess.run(["git", "-C", str(house.workspace), "init", "-q"], check=True)
    (house.workspace / "AGENTS.md").write_text("# Rules\n\nBe kind.\n")
    added = Proposal("pattern-capture", "Flags", "AGENTS.md", "", "add", "why", "+Flags are off.")
    changed = Proposal("instruction-update", "Kinder", "AGENTS.md", "", "update", "why", "-Be kind.\n+Be very kind.")
    stale = Proposal("instruction-update", "Gone", "AGENTS.md", "", "update", "why", "-Not there.\n+x")
    fresh = Proposal("skill-update", "New", "docs/new.md", "", "add", "why", "+# New")
    place = house.workspace / "docs/feature/loud/review/knowledge-suggestions.md"
    place.parent.mkdir(parents=True)
    place.write_text(suggestions(Knowledge((added, changed, stale, fresh))))
    listed = house.json("forge", "knowledge", "list").document["proposals"]
    assert [(p["number"], p["title"]) for p in listed] == [(1, "Flags"), (2, "Kinder"), (3, "Gone"), (4, "New")]
    for number in ("1", "2", "4"):
        ran = house.json("forge", "knowledge", "apply", number)
        assert ran.code == 0, ran.stderr
    assert (house.workspace / "AGENTS.md").read_text() == "# Rules\n\nBe very kind.\nFlags are off.\n"
    assert (house.workspace / "docs/new.md").read_text() == "# New\n"
    assert house.json("forge", "knowledge", "apply", "3").error["code"] == "DOES_NOT_FIT"
    assert "there is no proposal 9" in house.json("forge", "knowledge", "apply", "9").error["message"]


@pytest.mark.long
def test_the_door_takes_a_request_and_says_where_it_goes(house: House, agents: Agents) -> None:
    words = ["Greet loudly, please", "--tests", "quick", "--checks", str(house.workspace / "checks.yaml")]
    ran = house.json("forge", *words, "--session-dir", str(house.folder / "s"), timeout=280)
    assert ran.code == 0, ran.stderr[-2000:]
    assert (house.workspace / "docs/feature/greet-loudly-please/review.md").exists()
    assert "put it into quotes" in house.json("forge", "Greet", "loudly").error["hint"]
