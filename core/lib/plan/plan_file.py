"""Reading a plan: everything it names (orchestrators, parameters, checks, references, files) is checked before anything runs."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from lib.contract import HOUSE, Json, StrataError, nearest
from lib.disk import config, schemas
from lib.disk.config import Document
from lib.plan import checks_file, orchestrator_file
from lib.plan.orchestration import Orchestration
from lib.plan.plan import Checkpoint, Phase, Plan, Run
from lib.process import fanout
from lib.tool.depth import DEFAULT_MAX_DEPTH

PLANS = config.CONFIG / "plans"


def find(name: str) -> Path:
    """By path, or by name from config/plans."""
    for file in (Path(name), PLANS / f"{name}.yaml"):
        if file.is_file():
            return file.absolute()
    plans = {p.stem: p for p in PLANS.glob("*.yaml") if not p.stem.endswith("-checks")}
    near = difflib.get_close_matches(Path(name).stem, plans, 1, 0.6)
    shown = [str(p.relative_to(HOUSE) if Path.cwd() == HOUSE else p) for p in ([plans[n] for n in near] or plans.values())]
    hint = f"did you mean {shown[0]}?" if near else f"there are: {', '.join(sorted(shown))}"
    raise StrataError("UNKNOWN_PLAN", f"there is no plan {name!r}", hint)


def load(name: str) -> Plan:
    document = config.read(find(name))
    keys: set[str] = set(document.data) if isinstance(document.data, dict) else set()  # type: ignore[reportUnknownMemberType]
    if "run" in keys and "phases" not in keys:
        document.wrap("phases", keep=("version", "name", "workspace", "checks"))  # a phase file: a plan of one phase
    return _Reader(document, document.check("plan")).read()


class _Reader:
    def __init__(self, document: Document, data: Json) -> None:
        self.document = document
        self.data = data
        self.folder = document.file.parent
        self.orchestrations: dict[str, dict[str, Orchestration]] = {}  # phase → run → what it is

    def read(self) -> Plan:
        phases = [self._phase(index, spec) for index, spec in enumerate(self.data["phases"])]
        self._graph(["phases"], {p.name: p.depends_on for p in phases}, "phase")
        alone = next((n for n, p in enumerate(phases) if p.rollback), None)
        if alone is not None and self.data.get("max_parallel", 1) > 1:
            at = ["phases", alone, "on_failure"]
            raise self.document.error(
                at, "phases that run together share a workspace: one cannot be put back alone", "max_parallel: 1"
            )
        self._alone(phases)
        for index, phase in enumerate(phases):
            self._inputs(index, phase, {p.name: p for p in phases})
        if self.data.get("rounds", 1) > 1 and not self.data.get("goal"):
            raise self.document.error(["rounds"], "another round is for a goal that is not met", "goal: what is wanted, in words")
        workspace = self.data.get("workspace", ".")
        if self.data.get("files") and workspace != "session":
            raise self.document.error(["files"], "files are put only into a fresh workspace", "workspace: session")
        fixtures = self.data.get("fixtures", "")
        if self.data.get("driver") == "replay" and not fixtures:
            raise self.document.error(["driver"], "replay needs fixtures", "fixtures: the folder of a recorded session")
        return Plan(
            name=self.data["name"],
            description=self.data.get("description", ""),
            phases=tuple(phases),
            workspace=workspace,
            files=self.data.get("files", {}),
            driver=self.data.get("driver", ""),
            fixtures=str((self.folder / fixtures).resolve()) if fixtures else "",
            checks_file=self._checks_file(),
            max_parallel=self.data.get("max_parallel", 1),
            max_depth=self.data.get("max_depth", DEFAULT_MAX_DEPTH[4]),
            budget=self.data.get("budget", {}),
            goal=self.data.get("goal", ""),
            rounds=self.data.get("rounds", 1),
        )

    def _alone(self, phases: list[Phase]) -> None:
        """A fix puts back what judges; of two phases that work in one folder at once, it would put back the other's work."""
        if self.data.get("max_parallel", 1) == 1:
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
                    f"{phase.name} may run together with {', '.join(together)} in one folder: what is fixed there is not its own"
                )
                hint = "verify: {fix: false}, a depends_on, or max_parallel: 1"
                raise self.document.error(["phases", index, "verify"], message, hint)

    def _checks_file(self) -> str:
        name = self.data.get("checks")
        return str((self.folder / name).resolve()) if name else ""

    def _graph(self, at: list[Any], after: dict[str, tuple[str, ...]], what: str) -> None:
        try:
            fanout.check_graph(after, f"the {what}s")
        except StrataError as error:
            raise self.document.error(at, error.message, error.hint) from None

    def _phase(self, index: int, spec: Json) -> Phase:
        at: list[Any] = ["phases", index]
        names = [s["name"] for s in self.data["phases"]]
        if names.count(spec["name"]) > 1:
            raise self.document.error([*at, "name"], f"two phases are called {spec['name']!r}", "give each its own name")
        runs = tuple(self._run([*at, "run", number], run, spec["name"]) for number, run in enumerate(spec["run"]))
        seen = [r.name for r in runs]
        for number, run in enumerate(runs):
            if seen.index(run.name) != number:
                raise self.document.error([*at, "run", number], f"two runs are called {run.name!r}", "give one a name of its own")
        self._graph([*at, "run"], {r.name: r.depends_on for r in runs}, "run")
        chosen = tuple(spec["verify"].get("checks", ()))
        if chosen:
            path = Path(self._checks_file() or checks_file.DEFAULT_FILE)
            table = checks_file.load(path)
            for number, name in enumerate(chosen):
                if name not in (*table, checks_file.ARTIFACTS):
                    at_check = [*at, "verify", "checks", number]
                    raise self.document.error(
                        at_check, f"there is no check {name!r}", nearest(name, (*table, checks_file.ARTIFACTS))
                    )
        return Phase(
            name=spec["name"],
            folder=f"phase-{index + 1:02d}-{spec['name']}",
            runs=runs,
            depends_on=tuple(spec.get("depends_on", ())),
            checks=chosen,
            unverified=spec["verify"].get("none", ""),
            cap=spec.get("cap", 4),
            audit=spec["verify"].get("audit", False),
            fix=spec["verify"].get("fix", True),
            protect=tuple(spec["verify"].get("protect", ())),
            scope=tuple(spec["verify"].get("scope", ())),
            rollback=self._rollback(at, spec),
            checkpoint=self._checkpoint(at, spec),
            budget=spec.get("budget", {}),
            mode=spec.get("mode", "tool"),
        )

    def _rollback(self, at: list[Any], spec: Json) -> bool:
        asked = spec.get("on_failure", "keep") == "rollback"
        if asked and self.data.get("workspace") == "session":
            message = "a fresh workspace inside the session is no git repository: there is nothing to roll back to"
            raise self.document.error([*at, "on_failure"], message, "leave `on_failure` out")
        return asked

    def _checkpoint(self, at: list[Any], spec: Json) -> Checkpoint | None:
        asked = spec.get("checkpoint")
        if not asked:
            return None
        schema = asked.get("answer_schema", "")
        if schema:
            try:
                schemas.load(schema)
            except StrataError as error:
                raise self.document.error([*at, "checkpoint", "answer_schema"], error.message, error.hint) from None
        show = tuple(f"{spec['name']}.{s}" if s.count(".") == 1 else s for s in asked.get("show", ()))
        return Checkpoint(asked["at"], asked.get("question", ""), show, schema)

    def _run(self, at: list[Any], spec: Json, phase: str) -> Run:
        try:
            orchestration = orchestrator_file.load(self._orchestrator(spec["orchestrator"]), spec.get("modifier", ""))
        except StrataError as error:
            if error.code == "UNKNOWN_ORCHESTRATOR":
                raise self.document.error([*at, "orchestrator"], error.message, error.hint) from None
            if error.code == "USAGE":
                raise self.document.error([*at, "modifier"], error.message, error.hint) from None
            raise
        given = {**spec.get("params", {}), **spec.get("inputs", {})}
        for name in given:
            if name not in orchestration.params:
                message = f"{orchestration.name} has no parameter {name!r}"
                raise self.document.error([*at, "params", name], message, nearest(name, orchestration.params))
        for name, param in orchestration.params.items():
            if name not in given and param.default is None and not param.optional:
                message = f"{orchestration.name} needs the parameter {name!r}: {param.about}"
                raise self.document.error([*at, "params"], message, f"params: {{{name}: …}}")
        run = Run(
            name=spec.get("name", orchestration.name),
            orchestrator=self._orchestrator(spec["orchestrator"]),
            modifier=spec.get("modifier", ""),
            params=spec.get("params", {}),
            inputs=spec.get("inputs", {}),
            depends_on=tuple(spec.get("depends_on", ())),
            mode=spec.get("mode", "tool"),
        )
        self.orchestrations.setdefault(phase, {})[run.name] = orchestration
        return run

    def _orchestrator(self, name: str) -> str:
        """A file beside the plan, or a name."""
        return str((self.folder / name).resolve()) if name.endswith((".yaml", ".yml")) else name

    def _inputs(self, index: int, phase: Phase, phases: dict[str, Phase]) -> None:
        for number, text in enumerate(phase.checkpoint.show if phase.checkpoint else ()):
            at_show: list[Any] = ["phases", index, "checkpoint", "show", number]
            source, other, output = [*text.split("."), "", ""][:3]
            known = self.orchestrations.get(source, {}).get(other)
            if not known or output not in {o.name for s in known.stages for o in s.worker.outputs}:
                raise self.document.error(at_show, f"{text!r} refers to nothing", "write RUN.OUTPUT, or PHASE.RUN.OUTPUT")
            if source == phase.name and phase.checkpoint and phase.checkpoint.at == "before":
                raise self.document.error(at_show, "there is nothing of this phase to show before it", "at: after")
        for number, run in enumerate(phase.runs):
            for name, text in run.inputs.items():
                at = ["phases", index, "run", number, "inputs", name]
                parts = text.split(".")
                if len(parts) == 2 and parts[1] == "answer":
                    self._answer(at, phase, parts[0], phases)
                    continue
                if len(parts) != 3:
                    raise self.document.error(at, f"{text!r} is not a reference", "write PHASE.RUN.OUTPUT, or PHASE.answer")
                source, other, output = parts
                if source not in phases or other not in self.orchestrations[source]:
                    raise self.document.error(at, f"{text!r} refers to nothing", f"the phases are: {', '.join(phases)}")
                stages = self.orchestrations[source][other].stages
                outputs = {o.name for s in stages for o in s.worker.outputs} | {n for s in stages for n in s.outputs.get("", ())}
                if output not in outputs:
                    raise self.document.error(at, f"{other!r} has no output {output!r}", f"it has: {', '.join(sorted(outputs))}")
                if source != phase.name and source not in fanout.all_before(
                    {p.name: p.depends_on for p in phases.values()}, phase.name
                ):
                    raise self.document.error(at, f"{text!r} needs the phase {source!r} first", f"depends_on: [{source}]")
                if source == phase.name and other not in run.depends_on:
                    raise self.document.error(at, f"{text!r} needs the run {other!r} first", f"depends_on: [{other}]")

    def _answer(self, at: list[Any], phase: Phase, source: str, phases: dict[str, Phase]) -> None:
        asking = phases[source].checkpoint if source in phases else None
        if not asking:
            raise self.document.error(at, f"no phase {source!r} asks a person anything", "give it a checkpoint")
        before = fanout.all_before({p.name: p.depends_on for p in phases.values()}, phase.name)
        if source not in before and not (source == phase.name and asking.at == "before"):
            raise self.document.error(at, f"the answer of {source!r} is not there yet", f"depends_on: [{source}]")
