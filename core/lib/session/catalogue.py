"""The sessions there are: finding one by its name, listing them, and whether a run works in one."""

from __future__ import annotations

import re
from pathlib import Path

from lib.contract import Json, StrataError, command, nearest
from lib.disk import lenient, records
from lib.session.documents import CampaignManifest
from lib.session.folder import require_format
from lib.session.owner import Owner
from lib.session.remembered import EFFECTIVE, begun_by
from lib.session.step import in_runs


def alive(session: Path) -> bool:
    """Whether a process works in it: the very one that wrote itself into the lock."""
    owner = Owner.read(session)
    return owner is not None and owner.alive


def sessions(base: Path, holds: str = ".trace") -> list[Path]:
    """Newest first, by when each was begun."""
    there = [p for p in base.iterdir() if (p / ".trace").is_file() and (p / holds).is_file()] if base.is_dir() else []
    return sorted(there, key=lambda p: ((p / ".trace").stat().st_mtime, p.name), reverse=True)


def find(name: str, base: Path, holds: str = ".trace") -> Path:
    """A path, `latest`, or the beginning of a name (or of what follows its date) under `base`."""
    for path in (Path(name), base / name):
        if name and (path / holds).is_file():
            return path.resolve()
    known = sessions(base, holds)
    if name == "latest" and known:
        return known[0].resolve()
    found = [p for p in known if name and p.name.startswith(name)] or [p for p in known if name and named(p).startswith(name)]
    if len(found) == 1:
        return found[0].resolve()
    if found:
        listed = ", ".join(p.name for p in found[:5])
        raise StrataError(
            "NO_SESSION", f"{len(found)} sessions begin with {name!r}: {listed}", "give more of its name, or `latest`"
        )
    if not known:
        hint = f"{command('campaign')} PLAN begins one; {command('campaign')} --list --session-base DIR looks elsewhere"
        raise StrataError("NO_SESSION", f"there are no sessions under {base}", hint)
    hint = f"{nearest(name, [p.name for p in known])}; {command('session')} list shows them all"
    raise StrataError("NO_SESSION", f"there is no session {name!r} under {base}", hint)


def find_session(name: str, base: Path) -> Path:
    """One that can be resumed."""
    found = find(name, base, EFFECTIVE)
    require_format(found)
    return found


def named(session: Path) -> str:
    """Its name without the minute it was begun in."""
    return re.sub(r"^\d{8}-\d{4}-", "", session.name)


def ended_as(session: Path) -> CampaignManifest:
    """How a run ended; of an orchestrator that was run alone, its own words."""
    alone = in_runs(session, "manifest.json") if not (session / "manifest.json").exists() else []
    return lenient.read(alone[0] if len(alone) == 1 else session / "manifest.json", CampaignManifest)


def listing(base: Path) -> list[Json]:
    """The campaigns under `base`, newest first."""
    found: list[Json] = []
    for path in sorted(base.iterdir() if base.is_dir() else [], reverse=True):
        manifest = path / "manifest.json"
        if (path / EFFECTIVE).is_file() and begun_by(path) == "campaign":
            ended = manifest.is_file()
            known = records.read(manifest, CampaignManifest) if ended else CampaignManifest(status="not ended")
            found.append({"session": path.name, "status": known.status, "grade": known.grade})
    return found
