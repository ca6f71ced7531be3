"""The research before downstream: which combinations there are, what a validation comes to, and what of it Python accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

from lib.attempt.judging import Made
from lib.contract import HOUSE, Json, StrataError
from lib.disk import files, records
from lib.session.documents import Part, Section
from lib.stages import rosters

from packs.downstream import settings as settings_file
from packs.downstream.at import At
from packs.kb import prose

HOUSE_CONTEXT = HOUSE / "config/packs/downstream/context"
CONTEXT_FILES = ("baseline", "writing_standards", "glossary", "audience_personas")
APPROVED, REVISE, REJECTED = "approved", "revise", "rejected"
SCORES = ("relevance", "evidence", "clarity", "actionability", "differentiation")  # twenty points each
MOST = 20
LEAST_SECTIONS = 3  # of a report, besides its summary
PLAYBOOK = ("Pain points", "Messaging", "Proof points", "Objections", "First call")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


# Steps


def scope(at: At) -> Json:
    """The categories, verticals and titles of a run, and every combination of them that is to have a playbook."""
    words = settings_file.read().vocabulary
    known = {"categories": words.service_category, "verticals": words.vertical, "titles": words.title}
    if at.words[:1] == ("whole",):
        lists = {name: list(values) for name, values in known.items()}
    else:
        lists = {name: list(dict.fromkeys(cast(list[str], at.task.inputs[name]))) for name in known}
    for name, values in lists.items():
        for value in values:
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", value):
                raise StrataError("BAD_SCOPE", f"{name}: {value!r} is no plain name", "small letters, digits and _", final=True)
    two = [{"id": f"{v}.{t}", "vertical": v, "title": t} for v, t in product(lists["verticals"], lists["titles"])]
    three = [
        {"id": f"{one['id']}.{c}", "vertical": one["vertical"], "title": one["title"], "service_category": c}
        for one, c in product(two, lists["categories"])
    ]
    plain = {name: [{"id": value} for value in values] for name, values in lists.items()}
    at.leave("items", {**plain, "two": two, "three": three})
    return {"verdict": "done"}


def context(at: At) -> Json:
    """The files that everything is written by, as outputs of the run: a user's folder, or the house's own."""
    named = at.text("folder")
    folder = HOUSE_CONTEXT if named == "house" else at.call.cwd / named
    if not folder.is_dir():
        hint = f"a folder with {', '.join(f'{n}.yaml' for n in CONTEXT_FILES)}, or `house`"
        raise StrataError("NOT_FOUND", f"there is no folder {folder}", hint, final=True)
    read: list[str] = []
    for output in at.task.outputs:
        spellings = [
            f"{stem}{suffix}" for stem in (output.name, output.name.replace("_", "-")) for suffix in (".yaml", ".yml", ".md")
        ]
        found = next((folder / name for name in spellings if (folder / name).is_file()), None)
        if found:
            files.copy_whole(found, at.task.output_path(output.name, at.out, at.call.cwd))
            read.append(str(found))
    return {"verdict": "done", "read": read}


def decision(total: int) -> str:
    """Of a hundred points."""
    return APPROVED if total >= 80 else REVISE if total >= 60 else REJECTED


def approved(at: At) -> Json:
    """Which playbooks go on, from the scores; what has none was not validated, and does not."""
    found: dict[str, list[Json]] = {APPROVED: [], REVISE: [], REJECTED: []}
    rows: list[tuple[str, ...]] = []
    for path in map(at.task.input_path, ("two", "three")):
        for entry in rosters.read(path).entries:
            if entry.verdict != "done" or "data" not in entry.outputs:
                rows.append((entry.key, "not validated", "", entry.message))
                continue
            data = files.read_json(path.parent / entry.outputs["data"])
            total = sum(int(data["scores"][name]["points"]) for name in SCORES)
            found[decision(total)].append(cast(Json, entry.item) | {"total": total})
            rows.append((entry.key, decision(total), str(total), str(data["summary"])))
    three = [one for one in found[APPROVED] if "service_category" in one]
    two = [one for one in found[APPROVED] if "service_category" not in one]
    at.leave("items", {"two": two, "three": three, **found})
    about = ", ".join(dict.fromkeys(prose.named(row[0].partition(".")[0]) for row in rows))
    part = Part(
        "",
        f"{len(found[APPROVED])} of {len(rows)} playbooks are approved.",
        ("playbook", "decision", "points", "why"),
        tuple(rows),
    )
    at.leave("section", records.document(Section(f"Validation: {about}", (part,))))
    return {"verdict": "done", "warnings": [f"{one['id']} was rejected with {one['total']} points" for one in found[REJECTED]]}


def listing(at: At) -> Json:
    """Everything that was left, by its hash: whoever depends on the run notices what changed."""
    found: dict[str, str] = {}
    for name in at.task.inputs:
        path = at.task.input_path(name)
        if path.name != rosters.NAME:
            found[name] = files.fingerprint(path)
            continue
        for entry in rosters.read(path).entries:
            found |= {
                f"{name}/{entry.key}/{output}": files.fingerprint(path.parent / place) for output, place in entry.outputs.items()
            }
    at.leave("listing", {"outputs": found})
    return {"verdict": "done"}


STEPS: dict[str, Callable[[At], Json]] = {"scope": scope, "context": context, "approved": approved, "listing": listing}


# What is accepted


def report(made: Made) -> list[str]:
    return _sections(made.text("report"), ())


def playbook(made: Made) -> list[str]:
    return _sections(made.text("playbook"), PLAYBOOK)


def _sections(text: str, wanted: tuple[str, ...]) -> list[str]:
    parts = {section.heading.lower(): section.text for section in prose.sections(text) if section.level > 1}
    found = [f"it has no section `## {name}`" for name in ("Summary", *wanted) if name.lower() not in parts]
    found += [f"the section {name} is empty" for name, body in parts.items() if not body]
    if not wanted and len(parts) < 1 + LEAST_SECTIONS:
        found.append(f"besides its summary a report has at least {LEAST_SECTIONS} sections")
    return found


def validation(made: Made) -> list[str]:
    """Points are points, and what they come to is what it says."""
    data: Any = made.json("data")
    total = sum(int(data["scores"][name]["points"]) for name in SCORES)
    found = [f"total says {data['total']}, and the points come to {total}"] if data["total"] != total else []
    if data["decision"] != decision(total):
        found.append(f"decision says {data['decision']}, and {total} points are {decision(total)}")
    item = cast(Json, made.task.item)
    return found + (
        [f"it is about {data['playbook']!r}, and you were asked about {item['id']!r}"] if data["playbook"] != item["id"] else []
    )


def aligned(made: Made) -> list[str]:
    """The voice may change; sections and figures may not."""
    text, original = made.text("playbook"), _original(made)
    found = _sections(text, PLAYBOOK)
    if original:
        new = sorted(set(_NUMBER.findall(text)) - set(_NUMBER.findall(original)))
        found += [f"these figures do not stand in the playbook: {', '.join(new[:8])}"] if new else []
    avoided = _avoided(made)
    said = [word for word in avoided if prose.speaks_of(text, (word,))]
    return found + ([f"the writing standards avoid: {', '.join(said)}"] if said else [])


def _original(made: Made) -> str:
    """The playbook it was given, by the name of its item's folder."""
    wanted = files.safe_name(str(cast(Json, made.task.item)["id"]))
    paths = [path for name in ("two", "three") if name in made.task.inputs for path in made.task.input_paths(name)]
    return next((path.read_text(encoding="utf-8") for path in paths if path.parent.name == wanted), "")


def _avoided(made: Made) -> list[str]:
    from lib.disk import config

    path = Path(str(made.task.inputs["standards"])) if "standards" in made.task.inputs else None
    try:
        data: Any = config.read(path).data if path and path.is_file() else {}
    except StrataError:
        return []  # prose, and no list of words
    words: Any = cast(Json, data).get("avoid") if isinstance(data, dict) else None
    return [str(word) for word in cast(list[Any], words)] if isinstance(words, list) else []


LOOKS: dict[str, Callable[[Made], list[str]]] = {
    "report": report,
    "playbook": playbook,
    "validation": validation,
    "aligned": aligned,
}
