"""Agents of an academic run that do what is asked, unless a test says otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.evidence import quotes
from packs.academic import syntax

from scripted_model import academic_papers
from scripted_model.server import Request, say, tool

PRIMARY = '("street trees" OR canopy) AND (night OR nocturnal) AND (temperature OR cooling)'
VARIATIONS = [
    '("urban trees" OR "tree planting") AND (heat OR cooling) AND (sleep OR bedroom)',
    "(canyon OR street) AND shade AND night",
]
Quote = dict[str, Any]

# By the name of the paper: what is quoted, where it stands, how much it answers, and what it is good for.
QUOTED: dict[str, list[tuple[str, str, float, str]]] = {
    "night": [
        ("Between 22 and 5 o'clock the difference shrank to 0.4 kelvin, with an interval from 0.2 to 0.6.", "results", 0.97, "The measured size of the effect at night."),
        ("The night effect vanished in streets narrower than nine metres, where the canopy touched the façades on both sides.", "results", 0.9, "Where it does not hold."),
        ("Planting without irrigation forgoes much of the benefit.", "conclusion", 0.6, "A condition that planners control."),
    ],
    "sleep": [
        ("On nights above 20 degrees, people on tree-lined streets lay awake for 41 minutes and people on bare streets for 58.", "results", 0.95, "What the cooling means to people."),
        ("Bedrooms behind trees were 0.9 kelvin cooler at midnight.", "results", 0.92, "Indoors the effect is larger than at the lamp post."),
        ("Self-reports are a weakness of this study, and one summer is a short time.", "discussion", 0.5, "Its limit, in its own words."),
    ],
    "limits": [
        ("Where the height of the buildings exceeded 1.5 times the width of the street, dense crowns warmed it by up to 0.5 kelvin.", "results", 0.93, "The case in which trees do the opposite."),
        ("Light crowns did no harm in any canyon.", "results", 0.7, "What to plant instead."),
    ],
}  # fmt: skip
ANNOTATED = {
    "night": "Two summers of readings at 64 points in three dense districts, in pairs with and without canopy. At night the air beneath trees was 0.4 kelvin cooler, a third of the noon figure; in streets narrower than nine metres nothing was left of it. It measures air at lamp posts, and not what residents feel.",
    "sleep": "A diary study of 212 households, with a logger in every bedroom. On hot nights people behind trees lay awake for 41 instead of 58 minutes, which cooler bedrooms explain and noise does not. It rests on self-reports of one summer.",
    "limits": "Simulations of 120 street canyons, checked against field readings. In wide streets trees cool the night; where buildings stand higher than 1.5 times the width of the street, dense crowns warm it. It says nothing about bedrooms or irrigation.",
}
JUDGED = {
    "night": (0.97, 0.9),
    "sleep": (0.92, 0.75),
    "limits": (0.9, 0.8),
    "roofs": (0.5, 0.4),
    "albedo": (0.45, 0.6),
    "survey": (0.3, 0.3),
}


def almost(source: str, honest: list[Quote]) -> list[Quote]:
    """For the quickstart: one passage comes with a word that the paper does not have."""
    changed = [q | {"quote": q["quote"].replace("much of the benefit", "most of the benefit")} for q in honest]
    return [*honest, *(q for q, was in zip(changed, honest, strict=True) if q != was)]


class Scholars:
    """`lies`: given the paper and its honest quotes, what is proposed instead. `fails`: agents that give up, by name."""

    def __init__(self, lies: Callable[[str, list[Quote]], list[Quote]] | None = None) -> None:
        self.asked: list[str] = []
        self.notes: list[str] = []  # what a person wanted otherwise, as an agent was told
        self.lies = lies
        self.annotation: Callable[[str, str | None], str | None] | None = None
        self.strings: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.judgement: Callable[[str], dict[str, Any]] | None = None
        self.hang = 0.0
        self.fails: set[str] = set()

    def __call__(self, r: Request) -> Any:
        agent, about = re.findall(r"^/([a-z][a-z-]*) ?(\S*)", r.prompt, re.M)[0]
        if r.turn == 0:
            self.asked.append(f"{agent} {about}".strip())
            if re.search(r"^- note: ", r.prompt, re.M):
                self.notes.append(Path(r.path("note")).read_text())
        if agent in self.fails:
            return say("STAGE_FAILED: the material cannot be read")
        if agent == "search-strategist":
            return self.strategist(r)
        if agent == "candidate-assessor":
            return self.assessor(r)
        if r.turn == 0:
            return say(tool("Read", file_path=str(self._paper(r))), hang_seconds=self.hang)
        return self.extractor(r)

    def _item(self, r: Request) -> dict[str, Any]:
        found = re.search(r"## Item\n\n```json\n(.*?)\n```", r.prompt, re.S)
        assert found, r.prompt
        return json.loads(found[1])

    def _paper(self, r: Request) -> Path:
        working = re.search(r"^Working folder: (.*)$", r.prompt, re.M)
        assert working
        return Path(working[1]) / r.path("paper")

    def strategist(self, r: Request) -> Any:
        if r.turn == 0:
            return say(tool("Read", file_path=r.path("brief")))
        brief = json.loads(Path(r.path("brief")).read_text())
        made = {
            "primary_string": PRIMARY,
            "variations": VARIATIONS,
            "databases": {d["name"]: syntax.translate(PRIMARY, d["syntax"]) for d in brief["databases"]},
            "reason": "Trees, night and temperature are the question; noise and money are not.",
        }
        return say(tool("StructuredOutput", **(self.strings(made) if self.strings else made)))

    def assessor(self, r: Request) -> Any:
        made = [self.judgement(c["id"]) if self.judgement else self._judged(c) for c in self._item(r)["candidates"]]
        return say(tool("StructuredOutput", assessments=made), hang_seconds=self.hang)

    def _judged(self, c: dict[str, Any]) -> dict[str, Any]:
        name = next((p["name"] for p in academic_papers.PAPERS if p["title"] == c["title"]), "")
        relevance, method = JUDGED.get(name, (0.2, None))
        why = "The abstract speaks of it." if c["abstract"] else "Only a title is there."
        reasons = {"relevance_reason": f"{why} It is about {c['title'][:60]}.", "methodology_reason": why}
        return {"id": c["id"], "relevance": relevance, "methodology": method, "confidence": 0.8, **reasons}

    def extractor(self, r: Request) -> Any:
        item = self._item(r)
        pages = re.split(r"^\[page \d+\]$", self._paper(r).read_text(), flags=re.M)[1:]
        name = next((p["name"] for p in academic_papers.PAPERS if p["title"] == item["title"]), "")
        made: list[Quote] = []
        for text, context, relevance, note in QUOTED.get(name, []):
            found = quotes.find(text, pages, 1)
            assert found, (text, pages)
            made.append({"quote": text, "page": found[0].page, "context": context, "relevance": relevance, "note": note})
        made = self.lies(item["source_id"], made) if self.lies else made
        said = ANNOTATED.get(name)
        said = self.annotation(item["source_id"], said) if self.annotation else said
        return say(tool("StructuredOutput", source_id=item["source_id"], quotes=made, annotation=said))
