"""One job: what it is given, who does it, and what it left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from lib.attempt import executor
from lib.cli import Call
from lib.contract import LAYER_NAMES, Json, StrataError, command
from lib.disk import files, lenient, locks, records
from lib.plan.task import Output, Task
from lib.session import budget, events
from lib.session.outcome import Outcome
from lib.session.step import Step, bare_step
from msgspec import Struct
from msgspec.structs import replace

from packs.downstream import accepting, bundles, handoff, jobs, launching, loading, upstream
from packs.downstream import settings as settings_file
from packs.downstream.bundles import ContextBundle, Given
from packs.downstream.contract import AgentContract, definition
from packs.downstream.jobs import Job
from packs.downstream.settings import Settings

SEARCH = "WebSearch"
GIVEN = "given"  # in the session: what agents were given to read, by what is in it


class Work(Struct, frozen=True):
    job: Job
    contract: AgentContract
    bundle: ContextBundle
    settings: Settings


def asked(call: Call, task: Task) -> Task:
    """The task as an orchestrator sends it; by hand, of the one job that an agent has in a run."""
    if task.item is not None:
        return task
    settings = settings_file.require_enabled()
    folder = loading.find_folder(str(task.input_path("agents")), call.cwd)
    contracts = {task.target: replace(loading.one(folder / task.target, settings, call.cwd), depends_on=())}
    manifest = upstream.load(str(task.input_path("run")), call.cwd, settings)
    planned = list(jobs.plan(contracts, manifest, call.cwd, settings, (task.target,)).jobs)
    if len(planned) > 1:
        hint = f"{command('downstream')} run RUN --only {task.target} runs them all"
        raise StrataError("MANY_JOBS", f"{task.target} has {len(planned)} jobs in this run", hint)
    outputs = (Output("files", "files/"), Output("result", "result.json", optional=True))
    inputs = task.inputs | {"agents": str(folder)}
    return replace(task, item=records.document(planned[0]), outputs=outputs, inputs=inputs)


def prepare(call: Call, task: Task) -> Work:
    """The contract and the bundle of the job that the task is about, each as it was when it was planned."""
    try:
        job = records.of(task.item, Job)
    except ValueError as error:
        raise StrataError("BAD_ITEMS", f"this is no job: {error}", "`downstream.py run` plans jobs", final=True) from None
    settings = settings_file.read()
    folder = loading.find_folder(str(task.inputs["agents"]), call.cwd)
    contract = loading.one(folder / job.agent, settings, call.cwd)
    session = Path(call.options.session_dir).resolve() if call.options.session_dir else None
    manifest = upstream.load(str(task.inputs["run"]), call.cwd, settings, session)
    bundle = jobs.bundle_of(job, contract, manifest, call.cwd)
    for one in bundle.entries:
        one.verify()
    made = left_before(job, task, folder, settings)
    return Work(job, contract, bundles.with_downstream(bundle, contract, made), settings)


def left_before(job: Job, task: Task, agents: Path, settings: Settings) -> dict[str, list[Given]]:
    """What the jobs before it left, by agent. Each folder is known by the name its job has in the session."""
    names = {files.safe_name(other): other for other in job.before}
    found: dict[str, list[Given]] = {}
    for folder in task.input_paths("made"):
        other = names.get(folder.parent.name)
        if other:
            contract = loading.one(agents / other.partition(":")[0], settings)
            for one in outputs_in(folder, contract, job.before[other]):
                found.setdefault(contract.name, []).append(one)
    return found


def outputs_in(folder: Path, contract: AgentContract, dimensions: bundles.Dimensions) -> list[Given]:
    """The outputs of one job: of an agent session where their templates say; of every other agent as the result says, which was
    written by whoever looked at them."""
    if contract.execution.type == "agent":
        return accepting.left_by_templates(contract, folder, dimensions)
    claimed = records.read(folder.parent / handoff.RESULT, handoff.Result).outputs
    return [accepting.given(contract, folder, one.name, one.path, one.dimensions) for one in claimed]


def _cap(session: Path, phase: str, settings: Settings) -> None:
    """What all downstream agents may spend together, as a limit of their phase: it only ever becomes tighter. Said before every
    job: who resumes a campaign writes its limits anew."""
    path = session / "budget.json"
    with locks.held(session / ".downstream-budget"):
        known = budget.read(path, strict=True)
        limits = known.get(phase, {})
        most = min(settings.budget.max_cost_usd, limits.get("usd", settings.budget.max_cost_usd))
        if limits.get("usd") != most:
            files.write_json(path, known | {phase: limits | {"usd": most}})


def run(call: Call, task: Task) -> Json:
    work = prepare(call, task)
    step = Step.parse(call.options.step) if call.options.step else bare_step(work.contract.name)
    if call.options.session_dir and call.options.step:
        _cap(Path(call.options.session_dir), step.phase, work.settings)
    _say(call, "downstream_agent_start", _start_of(work))
    if work.contract.execution.type == "agent":
        document = _by_agent(call, task, work)
    else:

        def launch(_: Task, out: Path) -> Json:
            return launching.run(call, step, work.job, work.contract, work.bundle, work.settings, out)

        document = executor.run_function(call, work.contract.name, task, launch, clock=False)
    _say(call, "downstream_agent_complete", _end_of(work, document))
    return document


def _by_agent(call: Call, task: Task, work: Work) -> Json:
    """An agent session: it reads what it is given under the session's own roof, and writes the contract's outputs."""
    agent = definition(work.contract)
    limits = replace(task.limits, timeout_seconds=work.job.seconds, max_budget_usd=work.job.usd or None)
    if not work.job.searches:
        agent = replace(agent, tools=tuple(rule for rule in agent.tools if rule.partition("(")[0] != SEARCH))
    else:
        limits = replace(limits, max_uses=limits.max_uses | {SEARCH: work.job.searches})
    values = work.contract.variables | work.job.dimensions
    outputs = [
        Output(
            spec.name,
            f"{accepting.FILES}/{spec.path(values)}",
            _schema(work.contract, spec.schema),
            optional=spec.optional,
            about=spec.description,
        )
        for spec in work.contract.outputs
    ]
    session = Path(call.options.session_dir or ".").resolve()
    given = replace(
        task,
        action=agent.actions[0] if agent.actions else "",
        target=work.job.id,
        item={"agent": work.contract.name, "dimensions": work.job.dimensions},
        accept=(*task.accept, work.contract.folder) if task.accept else (),
        inputs=handed(session, work.bundle),
        outputs=(*(o for o in task.outputs if o.name != "result"), *outputs),
        limits=limits,
    )
    return executor.run_agent(call, agent, given)


def _schema(contract: AgentContract, named: str) -> str:
    return str(contract.home / named) if named.endswith(".json") else named


def handed(session: Path, bundle: ContextBundle) -> Json:
    """Every file it may read, by the name of the input: a copy in the session, which stays when the upstream is gone."""
    inputs: dict[str, Any] = {}
    for key, found in bundle.research_outputs.items():
        if found:
            inputs[key] = [
                _copy(session, one.content_path, one.sha256, _called(one.type, one.dimensions, one.path)) for one in found
            ]
    for one in (*bundle.context_files.values(), *bundle.external_data.values()):
        inputs[one.name] = _copy(session, one.content_path, one.sha256, Path(one.path).name)
    for agent, made in bundle.downstream_outputs.items():
        if made:
            inputs[agent] = [_copy(session, one.content_path, one.sha256, Path(one.path).name) for one in made]
    if bundle.job:
        inputs["about"] = ", ".join(f"{name}: {value}" for name, value in bundle.job.items())
    if bundle.absent:
        inputs["absent"] = f"{', '.join(bundle.absent)} (the run has none: do without)"
    return inputs


def _called(kind: str, dimensions: bundles.Dimensions, path: str) -> str:
    return f"{'-'.join([kind, *dimensions.values()])}{Path(path).suffix}" if dimensions else f"{kind}-{Path(path).name}"


def _plain(name: str) -> str:
    """A name that an agent can write down again without a mistake."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "file"


def _copy(session: Path, source: str, sha256: str, name: str) -> str:
    target = session / GIVEN / (sha256 or files.sha256(Path(source)))[:16] / _plain(name)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        files.copy_whole(Path(source), target)
    return str(target)


def _start_of(work: Work) -> Json:
    outputs = work.bundle.research_outputs
    return {
        "agent_name": work.contract.name,
        "execution_type": work.contract.execution.type,
        "wave": work.job.wave,
        "input_types": [key for key, found in outputs.items() if found],
        "input_count": sum(len(found) for found in outputs.values()),
    }


def _end_of(work: Work, document: Json) -> Json:
    known = cast(Json, document.get("downstream") or {})
    return {
        "agent_name": work.contract.name,
        "status": document.get("status") or document.get("verdict"),
        "duration_seconds": document.get("duration_seconds"),
        "output_count": len(known.get("output_paths") or _own(work.contract, document)),
        "cost_usd": known.get("estimated_cost_usd", document.get("cost_usd")),
        "tokens_used": known.get("tokens_used", _tokens(document)),
    }


def _own(contract: AgentContract, document: Json) -> list[Json]:
    """Of what an agent session left, the outputs of its contract."""
    left = cast(list[Json], document.get("outputs") or [])
    return [one for one in left if contract.output(str(one.get("output")))]


def _tokens(document: Json) -> int:
    return lenient.of(document, Outcome).tokens


def _say(call: Call, event: str, detail: Json) -> None:
    """For programs, and in the live report of the session that this work belongs to."""
    layer, stage = LAYER_NAMES[call.tool.layer], call.options.step or call.label
    events.emit_event(layer, stage, event, detail=detail)
    events.write_live_report(call.session_dir or call.options.session_dir, layer, stage, event, detail=detail)
