"""Contracts: what a downstream agent needs of a run, what it leaves, how it is run, and what bounds it. As records."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json, StrataError
from lib.disk import files, schemas
from lib.plan import agents
from msgspec import Struct, field

FILE = "agent.yaml"
FORMAT = "config/packs/downstream/schemas/agent.json"


class Unless(Struct, frozen=True):
    """What keeps an output from being matched: another one about the same, which says so."""

    type: str
    pointer: str
    is_: tuple[str, ...] = field(name="is")


class InputSpec(Struct, frozen=True):
    type: str
    id: str = ""
    description: str = ""
    dimensions: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    unless: Unless | None = None

    @property
    def key(self) -> str:
        return self.id or self.type


class ContextNames(Struct, frozen=True):
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


class External(Struct, frozen=True):
    name: str
    path: str
    description: str = ""
    required: bool = False


class DownstreamInput(Struct, frozen=True):
    agent: str
    output: str
    description: str = ""
    required: bool = False


class Inputs(Struct, frozen=True):
    required: tuple[InputSpec, ...] = ()
    optional: tuple[InputSpec, ...] = ()
    context_files: ContextNames = ContextNames()
    external: tuple[External, ...] = ()
    downstream_inputs: tuple[DownstreamInput, ...] = ()

    @property
    def all(self) -> tuple[InputSpec, ...]:
        return (*self.required, *self.optional)


class OutputSpec(Struct, frozen=True):
    name: str
    path_template: str
    description: str = ""
    variables: tuple[str, ...] = ()
    schema: str = ""
    grounded_by: str = ""
    optional: bool = False
    max_bytes: int = 10_000_000

    def path(self, values: dict[str, str]) -> str | None:
        """Where it stands, for these dimensions; nothing where one of its variables has no value."""
        if not set(self.variables) <= set(values):
            return None
        return self.path_template.format(**{name: values[name] for name in self.variables})


class Execution(Struct, frozen=True):
    type: str
    agent: str = ""
    module: str = ""
    class_: str = field(default="", name="class")
    command: tuple[str, ...] = ()
    working_dir: str = "."
    url: str = ""
    method: str = "POST"
    headers: dict[str, str] = {}
    poll_seconds: float = 2.0
    server: str = ""
    tool: str = ""
    config: Json = {}
    env: tuple[str, ...] = ()
    each: str = ""


class ModelSpec(Struct, frozen=True):
    name: str = ""
    max_tokens: int | None = None
    temperature: float | None = None


class Budget(Struct, frozen=True):
    max_cost_usd: float = 1.0
    timeout_seconds: float = 300.0
    max_searches: int = 0


class AgentContract(Struct, frozen=True):
    name: str
    version: str
    inputs: Inputs
    outputs: tuple[OutputSpec, ...]
    execution: Execution
    description: str = ""
    depends_on: tuple[str, ...] = ()
    model: ModelSpec = ModelSpec()
    budget: Budget = Budget()
    folder: str = ""  # where it stands
    digest: str = ""  # of everything in its folder

    @property
    def home(self) -> Path:
        return Path(self.folder)

    def output(self, name: str) -> OutputSpec | None:
        return next((one for one in self.outputs if one.name == name), None)

    @property
    def variables(self) -> dict[str, str]:
        """Those of ours, that every template may use."""
        return {"agent": self.name, "version": self.version, "schema_version": self.version.partition(".")[0]}


Contracts = dict[str, AgentContract]


def schema_of(contract: AgentContract, output: OutputSpec) -> Json:
    """A file beside the contract, or one by its name."""
    beside = contract.home / output.schema
    if output.schema.endswith(".json"):
        try:
            return schemas.check_schema(files.read_json(files.inside(contract.home, output.schema, "the schema")), str(beside))
        except OSError:
            raise StrataError("UNKNOWN_SCHEMA", f"there is no file {beside}", "put it beside agent.yaml") from None
    return schemas.load(output.schema)


def definition(contract: AgentContract) -> agents.Agent:
    """Of an agent: in the contract's own folder, or by its name."""
    name = contract.execution.agent
    if name.endswith(".md"):
        return agents.load(str(files.inside(contract.home, name, "the definition")))
    return agents.load(name, "downstream")
