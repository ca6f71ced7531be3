"""Phase 0: the run folder, and the databases: those that a portal lists and those that the configuration names."""

from __future__ import annotations

from pathlib import Path

from lib.contract import Json, StrataError
from lib.disk import files, records, schemas

from packs.academic import scoring
from packs.academic.at import At
from packs.academic.folder import HANDOVERS
from packs.academic.settings import Settings
from packs.academic.steps import conf

_CONFIG = HANDOVERS["run_config"].file
_RELEVANCE = {"top": "high", "high": "high", "medium": "medium", "low": "low"}


def begin(at: At) -> Json:
    """The run folder, and what is to be walked through."""
    at.folder.make()
    if given := at.text("config"):
        _bring(at, Path(given))
    read = conf(at, 0)
    scoring.require_weights(read.scoring)
    at.folder.state.begin(read.run_id, at.call.session.folder)
    at.folder.state.phase(0, "in_progress")
    if read.portal:
        at.settings().portal(read.portal)
    fields = (
        [{"key": files.slug(f, "field"), "portal": read.portal, "discipline": f} for f in read.disciplines] if read.portal else []
    )
    at.leave("entries", {"portals": fields})
    at.say(0, f"{read.run_id}: {read.research_question}")
    return at.done(
        f"{len(fields)} lists of {read.portal} to look at" if read.portal else "the databases are those of the configuration"
    )


def _bring(at: At, given: Path) -> None:
    """Configuration from elsewhere: a file, or a folder with settings beside it. What is in the run already stays."""
    folder = given if given.is_dir() else given.parent
    wanted = {_CONFIG: folder / "run_config.json" if given.is_dir() else given}
    if given.is_dir():
        wanted["config/academic_settings.yaml"] = folder / "academic_settings.yaml"
    for name, source in wanted.items():
        if source.is_file() and not (at.folder.root / name).exists():
            files.write_atomic(at.folder.root / name, source.read_bytes())
    if not (at.folder.root / _CONFIG).exists():
        raise StrataError("MISSING_HANDOVER", f"{given} has no run_config.json", "setup writes one", final=True)


def databases(at: At) -> Json:
    """What the portal lists and what the configuration names, each once, with how it can be searched."""
    read, known = conf(at, 0), at.settings()
    folder, roster = at.roster("portals")
    rows: list[Json] = []
    for one in roster.entries:
        if one.exit_code == 0:
            rows += files.read_json(folder / one.outputs["found"])["rows"]
        else:
            at.warn(0, f"{one.key}: the portal could not be read: {one.message}")
    listed: dict[str, Json] = {}
    own = [records.document(d) for d in read.databases]
    shape = schemas.load("academic/databases")["properties"]["databases"]["items"]
    for row in (*own, *rows):
        made = _database(row, known)
        if wrong := schemas.describe(made, shape):
            at.warn(0, f"{made['name'][:80]} is left out: {wrong[0]}")
            continue
        listed.setdefault(made["name"].casefold(), made)
    usable = [d for d in listed.values() if d["access"] != "none"]
    if not usable:
        why = "; ".join(at.warnings) or "neither the portal nor the configuration names one that this house can search"
        hint = "name some in run_config.json under databases, such as {name: OpenAlex}"
        raise StrataError("NO_DATABASES", f"there is no database to search: {why}", hint, final=True)
    source = "both" if rows and own else "portal" if rows else "config"
    handover: Json = {"databases": list(listed.values()), "source": source}
    at.give("databases", handover)
    aside = [d["name"] for d in listed.values() if d["access"] == "none"]
    if aside:
        at.warn(0, f"listed, and not searched by this house: {', '.join(aside)}")
    at.leave(
        "data",
        {
            "count": len(usable),
            "of": files.digest(handover),
            "say": [f"{len(usable)} can be searched.", *(f"{w}." for w in at.warnings)],
        },
    )
    return at.done(f"{len(usable)} databases can be searched")


def _database(row: Json, known: Settings) -> Json:
    name = str(row.get("name") or "").strip()
    of = known.known(name)
    interface = row.get("interface") or (of.interface if of else None)
    service = of.service if of else None
    access = "browser" if row.get("interface") else "api" if service else "browser" if interface else "none"
    dialect = of.syntax if of else known.interface(interface).syntax if interface else "generic"
    url = str(row.get("url") or (of.url if of else "")) or "https://unknown.invalid"
    return {
        "name": name,
        "url": url,
        "relevance": _RELEVANCE.get(str(row.get("relevance") or "").strip().lower(), "unknown"),
        "discipline": str(row.get("discipline") or "unknown"),
        "access": access,
        "service": service if access == "api" else None,
        "interface": interface,
        "syntax": dialect,
    }
