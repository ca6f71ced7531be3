"""A session as a live tree in a terminal: what runs, what it does just now, what it has cost. Made from files only.

A tool that a person started shows its own session this way, from a thread; `session.py watch` shows that of another process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lib.process import streams
from lib.session import events
from lib.view import reader
from lib.view.tree import CUT_SHORT, PARKED, PENDING, RUNNING, Node, Scene

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REFRESH_SECONDS = 0.25
LEVELS = 5  # from everything down to what runs and what failed
BAR = 20
_MARKS = {
    "success": ("✓", "green"),
    "partial": ("≈", "yellow"),
    RUNNING: ("●", "cyan"),
    PARKED: ("‖", "yellow"),
    PENDING: ("·", "dim"),
    "waiting": ("?", "yellow"),
    "to be revised": ("↻", "yellow"),
    "blocked": ("·", "red"),
    CUT_SHORT: ("…", "yellow"),
    "interrupted": ("…", "yellow"),
}
_PLAIN = {"✓": "+", "≈": "~", "●": "*", "‖": "=", "·": ".", "↻": "r", "…": "-", "✗": "x", "━": "#", "─": "-"}


def mark(status: str) -> tuple[str, str]:
    return _MARKS.get(status, ("✗", "red"))


def wanted() -> bool:
    """A person looks on, at a terminal that can be drawn on."""
    return sys.stderr.isatty() and os.getenv("TERM", "") not in ("", "dumb")


# One picture


def picture(seen: Scene, width: int, height: int | None, plain: bool = False) -> list[Text]:
    """The tree in as many lines as there is room for: what runs and what failed is left out last."""
    from rich.text import Text

    lines: list[Text] = []
    for level in range(LEVELS, 0, -1):
        bar = BAR if width >= 80 else BAR // 3
        lines = [header(seen), *(line for node in seen.root.nodes for line in _lines(node, 1, level, seen.now, bar))]
        if height is None or len(lines) <= height:
            break
    if height is not None and len(lines) > height:
        going = [line for line in lines[1:] if line.plain.lstrip()[:1] in "●‖✗"]
        rest = len(lines) - 1
        lines = [lines[0], *going[: max(height - 2, 0)]]
        lines.append(Text(f"  … and {rest - len(lines) + 1} more lines", style="dim"))
        lines = lines[:height]
    for line in lines:
        line.no_wrap = True
        line.plain = streams.harmless(line.plain).replace("\n", " ")  # agents have written parts of it
        if plain:
            line.plain = "".join(_PLAIN.get(c, c if c.isascii() else "?") for c in line.plain)
        line.truncate(width, overflow="ellipsis" if not plain else "crop")
    return lines


def header(seen: Scene) -> Text:
    from rich.text import Text

    status = seen.root.status
    glyph, style = mark(status)
    words = Text(f"{glyph} ", style=style)
    words.append(seen.root.name, style="bold")
    state = f" {status}" + (f", {seen.root.grade}" if seen.root.grade else "")
    words.append(state, style=style)
    if seen.alive and seen.state not in ("", "PHASE_N", "INIT", "CHECKPOINT"):
        words.append(f" ({seen.state.lower()})", style="dim")
    words.append(f"  {clock(took(seen))}", style="dim")
    words.append(f"  {money(seen)}")
    count = seen.spent.agents
    words.append(f"  {count} agent{'' if count == 1 else 's'}", style="dim")
    return words


def took(seen: Scene) -> float:
    """Of a run that goes on, since it was begun; of one that has ended, what it was worked on."""
    return seen.now - seen.started if seen.alive and seen.started else seen.root.seconds(seen.now)


def money(seen: Scene) -> str:
    """What has been spent, and what of the budget is promised to agents that have not ended."""
    spent, limit = seen.spent, seen.limit_usd
    words = f"{spent.usd:.4f}" + (f" of {limit:g}" if limit else "") + " USD"
    words += f", {spent.held:.4f} held" if spent.held else ""
    return f"replayed: {words}" if seen.replayed else words


def clock(seconds: float) -> str:
    seconds = max(seconds, 0)
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def _lines(node: Node, depth: int, level: int, now: float, bar: int) -> list[Text]:
    """A node and what is below it. Level 5 shows everything; 4 folds what is finished, 3 items that are done, 2 what is to come,
    1 all but what runs or failed."""
    shown = [_line(node, depth, now, bar)]
    folded = level < 5 and node.status in ("success", PENDING) and node.kind in ("phase", "run")
    if folded:
        return shown
    below = node.nodes
    if node.kind == "stage" and below and (level < 4 or len(below) > 12):
        below = [n for n in below if n.status in (RUNNING, PARKED) or n.status not in ("success", PENDING)][
            : 12 if level > 1 else 4
        ]
    elif level < 3:
        below = (
            [n for n in below if n.status != PENDING]
            if level == 2
            else [n for n in below if n.status not in ("success", PENDING)]
        )
    for child in below:
        shown += _lines(child, depth + 1, level, now, bar)
    return shown


def _line(node: Node, depth: int, now: float, bar: int) -> Text:
    from rich.text import Text

    glyph, style = mark(node.status)
    line = Text("  " * depth)
    line.append(f"{glyph} ", style=style)
    line.append(node.name, style="bold" if node.kind == "phase" else ("" if node.status != PENDING else "dim"))
    if node.kind == "stage" and node.nodes:
        _progress(line, node, bar)
    if node.status not in ("success", RUNNING, PENDING) and not (node.kind == "stage" and node.nodes):
        line.append(f" {node.status}", style=style)
    if node.grade:
        line.append(f" {node.grade}", style="green" if node.grade == "PASS" else "yellow")
    if node.started:
        line.append(f"  {clock(node.seconds(now))}", style="dim")
    if node.usd:
        line.append(f"  {node.usd:.3f} USD", style="dim")
    if node.rounds > 1:
        line.append(f"  {node.turn} {node.rounds}", style="yellow")
    if node.retries:
        line.append(f"  {node.retries} more {'try' if node.retries == 1 else 'tries'}", style="yellow")
    last = node.rows[-1] if node.rows else None
    if last and last.worker and last.status != "success":
        line.append(f"  on {last.worker}", style="dim")
    if last and last.status in (RUNNING, PARKED):
        line.append(f"  {last.agent} {last.doing}".rstrip(), style="cyan")
    elif node.note and node.status not in ("success", PENDING):
        line.append(f"  {' '.join(node.note.split())}", style="red" if style == "red" else "dim")
    return line


def _progress(line: Text, node: Node, bar: int) -> None:
    done = sum(n.status == "success" for n in node.nodes)
    bad = sum(n.status not in ("success", "waiting", RUNNING, PARKED, PENDING) for n in node.nodes)
    going = sum(n.status in (RUNNING, PARKED) for n in node.nodes)
    wanted = max(node.wanted, len(node.nodes))
    filled = round(bar * (done + bad) / wanted)
    line.append(" ")
    line.append("━" * filled, style="green")
    line.append("─" * (bar - filled), style="dim")
    words = f" {done}/{wanted}" + (f", {going} running" if going else "") + (f", {bad} failed" if bad else "")
    line.append(words, style="red" if bad else "")


# A picture that moves


def console(stderr: bool = True) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def plain(out: Console) -> bool:
    return not (out.encoding or "").lower().replace("-", "").startswith("utf")


class View:
    """Draws a session over and over until it is told to stop, or, for a watcher, until the run has ended."""

    def __init__(self, session: Path, out: Console) -> None:
        self.reader = reader.Reader(session)
        self.out = out
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._drawing = threading.Lock()
        self._thread: threading.Thread | None = None

    def frame(self) -> tuple[object, Scene]:
        from rich.console import Group

        seen = self.reader.look()
        lines = picture(seen, self.out.width, max(self.out.height - 2, 3), plain(self.out))
        return Group(*lines), seen

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._paused.is_set():
                time.sleep(0.05)
                continue
            self.follow(lambda _: self._stop.is_set() or self._paused.is_set())

    def follow(self, enough: Callable[[Scene], bool]) -> None:
        from rich.live import Live

        with self._drawing, Live(console=self.out, auto_refresh=False, transient=True) as live:
            self.out.show_cursor(True)  # a run that is killed must not leave a terminal without one
            while True:
                try:
                    drawn, seen = self.frame()
                except Exception:  # noqa: BLE001 - it reads what anybody could have changed; the run itself must not feel it
                    if self._stop.wait(REFRESH_SECONDS) or self._paused.is_set():
                        return
                    continue
                live.update(drawn, refresh=True)  # type: ignore[arg-type]
                if enough(seen):
                    return
                for _ in range(5):
                    if not enough(seen):
                        self._stop.wait(REFRESH_SECONDS / 5)

    @contextmanager
    def paused(self) -> Generator[None]:
        self._paused.set()
        with self._drawing:
            try:
                yield
            finally:
                self._paused.clear()

    def say(self, line: str) -> None:
        """A line above the tree, which stays."""
        from rich.text import Text

        self.out.print(Text(line))

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join(5)


_current: View | None = None


def begin(session: Path) -> None:
    """Shows this session from now on, instead of a line for everything that happens."""
    global _current
    if wanted() and _current is None:
        _current = View(session, console())
        events.screen = _current
        _current.start()


def end() -> None:
    global _current
    if _current:
        _current.stop()
        _current = events.screen = None
