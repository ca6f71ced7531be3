"""Findings: what somebody has found, how bad it is, and where. One scale for all; a word that is not on it is the worst."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import Json, StrataError
from lib.disk import lenient, records

SEVERITIES = ("blocker", "critical", "major", "minor")  # the worst first
_WORDS = {
    "blocking": "blocker",
    "p0": "blocker",
    "high": "critical",
    "p1": "critical",
    "medium": "major",
    "moderate": "major",
    "p2": "major",
    "low": "minor",
    "warning": "minor",
    "info": "minor",
    "nit": "minor",
    "p3": "minor",
}


class Finding(Struct, frozen=True):
    severity: str
    claim: str
    where: str = ""  # a file and line, a section, an address
    evidence: str = ""
    who: tuple[str, ...] = ()
    topic: str = ""
    stance: str = ""  # towards its topic: two that differ are a tension
    task: str = ""
    fix: str = ""

    @property
    def blocks(self) -> bool:
        return at_least(self.severity, "critical")


class _Said(Struct, frozen=True):
    """A finding as anybody may write it."""

    severity: Any = None
    claim: Any = ""
    issue: Any = ""
    title: Any = ""
    where: Any = ""
    file: Any = ""
    evidence: Any = ""
    who: Any = ()
    topic: Any = ""
    stance: Any = ""
    task: Any = ""
    fix: Any = ""
    suggested_fix: Any = ""


class Tension(Struct, frozen=True):
    """A topic on which findings speak against each other. It is shown, not resolved."""

    topic: str
    sides: dict[str, tuple[Finding, ...]]  # by stance


def severity(word: object) -> str:
    """The place of a word on the one scale."""
    plain = str(word or "").strip().lower()
    known = _WORDS.get(plain, plain)
    return known if known in SEVERITIES else SEVERITIES[0]


def at_least(found: str, threshold: str) -> bool:
    return SEVERITIES.index(severity(found)) <= SEVERITIES.index(severity(threshold))


def of(document: object, who: str = "") -> list[Finding]:
    """The findings in somebody's data: a list of them, or a document that has one under `findings` (or `fixes`)."""
    if isinstance(document, dict):
        fields = cast(Json, document)
        lists = [fields[name] for name in ("findings", "fixes") if name in fields]
        document = [one for found in lists for one in cast(list[object], found)] if lists and all(map(_is_list, lists)) else None
    if not isinstance(document, list):
        raise StrataError("BAD_FINDINGS", "no list of findings", '{"findings": [{"severity": …, "claim": …}]}')
    return [_finding(entry, who) for entry in cast(list[object], document)]


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def read(path: Path, who: str = "") -> list[Finding]:
    try:
        return of(json.loads(path.read_text(encoding="utf-8")), who)
    except ValueError as error:
        raise StrataError("BAD_FINDINGS", f"{path} is not JSON: {error}", "") from None


def _finding(entry: object, who: str) -> Finding:
    said = lenient.of(entry, _Said)
    claim = _text(said.claim) or _text(said.issue) or _text(said.title)
    if not claim:
        raise StrataError("BAD_FINDINGS", f"a finding without a claim: {str(entry)[:200]}", "say what is wrong under `claim`")
    by = tuple(map(str, _listed(said.who)))
    return Finding(
        severity=severity(said.severity),
        claim=claim,
        where=_text(said.where) or _text(said.file),
        evidence=_text(said.evidence),
        who=by or ((who,) if who else ()),
        topic=_text(said.topic),
        stance=_text(said.stance).lower(),
        task=_text(said.task),
        fix=_text(said.fix) or _text(said.suggested_fix),
    )


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else ([value] if value else [])


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ("" if value in (None, (), []) else json.dumps(value, ensure_ascii=False))


def merge(found: Iterable[Finding]) -> list[Finding]:
    """The worst first; the same claim about the same place is one finding of all who made it. Likeness is not sameness."""
    together: dict[tuple[str, ...], Finding] = {}
    for given in found:
        one = replace(given, severity=severity(given.severity))
        key = (" ".join(one.claim.lower().split()), one.where, one.topic, one.stance, one.task)
        known = together.get(key)
        together[key] = one if known is None else _both(known, one)
    return sorted(together.values(), key=lambda f: SEVERITIES.index(f.severity))


def _both(one: Finding, other: Finding) -> Finding:
    worse = min(one.severity, other.severity, key=SEVERITIES.index)
    evidence = "\n".join(dict.fromkeys(e for e in (one.evidence, other.evidence) if e))
    who = tuple(dict.fromkeys((*one.who, *other.who)))
    return replace(one, severity=worse, who=who, evidence=evidence, fix=one.fix or other.fix)


def tensions(found: Sequence[Finding]) -> list[Tension]:
    """The topics on which two have taken different sides."""
    sides: dict[str, dict[str, list[Finding]]] = {}
    for one in found:
        if one.topic and one.stance:
            sides.setdefault(one.topic, {}).setdefault(one.stance, []).append(one)
    apart = {topic: by for topic, by in sides.items() if len(by) > 1 and len(_people(by)) > 1}
    return [Tension(topic, {stance: tuple(fs) for stance, fs in by.items()}) for topic, by in sorted(apart.items())]


def _people(sides: dict[str, list[Finding]]) -> set[str]:
    return {who for found in sides.values() for one in found for who in one.who}


def worst(found: Iterable[Finding]) -> str:
    return min((f.severity for f in found), key=SEVERITIES.index, default="")


def document(found: Sequence[Finding]) -> Json:
    counts = {word: sum(f.severity == word for f in found) for word in SEVERITIES}
    return {"findings": records.document(list(found)), "tensions": records.document(tensions(found)), "counts": counts}


def markdown(title: str, found: Sequence[Finding]) -> str:
    return "\n".join([f"# {title}", "", *by_severity(found), *open_between(found)]).rstrip() + "\n"


def by_severity(found: Sequence[Finding]) -> list[str]:
    """The worst first, with who said it, as lines of a page."""
    lines: list[str] = []
    for word in SEVERITIES:
        of_word = [f for f in found if f.severity == word]
        lines += [f"## {word.capitalize()} ({len(of_word)})", "", *(_line(f) for f in of_word), ""] if of_word else []
    return lines or ["Nothing was found.", ""]


def open_between(found: Sequence[Finding], title: str = "Unresolved tensions") -> list[str]:
    """Both sides of what is not agreed on."""
    apart = tensions(found)
    lines = [f"## {title}", ""] if apart else []
    for tension in apart:
        sides = [f"  - {stance}: {f.claim} ({', '.join(f.who)})" for stance, fs in tension.sides.items() for f in fs]
        lines += [f"- **{tension.topic}**", *sides]
    return [*lines, ""] if apart else []


def _line(found: Finding) -> str:
    where = f" `{found.where}`" if found.where else ""
    task = f" [task {found.task}]" if found.task else ""
    who = f" ({', '.join(found.who)})" if found.who else ""
    more = "".join(f"\n  {name}: {text}" for name, text in (("Evidence", found.evidence), ("Fix", found.fix)) if text)
    return f"- {found.claim}{where}{task}{who}{more}"
