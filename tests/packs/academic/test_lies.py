"""Agents that lie, in a whole run: whatever they invent, none of it reaches what a person takes away."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from scripted_model.academic_desk import Desk
from scripted_model.academic_story import Quote

pytestmark = pytest.mark.rehearsed
PER_PAPER = 75


class Liar:
    """Proposes honest quotes among invented ones, and remembers which is which."""

    def __init__(self) -> None:
        self.random = random.Random(18)
        self.told: dict[str, list[str]] = {}

    def lie(self, kind: str, one: Quote, **more: Any) -> Quote:
        made = one | more
        self.told.setdefault(kind, []).append(made["quote"])
        return made

    def __call__(self, source: str, honest: list[Quote]) -> list[Quote]:
        made = list(honest)
        others = [
            "Residents of tree-lined streets paid more rent in every year of the survey.",
            "All trees were felled in the end.",
        ]
        number = 0
        while len(made) + 7 <= PER_PAPER:
            number += 1
            one = self.random.choice(honest)
            words = one["quote"].split()
            at = self.random.randrange(1, len(words) - 1)
            tag = f"ZZ{source}{number}"  # so that it can be found again wherever it went
            made += [
                self.lie("a word changed", one, quote=" ".join([*words[:at], tag, *words[at + 1 :]])),
                self.lie("a word put in", one, quote=" ".join([*words[:at], tag, *words[at:]])),
                self.lie("a sentence nobody wrote", one, quote=f"{self.random.choice(others)} {tag}"),
                self.lie("an author invented", one, quote=f"{tag} and Smith (2020) found the same in four towns."),
                self.lie("a DOI invented", one, quote=f"See doi.org/10.9999/{tag} for all of the readings."),
                self.lie("a PDF invented", one, quote=f"The full readings are in {tag}.pdf of the supplement."),
                self.lie("a page invented", one, quote=f"{one['quote']} {tag}", page=one["page"] + 40),
            ]
        return made

    def annotate(self, source: str, said: str | None) -> str | None:
        self.told.setdefault("an annotation that invents", []).append(f"ZZ{source}X")
        return f"{said} ZZ{source}X et al. (1999) saw 93 per cent of it, see 10.9999/zz{source.lower()}x."


def test_no_invented_item_reaches_the_outputs(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    liar = desk.scholars.lies = Liar()
    desk.scholars.annotation = liar.annotate
    desk.configure(quotes_per_paper=PER_PAPER, search={"max_iterations": 1})
    ran = desk.run()
    assert ran.code == 0, ran.stderr[-3000:]
    told = [text for texts in liar.told.values() for text in texts]
    outputs = [p for p in (desk.root / "outputs").iterdir() if p.name != "rejected_quotes.json"]
    everything = "".join(p.read_text() for p in outputs)
    reached = [text for text in told if text in everything]
    reached += [str(p) for p in outputs if "ZZ" in p.read_text() and p.suffix != ".html"]
    rejected = desk.read("outputs/rejected_quotes.json")["rejected"]
    with capsys.disabled():
        print(f"\ninvented items that reached the outputs: {len(reached)} of {len(told)}, of {len(liar.told)} kinds")
    assert reached == []
    assert len(told) >= 200 and len(rejected) == len(told) - 3
    assert all(one["reason"] for one in rejected)
    assert len(desk.read("outputs/quote_library.json")["quotes"]) == 8, "what was honest is kept"
    assert [s["annotation"] for s in desk.read("outputs/quote_library.json")["sources"]] == [None] * 3


@pytest.mark.long
def test_an_agent_that_lies_about_the_paper_it_read_is_told_and_then_left_out(desk: Desk) -> None:
    """A quote of another paper, under this one's name; an assessment of papers nobody asked about; queries for nobody."""
    night: list[Quote] = []

    def swap(source: str, honest: list[Quote]) -> list[Quote]:
        night[:] = night or honest
        return [*honest, *(q for q in night if q not in honest)]

    desk.scholars.lies = swap
    honest_judge = desk.scholars.judgement
    desk.scholars.judgement = lambda one: {
        "id": "C9999", "relevance": 1.0, "methodology": 1.0, "confidence": 1.0, "relevance_reason": "x", "methodology_reason": "y",
    }  # fmt: skip
    refused = desk.configure(search={"max_iterations": 1}).run()
    assert refused.code == 1 and "NOBODY_ASSESSED" in json.dumps(refused.document)
    desk.scholars.judgement = honest_judge
    ran = desk.run("--from", "open3")
    assert ran.code == 0, ran.stderr[-3000:]
    quoted = {(q["source_id"], q["quote"]) for q in desk.read("outputs/quote_library.json")["quotes"]}
    assert len(quoted) == 8
    assert len(desk.read("outputs/rejected_quotes.json")["rejected"]) == 2 * len(night)


def test_a_liar_cannot_write_into_the_run(desk: Desk) -> None:
    """Agents of this pack have no tool that writes; what they return is all they have."""
    for path in (Path(desk.house.folder) / "prompts/academic").glob("*.md"):
        tools = path.read_text().split("tools:")[1].splitlines()[0]
        assert set(tools.replace(" ", "").split(",")) <= {"Read", "Grep"}, path.name
