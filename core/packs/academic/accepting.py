"""What an agent is told at once, so that its next try is better. What is decided later is decided by the same rules."""

from __future__ import annotations

from collections.abc import Callable

from lib.attempt.judging import Made
from lib.contract import Json
from lib.disk import files

from packs.academic import gate, steps


def strings(made: Made) -> list[str]:
    """Every database has a query that it can read."""
    said, brief = made.json("data"), files.read_json(made.task.input_path("brief"))
    return _gated(said, "search_strings") or steps.wrong_strings(said, {d["name"]: d["syntax"] for d in brief["databases"]})


def assessed(made: Made) -> list[str]:
    """Everybody that was asked about, once, and nobody else."""
    said = made.json("data")
    asked = [str(c["id"]) for c in made.task.item["candidates"]]
    given = [str(a["id"]) for a in said["assessments"]]
    wrong = [f"{one} is not assessed" for one in asked if one not in given]
    wrong += [f"{one} is assessed, and was not asked about" for one in dict.fromkeys(given) if one not in asked]
    wrong += [f"{one} is assessed more than once" for one in dict.fromkeys(given) if given.count(one) > 1]
    return _gated(said, "assessed") or wrong


def extracted(made: Made) -> list[str]:
    """Of this paper, and no more than was asked for. Whether a quote stands on its page is looked up behind this."""
    said, item = made.json("data"), made.task.item
    wrong = [] if said["source_id"] == item["source_id"] else [f"source_id is {item['source_id']}, not {said['source_id']}"]
    most, many = int(item["quotes"]), len(said["quotes"])
    return _gated(said, "extracted") or wrong + ([f"{many} quotes, at most {most}: keep the best"] if many > most else [])


def _gated(document: Json, schema: str) -> list[str]:
    found = gate.passed(document, schema)
    return list(found.problems)


LOOKS: dict[str, Callable[[Made], list[str]]] = {"strings": strings, "assessed": assessed, "extracted": extracted}
