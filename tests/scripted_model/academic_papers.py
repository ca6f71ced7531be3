"""What the local library of the academic pack has: three short papers written for it, and records of others nobody can open.
Everything is invented: people, measurements and journals.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

QUESTION = "Do street trees make nights cooler for the people who live in dense districts?"

NIGHT = """Abstract
Street trees are planted to cool cities, but most measurements are made by day. We measured air temperature for two summers at 64 points in three dense districts, half of them beneath closed canopy. At night the air beneath trees was 0.4 kelvin cooler on average, about a third of the difference found at noon.

1 Introduction
Heat harms people most when they cannot recover from it, and recovery happens at night. A tree shades by day and slows the escape of heat after sunset; which of the two effects prevails in a dense district has been argued rather than measured. Earlier surveys compared parks with streets and could not separate the trees from the open ground around them.

2 Methods
Sixty-four shielded sensors were fixed to lamp posts at a height of three metres, in pairs on the same street with and without canopy. They recorded every ten minutes from May to September in two consecutive years. Pairs were matched for the width of the street, the height of its buildings and the traffic it carries. We report means with bootstrap intervals; the code and the readings are public.

3 Results
At noon the air beneath canopy was 1.3 kelvin cooler. Between 22 and 5 o'clock the difference shrank to 0.4 kelvin, with an interval from 0.2 to 0.6. The night effect vanished in streets narrower than nine metres, where the canopy touched the façades on both sides. On the five hottest nights it was larger, 0.7 kelvin, and the trees that had been watered showed the strongest effect.

4 Discussion
Trees cool dense districts at night, but modestly, and not everywhere. A planner who counts on the noon figure will promise residents three times what they get when they try to sleep. We see no sign that street trees warm the night in streets of ordinary width.

5 Conclusion
Night-time cooling beneath street trees is real, small, and depends on the width of the street and on water. Planting without irrigation forgoes much of the benefit."""

SLEEP = """Abstract
Residents do not live at lamp posts. In a diary study of 212 households on tree-lined and bare streets we asked whether people sleep better where there are trees. They reported 17 fewer minutes awake per hot night, and the effect was explained by bedroom temperature rather than by noise.

1 Introduction
Cooling is usually reported in kelvin, and seldom in what it means to a person. Sleep is the most sensitive thing that heat takes away. We therefore followed households, not sensors, through one summer.

2 Methods
The 212 households were recruited by letter on 38 streets, of which 19 had closed canopy. Every morning they filled in a diary of five questions; a logger in the bedroom recorded temperature and humidity. Households on the two kinds of street did not differ in age, income or floor. The analysis was registered before the data were read.

3 Results
On nights above 20 degrees, people on tree-lined streets lay awake for 41 minutes and people on bare streets for 58. Bedrooms behind trees were 0.9 kelvin cooler at midnight. When bedroom temperature entered the model the difference between the streets disappeared, while noise and humidity changed nothing. Humidity was slightly higher behind trees, but no household named it as a reason to lie awake.

4 Discussion
The benefit of trees at night is felt indoors, and it is larger there than outdoor sensors suggest. A plausible path is the façade: walls that were shaded by day give off less heat by night. Self-reports are a weakness of this study, and one summer is a short time.

5 Conclusion
People sleep better behind street trees on hot nights, because their bedrooms are cooler."""

LIMITS = """Abstract
Tree planting is promoted as if more were always better. With a model of radiation and wind in street canyons we show where it is not. In canyons deeper than they are wide, a dense crown cuts the loss of heat to the sky and slows the wind, and nights become warmer by up to 0.5 kelvin.

1 Introduction
A crown is a roof. By day it keeps the sun out, by night it keeps the warmth in. How the account is settled depends on the geometry of the street, which planting programmes rarely consider.

2 Methods
We simulated 120 canyons that differ in width, height, orientation and crown density, each for a clear and for a cloudy summer night. The model was checked against the public readings of an earlier field study, with an error of 0.3 kelvin. It does not describe irrigation, and treats all crowns as evenly dense.

3 Results
In wide streets trees cooled the night air by 0.3 to 0.6 kelvin. Where the height of the buildings exceeded 1.5 times the width of the street, dense crowns warmed it by up to 0.5 kelvin. Light crowns did no harm in any canyon. Wind mattered more than radiation in two thirds of the cases.

4 Discussion
Our results do not argue against street trees; they argue against closed crowns in deep canyons. Since such canyons are common in old centres, rules that demand canopy cover as a share of area should distinguish between streets. The simulations end at the façade, and say nothing about bedrooms.

5 Conclusion
Whether trees cool the night depends on the shape of the street. Light crowns are safe everywhere; dense ones are not."""


def paper(
    name: str, title: str, authors: list[str], year: int, citations: int, text: str | None = None, **more: Any
) -> dict[str, Any]:
    """A record of the library, under names of its own. `text`: there is a PDF."""
    abstract = text.partition("\n\n")[0].removeprefix("Abstract\n") if text else more.pop("abstract", None)
    known = {"venue": "Journal of Invented Climate", "retracted": False, "doi": f"10.5555/strata.{year}.{name}"}
    facts = {"name": name, "title": title, "authors": authors, "year": year, "citations": citations, "text": text}
    return facts | known | {"abstract": abstract} | more


PAPERS = [
    paper(
        "night", "Street Trees and Night-Time Air Temperature in Three Dense Districts", ["Mara Lindqvist", "Tomas Okafor"], 2024, 61, NIGHT,
        volume="12", issue="3", first="201", last="219",
    ),
    paper(
        "sleep", "Cooler Bedrooms: Street Trees and Sleep on Hot Nights", ["Inês Brandão-Weiß", "Olu Adeyemi"], 2023, 23, SLEEP,
        venue="Annals of Invented Housing & Health", volume="7", issue="1", first="44", last="58",
    ),
    paper(
        "limits", "When Shade Traps Heat: Limits of Street Trees in Narrow Canyons", ["Jørgen Ødegård", "Ana-Lucía Peña"], 2025, 4, LIMITS,
        venue="arXiv", preprint=True,
    ),
    paper(
        "roofs", "Green Roofs and Street Trees Compared: A Review of Night Cooling", ["P. Marchetti"], 2019, 310,
        abstract="A review of 40 studies of night cooling by roofs and street trees, without measurements of its own.",
        paywall=True,
    ),
    paper(
        "albedo", "Bright Pavements, Street Trees and the Temperature of Summer Nights", ["Q. Anand", "R. Holm"], 2021, 88,
        abstract="Pavements of high albedo and street trees are compared in one district on summer nights.",
        forbidden=True,
    ),
    paper(
        "survey", "What Residents Say about Street Trees and Heat", ["S. Iwu"], 2018, 15,
        abstract="A survey of opinions about street trees and heat in four towns.", gone=True,
    ),
    paper(
        "withdrawn", "Street Trees Cool Nights by Five Kelvin", ["X. Doubt"], 2022, 7,
        abstract="Street trees are reported to cool nights by five kelvin.", retracted=True, paywall=True,
    ),
]  # fmt: skip


def pdf(record: dict[str, Any]) -> bytes:
    """The paper as a file, the same every time."""
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer

    styles = getSampleStyleSheet()
    story: list[Any] = [Paragraph(record["title"], styles["Title"]), Paragraph(", ".join(record["authors"]), styles["Italic"])]
    for block in record["text"].split("\n\n"):
        heading, _, body = block.partition("\n")
        story += [Spacer(1, 6), Paragraph(heading, styles["Heading3"]), Paragraph(body, styles["BodyText"])]
    made = BytesIO()
    SimpleDocTemplate(made, pagesize=A5, title=record["title"], author=", ".join(record["authors"]), invariant=1).build(story)
    return made.getvalue()
