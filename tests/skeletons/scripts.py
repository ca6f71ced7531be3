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
    grave = "Tokens live for ever" in request.last
    return returns(request, findings=[{"severity": "Critical" if grave else "Minor", "text": "tokens" if grave else "naming"}])


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
    """The sceptic forgets a section the first time, and finds a gap that deserves a second wave."""
    sceptic = '"sceptic"' in request.prompt
    gaps = "- (P0) nobody measured it\n" if sceptic else "- (P3) colour of the box\n"
    sources = "" if sceptic and not sent_back(request) else "# Sources\n- https://example.org/1\n"
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
