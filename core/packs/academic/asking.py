"""The five checkpoints. A person says yes, no, or what to adjust; at once, later, or beforehand in the configuration."""

from __future__ import annotations

from lib.contract import Json, StrataError
from lib.disk.clock import now
from msgspec import Struct

from packs.academic import config, scoring
from packs.academic.at import At

YES, NO, ADJUST = "yes", "no", "adjust"
CHOICES = ("yes", "no", "adjust: NOTE")


class Checkpoint(Struct, frozen=True):
    phase: int
    question: str
    file: str  # what is looked at, and may be edited
    more: tuple[str, ...] = ()  # what is shown besides


CHECKPOINTS = {
    0: Checkpoint(0, "Shall these databases be searched?", "metadata/databases.json"),
    1: Checkpoint(1, "Shall these search strings be used?", "metadata/search_strings.json"),
    3: Checkpoint(
        3, "Which papers shall be read? (yes takes those that are marked as selected)", "metadata/ranked_candidates.json"
    ),
    5: Checkpoint(5, "Are these the quotes?", "outputs/quotes.json", ("outputs/rejected_quotes.json",)),
    6: Checkpoint(6, "Is the bibliography as it should be?", "outputs/Annotated_Bibliography.md", ("outputs/quotes.html",)),
}


def checkpoint(at: At, phase: int, seen: Json) -> Json:
    """`seen`: what the step before says. It leaves the answer for the step behind; `adjust` goes back to what made it."""
    asks = CHECKPOINTS[phase]
    answer = _answer(at, asks, seen)
    word = answer.lower()
    at.folder.state.answered(f"check{phase}")
    at.say(phase, f"a person says {answer!r} behind phase {phase}")
    if word in ("no", "n"):
        at.folder.state.phase(phase, "failed")
        hint = "answer otherwise: academic.py phase N does a phase again"
        raise StrataError("STOPPED", f"a person stopped the run behind phase {phase}", hint, final=True)
    note = answer.partition(":")[2].strip() if word.startswith(ADJUST) else ""
    at.leave("answer", {"phase": phase, "answer": answer, "note": note, "at": now()})
    if word.startswith(ADJUST):
        at.folder.state.phase(phase, "in_progress")
        return at.done(f"adjust: {note or 'make it again'}", "needs_revision")
    at.folder.state.phase(phase, "completed")
    return at.done(f"a person says {answer}")


def _answer(at: At, asks: Checkpoint, seen: Json) -> str:
    broad = [str(one) for one in seen.get("too_broad", ())]
    said = at.task.answer
    beforehand = "" if broad else config.of(at.folder.take("run_config", asks.phase)).checkpoints.get(str(asks.phase), "")
    answer = str(said).strip() if said is not None else beforehand.strip()
    wrong = _wrong(answer, asks.phase, seen) if answer else ""
    if answer and not wrong:
        return answer
    said_before = "".join(f" {one}" for one in (*broad, *seen.get("say", ())))
    shown = tuple(path for file in (asks.file, *asks.more) if (path := at.folder.root / file).exists())
    question = f"{wrong}{asks.question}{said_before} Edit {asks.file} first, if it should be otherwise."
    choices = scoring.CHOICES if asks.phase == 3 else CHOICES
    schema = "academic/choice" if asks.phase == 3 else "academic/answer"
    raise at.ask(asks.phase, f"check{asks.phase}", question, choices, shown, schema)


def _wrong(answer: str, phase: int, seen: Json) -> str:
    """What is the matter with an answer, to be said when it is asked again."""
    word = answer.lower()
    if word in ("yes", "y", "ok", "no", "n") or word == ADJUST or word.startswith(f"{ADJUST}:"):
        return ""
    if phase != 3:
        return f"{answer!r} is no answer to this. "
    try:
        scoring.picked(word, int(seen.get("count", 0)))
    except StrataError as error:
        return f"{error.message}. "
    return ""
