"""The knowledge base as an MCP server on stdin and stdout: search, read at a depth, what there is, and questions.

The server is the MCP SDK's, which comes with the agent SDK. Its import takes longest, and nothing else here needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib.contract import Json

from packs.kb import prose
from packs.kb.asking import Base, after
from packs.kb.records import FULL, SUMMARY, TIERS, Document
from packs.kb.routing import ConversationState, Route

MOST_CONVERSATIONS = 1000


def line(one: Document) -> Json:
    """About a hundred tokens: enough to know whether to read it."""
    known = {"path": one.path, "title": one.title, "summary": one.summary, "detail_level": one.detail_level}
    about = {"domain": one.domain, "vertical": one.vertical, "persona": one.persona}
    return known | {name: value for name, value in about.items() if value}


def at_depth(base: Base, path: str, depth: str) -> str:
    """A document: its summary, the first paragraph of every section, or all of it."""
    text = base.read(path)
    if depth == SUMMARY:
        return base.by_path[path].summary
    if depth == FULL:
        return text
    parts = [f"## {s.heading}\n\n{first[0]}" for s in prose.sections(text) if s.heading and (first := prose.paragraphs(s.text))]
    return "\n\n".join(parts) or text


def run(base: Base, served: Callable[[str], None]) -> None:
    """Until stdin ends."""
    import anyio
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    states: dict[str, ConversationState] = {}
    instructions = (
        "A knowledge base of research by domain, vertical and persona. Search first; read a document at the depth you need: "
        f"{', '.join(TIERS)}. Name the path of every document you rely on. What search does not find is not in it."
    )
    server: Any = MCPServer("strata-knowledge", instructions=instructions, version=str(base.version), log_level="ERROR")

    @server.tool(
        description="Find documents by words, also of one domain, vertical or persona. Best first, each with its best passage."
    )
    def search(query: str, domain: str = "", vertical: str = "", persona: str = "", limit: int = 5) -> Json:  # type: ignore[reportUnusedFunction]
        served(f"search {query}")
        route = base.route(query)
        given = {"domains": domain, "verticals": vertical, "personas": persona}
        narrowed = {name: (value,) if value else getattr(route, name) for name, value in given.items()}
        route = Route(
            narrowed["domains"], narrowed["verticals"], narrowed["personas"], words=route.words, cross_cutting=route.cross_cutting
        )
        hits = base.hits(route, min(max(limit, 1), 20))
        return {
            "version": base.version,
            "results": [line(h.document) | {"heading": h.heading, "passage": h.text[:1200]} for h in hits],
        }

    @server.tool(description="Read a document by its path, at a depth: summary, detail or full_research.")
    def read(path: str, depth: str = SUMMARY) -> Json:  # type: ignore[reportUnusedFunction]
        served(f"read {path} {depth}")
        if path not in base.by_path:
            raise ToolError(f"there is no document {path}: search for it, or list what there is with `dimensions`")
        if depth not in TIERS:
            raise ToolError(f"depth is one of {', '.join(TIERS)}")
        one = base.by_path[path]
        origin = [{"run": o.run, "date": o.date} for o in one.sources]
        return {
            "path": path,
            "title": one.title,
            "text": at_depth(base, path, depth),
            "related": list(one.related),
            "sources": origin,
        }

    @server.tool(
        description="What the knowledge base is about: its version, domains, verticals, personas, and how many documents."
    )
    def dimensions() -> Json:  # type: ignore[reportUnusedFunction]
        served("dimensions")
        return {"version": base.version, "documents": len(base.index.documents), **base.router.known}

    @server.tool(description="Answer a question with passages and their documents. Follow-ups such as `tell me more` go deeper.")
    def ask(question: str, conversation: str = "") -> Json:  # type: ignore[reportUnusedFunction]
        served(f"ask {question}")
        state = states.get(conversation, ConversationState(session_id=conversation))
        answer = base.ask(question, state)
        if conversation:
            if len(states) >= MOST_CONVERSATIONS:
                states.pop(next(iter(states)))
            states[conversation] = after(state, answer)
        return {"found": answer.found, "text": answer.text, "documents": list(answer.documents), "depth": answer.route.tier}

    anyio.run(server.run_stdio_async)
