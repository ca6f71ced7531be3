"""What people write in plans, orchestrators, agents and checks, as records: a key that is left out has its default here.

The JSON Schemas say which keys and values there may be, with words for what is wrong; these say what is read of them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from lib.plan import task

DEFAULT_CAP = 4
DEFAULT_MAX_ITEMS = 50


class Output(Struct, frozen=True):
    path: str
    schema: str = ""
    place: str = field(name="in", default="session")
    optional: bool = False
    unchanged: bool = False
    about: str = ""

    def named(self, name: str) -> task.Output:
        return task.Output(name, self.path, self.schema, self.place, self.optional, self.about, self.unchanged)


# Orchestrators


class AgentOfItem(Struct, frozen=True):
    """An agent that each item names, out of those that are allowed."""

    source: str = field(name="from")
    allow: tuple[str, ...]


class Work(Struct, frozen=True):
    """What a stage and a member both say: who does it, with what, into what."""

    agent: str | AgentOfItem = ""
    tool: str = ""
    args: tuple[str, ...] = ()
    action: str = ""
    target: str = ""
    inputs: dict[str, str] = {}
    outputs: dict[str, Output] = {}
    after: tuple[str, ...] = ()
    on: dict[str, str] = {}
    accept: str = ""
    type: str = ""
    layer: str = ""
    dimensions: dict[str, str] = {}
    tags: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        """Every definition it may run."""
        if isinstance(self.agent, AgentOfItem):
            return self.agent.allow
        return (self.agent,) if self.agent else ()

    @property
    def texts(self) -> dict[str, tuple[str, ...]]:
        """What may hold references in braces."""
        return {"target": (self.target,), "args": self.args, "dimensions": tuple(self.dimensions.values()), "tags": self.tags}


class Retry(Struct, frozen=True):
    max: int | None = None  # None: as is usual for who does it
    backoff_seconds: tuple[float, ...] = ()


class Parallel(Struct, frozen=True):
    cap: int = DEFAULT_CAP
    min_success: int | None = None


class Foreach(Struct, frozen=True):
    items: str | tuple[str, ...]
    pointer: str = ""
    key: str = ""
    after: str = ""
    cap: int = DEFAULT_CAP
    max_items: int = DEFAULT_MAX_ITEMS
    min_items: int = 1
    min_success: int | None = None
    each: dict[str, str] = {}

    @property
    def lists(self) -> tuple[str, ...]:
        return (self.items,) if isinstance(self.items, str) else self.items


class Ask(Struct, frozen=True):
    question: str
    show: tuple[str, ...] = ()
    answer_schema: str = ""
    on: dict[str, str] = {}


class Stage(Work, frozen=True, kw_only=True):
    name: str
    retry: Retry = Retry()
    required: bool = True
    isolation: str = ""
    depth: int = 0
    on_depth: str = "abort"
    on_item_failure: str = "abort"
    members: dict[str, Work] = {}
    parallel: Parallel = Parallel()
    foreach: Foreach | None = None
    ask: Ask | None = None
    memory: bool | None = None  # None: as its orchestrator says

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops it may take, by its own verdict or by a member's."""
        answered = (name for name in (self.ask.on.values() if self.ask else ()) if name != "fail")
        return (*self.on.values(), *answered, *(name for member in self.members.values() for name in member.on.values()))


class Loop(Struct, frozen=True):
    to: str
    max: int
    then: str = "fail"
    name: str = ""


class Param(Struct, frozen=True):
    about: str = ""
    default: Any = None
    type: str = "text"
    optional: bool = False
    choices: tuple[str, ...] = ()


class Orchestrator(Struct, frozen=True):
    name: str
    stages: tuple[Stage, ...]
    description: str = ""
    params: dict[str, Param] | None = None  # None: every parameter that is mentioned is one
    loops: dict[str, Loop] = {}
    modifiers: dict[str, tuple[str, ...]] = {}
    memory: bool = False


# Plans


class Verify(Struct, frozen=True):
    checks: tuple[str, ...] = ()
    audit: bool = False
    fix: bool = True
    protect: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    none: str = ""


class Checkpoint(Struct, frozen=True):
    at: str
    question: str = ""
    show: tuple[str, ...] = ()
    answer_schema: str = ""


class Run(Struct, frozen=True):
    orchestrator: str
    name: str = ""
    modifier: str = ""
    mode: str = "tool"
    params: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    depends_on: tuple[str, ...] = ()


class Phase(Struct, frozen=True):
    name: str
    run: tuple[Run, ...]
    verify: Verify
    depends_on: tuple[str, ...] = ()
    budget: dict[str, float] = {}
    mode: str = "tool"
    on_failure: str = "keep"
    checkpoint: Checkpoint | None = None
    cap: int = 4


class Backend(Struct, frozen=True):
    address: str
    cap: int = 0
    place: str = ""

    @property
    def text(self) -> str:
        more = "&".join(f"{k}={v}" for k, v in (("cap", self.cap), ("place", self.place)) if v)
        return f"{self.address}{'&' if '?' in self.address else '?'}{more}" if more else self.address


class Plan(Struct, frozen=True):
    name: str
    phases: tuple[Phase, ...]
    description: str = ""
    workspace: str = "."
    repository: bool = False
    files: dict[str, str] = {}
    fixtures: str = ""
    driver: str = ""
    max_parallel: int = 1
    max_depth: int | None = None
    budget: dict[str, float] = {}
    checks: str = ""
    goal: str = ""
    rounds: int = 1
    params: dict[str, Param] = {}
    backend: str | Backend = ""


# Agents and checks


class Input(Struct, frozen=True):
    about: str = ""
    optional: bool = False


class AgentSettings(Struct, frozen=True):
    """What is ours in the frontmatter of an agent."""

    tier: str = ""
    actions: tuple[str, ...] = ()
    inputs: dict[str, str | Input] = {}
    outputs: dict[str, Output] = {}
    structured: str = ""
    completion: str = "stage"
    checks: tuple[str, ...] = ()
    calls: str = ""
    sandbox: str = "prefer"
    domains: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    max_uses: dict[str, int] = {}
    internal: bool = False


class Agent(Struct, frozen=True):
    name: str
    description: str
    tools: str = ""
    disallowed: str = field(name="disallowedTools", default="")
    model: str = ""
    permission_mode: str = field(name="permissionMode", default="dontAsk")
    max_turns: int | None = field(name="maxTurns", default=None)
    strata: AgentSettings = AgentSettings()


class Check(Struct, frozen=True):
    command: str | tuple[str, ...]
    timeout_seconds: float = 600.0
    blocking: bool = True
    env: tuple[str, ...] = ()
    parser: str = "exit-code"
    report: str = ""


class Checks(Struct, frozen=True):
    checks: dict[str, Check]
