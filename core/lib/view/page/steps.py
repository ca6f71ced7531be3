"""Step by step: the tree of phases, runs, stages and items with every attempt, and what is shown of one when it is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from lib.contract import Json
from lib.view import terminal
from lib.view.page.markup import anchor, badge, cut, e, grade, heading, kind, read, short, tag
from lib.view.tree import Node, Row, Scene

TEXT_LIMIT = 20_000  # characters of one prompt or answer
CALL_LIMIT = 2_000
CALLS = 200
TRANSCRIPT_LIMIT = 16_000_000  # bytes of a transcript that are looked at
WHOLE_LIMIT = 24_000_000  # of all of them together: with many attempts each gets less
OPEN_UP_TO = 40  # steps: with more, the page begins folded


def leaves(node: Node, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every step, with the names on the way to it."""
    for child in node.nodes:
        here = (*names, child.name)
        if child.rows or not child.nodes:
            yield here, child
        yield from leaves(child, here)


def filters(names: tuple[str, ...], node: Node) -> dict[str, Any]:
    """What the filter of the page looks at."""
    words = " ".join([*names, node.status, *(f"{t.agent} {t.model} {t.kind} {t.worker}" for t in node.rows)]).lower()
    bad = any(kind(s) in ("bad", "open") for s in (node.status, *(t.status for t in node.rows)))
    bad = bad or node.retries or any(t.denials for t in node.rows)
    return {"data_leaf": words, "data_bad": int(bool(bad))}


def listed(seen: Scene) -> list[str]:
    few = sum(1 for _ in leaves(seen.root)) <= OPEN_UP_TO
    return [heading("steps"), tag("div", *(_node(node, (), few, seen.now) for node in seen.root.nodes), cls="steps")]


def _node(node: Node, above: tuple[str, ...], few: bool, now: float) -> str:
    names = (*above, node.name)
    sums = [terminal.clock(node.seconds(now)) if node.started else ""]
    sums += [f"{node.usd:.4f} USD" if node.usd else "", f"{node.tokens:,} tokens" if node.tokens else ""]
    head = [tag("span", e(node.name), cls="what"), badge(node.status), grade(node.grade)]
    head.append(tag("span", e(", ".join(s for s in sums if s)), cls="meta"))
    if node.note:
        head.append(tag("span", e(short(node.note, 400)), cls="why" if kind(node.status) == "bad" else "note"))
    step = filters(names, node) if node.rows or not node.nodes else {}
    mine = "step" if step else ""
    if not node.nodes and not node.rows:
        return tag("div", *head, cls=f"leaf {mine}", id=anchor(*names), **step)
    unfolded = bool(node.nodes) and (few or (kind(node.status) in ("bad", "run") and node.kind in ("phase", "run")))
    below = [*(_attempt(one) for one in node.rows), *(_node(child, names, few, now) for child in node.nodes)]
    group = "group" if node.nodes else ""
    classes = f"{node.kind} {group} {mine}"
    return tag("details", tag("summary", *head), *below, cls=classes, id=anchor(*names), open=unfolded, **step)


def _attempt(one: Row) -> str:
    turn = f"round {one.step.round}, " if one.step.round else ""
    again = f" ({one.kind})" if one.kind not in ("", "first") else ""
    took = terminal.clock(one.ended - one.started) if one.started and one.ended else ""
    words = [f"{turn}attempt {one.number}{again}", one.agent, one.model, f"on {one.worker}" if one.worker else "", took]
    words += [f"{one.usd:.4f} USD" if one.usd else "", f"{one.tokens:,} tokens" if one.tokens else "", one.doing]
    head = [tag("span", e(" · ".join(w for w in words if w)), cls="meta"), badge(one.status)]
    head += [badge("waiting", f"{len(one.denials)} denied")] if one.denials else []
    why = one.message or one.note
    head += [tag("span", e(short(why, 300)), cls="why" if one.error else "note")] if why else []
    place = {"id": anchor(one.folder), "data_attempt": one.folder}
    return tag("details", tag("summary", *head), tag("div", cls="body"), cls="attempt", **place)


def details(seen: Scene) -> Iterator[tuple[str, Json]]:
    """What is shown of an attempt when it is opened."""
    tries = list(seen.root.every_row())
    limit = min(TEXT_LIMIT, max(WHOLE_LIMIT // max(len(tries), 1) // 4, 500))
    for one in tries:
        folder = seen.session / one.folder
        calls = list(_calls(folder / "transcript.jsonl", min(CALL_LIMIT, limit)))
        shown: Json = {
            "folder": one.folder,
            "prompt": cut(read(folder / "prompt.md"), limit),
            "answer": cut(read(folder / "output.md"), limit),
            "error": "\n".join(f"{key}: {value}" for key, value in one.error.items()),
            "denied": "\n".join(json.dumps(d, ensure_ascii=False)[:CALL_LIMIT] for d in one.denials),
            "calls": calls[:CALLS],
            "more": max(len(calls) - CALLS, 0),
        }
        yield one.folder, shown


def _calls(path: Path, limit: int) -> Iterator[Json]:
    """The tool calls of a transcript, each with what came back."""
    found: dict[str, Json] = {}
    for line in read(path, TRANSCRIPT_LIMIT).splitlines():
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue  # torn by a crash, or none of ours
        content: Any = cast(Json, message).get("content") if isinstance(message, dict) else None
        for part in cast(list[Any], content) if isinstance(content, list) else []:
            block = cast(Json, part) if isinstance(part, dict) else {}
            if "name" in block and "input" in block:
                found[str(block.get("id"))] = _call(block, limit)
            elif str(block.get("tool_use_id")) in found:
                said: Any = block.get("content")
                text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
                found[str(block["tool_use_id"])] |= {"result": cut(text, limit), "failed": bool(block.get("is_error"))}
    yield from found.values()


def _call(block: Json, limit: int) -> Json:
    given = cast(Json, block["input"]) if isinstance(block["input"], dict) else {}
    first = next((v for v in given.values() if isinstance(v, str)), "")
    shown = cut(json.dumps(block["input"], indent=1, ensure_ascii=False), limit)
    return {
        "name": str(block["name"]),
        "brief": short(" ".join(first.split()), 120),
        "input": shown,
        "result": "",
        "failed": False,
    }
