"""Reading `config/orchestrators/<name>.yaml`: everything in it is checked, with file and line, before anything runs."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

from lib.contract import Json, StrataError, nearest, usage
from lib.disk import config, records, schemas
from lib.disk.config import Document
from lib.plan import agents
from lib.plan.orchestration import (
    DEFAULT_CAP,
    PLACEHOLDER,
    FanOut,
    Group,
    Loop,
    Orchestration,
    Param,
    Question,
    Reference,
    Stage,
    Worker,
)
from lib.plan.task import Limits, Output
from lib.process import fanout, tools


def load(name: str, modifier: str = "") -> Orchestration:
    """By name from config/orchestrators, or by the path of a file; with a modifier, only the stages it keeps."""
    folder = config.CONFIG / "orchestrators"
    file = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not file.is_file() or (file.parent != folder and not name.endswith((".yaml", ".yml"))):
        known = (p.stem for p in folder.glob("*.yaml"))
        raise StrataError("UNKNOWN_ORCHESTRATOR", f"there is no orchestrator {name!r}", nearest(name, known))
    document = config.read(file)
    if isinstance(document.data, dict) and "name" in document.data and document.data["name"] != file.stem:  # type: ignore[reportUnknownMemberType]
        raise document.error(["name"], f"the name differs from the file's, {file.stem!r}", f"name: {file.stem}")
    return _Reader(document, document.check("orchestrator")).read(modifier)


class _Reader:
    """Turns the checked document into records, and refuses what a schema cannot see."""

    def __init__(self, document: Document, data: Json) -> None:
        self.document = document
        self.data = data
        self.specs = cast(list[Json], data["stages"])
        self.names = [s["name"] for s in self.specs]
        self.fields: dict[str, dict[str, set[str]]] = {}  # stage → member, or "" or "*" → outputs

    def read(self, modifier: str) -> Orchestration:
        self._unique_names()
        loops = self._loops()
        params = {n: Param(**{"name": n, **s}) for n, s in self.data.get("params", self._mentioned()).items()}
        self._param_types(params)
        stages = [self._stage(index, spec, loops, params) for index, spec in enumerate(self.specs)]
        self._loops_used(loops)
        for index, stage in enumerate(stages):
            if stage.on_depth == "compress":
                self._compressible(["stages", index, "on_depth"], stages[index:])
        for name, kept in self.data.get("modifiers", {}).items():
            self._modifier(name, kept, loops)
        chosen = self._chosen(modifier)
        kept_stages = tuple(s for s in stages if s.name in chosen)
        return Orchestration(self.data["name"], params, loops, kept_stages)

    def _compressible(self, at: list[Any], stages: list[Stage]) -> None:
        """Whether this stage and those behind it can be done as one, by an agent that starts none."""
        able = set(agents.load("stage-compressor").tools)
        for stage in stages:
            agent = agents.load(stage.worker.agent) if stage.worker.agent else None
            why = ""
            if stage.on_depth != "compress":
                why = f"{stage.name} would have to be done with it, and does not say so"
            elif not agent or stage.fans_out or stage.on or stage.isolation:
                why = f"{stage.name} is not one agent's work without items, members, loops and isolation"
            elif agent.checks:
                why = f"{agent.name} has checks of its own, which nobody would run"
            elif not agent.calls and not set(agent.tools) <= able:
                why = f"{agent.name} has {', '.join(sorted(set(agent.tools) - able))}, which one who does it all has not"
            if why:
                raise self._error(at, f"{stages[0].name!r} cannot be compressed: {why}", "on_depth: escalate")

    def _mentioned(self) -> dict[str, Json]:
        """Without a `params:` block, every parameter a stage mentions is one: a text that must be given."""
        texts = [text for spec in self.specs for _, text in _references(spec)]
        references = [Reference.parse(text) for text in texts]
        return {r.rest[0]: {} for r in references if r and r.head == "param" and len(r.rest) == 1}

    def _param_types(self, params: dict[str, Param]) -> None:
        for name, param in params.items():
            fits = param.default is None or (
                isinstance(param.default, list | str) if param.type == "list" else not isinstance(param.default, list)
            )
            if not fits:
                raise self._error(
                    ["params", name, "default"], f"the default of {name!r} is no {param.type}", "change its type, or the default"
                )

    def _error(self, path: list[Any], message: str, hint: str = "") -> StrataError:
        return self.document.error(path, message, hint)

    def _unique_names(self) -> None:
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise self._error(["stages", index, "name"], f"two stages are called {name!r}", "give each its own name")
            if name in ("param", "item", "input"):
                raise self._error(["stages", index, "name"], f"{name!r} is a reserved word", "call the stage something else")

    def _loops(self) -> dict[str, Loop]:
        loops: dict[str, Loop] = {}
        for name, spec in self.data.get("loops", {}).items():
            if spec["to"] not in self.names:
                raise self._error(["loops", name, "to"], f"there is no stage {spec['to']!r}", nearest(spec["to"], self.names))
            loops[name] = Loop(**{"name": name, **spec})
        return loops

    def _loops_used(self, loops: dict[str, Loop]) -> None:
        used = {loop for spec in self.specs for loop in spec.get("on", {}).values()}
        for name in loops:
            if name not in used:
                raise self._error(
                    ["loops", name], f"no stage uses the loop {name!r}", "name it under a stage's `on:`, or remove it"
                )

    def _modifier(self, name: str, kept: list[str], loops: dict[str, Loop]) -> None:
        for index, stage in enumerate(kept):
            if stage not in self.names:
                raise self._error(["modifiers", name, index], f"there is no stage {stage!r}", nearest(stage, self.names))
        for spec in self.specs:
            for loop in spec.get("on", {}).values():
                if spec["name"] in kept and loop in loops and loops[loop].to not in kept:
                    raise self._error(
                        ["modifiers", name],
                        f"{name} keeps {spec['name']!r}, which loops to {loops[loop].to!r}, but leaves that out",
                        f"add {loops[loop].to}",
                    )
        self._references_survive(name, set(kept))

    def _chosen(self, modifier: str) -> set[str]:
        modifiers: Json = self.data.get("modifiers", {})
        if not modifier:
            return set(self.names)
        if modifier not in modifiers:
            usage(f"{self.data['name']} has no modifier {modifier!r}", nearest(modifier, list(modifiers)))
        return set(modifiers[modifier])

    def _references_survive(self, modifier: str, chosen: set[str]) -> None:
        for index, spec in enumerate(self.specs):
            if spec["name"] not in chosen:
                continue
            for path, text in _references(spec):
                reference = Reference.parse(text)
                if reference and reference.head in self.names and reference.head not in chosen and not reference.optional:
                    raise self._error(
                        ["stages", index, *path],
                        f"{text!r} needs the stage {reference.head!r}, which {modifier} leaves out",
                        f"write `optional {text}` if it can do without",
                    )

    def _stage(self, index: int, spec: Json, loops: dict[str, Loop], params: dict[str, Param]) -> Stage:
        at: list[Any] = ["stages", index]
        kinds = [k for k in ("agent", "tool", "members", "ask") if k in spec]
        if len(kinds) != 1:
            found = " and ".join(kinds) if kinds else "none of them"
            raise self._error(
                at, f"stage {spec['name']!r} needs exactly one of agent, tool, members, ask; it has {found}", "who does the work?"
            )
        self._fitting_keys(at, spec)
        for event, loop in spec.get("on", {}).items():
            if loop not in loops:
                raise self._error([*at, "on", event], f"there is no loop {loop!r}", nearest(loop, list(loops)))
            if self.names.index(loops[loop].to) > index:
                raise self._error([*at, "on", event], f"the loop {loop!r} goes forward to {loops[loop].to!r}", "a loop goes back")
        stage = self._kind(at, index, spec, params, self._common(index, spec, loops))
        if stage.limits.model:
            try:
                config.model_id(stage.limits.model)
            except StrataError as error:
                raise self._error([*at, "model"], error.message, error.hint) from None
        self._one_writer(at, stage)
        self.fields[stage.name] = stage.outputs
        return stage

    def _common(self, index: int, spec: Json, loops: dict[str, Loop]) -> Json:
        """What every kind of stage has."""
        retry: Json = spec.get("retry", {})
        tries = 0 if spec.get("tool") == "check.py" else 1  # a check judges; it does not try
        common: Json = {name: spec[name] for name in ("name", "on", "required", "isolation", "depth", "on_depth") if name in spec}
        return common | {
            "folder": f"{index + 1:02d}-{spec['name']}",
            "limits": records.of({name: spec[name] for name in Limits.__struct_fields__ if name in spec}, Limits),
            "retry_max": retry.get("max", tries),
            "backoff_seconds": tuple(retry.get("backoff_seconds", ())),
            "in_loop": any(self._spans(loop, index) for loop in loops.values()),
        }

    def _kind(self, at: list[Any], index: int, spec: Json, params: dict[str, Param], common: Json) -> Stage:
        if "ask" in spec:
            return self._question([*at, "ask"], spec["ask"], params, index, common)
        if "members" in spec:
            members = {n: self._worker([*at, "members", n], spec | m, params, spec, n) for n, m in spec["members"].items()}
            self._member_graph(at, members)
            parallel: Json = spec.get("parallel", {})
            return Group(**common, members=members, cap=parallel.get("cap", DEFAULT_CAP), min_success=parallel.get("min_success"))
        worker = self._worker(at, spec, params, spec, "")
        if "foreach" in spec:
            policy = spec.get("on_item_failure", "abort")
            return self._fan_out([*at, "foreach"], spec["foreach"], params, index, common | {"on_item_failure": policy}, worker)
        return Stage(**common, worker=worker)

    def _fitting_keys(self, at: list[Any], spec: Json) -> None:
        needs = {"parallel": "members", "on_item_failure": "foreach", "action": "agent", "args": "tool"}
        for key, other in needs.items():
            if key in spec and other not in spec and not (key == "action" and "members" in spec):
                raise self._error([*at, key], f"{key!r} means something only with {other!r}", f"remove it, or add {other}")
        if "foreach" in spec and "members" in spec:
            raise self._error(at, "a stage is either a group of members or a foreach", "make it two stages")
        if isinstance(spec.get("agent"), dict) and "foreach" not in spec:
            raise self._error([*at, "agent"], "an agent taken from the item needs a foreach", "name the agent")
        minimum = spec.get("parallel", {}).get("min_success")
        if minimum is not None and minimum > len(spec["members"]):
            count = len(spec["members"])
            raise self._error(
                [*at, "parallel", "min_success"], f"{minimum} of {count} members cannot succeed", f"at most {count}"
            )

    def _spans(self, loop: Loop, index: int) -> bool:
        sources = [i for i, s in enumerate(self.specs) if loop.name in s.get("on", {}).values()]
        return self.names.index(loop.to) <= index and any(index <= i for i in sources)

    def _worker(self, at: list[Any], spec: Json, params: dict[str, Param], stage: Json, member: str) -> Worker:
        if bool(spec.get("agent")) == bool(spec.get("tool")):
            raise self._error(at, f"{member or spec['name']!r} needs an agent or a tool, and not both")
        declared = {n: Output.read(n, s) for n, s in spec.get("outputs", {}).items()}
        outputs = dict(declared)
        agent: Any = spec.get("agent", "")
        allow: tuple[str, ...] = ()
        name = agent if isinstance(agent, str) else ""
        if isinstance(agent, dict):
            allow = tuple(cast(Json, agent)["allow"])
        for wanted in (*allow, name):
            if wanted:
                definition = self._agent([*at, "agent"], wanted)
                outputs = {o.name: o for o in definition.outputs} | outputs | declared
                self._action([*at, "action"], definition, spec.get("action", ""))
        if spec.get("tool"):
            self._tool([*at, "tool"], spec["tool"])
        for output in outputs.values():
            self._output([*at, "outputs", output.name], output)
        index = self.names.index(stage["name"])
        inputs = {**stage.get("inputs", {}), **spec.get("inputs", {})}
        for key, text in inputs.items():
            self._reference([*at, "inputs", key], text, params, index, foreach="foreach" in stage)
        for key in ("target", "args"):
            for text in [spec[key]] if isinstance(spec.get(key), str) else cast(list[str], spec.get(key, [])):
                for inner in re.findall(r"\{([A-Za-z][\w .*-]*)\}", text):
                    self._reference([*at, key], inner, params, index, foreach="foreach" in stage)
        if name:
            self._inputs_given(at, self._agent(at, name), inputs)
            self._can_leave(at, self._agent(at, name), list(outputs.values()))
        return Worker(
            agent=name,
            agent_from=cast(Json, agent)["from"] if isinstance(agent, dict) else "",
            allow=allow,
            tool=spec.get("tool", ""),
            args=tuple(spec.get("args", ())),
            action=spec.get("action", ""),
            target=spec.get("target", ""),
            inputs=inputs,
            outputs=tuple(outputs.values()),
            declared=tuple(declared.values()),
            after=tuple(spec.get("after", ())) if member else (),
        )

    def _agent(self, at: list[Any], name: str) -> agents.Agent:
        try:
            return agents.load(name)
        except StrataError as error:
            if error.code == "UNKNOWN_AGENT":
                raise self._error(at, error.message, error.hint) from None
            raise

    def _action(self, at: list[Any], definition: agents.Agent, action: str) -> None:
        if definition.actions and action not in definition.actions:
            raise self._error(
                at,
                f"{definition.name} does not know the action {action or '(none)'!r}",
                f"it knows: {', '.join(definition.actions)}",
            )

    def _inputs_given(self, at: list[Any], definition: agents.Agent, inputs: dict[str, str]) -> None:
        for name in definition.required_inputs:
            if name not in inputs:
                about = definition.inputs[name].about
                raise self._error(
                    [*at, "inputs"], f"{definition.name} needs the input {name!r} ({about})", f"inputs: {{{name}: …}}"
                )

    def _can_leave(self, at: list[Any], definition: agents.Agent, outputs: list[Output]) -> None:
        why = agents.cannot_leave(definition, outputs)
        if why:
            raise self._error([*at, "outputs"], why, f"give {definition.name} the tool Write, or leave the output out")

    def _tool(self, at: list[Any], name: str) -> None:
        try:
            script = tools.find_tool(name)
        except StrataError as error:
            raise self._error(at, error.message, error.hint) from None
        if tools.layer_of(script) != 1:
            raise self._error(at, f"{name} is not an executor (layer 1)", "a stage calls layer 1 only")

    def _output(self, at: list[Any], output: Output) -> None:
        parts = Path(output.path).parts
        if Path(output.path).is_absolute() or ".." in parts:
            raise self._error(at, f"the output path {output.path!r} leaves its folder", "give a plain relative path")
        if output.schema:
            try:
                schemas.load(output.schema)
            except StrataError as error:
                raise self._error([*at, "schema"], error.message, error.hint) from None

    def _fan_out(self, at: list[Any], spec: Json, params: dict[str, Param], index: int, common: Json, worker: Worker) -> FanOut:
        self._reference([*at, "items"], spec["items"], params, index, foreach=False)
        reference = Reference.parse(spec["items"])
        if reference and reference.head == "param" and params[reference.rest[0]].type == "text" and "params" in self.data:
            name = reference.rest[0]
            raise self._error(
                [*at, "items"], f"the parameter {name!r} is a text, not a list", f"params: {{{name}: {{type: list}}}}"
            )
        known: Json = common | {"worker": worker, "cap": DEFAULT_CAP} | spec
        stage = FanOut(**known)
        most = stage.max_items
        if (stage.min_success or 0) > most:
            raise self._error(
                [*at, "min_success"], f"{stage.min_success} of at most {most} items cannot succeed", f"at most {most}"
            )
        if stage.min_items > most:
            raise self._error([*at, "min_items"], f"at least {stage.min_items} of at most {most} items", f"at most {most}")
        if stage.after and not stage.key:
            raise self._error(
                [*at, "after"], "items that wait for each other need a key", "add key: the field that names an item"
            )
        return stage

    def _question(self, at: list[Any], spec: Json, params: dict[str, Param], index: int, common: Json) -> Question:
        for number, text in enumerate(spec.get("show", [])):
            self._reference([*at, "show", number], text, params, index, foreach=False)
        if spec.get("answer_schema"):
            self._output([*at, "answer_schema"], Output("answer", "answer.json", spec["answer_schema"]))
        known: Json = common | spec | {"show": tuple(spec.get("show", ()))}
        return Question(**known)

    def _member_graph(self, at: list[Any], members: dict[str, Worker]) -> None:
        for name, worker in members.items():
            for other in worker.after:
                if other not in members:
                    raise self._error(
                        [*at, "members", name, "after"], f"there is no member {other!r}", nearest(other, list(members))
                    )
        try:
            TopologicalSorter({n: w.after for n, w in members.items()}).prepare()
        except CycleError as error:
            raise self._error(
                [*at, "members"], f"members wait for each other in a circle: {' → '.join(error.args[1])}", "take one `after` away"
            ) from None

    def _one_writer(self, at: list[Any], stage: Stage) -> None:
        """Agents that run at the same time must not write the same folder: nobody could tell who changed what."""
        if stage.cap == 1 or not stage.fans_out or stage.isolation:
            return
        writers = [key for key, worker, _ in stage.announced() if self._writes_workspace(worker)]
        if writers and isinstance(stage, FanOut):
            raise self._error(
                at,
                f"the items of {stage.name!r} write the working folder at the same time",
                "isolation: worktree, foreach.cap: 1, or an agent that writes only its outputs (no `scope`, no `in: workspace`)",
            )
        after = stage.order_of(list)
        free = [
            (a, b)
            for i, a in enumerate(writers)
            for b in writers[i + 1 :]
            if b not in fanout.all_before(after, a) and a not in fanout.all_before(after, b)
        ]
        if free:
            raise self._error(
                [*at, "members"],
                f"{free[0][0]!r} and {free[0][1]!r} write the working folder at the same time",
                "let one wait for the other (after:), set parallel.cap: 1, or isolation: worktree",
            )

    def _writes_workspace(self, worker: Worker) -> bool:
        names = (*worker.allow, worker.agent)
        return any(o.place == "workspace" for o in worker.outputs) or any(
            agents.can_write_workspace(agents.load(n)) for n in names if n
        )

    def _reference(self, at: list[Any], text: str, params: dict[str, Param], index: int, foreach: bool) -> None:
        reference = Reference.parse(text)
        if not reference:
            raise self._error(at, f"{text!r} is not a reference", "write param.NAME, STAGE.OUTPUT, GROUP.*.OUTPUT or item.FIELD")
        if reference.head == "param":
            if len(reference.rest) != 1 or reference.rest[0] not in params:
                raise self._error(
                    at,
                    f"there is no parameter {'.'.join(reference.rest)!r}",
                    f"{nearest('.'.join(reference.rest), params)} (or declare it under params:)",
                )
            return
        if reference.head == "item":
            if not foreach:
                raise self._error(at, f"{text!r} means something only in a foreach", "refer to a stage's output")
            return
        if reference.head not in self.names:
            raise self._error(
                at, f"{text!r} refers to nothing: there is no stage {reference.head!r}", nearest(reference.head, self.names)
            )
        source = self.specs[self.names.index(reference.head)]
        if not source.get("required", True) and not reference.optional and "*" not in reference.rest:
            raise self._error(
                at, f"{text!r} comes from an optional stage, which may fail", f"write `optional {text}`, or make it required"
            )
        if reference.head not in self.fields:
            later = self.names.index(reference.head) >= index
            raise self._error(
                at, f"{text!r} refers to a stage that {'comes later' if later else 'has no outputs'}", "refer to an earlier one"
            )
        table = self.fields[reference.head]
        member, output = (
            ("", reference.rest[0])
            if len(reference.rest) == 1
            else (reference.rest[0], reference.rest[-1])
            if reference.rest
            else ("", "")
        )
        if member not in table or len(reference.rest) > 2:
            shapes = ", ".join(f"{reference.head}.{m + '.' if m else ''}OUTPUT" for m in table)
            raise self._error(at, f"{text!r} does not fit the stage {reference.head!r}", f"write {shapes}")
        if output not in table[member]:
            raise self._error(
                at,
                f"{text!r} refers to nothing: {reference.head!r} has no output {output!r}",
                nearest(output, sorted(table[member])),
            )


def _references(spec: Json) -> list[tuple[list[Any], str]]:
    found: list[tuple[list[Any], str]] = [(["inputs", k], v) for k, v in spec.get("inputs", {}).items()]
    for name, member in spec.get("members", {}).items():
        found += [(["members", name, "inputs", k], v) for k, v in member.get("inputs", {}).items()]
    for key in ("target", "args"):
        for text in [spec[key]] if isinstance(spec.get(key), str) else cast(list[str], spec.get(key, [])):
            found += [([key], inner) for inner in PLACEHOLDER.findall(text)]
    if "foreach" in spec:
        found.append((["foreach", "items"], spec["foreach"]["items"]))
    found += [(["ask", "show", i], v) for i, v in enumerate(spec.get("ask", {}).get("show", []))]
    return found
