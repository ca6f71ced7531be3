"""Resuming a campaign as it was begun: its settings, the folders of its phases, and what waits for a person."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from lib.contract import Json, StrataError
from lib.disk import records
from lib.plan.plan import Phase, Plan
from lib.session.documents import CampaignManifest
from lib.session.remembered import KEPT
from lib.tool.call import Call


def restore(call: Call, effective: Json) -> None:
    """A resumed session goes on as it was started; the command line may say otherwise, an edited plan may not."""
    options, settings = call.options, effective["settings"]
    for name in KEPT:
        setattr(options, name, settings.get(name) if getattr(options, name) in (None, False) else getattr(options, name))
    if options.max_depth is None:
        options.max_depth = settings["max_depth"]
    call.driver = options.driver or settings["driver"]
    if effective["plan"]["workspace"] == "session":
        return  # it lies in the session, wherever that is now
    call.cwd = Path(options.cwd).resolve() if options.cwd else Path(settings["cwd"])
    if not call.cwd.is_dir():
        raise StrataError("NO_WORKSPACE", f"the workspace {call.cwd} is gone", "bring it back, or say with --cwd where it is now")


def keep_folders(plan: Plan, session: Path) -> Plan:
    """A plan that was edited keeps the folders its phases have; new phases get numbers of their own."""
    known = {p.name.split("-", 2)[2]: p.name for p in (session / "phases").glob("phase-*-*")}
    number = max((int(name.split("-")[1]) for name in known.values()), default=0)
    kept: list[Phase] = []
    for phase in plan.phases:
        if phase.name not in known and number:
            number += 1
            kept.append(replace(phase, folder=f"phase-{number:02d}-{phase.name}"))
        else:
            kept.append(replace(phase, folder=known.get(phase.name, phase.folder)))
    return replace(plan, phases=tuple(kept))


def escalated(session: Path) -> bool:
    """Whether the last run ended by asking a person about something that failed."""
    path = session / "manifest.json"
    error = records.read(path, CampaignManifest).error if path.is_file() else None
    code = error.code if error else ""
    return code == "ESCALATED" or (code == "REJECTED" and (session / "escalations" / "rejected.json").exists())


def questions(session: Path) -> list[Json]:
    """What stages asked when the last run ended."""
    path = session / "manifest.json"
    return [w for w in records.read(path, CampaignManifest).waiting if "digest" not in w] if path.is_file() else []


def waited(session: Path) -> list[Json]:
    """What was waiting for a person when the last run ended."""
    path = session / "manifest.json"
    return [w for w in records.read(path, CampaignManifest).waiting if "digest" in w] if path.is_file() else []
