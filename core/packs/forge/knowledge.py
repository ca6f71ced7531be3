"""Knowledge that a feature leaves: proposals a person may take, never changes; and decisions, to which is only added."""

from __future__ import annotations

import re

from lib.disk import lenient
from msgspec import Struct

WARNING = "These are proposals only. Do NOT apply without human review."
CATEGORIES = ("instruction-update", "skill-update", "pattern-capture", "workflow-improvement")
REJECTED = "rejected — safety constraint"
HEADER = "# Decisions\n"
_SAFETY = re.compile(
    r"\b(must not|must never|never|do not|don't|refuse|forbid|require[sd]?|verify|verif|valid|check|test|review|approv|confirm"
    r"|error|exception|fail|abort|raise|secur|secret|permission|sandbox|limit|timeout|escap)",
    re.I,
)


class Proposal(Struct, frozen=True):
    category: str = ""
    title: str = ""
    file: str = ""
    section: str = ""
    change: str = "add"  # add, update or remove
    why: str = ""
    diff: str = ""
    risk: str = ""


class Decision(Struct, frozen=True):
    title: str = ""
    context: str = ""
    decision: str = ""
    rationale: str = ""
    scope: str = ""
    affected: str = ""


class Knowledge(Struct, frozen=True):
    proposals: tuple[Proposal, ...] = ()
    decisions: tuple[Decision, ...] = ()


def read(document: object) -> Knowledge:
    return lenient.of(document, Knowledge)


def refused(proposal: Proposal) -> str:
    """Why a proposal is not one that a person should be shown as such; nothing where it is."""
    missing = [name for name in ("category", "title", "file", "why", "diff") if not getattr(proposal, name).strip()]
    if missing:
        return f"incomplete: no {', '.join(missing)}"
    if proposal.category not in CATEGORIES:
        return f"the category {proposal.category!r} is none of {', '.join(CATEGORIES)}"
    lines = proposal.diff.splitlines()
    gone = [line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")]
    come = " ".join(line[1:] for line in lines if line.startswith("+") and not line.startswith("+++"))
    weakened = [text for text in gone if _SAFETY.search(text) and not _says(come, text)]
    if weakened or (proposal.change == "remove" and _SAFETY.search(proposal.title + proposal.why)):
        return f"{REJECTED}: it takes away {weakened[0][:120]!r}" if weakened else REJECTED
    return ""


def _says(come: str, gone: str) -> bool:
    """Whether every word of safety that goes also comes."""
    words = {found.lower() for found in _SAFETY.findall(gone)}
    return words <= {found.lower() for found in _SAFETY.findall(come)}


def suggestions(known: Knowledge) -> str:
    taken = [p for p in known.proposals if not refused(p)]
    lines = ["# Knowledge suggestions", "", f"> {WARNING}", ""]
    for number, proposal in enumerate(taken, 1):
        where = proposal.file + (f", {proposal.section}" if proposal.section else "")
        lines += [
            f"## {number}. [{proposal.category}] {proposal.title}",
            "",
            f"- File: `{where}`",
            f"- Change: {proposal.change}",
        ]
        lines += [
            f"- Why: {proposal.why}",
            f"- Risk: {proposal.risk or 'none named'}",
            "",
            "```diff",
            proposal.diff.strip(),
            "```",
            "",
        ]
    lines += [] if taken else ["There are none.", ""]
    turned_down = [(p, why) for p in known.proposals if (why := refused(p))]
    if turned_down:
        lines += ["## Rejected", "", *(f"- {p.title or 'without a title'}: {why}" for p, why in turned_down), ""]
    return "\n".join(lines)


def decisions(before: str, known: Knowledge, date: str) -> str:
    """What was there, every byte of it, and what is new behind it."""
    text = before or HEADER
    for one in known.decisions:
        if not one.title.strip() or f"] {one.title}\n" in text:
            continue  # a resume adds nothing twice
        parts = {"Context": one.context, "Decision": one.decision, "Rationale": one.rationale}
        parts |= {"Scope": one.scope, "Affected components": one.affected}
        lines = [f"- {name}: {' '.join(words.split())}" for name, words in parts.items() if words.strip()]
        text += ("" if text.endswith("\n") else "\n") + "\n".join(["", f"## [{date}] {one.title}", "", *lines, ""])
    return text
