"""Jobs: each run of a downstream agent that a run asks for. An agent runs once, or once for every output of one of its inputs."""

from __future__ import annotations

from pathlib import Path

from lib.contract import StrataError
from msgspec import Struct

from packs.downstream import bundles, checking, order
from packs.downstream.bundles import ContextBundle, Dimensions
from packs.downstream.contract import AgentContract, Contracts
from packs.downstream.settings import Settings
from packs.downstream.upstream import Manifest


class Job(Struct, frozen=True):
    """An item of the stage that runs them. What it is made of is in its digest: a job whose inputs, contract and code are the
    same is the same job."""

    id: str
    agent: str
    wave: int
    version: str
    digest: str
    after: tuple[str, ...] = ()
    before: dict[str, Dimensions] = {}  # the same, with what each is about
    dimensions: Dimensions = {}
    only: str = ""  # of the input `each`: the output it is about, by its id in the run
    seconds: float = 300.0
    usd: float = 1.0
    searches: int = 0
    model: str | None = None


class Plan(Struct, frozen=True):
    jobs: tuple[Job, ...]
    left_out: dict[str, str]  # by agent: why the run cannot give what it needs
    waves: tuple[tuple[str, ...], ...]


def plan(contracts: Contracts, manifest: Manifest, cwd: Path, settings: Settings, must: tuple[str, ...] = ()) -> Plan:
    """`must`: agents that were asked for by name; what is missing for them is an error, and not a reason to leave them out."""
    grouped = order.waves(contracts)
    jobs: dict[str, list[Job]] = {}
    left_out: dict[str, str] = {}
    for number, wave in enumerate(grouped):
        for name in wave:
            missing = [other for other in contracts[name].depends_on if other in left_out]
            try:
                if missing:
                    message = f"it depends on {missing[0]}, which is left out: {left_out[missing[0]]}"
                    raise StrataError("LEFT_OUT", message, "", final=True)
                chain = checking.before(contracts, name)
                before = [job for other in jobs if other in chain for job in jobs[other]]
                jobs[name] = _of(contracts[name], manifest, cwd, settings, number + 1, before)
            except StrataError as error:
                if name in must or not error.code.startswith(("MISSING_", "LEFT_OUT")):
                    raise
                left_out[name] = error.message
    if not any(jobs.values()):
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise StrataError(
            "NOTHING_TO_RUN", f"the run can give no agent what it needs: {reasons}", "see what it produced", final=True
        )
    every = tuple(job for made in jobs.values() for job in made)
    return Plan(every, left_out, tuple(tuple(n for n in wave if n in jobs) for wave in grouped))


def _of(contract: AgentContract, manifest: Manifest, cwd: Path, settings: Settings, wave: int, before: list[Job]) -> list[Job]:
    """Those of one agent."""
    each = next((spec for spec in contract.inputs.required if spec.key == contract.execution.each), None)
    if not each:
        bundle = bundles.assemble(contract, manifest, cwd)
        _require_paths(contract, {})
        return [_job(contract, contract.name, bundle, settings, wave, before)]
    found = bundles.matched(each, manifest)
    if not found:
        bundles.assemble(contract, manifest, cwd)  # says what is missing
    made: list[Job] = []
    for one in found:
        bundle = bundles.assemble(contract, manifest, cwd, one.dimensions, one.content_path)
        key = ".".join(one.dimensions.values()) or one.id.replace("/", ".")
        _require_paths(contract, one.dimensions)
        name = f"{contract.name}:{key}"
        while name in {job.id for job in made}:
            name += "'"
        made.append(_job(contract, name, bundle, settings, wave, before, one.id))
    _require_apart(contract, made)
    return made


def _require_apart(contract: AgentContract, made: list[Job]) -> None:
    """No two jobs leave the same file, as far as it can be told before they have run."""
    seen: dict[str, str] = {}
    for job in made:
        for spec in contract.outputs:
            path = spec.path(contract.variables | job.dimensions)
            if path and path in seen:
                message = f"{job.id} and {seen[path]} would both leave {path}"
                hint = f"put what tells them apart into path_template of {spec.name}, or run it once, without `each`"
                raise StrataError("SAME_OUTPUT", message, hint, final=True)
            if path:
                seen[path] = job.id


def _require_paths(contract: AgentContract, dimensions: Dimensions) -> None:
    """An agent session is told where each output goes, so every variable has a value before it starts."""
    for spec in contract.outputs if contract.execution.type == "agent" else ():
        values = contract.variables | dimensions
        missing = [name for name in spec.variables if name not in values]
        if missing:
            message = f"{contract.name}: nothing says which {missing[0]} its output {spec.name} is about"
            raise StrataError("BAD_CONTRACT", message, "`each:` an input whose outputs have that dimension", final=True)


def _job(
    contract: AgentContract,
    name: str,
    bundle: ContextBundle,
    settings: Settings,
    wave: int,
    before: list[Job],
    only: str = "",
) -> Job:
    earlier = {job.id: job.dimensions for job in before if bundles.agree(job.dimensions, bundle.job)}
    return Job(
        id=name,
        agent=contract.name,
        wave=wave,
        version=contract.version,
        digest=f"{contract.digest}-{bundles.digest(bundle)}",
        after=tuple(earlier),
        before=earlier,
        dimensions=bundle.job,
        only=only,
        seconds=contract.budget.timeout_seconds,
        usd=contract.budget.max_cost_usd,
        searches=min(contract.budget.max_searches, settings.budget.max_searches),
        model=contract.model.name or None,
    )


def bundle_of(job: Job, contract: AgentContract, manifest: Manifest, cwd: Path) -> ContextBundle:
    """What a job is given, and that it is still what it was planned with."""
    only = next((one.content_path for one in manifest.outputs if job.only and one.id == job.only), "")
    bundle = bundles.assemble(contract, manifest, cwd, job.dimensions or None, only)
    if f"{contract.digest}-{bundles.digest(bundle)}" != job.digest:
        raise StrataError(
            "CHANGED_INPUT",
            f"{job.id}: its inputs or its contract changed since it was planned",
            "resume: it is planned again",
            final=True,
        )
    return bundle
