"""What an orchestrator is: its stages, loops and parameters as records, and the references between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lib.plan.task import Output

DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_CAP = 4
DEFAULT_MAX_ITEMS = 50
ASKS_AGENTS = ("agent.py", "spec.py", "researcher.py")  # tools that have an agent do the work


@dataclass(frozen=True)
class Worker:
    """Who does a piece of work, with what, into what."""

    agent: str = ""
    agent_from: str = ""  # `item.<field>`: each item names its agent …
    allow: tuple[str, ...] = ()  # … out of these
    tool: str = ""
    args: tuple[str, ...] = ()
    action: str = ""
    target: str = ""
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    outputs: tuple[Output, ...] = ()  # the definition's and its own
    declared: tuple[Output, ...] = ()  # only its own
    after: tuple[str, ...] = ()

    @property
    def asks_agents(self) -> bool:
        return bool(self.agent or self.agent_from or self.tool in ASKS_AGENTS)


@dataclass(frozen=True)
class Loop:
    name: str
    to: str
    max: int
    then: str = "fail"


@dataclass(frozen=True)
class Foreach:
    items: str
    pointer: str = ""
    key: str = ""
    after: str = ""
    max_items: int = DEFAULT_MAX_ITEMS
    min_items: int = 1  # fewer are a failure: a fan-out over nothing has done nothing


@dataclass(frozen=True)
class Ask:
    question: str
    show: tuple[str, ...] = ()
    answer_schema: str = ""


@dataclass(frozen=True)
class Stage:
    name: str
    folder: str  # nn-name
    worker: Worker = Worker()
    members: dict[str, Worker] = field(default_factory=dict[str, Worker])
    foreach: Foreach | None = None
    ask: Ask | None = None
    cap: int = DEFAULT_CAP
    min_success: int | None = None
    on_item_failure: str = "abort"
    on: dict[str, str] = field(default_factory=dict[str, str])
    retry_max: int = 1
    backoff_seconds: tuple[float, ...] = ()
    required: bool = True
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    stall_timeout: float | None = None  # seconds without a word from the agent
    model: str = ""
    self_heal: bool = False
    max_turns: int | None = None
    max_budget_usd: float | None = None
    in_loop: bool = False
    isolation: str = ""  # worktree
    depth: int = 0  # how many levels of agents it needs; 0: its definition says
    on_depth: str = "abort"  # where fewer are left: abort, escalate or compress

    @property
    def fans_out(self) -> bool:
        return bool(self.members) or self.foreach is not None


@dataclass(frozen=True)
class Param:
    name: str
    about: str = ""
    default: Any = None
    type: str = "text"
    optional: bool = False


@dataclass(frozen=True)
class Orchestration:
    name: str
    params: dict[str, Param]
    loops: dict[str, Loop]
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)


# References: `param.topic`, `plan.tasks`, `critique.*.findings`, `item.goal`; `optional plan.tasks` may be absent


PLACEHOLDER = re.compile(r"\{((?:optional )?[a-z][a-z0-9_-]*(?:\.[A-Za-z0-9_*-]+)+|item)\}")


@dataclass(frozen=True)
class Reference:
    head: str
    rest: tuple[str, ...]
    optional: bool

    @staticmethod
    def parse(text: str) -> Reference | None:
        found = re.fullmatch(r"(optional )?([a-z][a-z0-9_-]*)((?:\.(?:[A-Za-z0-9_-]+|\*))*)", text)
        return Reference(found[2], tuple(found[3].split(".")[1:]), bool(found[1])) if found else None
