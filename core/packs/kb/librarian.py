"""The agent that is asked where Python is in doubt: what it is given, and what of its answer is believed."""

from __future__ import annotations

from typing import Any, cast

from lib.cli import Call
from lib.contract import Json
from lib.disk import files
from lib.evidence import quotes
from lib.plan.task import Limits, Task

from packs.kb.asking import NOT_THERE, Answer, Base

AGENT = "downstream/kb-librarian"
MOST_LINES = 200  # of the index; more than that is what search is for


def task(call: Call, base: Base, answer: Answer) -> Task:
    """The question, the lines of the index, and what Python found; it may read every document of the version."""
    documents = [*(hit.document for hit in answer.hits), *base.index.documents]
    listed = list({one.path: one for one in documents}.values())[:MOST_LINES]
    lines = "\n".join(f"- {one.path}: {one.title}. {one.summary}" for one in listed)
    inputs: Json = {"question": answer.question, "knowledge_base": str(base.folder), "index": lines}
    limits = Limits(timeout_seconds=300.0, model=call.options.model or "low-tier", max_budget_usd=0.25)
    return Task(action="ANSWER", inputs=inputs, limits=limits)


def believed(base: Base, answer: Answer, reply: Json) -> Json:
    """Documents that are there, and words that stand in them. An answer that rests on nothing is none."""
    if reply.get("exit_code"):
        error = cast(Json, reply.get("error") or {})
        return {"warning": f"the agent could not answer: {error.get('message', 'it does not say why')}"}
    data = cast(Json, reply.get("structured_output") or {})
    cited: list[Any] = cast(list[Any], data.get("passages") or [])
    good = [
        one for one in cited if one["path"] in base.by_path and quotes.find(str(one["quote"]), base.read(one["path"]), most=1)
    ]
    if not data.get("found") or not good:
        return {"found": False, "documents": [], "text": NOT_THERE, "answered_by": AGENT, "dropped": len(cited) - len(good)}
    paths = list(dict.fromkeys(str(one["path"]) for one in good))
    named = "\n".join(f"[{n}] {path} ({base.by_path[path].title})" for n, path in enumerate(paths, 1))
    known = {"found": True, "documents": paths, "answered_by": AGENT, "dropped": len(cited) - len(good)}
    return known | {"text": f"{str(data['answer']).strip()}\n\n{named}", "digest": files.digest(good)[:16]}
