"""The first section of the page: what came of the run, for a colleague who asks only that."""

from __future__ import annotations

from lib.session.documents import Section
from lib.session.produced import Produced
from lib.session.verified import Story
from lib.view import result as results
from lib.view.page.markup import badge, e, grade, heading, href, soft, table, tag
from lib.view.result import Changed, Result
from lib.view.tree import Scene

_MARKS = {
    **dict.fromkeys(("pass", "passed", "done", "taken", "met"), "success"),
    **dict.fromkeys(("fail", "failed", "blocker", "critical", "rejected", "blocked", "not met"), "failed"),
    **dict.fromkeys(("major", "open"), "to be revised"),
}
_PLAIN = ("minor", "proposed")
MOST_ROWS = 200  # of a table
MOST = 40  # of each list that is shown at once; the rest is in the files


def result(seen: Scene) -> list[str]:
    came = results.of(seen)
    if not (came.delivered or came.changed or came.stories or came.sections):
        return []
    told = [part for section in came.sections for part in _told(section)]
    return [heading("result"), *told, *_delivered(seen, came), *_changed(came), *_caught(came)]


def _told(section: Section) -> list[str]:
    """What a tool of the run has to say, as text and tables."""
    parts = [tag("h3", e(section.title))]
    for one in section.parts:
        parts += [tag("h4", e(one.title))] if one.title else []
        parts += [tag("p", e(one.text), cls="told")] if one.text else []
        rows = [[_cell(cell) for cell in row] for row in one.rows[:MOST_ROWS]]
        parts += [table(one.head, rows)] if rows else []
        left = len(one.rows) - MOST_ROWS
        parts += [soft(f"and {left} more")] if left > 0 else []
    return parts


def _cell(text: str) -> str:
    """A word that says how something went is shown as such."""
    plain = tag("span", e(text), cls="badge none") if text in _PLAIN else e(text)
    return badge(_MARKS[text], text) if text in _MARKS else plain


def _delivered(seen: Scene, came: Result) -> list[str]:
    if not came.delivered:
        return []
    rows = [[_link(one), e(_about(one)), e(one.agent_name), f"{one.size:,}"] for one in came.delivered[:MOST]]
    parts = [tag("h3", f"Delivered ({len(came.delivered)})"), table(("what", "about", "made by", "bytes"), rows, 1)]
    for one in came.delivered[:MOST]:
        text = results.preview(seen.session, one)
        if text.strip():
            title = tag("summary", tag("span", e(one.path), cls="what"))
            parts.append(tag("details", title, tag("pre", e(text), tabindex=0)))
    left = len(came.delivered) - MOST
    return [*parts, *([soft(f"and {left} more, listed in outputs.json")] if left > 0 else [])]


def _link(one: Produced) -> str:
    return tag("a", e(one.path), href=href(one.path)) if one.root == "session" else tag("code", e(one.path))


def _about(one: Produced) -> str:
    words = [one.type, *(f"{name}: {value}" for name, value in one.dimensions.items())]
    return ", ".join(words)


def _changed(came: Result) -> list[str]:
    if not came.changed:
        return []
    against = f" against {came.against}" if came.against else ""
    parts = [tag("h3", f"Files changed ({len(came.changed)})"), soft(f"In {came.workspace}{against}.")]
    parts += [_diff(one) for one in came.changed[:MOST]]
    left = len(came.changed) - MOST
    return [*parts, *([soft(f"and {left} more")] if left > 0 else [])]


def _diff(one: Changed) -> str:
    marks = {"created": "success", "deleted": "failed", "changed": "to be revised"}
    added = sum(line.startswith("+") for line in one.diff.splitlines())
    gone = sum(line.startswith("-") for line in one.diff.splitlines())
    figures = tag("span", e(f"+{added} −{gone}" if one.diff else ""), cls="meta")
    head = tag("summary", badge(marks[one.change], one.change), tag("code", e(one.path), cls="what"), figures)
    if not one.diff:
        return tag("p", badge(marks[one.change], one.change), " ", tag("code", e(one.path)))
    kinds = {"+": "add", "-": "del", "@": "at"}
    lines = [tag("span", e(line) + "\n", cls=kinds.get(line[:1])) for line in one.diff.splitlines()]
    return tag("details", head, tag("pre", *lines, cls="diff", tabindex=0))


def _caught(came: Result) -> list[str]:
    if not came.stories:
        return []
    return [tag("h3", "What verification caught"), *(part for phase, story in came.stories for part in _story(phase, story))]


def _story(phase: str, story: Story) -> list[str]:
    parts = [tag("p", tag("b", e(phase)), " ", grade(story.grade), " ", e(story.words))]
    for caught in story.caught:
        title = tag("summary", badge("failed", caught.check), tag("span", e(caught.count), cls="what"))
        parts.append(
            tag("details", title, tag("pre", e(caught.lines), tabindex=0)) if caught.lines else tag("p", e(caught.count))
        )
    parts += [tag("p", badge("to be revised", "to fix"), " ", e(fix)) for fix in story.fixes]
    return parts
