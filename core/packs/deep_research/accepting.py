"""What an agent is told at once, so that its next try is better: each rule is the one that its gate goes by later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lib import names
from lib.attempt.judging import Made
from lib.disk import files

from packs.deep_research import citing, claims, contract, planning, retrying
from packs.deep_research.at import HOME, Desk
from packs.deep_research.contract import WAVE_1, WAVE_2, Contract

MOST_SIDES = 50
MOST_SUMMARY = 5 * 1024


def plan(made: Made) -> list[str]:
    chosen = planning.read(made.json("data"))
    if chosen.clarify.strip():
        return []  # a person is asked
    run = Desk(_runs() / made.task.target).run
    most = run.manifest().limits.max_wave1_agents if run.manifest_path.is_file() else MOST_SIDES  # by hand there is no run
    many = len(chosen.perspectives)
    return planning.complaints(chosen) + ([f"{many} perspectives, at most {most}: leave the weakest out"] if many > most else [])


def _wave(stage: str, bounds: Contract) -> Callable[[Made], list[str]]:
    def look(made: Made) -> list[str]:
        text = made.text("report")
        listed = citing.extract(contract.sections(text).get("Sources", ""))
        found = [one.message for one in contract.complaints(text, bounds)]
        found += claims.complaints(claims.read(made.json("data")), listed)
        if found:
            retrying.direct(_desk(made), stage, str(made.task.item["perspective_id"]), _attempt(made), "; ".join(found)[:400])
        return found

    return look


def _desk(made: Made) -> Desk:
    return Desk(_runs() / str(made.task.item["run_id"]))


def _runs() -> Path:
    return Path(os.getenv(names.SESSION, "")) / HOME


def _attempt(made: Made) -> int:
    """How many there were with it; one that was cut off is none."""
    return 1 + len(list(Path(made.out).parent.parent.glob("attempt-*/outcome.json")))


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
    wrong += [f"{odd} is no citation: write [@cid_…] as the pack has it, one in each pair of brackets" for odd in found.malformed]
    wrong += ["nothing is cited"] if not found.cited else []
    wrong += [f"a number without a citation: {paragraph[:120]!r}" for paragraph in found.numeric]
    return wrong + [f"{number} stands in no passage that its paragraph cites" for number in claims.unsupported(text, known)]


LOOKS: dict[str, Callable[[Made], list[str]]] = {
    "plan": plan,
    "wave1": _wave("wave1", WAVE_1),
    "wave2": _wave("wave2", WAVE_2),
    "summary": summary,
    "synthesis": synthesis,
}
