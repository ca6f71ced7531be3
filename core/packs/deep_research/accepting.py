"""What an agent is told at once, so that its next try is better: each rule is the one that its gate goes by later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lib.attempt.judging import Made
from lib.disk import files, lenient

from packs.deep_research import citing, claims, contract
from packs.deep_research.contract import TRACKS, WAVE_1, WAVE_2, Contract
from packs.deep_research.ticks import Chosen

MOST_SUMMARY = 5 * 1024


def plan(made: Made) -> list[str]:
    chosen = lenient.of(made.json("data"), Chosen)
    ids = [p.id for p in chosen.perspectives]
    if chosen.clarify.strip():
        return []  # a person is asked
    found = [] if ids else ["there is no perspective"]
    found += [f"{name!r} is no plain name" for name in ids if not files.is_safe(name)]
    found += [f"two perspectives are called {name}" for name in sorted({n for n in ids if ids.count(n) > 1})]
    found += [
        f"{p.id}: the track {p.track!r} is none of {', '.join(TRACKS)}" for p in chosen.perspectives if p.track not in TRACKS
    ]
    return found + [f"{p.id} has no question" for p in chosen.perspectives if not p.question.strip()]


def _wave(bounds: Contract) -> Callable[[Made], list[str]]:
    def look(made: Made) -> list[str]:
        text = made.text("report")
        sources = citing.extract(contract.sections(text).get("Sources", ""))
        found = [one.message for one in contract.complaints(text, bounds)]
        return found + claims.complaints(claims.read(made.json("data")), sources)

    return look


def summary(made: Made) -> list[str]:
    size = len(made.text("report").encode())
    return [f"{size} bytes, at most {MOST_SUMMARY}"] if size > MOST_SUMMARY else []


def synthesis(made: Made) -> list[str]:
    """Against the pack it was given: only its citations, and only numbers that stand in their passages."""
    text = made.text("report")
    pack = files.read_json(Path(str(made.task.inputs["pack"])))
    known = [claims.Looked(c["id"], "", c["text"], c["cid"], c["quote"], True) for c in pack["claims"]]
    found = citing.look(text)
    wrong = [f"the section {name} is missing" for name in found.missing]
    wrong += [f"[@{cid}] is none of the citations in the pack" for cid in sorted(set(found.cited) - {c.cid for c in known})]
    wrong += [f"a number without a citation: {paragraph[:120]!r}" for paragraph in found.numeric]
    return wrong + [f"{number} stands in no passage that its paragraph cites" for number in claims.unsupported(text, known)]


LOOKS: dict[str, Callable[[Made], list[str]]] = {
    "plan": plan,
    "wave1": _wave(WAVE_1),
    "wave2": _wave(WAVE_2),
    "summary": summary,
    "synthesis": synthesis,
}
