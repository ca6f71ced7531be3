"""What a reader of a feature wants to see in the report of its run, as sections of text and tables."""

from __future__ import annotations

from collections.abc import Sequence

from lib.evidence import findings
from lib.evidence.findings import Finding
from lib.session.documents import Part, Section

from packs.forge import knowledge
from packs.forge.criteria import Judged
from packs.forge.tables import Verdict
from packs.forge.tasks import Task

FINDINGS = ("severity", "what", "where", "who", "task")


def request(text: str) -> Section:
    return Section("The request", (Part(text=text),))


def critique(said: Verdict, found: Sequence[Finding], cross_cutting: Sequence[tuple[str, str]]) -> Section:
    parts = [Part(text=f"{said.word}: {said.why}"), *_missing(said), *_found(found), *_tensions(found, "Unresolved tensions")]
    if cross_cutting:
        parts.append(Part("Cross-cutting concerns", head=("who", "what"), rows=tuple(cross_cutting)))
    return Section("The critique of the design", tuple(parts))


def plan(tasks: Sequence[Task], rounds: Sequence[Sequence[Sequence[str]]]) -> Section:
    """As they were carried out: what was planned again comes again."""
    table = {task.id: task for task in tasks}
    rows = [
        (
            f"{number}.{place}" if len(rounds) > 1 else str(place),
            t.id,
            t.goal,
            t.agent,
            ", ".join(t.files),
            ", ".join(t.depends_on),
        )
        for number, waves in enumerate(rounds, 1)
        for place, wave in enumerate(waves, 1)
        for t in (table[name] for name in wave)
    ]
    head = ("wave", "task", "goal", "by", "files", "after")
    return Section("The tasks, by round and wave", (Part(head=head, rows=tuple(rows)),))


def verification(said: Verdict, tests: str, judged: Sequence[Judged], texts: dict[str, str], found: Sequence[Finding]) -> Section:
    rows = tuple(
        (
            one.id,
            texts.get(one.id, ""),
            "met" if one.met else "not met",
            one.evidence if one.met else one.why,
            one.task or "feature",
        )
        for one in judged
    )
    head = ("id", "what it asks", "result", "evidence", "task")
    return Section(
        "What was verified",
        (
            Part(text=f"{said.word}: {said.why}\nTests: {tests}"),
            Part("Acceptance criteria", head=head, rows=rows),
            *_found(found),
        ),
    )


def review(said: Verdict, found: Sequence[Finding], known: knowledge.Knowledge, depth: dict[str, str]) -> Section:
    head = Part(text=f"{said.word}: {said.why}\nDepth: {depth['depth']} ({depth['why']})")
    parts = [head, *_missing(said), *_found(found), *_tensions(found, "Tradeoffs")]
    rows = tuple(
        ("rejected" if why else "proposed", p.category, p.title, p.file, why or p.why)
        for p in known.proposals
        for why in (knowledge.refused(p),)
    )
    parts += [Part("Knowledge proposals", head=("", "category", "title", "file", "why"), rows=rows)] if rows else []
    return Section("The review", tuple(parts))


def _missing(said: Verdict) -> list[Part]:
    return [Part("Missing coverage", "\n".join(said.warnings))] if said.warnings else []


def _found(found: Sequence[Finding]) -> list[Part]:
    rows = tuple((f.severity, f.claim, f.where, ", ".join(f.who), f.task) for f in found)
    return [Part("Findings", head=FINDINGS, rows=rows)] if rows else []


def _tensions(found: Sequence[Finding], title: str) -> list[Part]:
    rows = tuple(
        (tension.topic, stance, f.claim, ", ".join(f.who))
        for tension in findings.tensions(found)
        for stance, sides in tension.sides.items()
        for f in sides
    )
    return [Part(title, head=("topic", "stance", "what", "who"), rows=rows)] if rows else []
