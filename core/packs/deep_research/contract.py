"""What an agent of a wave is asked for, and whether what it left keeps to it: sections, words, sources, and calls of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

SECTIONS = ("Findings", "Sources", "Gaps")
TRACKS = {"standard": 50, "independent": 25, "contrarian": 25}  # in per cent
HEADING = "Output contract"  # of the section that a prompt has it in


class Contract(Struct, frozen=True):
    """The bounds of one output. Wave 2 goes after gaps, and is shorter."""

    words: int = 900
    sources: int = 12
    searches: int = 4
    fetches: int = 6
    sections: tuple[str, ...] = SECTIONS

    def markdown(self) -> str:
        return "\n".join(
            [
                f"## {HEADING}",
                "",
                f"- Sections, as headings, in this order: {', '.join(self.sections)}.",
                f"- At most {self.words} words in all.",
                f"- Sources: a list, each item with one http address; at most {self.sources}.",
                f"- At most {self.searches} searches and {self.fetches} pages.",
                "- Gaps: a list, each item as `- (P0) what nobody has answered #tag`. P0: the report needs it; P3: nice to have.",
                "",
            ]
        )


WAVE_1, WAVE_2 = Contract(), Contract(words=500, sources=8)


class Complaint(Struct, frozen=True):
    code: str
    message: str


class Used(Struct, frozen=True):
    """How often an agent called which tool, as its outcome says."""

    searches: int = 0
    fetches: int = 0


def complaints(text: str, contract: Contract, used: Used | None = None) -> list[Complaint]:
    """In this order: a missing section, too many words, malformed sources, too many of them, too many calls."""
    found: list[Complaint] = []
    parts = sections(text)
    for name in contract.sections:
        if not parts.get(name, "").strip():
            found.append(Complaint("MISSING_SECTION", f"the section {name} is missing, or empty"))
    words = len(text.split())
    if words > contract.words:
        found.append(Complaint("TOO_MANY_WORDS", f"{words} words, at most {contract.words}"))
    listed = items(parts.get("Sources", ""))
    wrong = [item for item in listed if not re.search(r"https?://[^\s<>)\]]+", item)]
    found += [Complaint("MALFORMED_SOURCES", f"a source without an http address: {item[:80]!r}") for item in wrong]
    lines = parts.get("Sources", "").splitlines()
    loose = [line for line in lines if line.strip() and not _ITEM.match(line) and line[0] not in " \t"]
    found += [Complaint("MALFORMED_SOURCES", f"no item of a list: {line[:80]!r}") for line in loose]
    if len(listed) > contract.sources:
        found.append(Complaint("TOO_MANY_SOURCES", f"{len(listed)} sources, at most {contract.sources}"))
    used = used or Used()
    for what, number, most in (("searches", used.searches, contract.searches), ("fetches", used.fetches, contract.fetches)):
        if number > most:
            found.append(Complaint("TOOL_BUDGET", f"{number} {what}, at most {most}"))
    return found


_ITEM = re.compile(r"^(?:[-*+]|\d+[.)])\s+(.*)$")
_HEAD = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$")


def sections(text: str) -> dict[str, str]:
    """What stands below each heading. Of two of a name, both together; what is inside a code fence is no heading."""
    found: dict[str, list[str]] = {}
    here, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        head = None if fenced else _HEAD.match(line)
        if head:
            here = head[1].strip()
            found.setdefault(here, [])
        elif here:
            found[here].append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in found.items()}


def items(text: str) -> list[str]:
    return [match[1] for line in text.splitlines() if (match := _ITEM.match(line))]


class Gap(Struct, frozen=True):
    priority: int  # 0 to 3
    text: str
    tags: tuple[str, ...] = ()
    perspective: str = ""


_GAP = re.compile(r"^\(P([0-3])\)\s+(.+)$")


def gaps(text: str, perspective: str = "") -> list[Gap]:
    """Of an output: what nobody has answered. An item that is written otherwise is no gap."""
    found: list[Gap] = []
    for item in items(sections(text).get("Gaps", "")):
        match = _GAP.match(item)
        if match:
            tags = tuple(re.findall(r"(?:^|\s)#([\w-]+)", match[2]))
            found.append(Gap(int(match[1]), re.sub(r"\s*#[\w-]+", "", match[2]).strip(), tags, perspective))
    return found


class Pivot(Struct, frozen=True):
    wave2_required: bool
    rule: str
    targets: tuple[Gap, ...] = ()
    counts: dict[str, int] = {}


def pivot(found: Sequence[Gap], most: int) -> Pivot:
    """Whether a second wave is needed: one gap that matters most, two that matter much, or many that matter."""
    ordered = sorted(found, key=lambda g: (g.priority, g.perspective, g.text))
    p0, p1, p2 = (sum(g.priority == n for g in found) for n in range(3))
    counts = {"P0": p0, "P1": p1, "P2": p2, "P3": len(found) - p0 - p1 - p2, "total": len(found)}
    rules = (("P0 >= 1", p0 >= 1), ("P1 >= 2", p1 >= 2), ("total >= 4 and P1+P2 >= 3", len(found) >= 4 and p1 + p2 >= 3))
    rule = next((name for name, holds in rules if holds), "")
    if not rule:
        return Pivot(False, "no rule asks for it", (), counts)
    targets = [g for g in ordered if g.priority <= 1] or ordered[:3]
    return Pivot(True, rule, tuple(targets[:most]), counts)


def tracks(count: int) -> dict[str, int]:
    """So many perspectives, divided by largest remainder; of equal remainders the first in the list."""
    exact = {name: count * share / 100 for name, share in TRACKS.items()}
    whole = {name: int(value) for name, value in exact.items()}
    left = count - sum(whole.values())
    for name in sorted(TRACKS, key=lambda n: (-(exact[n] - whole[n]), list(TRACKS).index(n)))[:left]:
        whole[name] += 1
    return whole
