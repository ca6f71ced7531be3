"""Reading a plan: everything it names (orchestrators, parameters, checks, references, files) is checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from lib.contract import HOUSE, Json, StrataError, close_to, nearest
from lib.disk import config, files, places, records, schemas
from lib.disk.config import Document
from lib.plan import checks_file, orchestrator_file, params, written
from lib.plan.orchestration import Orchestration
from lib.plan.plan import Checkpoint, Phase, Plan, Run
from lib.plan.written import Param
from lib.process import fanout
from lib.tool.depth import DEFAULT_MAX_DEPTH


def find(name: str) -> Path:
    """By path, or by name."""
    if files.is_file(name):
        path = Path(name).absolute()
        places.beside(path.parent)
        return path
    found = places.find("plan", name)
    if found:
        return found.file.absolute()
    plans = {f.name: f.file for f in places.every("plan") if not f.name.endswith("-checks")}
    near = close_to(Path(name).stem, plans)
    shown = [
        str(p.relative_to(HOUSE)) if Path.cwd() == HOUSE and p.is_relative_to(HOUSE) else str(p)
        for p in ([plans[near]] if near else plans.values())
    ]
    hint = f"did you mean {shown[0]}?" if near else f"there are: {', '.join(sorted(shown))}"
    raise StrataError("UNKNOWN_PLAN", f"there is no plan {name!r}", hint)


def load(name: str, given: dict[str, Any] | None = None, needed: bool = True) -> Plan:
    """The plan, filled with what was given for its parameters. `needed`: without one that must be given it is no plan."""
    document = config.read(find(name))
    filled = _fill(document, given or {}, needed)
    keys: set[str] = set(document.data) if isinstance(document.data, dict) else set()  # type: ignore[reportUnknownMemberType]
    if "run" in keys and "phases" not in keys:
        document.wrap("phases", keep=("version", "name", "workspace", "checks"))  # a phase file: a plan of one phase
    return _Reader(document, document.check("plan"), filled).read()


def parameters(file: Path) -> set[str]:
    """The names of a plan's parameters."""
    data: Any = config.read(file).data
    declared: Any = cast(Json, data).get("params") if isinstance(data, dict) else None
    return set(cast(Json, declared)) if isinstance(declared, dict) else set()


def _fill(document: Document, given: dict[str, Any], needed: bool) -> dict[str, Any]:
    """Puts the values of its parameters into a plan, before it is checked: a budget may be one."""
    data: Any = document.data
    declared: Any = cast(Json, data).get("params", {}) if isinstance(data, dict) else {}
    try:
        known = records.of(declared, dict[str, Param])
    except ValueError as error:
        raise document.error(["params"], f"the parameters: {error}", "name: {about: …, type: text, default: …}") from None
    for name, param in known.items():
        if param.type not in params.TYPES:
            raise document.error(
                ["params", name, "type"], f"there is no type {param.type!r}", f"one of: {', '.join(params.TYPES)}"
            )
    if not known and not given:
        return {}
    values = params.values(f"the plan {document.file.stem}", known, given, needed)

    def unknown(at: list[Any], name: str) -> Exception:
        return document.error(at, f"there is no parameter {name!r}", f"{nearest(name, known)} (or declare it under params:)")

    rest = {key: value for key, value in cast(Json, data).items() if key != "params"}
    document.data = {"params": declared, **params.fill(rest, values, unknown)}
    return values


class _Reader:
    def __init__(self, document: Document, data: Json, filled: dict[str, Any]) -> None:
        self.document = document
        self.filled = filled
        self.written = records.of(data, written.Plan)
        self.folder = document.file.parent
        self.orchestrations: dict[str, dict[str, Orchestration]] = {}  # phase → run → what it is
        if self.written.workspace not in (".", "session"):
            places.also(Path(self.written.workspace).absolute())

    def read(self) -> Plan:
        spec = self.written
        phases = [self._phase(index, phase) for index, phase in enumerate(spec.phases)]
        self._graph(["phases"], {p.name: p.depends_on for p in phases}, "phase")
        alone = next((n for n, p in enumerate(phases) if p.rollback), None)
        if alone is not None and spec.max_parallel > 1:
            message = "phases that run together share a workspace: one cannot be put back alone"
            raise self._error(["phases", alone, "on_failure"], message, "max_parallel: 1")
        self._alone(phases)
        for index, phase in enumerate(phases):
            self._shown(index, phase)
            self._inputs(index, phase, {p.name: p for p in phases})
        if spec.rounds > 1 and not spec.goal:
            raise self._error(["rounds"], "rounds work only with a goal", "goal: what is wanted, in words")
        if spec.files and spec.workspace != "session":
            raise self._error(["files"], "files are put only into a fresh workspace", "workspace: session")
        if spec.repository and spec.workspace != "session":
            raise self._error(["repository"], "only a fresh workspace is made a repository", "workspace: session")
        if spec.driver == "replay" and not spec.fixtures:
            raise self._error(["driver"], "replay needs fixtures", "fixtures: the folder of a recorded session")
        return Plan(
            name=spec.name,
            description=spec.description,
            phases=tuple(phases),
            workspace=spec.workspace,
            repository=spec.repository,
            files=spec.files,
            driver=spec.driver,
            backend=self._backend(),
            fixtures=str((self.folder / spec.fixtures).resolve()) if spec.fixtures else "",
            checks_file=self._checks_file(),
            max_parallel=spec.max_parallel,
            max_depth=DEFAULT_MAX_DEPTH[4] if spec.max_depth is None else spec.max_depth,
            budget=spec.budget,
            goal=spec.goal,
            rounds=spec.rounds,
            params=self.filled,
        )

    def _error(self, at: list[Any], message: str, hint: str = "") -> StrataError:
        return self.document.error(at, message, hint)

    def _alone(self, phases: list[Phase]) -> None:
        """A fix puts back what judges; of two phases that work in one folder at once, it would put back the other's work."""
        if self.written.max_parallel == 1:
            return
        after = {p.name: p.depends_on for p in phases}
        for index, phase in enumerate(phases):
            together = [
                p.name
                for p in phases
                if p != phase
                and p.name not in fanout.all_before(after, phase.name)
                and phase.name not in fanout.all_before(after, p.name)
            ]
            if phase.fix and together and set(phase.checks) - {checks_file.ARTIFACTS}:
                message = (
                    f"{phase.name} may run together with {', '.join(together)} in one folder: a fix could also change their work"
                )
                hint = "verify: {fix: false}, a depends_on, or max_parallel: 1"
                raise self._error(["phases", index, "verify"], message, hint)

    def _backend(self) -> str:
        given = self.written.backend
        text = given if isinstance(given, str) else given.text
        if text:
            from lib.machines.address import Address  # only with a backend is anything of that imported

            try:
                Address.parse(text)
            except StrataError as error:
                raise self._error(["backend"], error.message, error.hint) from None
        return text

    def _checks_file(self) -> str:
        return str((self.folder / self.written.checks).resolve()) if self.written.checks else ""

    def _graph(self, at: list[Any], after: dict[str, tuple[str, ...]], what: str) -> None:
        try:
            fanout.check_graph(after, f"the {what}s")
        except StrataError as error:
            raise self._error(at, error.message, error.hint) from None

    def _phase(self, index: int, spec: written.Phase) -> Phase:
        at: list[Any] = ["phases", index]
        if [p.name for p in self.written.phases].count(spec.name) > 1:
            raise self._error([*at, "name"], f"two phases are called {spec.name!r}", "give each its own name")
        runs = tuple(self._run([*at, "run", number], run, spec.name) for number, run in enumerate(spec.run))
        seen = [r.name for r in runs]
        for number, run in enumerate(runs):
            if seen.index(run.name) != number:
                raise self._error([*at, "run", number], f"two runs are called {run.name!r}", "give one a name of its own")
        self._graph([*at, "run"], {r.name: r.depends_on for r in runs}, "run")
        self._checks([*at, "verify", "checks"], spec.verify.checks)
        if spec.on_failure == "rollback" and self.written.workspace == "session" and not self.written.repository:
            message = "a fresh workspace inside the session is no git repository: there is nothing to roll back to"
            raise self._error([*at, "on_failure"], message, "repository: true, or leave `on_failure` out")
        return Phase(
            name=spec.name,
            folder=f"phase-{index + 1:02d}-{spec.name}",
            runs=runs,
            depends_on=spec.depends_on,
            checks=spec.verify.checks,
            unverified=spec.verify.none,
            cap=spec.cap,
            audit=spec.verify.audit,
            fix=spec.verify.fix,
            protect=spec.verify.protect,
            scope=spec.verify.scope,
            rollback=spec.on_failure == "rollback",
            checkpoint=self._checkpoint(at, spec),
            budget=spec.budget,
            mode=spec.mode,
        )

    def _checks(self, at: list[Any], chosen: tuple[str, ...]) -> None:
        known = checks_file.known(self._checks_file()).names if chosen else ()
        for number, name in enumerate(chosen):
            if name not in known:
                raise self._error([*at, number], f"there is no check {name!r}", nearest(name, known))

    def _checkpoint(self, at: list[Any], spec: written.Phase) -> Checkpoint | None:
        asked = spec.checkpoint
        if not asked:
            return None
        if asked.answer_schema:
            try:
                schemas.load(asked.answer_schema)
            except StrataError as error:
                raise self._error([*at, "checkpoint", "answer_schema"], error.message, error.hint) from None
        show = tuple(f"{spec.name}.{s}" if s.count(".") == 1 else s for s in asked.show)
        return Checkpoint(asked.at, asked.question, show, asked.answer_schema)

    def _run(self, at: list[Any], spec: written.Run, phase: str) -> Run:
        try:
            orchestration = orchestrator_file.load(self._orchestrator(spec.orchestrator), spec.modifier)
        except StrataError as error:
            key = {"UNKNOWN_ORCHESTRATOR": "orchestrator", "USAGE": "modifier"}.get(error.code)
            if not key:
                raise
            raise self._error([*at, key], error.message, error.hint) from None
        given = {**spec.params, **spec.inputs}
        for name in given:
            if name not in orchestration.params:
                message = f"{orchestration.name} has no parameter {name!r}"
                raise self._error([*at, "params", name], message, nearest(name, orchestration.params))
        for name, param in orchestration.params.items():
            if name not in given and param.default is None and not param.optional:
                message = f"{orchestration.name} needs the parameter {name!r}: {param.about}"
                raise self._error([*at, "params"], message, f"params: {{{name}: …}}")
        run = Run(
            name=spec.name or orchestration.name,
            orchestrator=self._orchestrator(spec.orchestrator),
            modifier=spec.modifier,
            params=spec.params,
            inputs=spec.inputs,
            depends_on=spec.depends_on,
            mode=spec.mode,
        )
        self.orchestrations.setdefault(phase, {})[run.name] = orchestration
        return run

    def _orchestrator(self, name: str) -> str:
        """A file beside the plan, or a name."""
        return str((self.folder / name).resolve()) if name.endswith((".yaml", ".yml")) else name

    def _shown(self, index: int, phase: Phase) -> None:
        """What a person is shown at a checkpoint is there by then."""
        for number, text in enumerate(phase.checkpoint.show if phase.checkpoint else ()):
            at: list[Any] = ["phases", index, "checkpoint", "show", number]
            source, run, output = [*text.split("."), "", ""][:3]
            if output not in self._outputs(source, run):
                raise self._error(at, f"{text!r} refers to nothing", self._shown_hint(source, run))
            if source == phase.name and phase.checkpoint and phase.checkpoint.at == "before":
                raise self._error(at, "there is nothing of this phase to show before it", "at: after")

    def _shown_hint(self, phase: str, run: str) -> str:
        known = sorted(self._outputs(phase, run))
        made = f"{run} leaves: {', '.join(known)}; what is made per item or member has no single file" if known else ""
        return made or "write RUN.OUTPUT, or PHASE.RUN.OUTPUT"

    def _outputs(self, phase: str, run: str) -> set[str]:
        """What a run leaves under a name, whichever of its stages does."""
        return self.orchestrations[phase][run].outputs if run in self.orchestrations.get(phase, {}) else set()

    def _inputs(self, index: int, phase: Phase, phases: dict[str, Phase]) -> None:
        before = fanout.all_before({p.name: p.depends_on for p in phases.values()}, phase.name)
        for number, run in enumerate(phase.runs):
            for name, text in run.inputs.items():
                at = ["phases", index, "run", number, "inputs", name]
                parts = text.split(".")
                if len(parts) == 2 and parts[1] == "answer":
                    self._answer(at, phase, parts[0], phases, before)
                    continue
                if len(parts) != 3:
                    raise self._error(at, f"{text!r} is not a reference", "write PHASE.RUN.OUTPUT, or PHASE.answer")
                source, other, output = parts
                if source not in phases or other not in self.orchestrations[source]:
                    raise self._error(at, f"{text!r} refers to nothing", f"the phases are: {', '.join(phases)}")
                known = self._outputs(source, other)
                if output not in known:
                    raise self._error(at, f"{other!r} has no output {output!r}", f"it has: {', '.join(sorted(known))}")
                if source != phase.name and source not in before:
                    raise self._error(at, f"{text!r} needs the phase {source!r} first", f"depends_on: [{source}]")
                if source == phase.name and other not in run.depends_on:
                    raise self._error(at, f"{text!r} needs the run {other!r} first", f"depends_on: [{other}]")

    def _answer(self, at: list[Any], phase: Phase, source: str, phases: dict[str, Phase], before: set[str]) -> None:
        asking = phases[source].checkpoint if source in phases else None
        if not asking:
            raise self._error(at, f"no phase {source!r} asks a person anything", "give it a checkpoint")
        if source not in before and not (source == phase.name and asking.at == "before"):
            raise self._error(at, f"the answer of {source!r} is not there yet", f"depends_on: [{source}]")
