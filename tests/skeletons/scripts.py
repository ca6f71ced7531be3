"""What the scripted model says in the skeletons. Recording them is the only thing these scripts are for."""

from __future__ import annotations

from scripted_model.server import Reply, Request, by_agent, say, tool

COMPLETE = "STAGE_TASK_COMPLETE"


def write(request: Request, output: str, text: str, last: str = COMPLETE) -> Reply:
    """Writes one output on the first turn and ends on the second."""
    if request.turn == 0:
        return say(tool("Write", file_path=request.path(output), content=text))
    return say(f"Written.\n\n{last}")


def returns(request: Request, **data: object) -> Reply:
    return say(tool("StructuredOutput", **data)) if "StructuredOutput" in request.tools else say("no tool for it")


def sent_back(request: Request) -> bool:
    return "sent the work back" in request.prompt


def designer(request: Request) -> Reply:
    words = "Revised: tokens expire." if sent_back(request) else "Tokens live for ever."
    return write(request, "doc", f"# Design\n\n{words}\n")


def critic(request: Request) -> Reply:
    """Reads what it is given before it judges, so that its verdict follows the document and not the round."""
    if request.turn == 0:
        return say(tool("Read", file_path=request.path("design")))
    grave = "Tokens live for ever" in request.heard
    return returns(request, findings=[{"severity": "Critical" if grave else "Minor", "claim": "tokens" if grave else "naming"}])


def planner(request: Request) -> Reply:
    second = "simpler" if sent_back(request) else "too hard"
    tasks = [
        {"id": "a", "agent": "implementer", "goal": "the base", "depends_on": []},
        {"id": "b", "agent": "implementer", "goal": second, "depends_on": ["a"]},
        {"id": "c", "agent": "documentation-writer", "goal": "the page", "depends_on": ["b"]},
    ]
    return returns(request, tasks=tasks)


def builder(request: Request) -> Reply:
    if "too hard" in request.prompt:
        return say("I tried.\n\nSTAGE_FAILED: it was too hard")
    return write(request, "result", "Done as asked.\n")


FORGE = by_agent(
    designer=designer, critic=critic, planner=planner, implementer=builder, documentation__writer=builder
)  # fmt: skip


def explorer(request: Request) -> Reply:
    """The sceptic forgets a section until it is told, and finds a gap that deserves a second wave."""
    sceptic = '"sceptic"' in request.prompt
    gaps = "- (P0) nobody measured it\n" if sceptic else "- (P3) colour of the box\n"
    sources = "" if sceptic and "not accepted" not in request.prompt else "# Sources\n- https://example.org/1\n"
    return write(request, "report", f"# Findings\nIt works.\n{sources}# Gaps\n{gaps}", "STAGE_EXPLORE_COMPLETE")


def deepener(request: Request) -> Reply:
    text = "# Findings\nMeasured now.\n# Sources\n- https://example.org/2\n# Gaps\n"
    return write(request, "report", text, "STAGE_DEEPEN_COMPLETE")


DEEP_RESEARCH = by_agent(
    perspective_EXPLORE=explorer,
    perspective_DEEPEN=deepener,
    synthesist=lambda r: write(r, "synthesis", "# Synthesis\nAll in all, yes.\n"),
)

ACADEMIC = by_agent(
    searcher=lambda r: returns(r, candidates=[{"id": f"10.1000/{n}", "title": f"Paper {n}"} for n in (1, 2, 3)]),
)

DOWNSTREAM = by_agent(
    extractor=lambda r: write(r, "text", "An extract.\n", "DONE: extracted"),
    case__study=lambda r: say("ERROR: there is no case to study"),
)


# The orchestrators of the house itself


def researcher(request: Request) -> Reply:
    domain = request.prompt.split()[0].removeprefix("/researcher-")
    return write(request, "report", f"# Findings\nSeen from the side of {domain}.\n", "STAGE_RESEARCH_COMPLETE")


def consolidator(request: Request) -> Reply:
    return write(request, "report", "# In short\nThree sides, one answer.\n", "STAGE_CONSOLIDATE_COMPLETE")


ORESEARCH = by_agent(
    researcher__market=researcher,
    researcher__ux=researcher,
    researcher__tech=researcher,
    researcher__consolidator=consolidator,
)

# What passes the review and is still not right: a name of spaces greets nobody, and an import is left over.
PASSABLE_CODE = "import re\n\n\ndef greet(name: str) -> str:\n    return f\"Hello, {name or 'stranger'}!\"\n"
GOOD_CODE = "def greet(name: str) -> str:\n    return f\"Hello, {name.strip() or 'stranger'}!\"\n"
POOR_CODE = 'def greet(name: str) -> str:\n    return f"Hello, {name}!"\n'
TEST_CODE = 'from greet import greet\n\n\ndef test_greet() -> None:\n    assert greet("Ada") == "Hello, Ada!"\n'


def implement(request: Request) -> Reply:
    """The first implementation forgets the empty name; the second knows what the review found, and no more."""
    folder = request.prompt.split("Working folder: ")[1].splitlines()[0]
    if request.turn == 0:  # the CLI lets nobody overwrite a file they have not read
        return say(*(tool("Read", file_path=f"{folder}/{name}") for name in ("greet.py", "test_greet.py")))
    if request.turn == 1:
        code = PASSABLE_CODE if sent_back(request) else POOR_CODE
        return say(
            tool("Write", file_path=f"{folder}/greet.py", content=code),
            tool("Write", file_path=f"{folder}/test_greet.py", content=TEST_CODE),
            tool("Write", file_path=request.path("summary"), content="# Done\n\n- greet.py\n- test_greet.py\n"),
        )
    return say("Implemented.\n\nSTAGE_IMPLEMENT_COMPLETE")


def review(request: Request) -> Reply:
    folder = request.prompt.split("Working folder: ")[1].splitlines()[0]
    if request.turn == 0:
        return say(tool("Read", file_path=f"{folder}/greet.py"))
    good = "stranger" in request.heard
    if request.turn == 1:
        found = "Nothing." if good else "Major: an empty name greets nobody."
        return say(tool("Write", file_path=request.path("review"), content=f"# Review\n\n{found}\n"))
    return say("DONE: it is right" if good else "NEEDS_REVISION: an empty name greets nobody")


OSPEC = by_agent(
    spec__plan=lambda r: write(r, "plan", "# Plan\n\n1. greet.py with its test.\n", "STAGE_PLAN_COMPLETE"),
    spec__implement=implement,
    spec__review=review,
    spec__test=lambda r: write(r, "report", "# Tests\n\nAll criteria hold.\n", "STAGE_TEST_COMPLETE"),
)


# The sentinel


ACCEPTANCE_SPEC = """# What must hold

1. `greet("Ada")` is `Hello, Ada!`: test_acceptance.py::test_a_name
2. `greet("")` is `Hello, stranger!`: test_acceptance.py::test_nobody[empty]
3. `greet("  ")` is `Hello, stranger!`: test_acceptance.py::test_nobody[spaces]
4. The code passes the linter: ruff
"""
ACCEPTANCE_TEST = """import pytest

from greet import greet


def test_a_name() -> None:
    assert greet("Ada") == "Hello, Ada!"


@pytest.mark.parametrize("name", ["", "  "], ids=["empty", "spaces"])
def test_nobody(name: str) -> None:
    assert greet(name) == "Hello, stranger!"
"""


def specify(request: Request) -> Reply:
    folder = request.prompt.split("Working folder: ")[1].splitlines()[0]
    if request.turn == 0:
        return say(tool("Read", file_path=request.path("request")))
    if request.turn == 1:
        return say(
            tool("Write", file_path=f"{folder}/test_acceptance.py", content=ACCEPTANCE_TEST),
            tool("Write", file_path=request.path("spec"), content=ACCEPTANCE_SPEC),
        )
    return say("Four requirements, each with what decides it.\n\nSTAGE_TASK_COMPLETE")


def hold_against(request: Request) -> Reply:
    """Reads the results before it says anything about them."""
    if request.turn == 0:
        return say(tool("Read", file_path=request.path("results")))
    red = '"overall": "FAIL"' in request.heard
    rows = [
        ("greet('Ada') is Hello, Ada!", "met", "test_acceptance.py::test_a_name passed"),
        ("an empty name is a stranger", "met", "test_acceptance.py::test_nobody[empty] passed"),
        (
            "a name of spaces is a stranger",
            "unmet" if red else "met",
            f"test_acceptance.py::test_nobody[spaces] {'failed' if red else 'passed'}",
        ),
        ("the linter is content", "unmet" if red else "met", "ruff: 1 error, F401" if red else "ruff: no error"),
    ]
    said = "Two of four requirements are not met." if red else "All four requirements are met."
    requirements = [dict(zip(("requirement", "status", "evidence"), row, strict=True)) for row in rows]
    return returns(request, grade="FAIL" if red else "PASS", summary=said, requirements=requirements)


def list_fixes(request: Request) -> Reply:
    if request.turn == 0:
        return say(tool("Read", file_path=request.path("results")))
    spaces = {
        "id": 1,
        "severity": "blocking",
        "file": "greet.py",
        "issue": "greet('  ') returns 'Hello,   !', expected 'Hello, stranger!'",
        "suggested_fix": "strip the name before deciding whether it is empty",
    }
    unused = {
        "id": 2,
        "severity": "blocking",
        "file": "greet.py",
        "issue": "F401: re is imported and not used",
        "suggested_fix": "remove the import",
    }
    return returns(request, fixes=[spaces, unused])


def mend(request: Request) -> Reply:
    folder = request.prompt.split("Working folder: ")[1].splitlines()[0]
    if request.turn == 0:
        return say(tool("Read", file_path=request.path("fixes")), tool("Read", file_path=f"{folder}/greet.py"))
    if request.turn == 1:
        words = "1. The name was tested before its spaces were removed: greet.py, last line.\n2. `re` was a leftover: removed.\n"
        return say(
            tool("Write", file_path=f"{folder}/greet.py", content=GOOD_CODE),
            tool("Write", file_path=request.path("diagnosis"), content=words),
        )
    return say("Both are mended.\n\nSTAGE_TASK_COMPLETE")


SENTINEL = by_agent(
    sentinel__writer=specify, sentinel__auditor=hold_against, sentinel__consolidator=list_fixes, sentinel__fixer=mend
)  # fmt: skip
