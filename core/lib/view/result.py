"""What came of a run, for somebody who asks only that: what was delivered, which files changed, what verification caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from lib.disk import lenient
from lib.session import began, produced, verified
from lib.session.documents import Effective, Section
from lib.session.produced import Produced
from lib.session.verified import Story
from lib.view.tree import Scene
from lib.workspace import diffs

SECTION = "section"  # the type of an output that is read in the report
PREVIEW = 4000  # letters of a delivered text


class Changed(Struct, frozen=True):
    path: str
    change: str  # created, changed or deleted
    diff: str = ""
    by: str = ""


class Result(Struct, frozen=True):
    delivered: tuple[Produced, ...]
    changed: tuple[Changed, ...]
    stories: tuple[tuple[str, Story], ...]  # by phase
    against: str = ""  # what the diffs are against
    workspace: str = ""
    sections: tuple[Section, ...] = ()


def of(seen: Scene) -> Result:
    """Worked out once for a scene: the page and the report say the same."""
    if seen.result is None:
        seen.result = _of(seen)
    return seen.result


def _of(seen: Scene) -> Result:
    session = seen.session
    start = began.read(session)
    cwd = Path(start.cwd) if start.cwd else None
    changes = _changes(seen, cwd)
    before = lenient.read(session / "effective-config.json", Effective).plan.files
    words = {path: what for path, (what, _) in changes.items()}
    shown = diffs.of(cwd, start.commit, words, before) if cwd and cwd.is_dir() else {}
    listed = [Changed(path, what, shown.get(path, ""), by) for path, (what, by) in changes.items()]
    against = f"commit {start.commit[:12]}, where the run began" if start.commit else ""
    found = produced.of_session(session)
    told = tuple(lenient.read(session / one.path, Section) for one in found if one.type == SECTION and one.root == "session")
    delivered = tuple({(one.root, one.path): one for one in found if one.type != SECTION}.values())
    return Result(delivered, tuple(listed), tuple(_stories(session)), against, start.cwd, told)


def _changes(seen: Scene, cwd: Path | None) -> dict[str, tuple[str, str]]:
    """Each file of the working folder that steps changed, in the order they did; what is as it was before is left out."""
    found: dict[str, tuple[str, str]] = {}
    for row in sorted((row for row in seen.root.every_row() if row.changed), key=lambda row: row.end):
        for change in row.changed:
            first = found[change.path][0] if change.path in found else change.change
            found[change.path] = ("created" if first == "created" else "changed", str(row.step))
    if not cwd or not cwd.is_dir():
        return found
    return {
        path: (word if (cwd / path).exists() else "deleted", by)
        for path, (word, by) in found.items()
        if word != "created" or (cwd / path).exists()
    }


def _stories(session: Path) -> Iterator[tuple[str, Story]]:
    planned = {p.folder: p.name for p in lenient.read(session / "effective-config.json", Effective).plan.phases}
    for folder in [*sorted(session.glob("phases/*/sentinel")), *sorted(session.glob("sentinel"))]:
        story = verified.of(session, folder)
        if story.looks:
            place = folder.parent.name
            yield planned.get(place, place if folder.parent != session else "verification"), story


def preview(session: Path, one: Produced) -> str:
    """The beginning of a delivered text, so that a page that is mailed needs no file beside it."""
    path = session / one.path
    try:
        if one.root != "session" or not path.is_file():
            return ""
        with path.open("rb") as file:
            text = file.read(4 * PREVIEW).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}\n… the rest is in the file"
