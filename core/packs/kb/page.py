"""A knowledge base as one page that opens without a network: filters, search in the page, and every document at three depths."""

from __future__ import annotations

import html as escaping
import json
from pathlib import Path

from packs.kb import prose
from packs.kb.asking import Base
from packs.kb.records import Document

HERE = Path(__file__).parent


def html(base: Base) -> str:
    rows = [_row(base, one) for one in base.index.documents]
    data = json.dumps({"version": base.version, "documents": rows}, ensure_ascii=False).replace("<", "\\u003c")
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    title = f"Knowledge base, version {base.version}"
    filters = "".join(_filter(name, values) for name, values in base.router.known.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{style}</style></head><body><header><h1>{title}</h1>"
        '<input id="words" type="search" placeholder="Search, or / to come here" autofocus aria-label="Search">'
        f'{filters}<p id="count" aria-live="polite"></p></header><main id="found"></main>'
        f'<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>\n'
    )


def _filter(name: str, values: list[str]) -> str:
    options = "".join(f'<option value="{escaping.escape(v)}">{escaping.escape(prose.named(v))}</option>' for v in values)
    return f'<select data-field="{name}" aria-label="{name}"><option value="">every {name}</option>{options}</select>'


def _row(base: Base, one: Document) -> dict[str, object]:
    origin = ", ".join(dict.fromkeys(f"{o.run}{f' ({o.date[:10]})' if o.date else ''}" for o in one.sources))
    return {
        "path": one.path,
        "title": one.title,
        "domain": one.domain,
        "vertical": one.vertical,
        "persona": one.persona,
        "level": one.detail_level,
        "summary": one.summary,
        "origin": origin,
        "related": list(one.related),
        "sections": [{"heading": s.heading, "text": s.text} for s in prose.sections(base.read(one.path)) if s.text],
    }
