"""The two pictures of the page: the graph of phases and stages, and the timeline."""

from __future__ import annotations

from msgspec import Struct

from lib.view import terminal, ways
from lib.view.page.markup import anchor, e, heading, kind, short, soft, tag
from lib.view.page.steps import filters, leaves
from lib.view.tree import Node, Row, Scene

WIDE, GAP_X, GAP_Y, ROW, HEAD, ROWS = 270, 60, 24, 19, 30, 18
MEMBERS = 6  # of one stage that are listed by name


class Line(Struct, frozen=True):
    """A line in a box: a stage, a member of one, or a checkpoint."""

    colour: str
    words: str
    key: tuple[str, str] = ("", "")  # run and stage, of a line that a loop may lead to
    indent: int = 0
    gate: bool = False


def graph(seen: Scene) -> list[str]:
    boxes = seen.root.nodes
    if not boxes:
        return [heading("graph"), soft("Nothing has run yet.")]
    gates = ways.gates(seen.session)
    lines = {box.name: _lines(box, gates.get(box.name)) for box in boxes}
    place: dict[str, tuple[int, int, int]] = {}  # x, y, height
    column: dict[str, int] = {}
    heights: dict[int, int] = {}
    for box in boxes:
        at = column[box.name] = max((column.get(a, 0) + 1 for a in box.after), default=0)
        tall = HEAD + ROW * len(lines[box.name]) + 8
        place[box.name] = (at * (WIDE + GAP_X) + 12, heights.get(at, 12), tall)
        heights[at] = heights.get(at, 12) + tall + GAP_Y
    width, height = (max(column.values()) + 1) * (WIDE + GAP_X), max(heights.values())
    title = '<title id="graph-title">Phases and their stages; the same is listed below as text</title>'
    arrow = '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    arrow += '<path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>'
    edges = [_edge(place[o], place[box.name]) for box in boxes for o in box.after if o in place]
    drawn = [title, arrow, *edges, *(_box(box, lines[box.name], *place[box.name]) for box in boxes)]
    drawn += [part for box in boxes for part in _loops(seen, box, lines[box.name], *place[box.name][:2])]
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    picture = tag("svg", *drawn, role="img", aria_labelledby="graph-title", **size)
    return [heading("graph"), tag("div", picture, cls="scroll graph", tabindex=0, role="region", aria_label="Graph")]


def _edge(one: tuple[int, int, int], other: tuple[int, int, int]) -> str:
    ax, ay, bx, by = one[0] + WIDE, one[1] + 15, other[0], other[1] + 15
    return tag("path", cls="edge", d=f"M{ax} {ay} C{ax + 30} {ay}, {bx - 30} {by}, {bx} {by}", marker_end="url(#arrow)")


def _box(box: Node, lines: list[Line], x: int, y: int, tall: int) -> str:
    frame = tag("rect", cls=f"box {kind(box.status)}", x=x, y=y, width=WIDE, height=tall, rx=8)
    name = f"{short(box.name, 26)} {terminal.mark(box.status)[0]} {box.grade}"
    parts = [tag("a", frame, tag("text", e(name), cls="name", x=x + 12, y=y + 20), href=f"#{anchor(box.name)}")]
    for number, line in enumerate(lines):
        top, left = y + HEAD + ROW * number + 8, x + 17 + 12 * line.indent
        if line.gate:
            points = f"{left} {top - 6}, {left + 6} {top}, {left} {top + 6}, {left - 6} {top}"
            parts.append(tag("polygon", cls=f"dot {line.colour}", points=points))
        else:
            parts.append(tag("circle", cls=f"dot {line.colour}", cx=left, cy=top, r=3 if line.indent else 4))
        parts.append(tag("text", e(short(line.words, 34 - 2 * line.indent)), cls="small", x=left + 11, y=top + 4))
    return "".join(parts)


def _loops(seen: Scene, box: Node, lines: list[Line], x: int, y: int) -> list[str]:
    """Arrows at the right edge of a box, from the stage that sent work back to where it went."""
    at = {line.key: y + HEAD + ROW * number + 8 for number, line in enumerate(lines) if line.key != ("", "")}
    parts: list[str] = []
    for run in box.nodes if box.kind == "phase" else [box]:
        for back in ways.loops_of(ways.home(seen.session, box.name, run.name)):
            source, target = at.get((run.name, back.source)), at.get((run.name, back.target))
            if source is None or target is None:
                continue
            right = x + WIDE - 4
            path = f"M{right} {source} C{right + 26} {source}, {right + 26} {target}, {right + 1} {target}"
            words = f"{back.name}: {back.source} sent the work back to {back.target}, {back.times} times"
            parts.append(tag("path", tag("title", e(words)), cls="edge loop", d=path, marker_end="url(#arrow)"))
            parts.append(
                tag("text", e(f"↺{back.times}"), cls="small", x=right + 22, y=(source + target) // 2 + (source == target) * 14)
            )
    return parts


def _lines(box: Node, gate: ways.Gate | None) -> list[Line]:
    found: list[Line] = []
    for run in box.nodes if box.kind == "phase" else [box]:
        for stage in run.nodes or [run]:
            again = f" ({stage.turn} {stage.rounds})" if stage.rounds > 1 else ""
            items = f" ×{len(stage.nodes)}" if stage.nodes else ""
            name = f"{run.name}: {stage.name}" if stage is not run else run.name
            found.append(Line(kind(stage.status), f"{name}{items}{again}", (run.name, stage.name)))
            if len(stage.nodes) <= MEMBERS:
                found += [Line(kind(one.status), one.name, indent=1) for one in stage.nodes]
    if len(found) > ROWS:  # those that are one of many first
        found = [line for line in found if not line.indent]
    rest = found[ROWS - 1 :]
    if len(found) > ROWS:
        bad = sum(line.colour == "bad" for line in rest)
        words = f"and {len(rest)} more" + (f", {bad} failed" if bad else "")
        found = [*found[: ROWS - 1], Line("bad" if bad else "none", words)]
    if gate:
        colour = {"approve": "good", "reject": "bad"}.get(gate.decision, "open")
        line = Line(colour, gate.words, gate=True)
        found = [line, *found] if gate.at == "before" else [*found, line]
    return found


def timeline(seen: Scene) -> list[str]:
    """Who ran when: a row for each step, a bar for each attempt, and what was spent parked."""
    rows = [(names, node) for names, node in leaves(seen.root) if any(t.started for t in node.rows)]
    if not rows:
        return [heading("timeline"), soft("Nothing has run yet.")]
    begin = min(t.started for _, n in rows for t in n.rows if t.started)
    end = max([seen.now if seen.alive else 0, *(t.ended or t.started or 0 for _, n in rows for t in n.rows)])
    rows.sort(key=lambda row: min(t.started or end for t in row[1].rows))
    span = max(end - begin, 0.001)
    ticks = [tag("span", e(terminal.clock(span * n / 5))) for n in range(6)]
    order = tag("span", e(f"{len(rows)} steps, in the order they began"), cls="label")
    axis = tag("div", order, tag("span", *ticks, cls="ticks"), tag("span", cls="took"), cls="row axis")
    drawn = [axis, *(_row(names, node, begin, end, span) for names, node in rows)]
    return [heading("timeline"), tag("div", *drawn, cls="scroll timeline", tabindex=0, role="region", aria_label="Timeline")]


def _row(names: tuple[str, ...], node: Node, begin: float, end: float, span: float) -> str:
    path = "/".join(names)
    first = min(t.started or end for t in node.rows)
    took = terminal.clock(node.seconds(end))
    said = f"{path}: began after {terminal.clock(first - begin)}, took {took}, {node.status}, {len(node.rows)} attempts"
    bars = "".join(_bars(one, begin, end, span) for one in node.rows)
    fixed = {"viewBox": "0 0 1000 10", "preserveAspectRatio": "none"}
    label = tag("a", e(path), cls="label", href=f"#{anchor(*names)}", title=path)
    picture = tag("svg", bars, role="img", aria_label=said, **fixed)
    return tag("div", label, picture, tag("span", e(took), cls="took"), cls="row", **filters(names, node))


def _bars(one: Row, begin: float, end: float, span: float) -> str:
    start, stop = one.started or begin, one.ended or end
    words = f"{one.kind or 'attempt'} {one.number}: {one.status}, {terminal.clock(stop - start)}"
    parts = [_bar(f"t-{kind(one.status)}", start - begin, stop - start, span, 0, words)]
    parts += [_bar("parked", a - begin, (b or end) - a, span, 2, "parked") for a, b in one.parked]
    return "".join(parts)


def _bar(name: str, start: float, length: float, span: float, inset: int, words: str) -> str:
    x, wide = f"{1000 * start / span:.1f}", f"{max(1000 * length / span, 2.5):.1f}"
    return tag("rect", tag("title", e(words)), cls=name, x=x, y=inset, width=wide, height=10 - 2 * inset)
