"""What an orchestrator is: its stages, loops and parameters as records, and the references between them.

A stage is of one of four kinds: one step, a group of members, a fan-out over items, a question to a person. Each kind knows its
own steps, the references it is made from, and what can be said of it before it runs; nobody else asks which kind it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

from msgspec import Struct

from lib.contract import Json, StrataError
from lib.disk import files
from lib.plan.task import NO_LIMITS, Limits, Output
from lib.plan.written import DEFAULT_MAX_ITEMS, Loop, Param
from lib.session.produced import Label

ASKS_AGENTS = ("agent.py", "spec.py", "researcher.py")  # tools that have an agent do the work

# References: `param.topic`, `plan.tasks`, `critique.*.findings`, `critique.roster`, `item.goal`; `optional plan.tasks` may be
# absent. And what only some have: `after.*.report` (of those it waited for), `previous.draft` (its own of the round before),
# `loop.redesign.findings` (of the stage that sent it back).
RESERVED = ("param", "item", "input", "after", "previous", "loop")  # heads of references that are no stage
ROSTER, CAUSE = "roster", "cause"
FAIL = "fail"  # instead of a loop: the answer ends the run
PLACEHOLDER = re.compile(r"\{((?:optional )?[a-z][a-z0-9_-]*(?:\.[A-Za-z0-9_*-]+)+|item)\}")
_REFERENCE = re.compile(r"(optional )?([a-z][a-z0-9_-]*)((?:\.(?:[A-Za-z0-9_-]+|\*))*)")
Resolve = Callable[[str], Any]


class Reference(Struct, frozen=True):
    head: str
    rest: tuple[str, ...]
    optional: bool

    @staticmethod
    def parse(text: str) -> Reference | None:
        found = _REFERENCE.fullmatch(text)
        return Reference(found[2], tuple(found[3].split(".")[1:]), bool(found[1])) if found else None


class Worker(Struct, frozen=True):
    """Who does a piece of work, with what, into what."""

    agent: str = ""
    agent_from: str = ""  # `item.<field>`: each item names its agent …
    allow: tuple[str, ...] = ()  # … out of these
    tool: str = ""
    args: tuple[str, ...] = ()
    action: str = ""
    target: str = ""
    inputs: dict[str, str] = {}
    outputs: tuple[Output, ...] = ()  # the definition's and its own
    declared: tuple[Output, ...] = ()  # only its own
    after: tuple[str, ...] = ()
    on: dict[str, str] = {}  # of a member: the loops that its own verdict takes
    accept: tuple[str, ...] = ()  # a tool and its words that look at what each step made
    label: Label = Label()  # of its outputs, with references in braces

    @property
    def asks_agents(self) -> bool:
        return bool(self.agent or self.agent_from or self.tool in ASKS_AGENTS)

    @property
    def agents(self) -> tuple[str, ...]:
        """Every definition it may run."""
        return tuple(name for name in (self.agent, *self.allow) if name)

    @property
    def references(self) -> list[str]:
        return [*self.inputs.values(), *PLACEHOLDER.findall(" ".join((self.target, *self.args)))]


class Piece(Struct, frozen=True):
    """One step of a stage: who does it, with which item, and behind which others."""

    key: str
    worker: Worker
    item: Any = None
    after: tuple[str, ...] = ()


class Stage(Struct, frozen=True):
    """A stage of one step. The other kinds are this, and what they know besides."""

    kind: ClassVar[str] = "step"
    fans_out: ClassVar[bool] = False  # it may have several steps, each with a key

    name: str
    folder: str  # nn-name
    worker: Worker = Worker()
    limits: Limits = NO_LIMITS
    on: dict[str, str] = {}
    retry_max: int = 1
    backoff_seconds: tuple[float, ...] = ()
    required: bool = True
    in_loop: bool = False
    isolation: str = ""  # worktree
    depth: int = 0  # how many levels of agents it needs; 0: its definition says
    on_depth: str = "abort"  # where fewer are left: abort, escalate or compress
    cap: int = 1  # how many of its steps run at the same time
    min_success: int | None = None  # how many of its steps are enough; None: all
    on_item_failure: str = "abort"  # of a fan-out also skip and ask
    memory: bool = False  # its agents read first what the run remembers

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.worker,)

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops it may take, by its own verdict or by a member's."""
        return (*self.on.values(), *(name for worker in self.workers for name in worker.on.values()))

    @property
    def references(self) -> list[str]:
        """Everything it is made from."""
        return [text for worker in self.workers for text in worker.references]

    @property
    def outputs(self) -> dict[str, set[str]]:
        """By member (`*`: all of them; nothing: a stage of one step) the names of the outputs that others may refer to."""
        return {"": {o.name for o in self.worker.outputs}}

    @property
    def by(self) -> str:
        """Who does it, in words."""
        return self.worker.agent or self.worker.tool

    @property
    def goes_on_after_a_failure(self) -> bool:
        """Whether its other steps are begun although one has failed."""
        return False

    def pieces(self, resolve: Resolve) -> list[Piece]:
        """Its steps, with every reference in reach."""
        return [Piece("", self.worker)]

    def announced(self) -> list[tuple[str, Worker, int]]:
        """What can be said of its steps before its items are known: key, worker, and how many there may be."""
        return [("", self.worker, 1)]

    def items_expected(self, params: Json) -> int:
        """How many items a run with these parameters has, as far as they tell."""
        return 1

    @property
    def items_at_most(self) -> int:
        return 1

    def order_of(self, known: Callable[[], list[Any]]) -> dict[str, list[str]]:
        """Who of its steps waits for whom; `known`: the items as they were when they ran."""
        return {}


class Group(Stage, frozen=True):
    """Members that do different work at the same time."""

    kind: ClassVar[str] = "group"
    fans_out: ClassVar[bool] = True

    members: dict[str, Worker] = {}

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self.members.values())

    @property
    def outputs(self) -> dict[str, set[str]]:
        table = {name: {o.name for o in worker.outputs} for name, worker in self.members.items()}
        return table | {"*": set[str]().union(*table.values())}

    @property
    def by(self) -> str:
        return ", ".join(self.members)

    @property
    def goes_on_after_a_failure(self) -> bool:
        return True

    def pieces(self, resolve: Resolve) -> list[Piece]:
        return [Piece(name, worker, after=worker.after) for name, worker in self.members.items()]

    def announced(self) -> list[tuple[str, Worker, int]]:
        return [(name, worker, 1) for name, worker in self.members.items()]

    def order_of(self, known: Callable[[], list[Any]]) -> dict[str, list[str]]:
        return {name: list(worker.after) for name, worker in self.members.items()}


class FanOut(Stage, frozen=True):
    """The same work for every item of a list that is known when the stage begins."""

    kind: ClassVar[str] = "fan-out"
    fans_out: ClassVar[bool] = True

    items: tuple[str, ...] = ()
    pointer: str = ""
    key: str = ""
    after: str = ""  # the field of an item that lists those it waits for
    max_items: int = DEFAULT_MAX_ITEMS
    min_items: int = 1  # fewer are a failure: a fan-out over nothing has done nothing
    each: dict[str, str] = {}  # what of its limits and its scope an item says itself: `scope: item.files`

    @property
    def references(self) -> list[str]:
        return [*super().references, *self.items]

    @property
    def outputs(self) -> dict[str, set[str]]:
        return {"*": {o.name for o in self.worker.outputs}}

    @property
    def goes_on_after_a_failure(self) -> bool:
        """Also where so many are enough: who was never asked cannot be among them, and the roster says how all ended."""
        return self.on_item_failure == "skip" or self.min_success is not None

    def pieces(self, resolve: Resolve) -> list[Piece]:
        found = [item for text in self.items for item in self._listed(text, resolve(text))]
        if len(found) < self.min_items:
            message = f"{self.name}: {len(found)} items in {' and '.join(self.items)}{self.pointer}, at least {self.min_items}"
            raise StrataError("TOO_FEW_ITEMS", message, "foreach: {min_items: 0} where none is fine")
        if len(found) > self.max_items:
            raise StrataError("TOO_MANY_ITEMS", f"{self.name}: {len(found)} items, at most {self.max_items}", "raise max_items")
        pieces: dict[str, Piece] = {}
        for item in found:
            key: Any = _field(item, self.key) if self.key else item
            if not isinstance(key, str | int) or key == "":
                raise StrataError("BAD_ITEMS", f"{self.name}: an item has no text under {self.key!r}: {str(item)[:100]}")
            if str(key) in pieces:
                raise StrataError("BAD_ITEMS", f"{self.name}: two items have the key {str(key)!r}", "keys must differ")
            pieces[str(key)] = Piece(str(key), self.worker, item, tuple(self._waits(str(key), item)))
        return list(pieces.values())

    def _listed(self, text: str, value: Any) -> list[Any]:
        if isinstance(value, str) and files.is_file(value):
            try:
                value = json.loads(Path(value).read_text(encoding="utf-8"))
            except ValueError as error:
                raise StrataError("BAD_ITEMS", f"{self.name}: {text} is not JSON: {error}") from None
        for part in self.pointer.split("/")[1:]:
            value = _field(value, part)
        if value is None and text.startswith("optional "):
            value = []
        if not isinstance(value, list):
            raise StrataError("BAD_ITEMS", f"{self.name}: {text}{self.pointer} is not a list", "check foreach.pointer")
        return cast(list[Any], value)

    def _waits(self, key: str, item: Any) -> list[str]:
        value = _field(item, self.after) if self.after else None
        if value is None:
            return []
        if not isinstance(value, list):
            raise StrataError("BAD_ITEMS", f"{self.name}: {key!r} has no list under {self.after!r}")
        return [str(v) for v in cast(list[Any], value)]

    def announced(self) -> list[tuple[str, Worker, int]]:
        return [("*", self.worker, self.max_items)]

    def items_expected(self, params: Json) -> int:
        given: list[Any] = [params.get(text.removeprefix("param.")) if text.startswith("param.") else None for text in self.items]
        return sum(map(len, given)) if all(isinstance(value, list) for value in given) else self.max_items

    @property
    def items_at_most(self) -> int:
        return self.max_items

    def order_of(self, known: Callable[[], list[Any]]) -> dict[str, list[str]]:
        found = {str(_field(item, self.key)): self._waits("", item) for item in known()} if self.after else {}
        return {key: [other for other in others if other in found] for key, others in found.items()}


class Question(Stage, frozen=True):
    """A person is asked."""

    kind: ClassVar[str] = "question"

    question: str = ""
    show: tuple[str, ...] = ()
    answer_schema: str = ""
    routes: dict[str, str] = {}  # by the word that is answered: a loop, or `fail`

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it can be answered with, where those route; any other goes on."""
        return (*(["yes"] if "yes" not in self.routes else []), *self.routes) if self.routes else ()

    @property
    def loops(self) -> tuple[str, ...]:
        return tuple(name for name in self.routes.values() if name != FAIL)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return ()

    @property
    def references(self) -> list[str]:
        return list(self.show)

    @property
    def outputs(self) -> dict[str, set[str]]:
        return {"": {"answer"}}

    @property
    def by(self) -> str:
        return "a person"


class Orchestration(Struct, frozen=True):
    name: str
    params: dict[str, Param]
    loops: dict[str, Loop]
    stages: tuple[Stage, ...]
    description: str = ""
    modifiers: tuple[str, ...] = ()

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)

    @property
    def rosters(self) -> set[str]:
        """The stages whose roster somebody reads, and those that send work back to somebody who does."""
        found = [r for s in self.stages for r in map(Reference.parse, s.references) if r and r.rest[-1:] == (ROSTER,)]
        loops = {r.rest[0] for r in found if r.head == "loop"}
        senders = {s.name for s in self.stages if loops & set(s.loops)}
        return {r.head for r in found if r.head != "loop"} | senders

    def behind(self, stage: Stage) -> tuple[Stage, ...]:
        """This stage and all after it."""
        return self.stages[self.stages.index(stage) :]

    @property
    def outputs(self) -> set[str]:
        """The names of what its stages of one step, and its questions, leave."""
        return set[str]().union(*(s.outputs.get("", set()) for s in self.stages))


def _field(value: Any, name: str) -> Any:
    return cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
