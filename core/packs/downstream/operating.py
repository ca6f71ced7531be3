"""What a person asks of downstream: to check contracts, show their order, show what an agent would be given, and run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lib.cli import Call
from lib.contract import Json, command, usage
from lib.disk import files, records
from lib.plan import orchestrator_file
from lib.stages import runs

from packs.downstream import jobs, loading, order, upstream
from packs.downstream import settings as settings_file
from packs.downstream.contract import Contracts

NEEDS_RUN = ("bundle", "run")


def _contracts(call: Call) -> tuple[settings_file.Settings, Path, Contracts]:
    settings = settings_file.require_enabled()
    folder = loading.find_folder(call.options.agents or settings.agents_dir, call.cwd)
    return settings, folder, loading.load_all(folder, settings, tuple(call.options.only), call.cwd)


def _said(**fields: object) -> Json:
    return {"tool": "downstream", "status": "success", "exit_code": 0, **fields}


def check(call: Call) -> Json:
    """All contracts, each with how it is run and what it may cost; or the first mistake, with its file and line."""
    _, folder, contracts = _contracts(call)
    rows = [
        f"{one.name} {one.version}  {one.execution.type}, up to {one.budget.max_cost_usd:g} USD, {one.budget.timeout_seconds:g} s"
        for one in contracts.values()
    ]
    return _said(
        folder=str(folder),
        agents=list(contracts),
        text="\n".join([*rows, f"{len(rows)} contract{'s' if len(rows) != 1 else ''} in {folder}: no mistakes"]),
    )


def show_order(call: Call) -> Json:
    _, _, contracts = _contracts(call)
    waves = order.waves(contracts)
    return _said(waves=waves, text="\n".join(f"{number}. {', '.join(wave)}" for number, wave in enumerate(waves, 1)))


def bundle(call: Call) -> Json:
    """What every agent would be given of a run, and which cannot be given what they need."""
    settings, _, contracts = _contracts(call)
    manifest = upstream.load(call.options.run, call.cwd, settings, partial=call.options.partial)
    made = jobs.plan(contracts, manifest, call.cwd, settings, tuple(call.options.only))
    listed: list[Json] = []
    lines: list[str] = []
    for job in made.jobs:
        one = jobs.bundle_of(job, contracts[job.agent], manifest, call.cwd)
        listed.append(
            records.document(one) | {"after": list(job.after), "digest": job.digest, "wave": job.wave, "job_id": job.id}
        )
        given = ", ".join(f"{len(found)} {key}" for key, found in one.research_outputs.items() if found)
        lines.append(f"{job.id}: {given}{f'; absent: {chr(44).join(one.absent)}' if one.absent else ''}")
    lines += [f"{name} is left out: {why}" for name, why in made.left_out.items()]
    return _said(execution_id=manifest.execution_id, bundles=listed, left_out=made.left_out, text="\n".join(lines))


def run(call: Call) -> Json:
    """Every contract whose inputs the run can give, as an orchestrator of its own. All of them are checked before it begins."""
    settings, folder, contracts = _contracts(call)
    if call.options.partial:
        usage("--partial is for `bundle`: what a run left unfinished is no input", "finish the run first")
    manifest = upstream.load(call.options.run, call.cwd, settings)
    planned = jobs.plan(contracts, manifest, call.cwd, settings, tuple(call.options.only))
    asks = settings.after_downstream or call.options.review
    params = {
        "run": manifest.path if Path(manifest.path).is_file() else call.options.run,
        "agents": str(folder),
        "only": ",".join(call.options.only) or "all",
        "seen": files.digest([job.digest for job in planned.jobs])[:16],
    }
    chosen = orchestrator_file.load("downstream/downstream", "" if asks else "plain")
    return runs.run(call, chosen, params, topic=manifest.execution_id[:40])


VERBS: dict[str, Callable[[Call], Json]] = {"check": check, "order": show_order, "bundle": bundle, "run": run}


def main(call: Call) -> Json:
    verb, what = call.options.verb, call.options.run
    if verb in NEEDS_RUN and not what:
        usage(f"{verb}: of which run?", f"{command('downstream')} {verb} latest; a session, its name, or a manifest")
    if verb not in NEEDS_RUN and what:
        usage(f"{verb} takes no run: {what!r}", f"{command('downstream')} {verb} --agents DIR")
    return VERBS[verb](call)
