"""Reading `config/orchestrators/<name>.yaml`: everything in it is checked, with file and line, before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

from msgspec.structs import asdict, replace

from lib.contract import Json, StrataError, nearest, usage
from lib.disk import config, places, records, schemas
from lib.disk.config import Document
from lib.plan import agents, beside, params, written
from lib.plan.orchestration import FAIL, RESERVED, FanOut, Group, Orchestration, Question, Reference, Stage, Worker
from lib.plan.references import References, mentioned
from lib.plan.task import Limits, Output
from lib.plan.written import Loop, Param
from lib.process import tools
from lib.session.produced import Label

DOERS = ("agent", "tool", "members", "ask")
FITS_ONLY = {"parallel": "members", "on_item_failure": "foreach", "action": "agent", "args": "tool"}


def load(name: str, modifier: str = "") -> Orchestration:
    """By its name, or by the path of a file; with a modifier, only the stages it keeps."""
    file = find(name)
    document = config.read(file)
    if isinstance(document.data, dict) and "name" in document.data and document.data["name"] != file.stem:  # type: ignore[reportUnknownMemberType]
        raise document.error(["name"], f"the name differs from the file's, {file.stem!r}", f"name: {file.stem}")
    return _Reader(document, document.check("orchestrator")).read(modifier)


def find(name: str) -> Path:
    path = Path(name)
    if name.endswith((".yaml", ".yml")) and path.is_file():
        places.beside(path.absolute().parent)
        return path
    found = places.find("orchestrator", name)
    if not found:
        known = (f.name for f in places.every("orchestrator"))
        raise StrataError("UNKNOWN_ORCHESTRATOR", f"there is no orchestrator {name!r}", nearest(name, known))
    return found.file


class _Reader:
    """Turns the checked document into records, and refuses what a schema cannot see."""

    def __init__(self, document: Document, data: Json) -> None:
        self.document = document
        self.pack = places.pack_of(document.file.absolute())
        self.raw = cast(list[Json], data["stages"])
        self.written = records.of(data, written.Orchestrator)
        self.names = [s.name for s in self.written.stages]
        self.loops = {name: replace(loop, name=name) for name, loop in self.written.loops.items()}
        self.params = self._params()
        self.references = References(document, self.written.stages, self.params, self.loops)

    def read(self, modifier: str) -> Orchestration:
        self._unique_names()
        self._loop_targets()
        self._param_types()
        stages = [self._stage(index, spec) for index, spec in enumerate(self.written.stages)]
        self._loops_used()
        self.references.settle()
        for index, stage in enumerate(stages):
            if stage.on_depth == "compress":
                self._compressible(["stages", index, "on_depth"], stages[index:])
        for name, kept in self.written.modifiers.items():
            self._modifier(name, kept)
        chosen = self._chosen(modifier)
        kept = tuple(s for s in stages if s.name in chosen)
        about = self.written.description, tuple(self.written.modifiers)
        return Orchestration(self.written.name, self.params, self.loops, kept, *about)

    def _error(self, path: list[Any], message: str, hint: str = "") -> StrataError:
        return self.document.error(path, message, hint)

    # The whole

    def _unique_names(self) -> None:
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise self._error(["stages", index, "name"], f"two stages are called {name!r}", "give each its own name")
            if name in RESERVED:
                raise self._error(["stages", index, "name"], f"{name!r} is a reserved word", "call the stage something else")

    def _params(self) -> dict[str, Param]:
        """Without a `params:` block, every parameter a stage mentions is one: a text that must be given."""
        if self.written.params is not None:
            return self.written.params
        references = [Reference.parse(text) for spec in self.written.stages for _, text in mentioned(spec)]
        return {r.rest[0]: Param() for r in references if r and r.head == "param" and len(r.rest) == 1}

    def _param_types(self) -> None:
        for name, param in self.params.items():
            wrong = params.wrong_default(name, param)
            if wrong:
                raise self._error(["params", name, "default"], *wrong)

    def _loop_targets(self) -> None:
        for name, loop in self.loops.items():
            if loop.to not in self.names:
                raise self._error(["loops", name, "to"], f"there is no stage {loop.to!r}", nearest(loop.to, self.names))

    def _loops_used(self) -> None:
        used = {loop for spec in self.written.stages for loop in spec.loops}
        for name in self.loops:
            if name not in used:
                hint = "name it under a stage's `on:`, or remove it"
                raise self._error(["loops", name], f"no stage uses the loop {name!r}", hint)

    def _modifier(self, name: str, kept: tuple[str, ...]) -> None:
        for index, stage in enumerate(kept):
            if stage not in self.names:
                raise self._error(["modifiers", name, index], f"there is no stage {stage!r}", nearest(stage, self.names))
        for spec in self.written.stages:
            for loop in (self.loops[n] for n in spec.loops if n in self.loops and spec.name in kept):
                if loop.to not in kept:
                    message = f"{name} keeps {spec.name!r}, which loops to {loop.to!r}, but leaves that out"
                    raise self._error(["modifiers", name], message, f"add {loop.to}")
        self.references.survive(name, set(kept))

    def _chosen(self, modifier: str) -> set[str]:
        modifiers = self.written.modifiers
        if not modifier:
            return set(self.names)
        if modifier not in modifiers:
            usage(f"{self.written.name} has no modifier {modifier!r}", nearest(modifier, list(modifiers)))
        return set(modifiers[modifier])

    def _compressible(self, at: list[Any], stages: list[Stage]) -> None:
        """Whether this stage and those behind it can be done as one, by an agent that starts none."""
        able = set(agents.load("stage-compressor").tools)
        for stage in stages:
            agent = agents.load(stage.worker.agent) if stage.worker.agent else None
            why = ""
            if stage.on_depth != "compress":
                why = f"{stage.name} would have to be done with it, and is not declared that way"
            elif not agent or stage.fans_out or stage.on or stage.isolation:
                why = f"{stage.name} is not one agent's work without items, members, loops and isolation"
            elif agent.checks:
                why = f"{agent.name} has checks of its own, which nobody would run"
            elif not agent.calls and not set(agent.tools) <= able:
                why = f"{agent.name} has {', '.join(sorted(set(agent.tools) - able))}, which one who does it all has not"
            if why:
                raise self._error(at, f"{stages[0].name!r} cannot be compressed: {why}", "on_depth: escalate")

    # A stage

    def _stage(self, index: int, spec: written.Stage) -> Stage:
        at: list[Any] = ["stages", index]
        self._fitting_keys(at, self.raw[index], spec)
        self._routes(at, index, spec.on)
        for member, work in spec.members.items():
            self._routes([*at, "members", member], index, work.on)
        stage = self._kind(at, index, spec)
        if stage.limits.model:
            self._placed([*at, "model"], lambda: config.model_id(stage.limits.model))
        beside.check_writers(self.document, at, stage)
        self.references.know(stage.name, stage.outputs)
        return stage

    def _routes(self, at: list[Any], index: int, on: dict[str, str]) -> None:
        for event, name in on.items():
            if name not in self.loops:
                raise self._error([*at, "on", event], f"there is no loop {name!r}", nearest(name, list(self.loops)))
            if self.names.index(self.loops[name].to) > index:
                message = f"the loop {name!r} goes forward to {self.loops[name].to!r}"
                raise self._error([*at, "on", event], message, "a loop goes back")

    def _placed(self, at: list[Any], check: Any) -> None:
        """Runs a check whose error knows nothing of the file, and gives it its place."""
        try:
            check()
        except StrataError as error:
            raise self._error(at, error.message, error.hint) from None

    def _fitting_keys(self, at: list[Any], raw: Json, spec: written.Stage) -> None:
        kinds = [k for k in DOERS if k in raw]
        if len(kinds) != 1:
            found = " and ".join(kinds) if kinds else "none of them"
            message = f"stage {spec.name!r} needs exactly one of {', '.join(DOERS)}; it has {found}"
            raise self._error(at, message, "who does the work?")
        for key, other in FITS_ONLY.items():
            if key in raw and other not in raw and not (key == "action" and "members" in raw):
                raise self._error([*at, key], f"{key!r} means something only with {other!r}", f"remove it, or add {other}")
        if spec.foreach and spec.members:
            raise self._error(at, "a stage is either a group of members or a foreach", "make it two stages")
        if isinstance(spec.agent, written.AgentOfItem) and not spec.foreach:
            raise self._error([*at, "agent"], "an agent taken from the item needs a foreach", "name the agent")
        count, enough = len(spec.members), spec.parallel.min_success or 0
        if enough > count:
            message = f"{enough} of {count} members cannot succeed"
            raise self._error([*at, "parallel", "min_success"], message, f"at most {count}")

    def _kind(self, at: list[Any], index: int, spec: written.Stage) -> Stage:
        common = self._common(index, spec)
        if spec.ask:
            asked: Json = asdict(self._question([*at, "ask"], spec.ask, index))
            return Question(**common, routes=asked.pop("on"), **asked)
        if spec.members:
            members = {n: self._member([*at, "members", n], index, n) for n in spec.members}
            beside.check_members(self.document, at, members)
            self.references.of_members([*at, "members"], members)
            return Group(**common, members=members, **asdict(spec.parallel))
        worker = self._worker(at, index, spec, spec.name)
        if spec.foreach:
            self._items([*at, "foreach"], spec.foreach, index)
            self.references.of_items(at, worker, bool(spec.foreach.after))
            known: Json = asdict(spec.foreach) | {"items": spec.foreach.lists, "on_item_failure": spec.on_item_failure}
            return FanOut(**common, worker=worker, **known)
        return Stage(**common, worker=worker)

    def _common(self, index: int, spec: written.Stage) -> Json:
        """What every kind of stage has."""
        tries = 0 if spec.tool == "check.py" else 1  # a check judges; it does not try
        return {
            "name": spec.name,
            "folder": f"{index + 1:02d}-{spec.name}",
            "limits": records.of(self.raw[index], Limits),
            "on": spec.on,
            "required": spec.required,
            "isolation": spec.isolation,
            "depth": spec.depth,
            "memory": self.written.memory if spec.memory is None else spec.memory,
            "on_depth": spec.on_depth,
            "retry_max": tries if spec.retry.max is None else spec.retry.max,
            "backoff_seconds": spec.retry.backoff_seconds,
            "in_loop": any(self._spans(loop, index) for loop in self.loops.values()),
        }

    def _spans(self, loop: Loop, index: int) -> bool:
        sources = [i for i, s in enumerate(self.written.stages) if loop.name in s.loops]
        return self.names.index(loop.to) <= index and any(index <= i for i in sources)

    def _items(self, at: list[Any], spec: written.Foreach, index: int) -> None:
        for text in spec.lists:
            self.references.check([*at, "items"], text, index)
            reference = Reference.parse(text)
            if reference and reference.head == "param" and self.written.params and self.params[reference.rest[0]].type == "text":
                name = reference.rest[0]
                hint = f"params: {{{name}: {{type: list}}}}"
                raise self._error([*at, "items"], f"the parameter {name!r} is a text, not a list", hint)
        most = spec.max_items
        if (spec.min_success or 0) > most:
            message = f"{spec.min_success} of at most {most} items cannot succeed"
            raise self._error([*at, "min_success"], message, f"at most {most}")
        if spec.min_items > most:
            raise self._error([*at, "min_items"], f"at least {spec.min_items} of at most {most} items", f"at most {most}")
        if spec.after and not spec.key:
            hint = "add key: the field that names an item"
            raise self._error([*at, "after"], "items that wait for each other need a key", hint)

    def _question(self, at: list[Any], spec: written.Ask, index: int) -> written.Ask:
        self._routes(at, index, {word: name for word, name in spec.on.items() if name != FAIL})
        for number, text in enumerate(spec.show):
            self.references.check([*at, "show", number], text, index)
        if spec.answer_schema:
            return replace(spec, answer_schema=self._schema([*at, "answer_schema"], spec.answer_schema))
        return spec

    # Who does it

    def _member(self, at: list[Any], index: int, name: str) -> Worker:
        """A member has what its stage says, and what it says itself."""
        raw = self.raw[index]
        spec = records.of(raw | raw["members"][name], written.Work)
        inputs = self.written.stages[index].inputs | spec.inputs
        own = self.written.stages[index].members[name].on  # its stage's are the stage's
        return replace(self._worker(at, index, replace(spec, inputs=inputs), name), after=spec.after, on=own)

    def _worker(self, at: list[Any], index: int, spec: written.Work, name: str) -> Worker:
        if bool(spec.agent) == bool(spec.tool):
            raise self._error(at, f"{name!r} needs an agent or a tool, and not both")
        declared = {n: self._output([*at, "outputs", n], o.named(n)) for n, o in spec.outputs.items()}
        outputs = dict(declared)
        for wanted in spec.agents:
            definition = self._agent([*at, "agent"], wanted)
            outputs = {o.name: o for o in definition.outputs} | outputs | declared
            self._action([*at, "action"], definition, spec.action)
        if spec.tool:
            self._tool([*at, "tool"], spec.tool)
        accept = tuple(shlex.split(spec.accept))
        if accept:
            self._tool([*at, "accept"], accept[0])
        self.references.of_work(at, spec, index)
        agent = ""
        if isinstance(spec.agent, str) and spec.agent:
            definition = self._agent(at, spec.agent)
            agent = definition.id
            self._inputs_given(at, definition, spec.inputs)
            if why := agents.cannot_leave(definition, list(outputs.values())):
                raise self._error([*at, "outputs"], why, f"give {agent} the tool Write, or leave the output out")
        return Worker(
            agent=agent,
            agent_from=spec.agent.source if isinstance(spec.agent, written.AgentOfItem) else "",
            allow=tuple(self._agent(at, name).id for name in spec.agents) if not agent else (),
            tool=spec.tool,
            args=spec.args,
            action=spec.action,
            target=spec.target,
            inputs=spec.inputs,
            outputs=tuple(outputs.values()),
            declared=tuple(declared.values()),
            accept=accept,
            label=Label(spec.type, spec.layer, spec.dimensions, spec.tags),
        )

    def _agent(self, at: list[Any], name: str) -> agents.Agent:
        try:
            return agents.load(name, self.pack)
        except StrataError as error:
            if error.code == "UNKNOWN_AGENT":
                raise self._error(at, error.message, error.hint) from None
            raise

    def _action(self, at: list[Any], definition: agents.Agent, action: str) -> None:
        if definition.actions and action not in definition.actions:
            message = f"{definition.name} does not know the action {action or '(none)'!r}"
            raise self._error(at, message, f"it knows: {', '.join(definition.actions)}")

    def _inputs_given(self, at: list[Any], definition: agents.Agent, inputs: dict[str, str]) -> None:
        for name in definition.required_inputs:
            if name not in inputs:
                message = f"{definition.name} needs the input {name!r} ({definition.inputs[name].about})"
                raise self._error([*at, "inputs"], message, f"inputs: {{{name}: …}}")

    def _tool(self, at: list[Any], name: str) -> None:
        def check() -> None:
            if tools.layer_of(tools.find_tool(name)) != 1:
                raise StrataError("", f"{name} is not an executor (layer 1)", "a stage calls layer 1: TOOL = Tool(…, layer=1, …)")

        self._placed(at, check)

    def _output(self, at: list[Any], output: Output) -> Output:
        if Path(output.path).is_absolute() or ".." in Path(output.path).parts:
            raise self._error(at, f"the output path {output.path!r} leaves its folder", "give a plain relative path")
        return replace(output, schema=self._schema([*at, "schema"], output.schema)) if output.schema else output

    def _schema(self, at: list[Any], name: str) -> str:
        """The schema that is meant, by a name that everybody finds."""
        self._placed(at, lambda: schemas.load(schemas.qualified(name, self.pack)))
        return schemas.qualified(name, self.pack)
