"""A session as one tree: what was asked, what ran, what runs now, what it cost. What every view of it is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from lib.contract import Json
from lib.session.documents import CampaignManifest
from lib.session.ledger import NOTHING_SPENT as NOTHING
from lib.session.ledger import Figures
from lib.session.outcome import FileChange
from lib.session.step import Step

RUNNING, PARKED, PENDING, CUT_SHORT = "running", "parked", "pending", "cut short"
GOOD = ("success", "complete")


class Row(Struct):
    """One attempt, as views show it."""

    step: Step
    folder: str  # seen from the session
    number: int
    status: str
    kind: str = ""
    agent: str = ""
    model: str = ""
    note: str = ""
    error: Json = {}
    started: float | None = None
    ended: float | None = None
    usd: float = 0.0
    cost_source: str = ""
    tokens: int = 0
    turns: int = 0
    usage: dict[str, Json] = {}  # by model
    denials: list[Json] = []
    changed: tuple[FileChange, ...] = ()  # of the working folder
    end: int = 0  # the number of its end among all of the session
    doing: str = ""  # while it runs: its last tool call
    parked: list[tuple[float, float | None]] = []
    worker: str = ""  # that does it, where that is another machine

    @property
    def message(self) -> str:
        return str(self.error.get("message") or "")


class Node(Struct):
    """A session, a phase, a run, a stage or an item."""

    kind: str
    name: str
    status: str = PENDING
    note: str = ""
    grade: str = ""
    nodes: list[Node] = []
    rows: list[Row] = []
    after: tuple[str, ...] = ()
    wanted: int = 0  # of a fan-out: how many items there are, those not begun included
    turn: str = "round"  # what one more time through it is called

    def every_row(self) -> Iterator[Row]:
        yield from self.rows
        for node in self.nodes:
            yield from node.every_row()

    @property
    def usd(self) -> float:
        return sum(t.usd for t in self.every_row())

    @property
    def tokens(self) -> int:
        return sum(t.tokens for t in self.every_row())

    @property
    def started(self) -> float | None:
        return min((t.started for t in self.every_row() if t.started), default=None)

    @property
    def ended(self) -> float | None:
        rows = list(self.every_row())
        return max((t.ended for t in rows if t.ended), default=None) if all(t.ended for t in rows) else None

    def seconds(self, now: float) -> float:
        """How long it was worked on; what ran at the same time counts once, and what lay between two runs not at all."""
        total, until = 0.0, 0.0
        for begun, ended in sorted((t.started, t.ended or now) for t in self.every_row() if t.started):
            total += max(ended - max(begun, until), 0.0)
            until = max(until, ended)
        return total

    @property
    def retries(self) -> int:
        return sum(t.kind in ("retry", "rerun", "heal", "repair") for t in self.rows)

    @property
    def rounds(self) -> int:
        return max((t.step.round for t in self.rows), default=0)


class Scene(Struct):
    session: Path
    root: Node
    alive: bool
    state: str = ""
    goal: str = ""
    description: str = ""
    params: Json = {}
    manifest: CampaignManifest = CampaignManifest()
    spent: Figures = NOTHING  # the ledger's
    limit_usd: float = 0.0  # of the whole; 0: there is none
    driver: str = ""
    started: float | None = None
    now: float = 0.0
    result: Any = None  # what came of it, once somebody has asked (`result.of`)

    def counts(self) -> dict[str, int]:
        """How many steps have which status."""
        return Counter(node.status for node in leaves(self.root))

    @property
    def replayed(self) -> bool:
        return self.driver == "replay" or any(t.cost_source == "replayed" for t in self.root.every_row())


def leaves(node: Node) -> Iterator[Node]:
    if not node.nodes:
        if node.kind in ("stage", "item"):
            yield node
        return
    for child in node.nodes:
        yield from leaves(child)
