"""The steps of a downstream run that Python does: planning its jobs, and putting together what they left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.session.documents import Part, Section
from lib.stages import rosters
from msgspec import Struct

from packs.downstream import gtm, jobs, loading, upstream, working
from packs.downstream import settings as settings_file
from packs.downstream.at import At
from packs.downstream.bundles import Given
from packs.downstream.jobs import Job
from packs.downstream.settings import Settings

ALL = "all"


def plan(at: At) -> Json:
    """Which agents run, how often, and with what. Every contract is checked here at the latest, before anything is spent."""
    settings = settings_file.require_enabled()
    folder = loading.find_folder(at.text("agents"), at.call.cwd)
    only = tuple(name for name in at.text("only").split(",") if name and name != ALL)
    contracts = loading.load_all(folder, settings, only, at.call.cwd)
    manifest = upstream.load(at.text("run"), at.call.cwd, settings, at.session)
    made = jobs.plan(contracts, manifest, at.call.cwd, settings, only)
    at.leave("jobs", {"agents": str(folder), "execution_id": manifest.execution_id, **records.document(made)})
    warnings = [f"{name} is left out: {why}" for name, why in made.left_out.items()]
    outside = [] if upstream.is_this(at.text("run")) else [manifest.path]
    external = [one.path for contract in contracts.values() for one in contract.inputs.external]
    context = [one.content_path for one in manifest.context_files.values()] if outside else []
    return {"verdict": "done", "warnings": warnings, "read": [str(folder), *outside, *external, *context]}


class Left(Struct, frozen=True):
    """What one job came to."""

    job: str
    agent: str
    version: str
    status: str
    completion_status: str
    dimensions: dict[str, str] = {}
    outputs: tuple[Given, ...] = ()
    message: str = ""


def publish(at: At) -> Json:
    """All outputs under the names of their agents, a list of them, and a part of the report."""
    settings = settings_file.read()
    path = at.task.input_path("roster")
    folder = Path(files.read_json(at.task.input_path("jobs"))["agents"])
    target = at.task.output_path("downstream", at.out, at.call.cwd)
    found: list[Left] = []
    for entry in rosters.read(path).entries:
        job = records.of(entry.item, Job)
        left = _published(path.parent / entry.outputs["files"], target, job, folder, settings) if "files" in entry.outputs else ()
        done = "complete" if entry.verdict == "done" else entry.status
        found.append(Left(job.id, job.agent, job.version, entry.status, done, job.dimensions, left, entry.message))
    at.leave("listing", {"schema_version": "1.0.0", "layer": "downstream", "agents": records.document(found)})
    _tell(at, found, str(files.read_json(at.task.input_path("jobs"))["execution_id"]))
    warnings = [f"{one.job}: {one.status}: {one.message}" for one in found if one.completion_status != "complete"]
    return {"verdict": "done", "warnings": warnings}


def _published(source: Path, target: Path, job: Job, agents: Path, settings: Settings) -> tuple[Given, ...]:
    contract = loading.one(agents / job.agent, settings)
    left: list[Given] = []
    for one in working.outputs_in(source, contract, job.dimensions):
        place = target / one.path
        if place.exists():
            raise StrataError(
                "SAME_OUTPUT", f"{job.id} leaves {one.path}, which another job has left", "add a variable", final=True
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        files.copy_whole(Path(one.content_path), place)
        left.append(Given(one.name, one.path, one.path, files.fingerprint(place), one.dimensions))
    return tuple(left)


def _tell(at: At, found: list[Left], run: str) -> None:
    rows = tuple((one.job, one.completion_status, ", ".join(o.path for o in one.outputs) or one.message) for one in found)
    counts = Counter(one.completion_status for one in found)
    text = ", ".join(f"{number} {word}" for word, number in counts.items())
    part = Part("", text, ("agent", "how it ended", "what it left"), rows)
    at.leave("section", records.document(Section(f"Downstream of {run.rpartition('/')[2]}", (part,))))


def answers(at: At) -> Json:
    """What was asked of the knowledge base, and what it answered, for whoever reads the report."""
    path = at.task.input_path("roster")
    rows: list[tuple[str, ...]] = []
    for entry in rosters.read(path).entries:
        text = (path.parent / entry.outputs["answer"]).read_text(encoding="utf-8") if "answer" in entry.outputs else entry.message
        said, _, documents = text.partition("\n\n")[2].partition("\n\n[1] ")
        rows.append((str(entry.item), said.strip(), documents.partition(" (")[0]))
    part = Part("", "", ("question", "answer", "first of its documents"), tuple(rows))
    at.leave("section", records.document(Section("Asked of the knowledge base", (part,))))
    return {"verdict": "done"}


VERBS: dict[str, Callable[[At], Json]] = {"plan": plan, "publish": publish, "answers": answers, **gtm.STEPS}
