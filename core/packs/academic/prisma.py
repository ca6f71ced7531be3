"""The flow of a review, as PRISMA 2020 draws it. Its numbers add up, or it is not drawn."""

from __future__ import annotations

from html import escape

from lib.contract import StrataError
from msgspec import Struct


class Flow(Struct, frozen=True):
    by_database: tuple[tuple[str, int], ...]  # records that came back
    duplicates: int
    other_removed: int  # without a title, or taken out by hand; below zero: added by hand
    screened: int
    not_chosen: int
    sought: int
    not_retrieved: tuple[tuple[str, int], ...]  # by reason
    assessed: int
    excluded: tuple[tuple[str, int], ...]  # by reason
    included: int
    quotes: int

    @property
    def identified(self) -> int:
        return sum(count for _, count in self.by_database)

    def require(self) -> Flow:
        """Every box is what the box above leaves."""
        sums = {
            "screened": (self.screened, self.identified - self.duplicates - self.other_removed),
            "sought": (self.sought, self.screened - self.not_chosen),
            "assessed": (self.assessed, self.sought - sum(count for _, count in self.not_retrieved)),
            "included": (self.included, self.assessed - sum(count for _, count in self.excluded)),
        }
        wrong = [f"{name} is {said}, and {left} are left" for name, (said, left) in sums.items() if said != left or said < 0]
        if not 0 <= self.duplicates <= self.identified:
            wrong.append(f"duplicates are {self.duplicates} of {self.identified}")
        if wrong:
            raise StrataError("BAD_FLOW", f"the numbers of the flow do not add up: {'; '.join(wrong)}", "", final=True)
        return self

    def boxes(self) -> list[tuple[str, list[str], list[str]]]:
        """By row: what it is called, what it says, and what stands beside it."""
        hand = {True: "added by hand", False: "removed for other reasons"}[self.other_removed < 0]
        other = [f"{hand} (n = {abs(self.other_removed)})"] if self.other_removed else []
        return [
            (
                "Identification",
                [f"Records identified (n = {self.identified})", *(f"{n} (n = {c})" for n, c in self.by_database)],
                ["Before screening:", f"duplicates removed (n = {self.duplicates})", *other],
            ),
            ("Screening", [f"Records screened (n = {self.screened})"], [f"Records not chosen (n = {self.not_chosen})"]),
            (
                "",
                [f"Reports sought (n = {self.sought})"],
                _with_reasons("Reports not retrieved", self.not_retrieved),
            ),
            ("", [f"Reports assessed (n = {self.assessed})"], _with_reasons("Reports excluded", self.excluded)),
            ("Included", [f"Studies with verified quotes (n = {self.included})", f"Quotes (n = {self.quotes})"], []),
        ]


def _with_reasons(what: str, reasons: tuple[tuple[str, int], ...]) -> list[str]:
    return [f"{what} (n = {sum(count for _, count in reasons)})", *(f"{reason} (n = {count})" for reason, count in reasons)]


def table(flow: Flow) -> str:
    rows = [f"| {name} | {'; '.join(left)} | {'; '.join(right)} |" for name, left, right in flow.boxes()]
    return "\n".join(("| stage | records | left out |", "|---|---|---|", *rows))


LINE, BAND, WIDE, GAP = 18, 28, 330, 40
_CUT = 52  # letters of a line
_LEAST = {"Identification": 6, "Included": 3}  # lines, so that the name of a part has room along its one row


def svg(flow: Flow) -> str:
    """Drawn, with nothing loaded from elsewhere."""
    parts: list[str] = []
    bands: list[tuple[str, int, int]] = []
    top = 10
    middle = BAND + 20 + WIDE / 2
    for name, left, right in flow.require().boxes():
        high = 16 + LINE * max(len(left), len(right), _LEAST.get(name, 0))
        if top > 10:
            parts.append(f'<path class="a" d="M{middle} {top - GAP}V{top - 4}"/>')
        bands = [*bands, (name, top, top + high)] if name else [*bands[:-1], (*bands[-1][:2], top + high)]
        parts.append(_box(BAND + 20, top, high, left))
        if right:
            parts.append(f'<path class="a" d="M{BAND + 20 + WIDE} {top + high / 2}h{GAP - 4}"/>')
            parts.append(_box(BAND + 20 + WIDE + GAP, top, high, right))
        top += high + GAP
    parts += [_band(*band) for band in bands]
    wide = BAND + 20 + WIDE + GAP + WIDE + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" width="{wide}" height="{top}" role="img" '
        'aria-label="PRISMA 2020 flow"><style>text{font:13px sans-serif;fill:#222}.t{text-anchor:middle;font-weight:bold}'
        "rect{fill:#fff;stroke:#555}.b{fill:#dfe8f2;stroke:none}.a{stroke:#555;fill:none;marker-end:url(#p)}</style>"
        '<defs><marker id="p" markerWidth="8" markerHeight="8" refX="4" refY="4" orient="auto"><path d="M0 0L8 4L0 8z" '
        'fill="#555"/></marker></defs>'
    )
    return head + "".join(parts) + "</svg>\n"


def _band(name: str, top: int, bottom: int) -> str:
    """The name of a part of the flow, along its rows."""
    place = f"translate({8 + BAND / 2} {(top + bottom) / 2}) rotate(-90)"
    named = f'<text class="t" transform="{place}">{escape(name)}</text>'
    return f'<rect class="b" x="4" y="{top}" width="{BAND}" height="{bottom - top}"/>{named}'


def _box(x: float, y: float, high: float, lines: list[str]) -> str:
    said = "".join(
        f'<text x="{x + 10}" y="{y + 8 + LINE * (n + 0.75)}">{escape(_cut(line))}</text>' for n, line in enumerate(lines)
    )
    return f'<rect x="{x}" y="{y}" width="{WIDE}" height="{high}"/>{said}'


def _cut(line: str) -> str:
    return line if len(line) <= _CUT else line[: _CUT - 1] + "…"
