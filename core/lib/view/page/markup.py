"""Small pieces of the page. `e` is the only way for a text into it."""

from __future__ import annotations

import html
import os
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from lib.disk import files
from lib.process import streams
from lib.view import terminal
from lib.view.tree import PARKED, RUNNING


def e(value: object) -> str:
    """As text, and without the invisible characters that turn a line around."""
    return html.escape(streams.harmless(str(value)), quote=True)


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element. Its content is markup already; its attributes are not. `cls` is its class, `data_x` is `data-x`."""
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = {"cls": "class"}.get(key, key.replace("_", "-"))
            words.append(key if value is True else f'{key}="{e(value)}"')
    return f"<{' '.join(words)}>{''.join(content)}</{name}>"


def kind(status: str) -> str:
    if status in (RUNNING, PARKED):
        return "run"
    return {"green": "good", "yellow": "open", "red": "bad"}.get(terminal.mark(status)[1], "none")


def badge(status: str, words: str = "") -> str:
    return tag("span", e(f"{terminal.mark(status)[0]} {words or status}"), cls=f"badge {kind(status)}")


def grade(name: str) -> str:
    colour = {"PASS": "good", "WARN": "open", "FAIL": "bad"}.get(name, "none")
    return tag("span", e(name), cls=f"badge {colour}") if name else ""


def date(at: float | None) -> str:
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S") if at else "?"
    except (ValueError, OverflowError, OSError):
        return "?"  # no year anybody lives in


def href(path: str) -> str:
    """To a file of the session, whatever it is called."""
    return f"./{quote(path, errors='replace')}"


def anchor(*names: str) -> str:
    return quote("--".join(files.safe_name(n) for n in names if n), safe="")


def short(words: str, length: int) -> str:
    return words if len(words) <= length else f"{words[: length - 1]}…"


def cut(words: str, limit: int) -> str:
    return words if len(words) <= limit else f"{words[:limit]}\n… {len(words) - limit:,} more characters, in the file"


def read(path: Path, limit: int | None = None) -> str:
    """A file as text; its first `limit` bytes where it may be very large."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - thousands of times for a page
            size = os.fstat(file.fileno()).st_size  # asking for the whole limit would set all of it aside in memory
            return file.read(size if limit is None else min(limit, size)).decode("utf-8", "replace")
    except OSError:
        return ""


def heading(name: str, title: str = "") -> str:
    return tag("h2", e(title or name.capitalize()), id=name)


def soft(words: str) -> str:
    return tag("p", e(words), cls="soft")


def folded(title: str, text: str) -> str:
    """A long text, one click away."""
    return tag("details", tag("summary", tag("span", e(title), cls="what")), tag("pre", e(text), tabindex=0))


def table(heads: tuple[str, ...], rows: list[list[str]], numbers: int = 0, foot: list[str] | None = None) -> str:
    """Cells are markup already; the last `numbers` columns are figures."""
    edge = len(heads) - numbers

    def line(cells: list[str], name: str = "td") -> str:
        scope = "col" if name == "th" else None
        return tag("tr", *(tag(name, cell, cls="n" if n >= edge else None, scope=scope) for n, cell in enumerate(cells)))

    head = tag("thead", line([e(h) for h in heads], "th"))
    below = tag("tfoot", line(foot)) if foot else ""
    return tag("div", tag("table", head, tag("tbody", *(line(row) for row in rows)), below), cls="card scroll")
