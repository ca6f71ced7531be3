"""One HTML page of a review: a click on a quote shows the page of the paper, with the passage marked. It loads nothing from elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape

from msgspec import Struct

from packs.academic import prisma
from packs.academic.review import Review, Source

Box = tuple[float, float, float, float]


class Shown(Struct, frozen=True):
    """What is drawn: pages as PNG, by source and number; and by quote where it stands on its page."""

    pages: Mapping[tuple[str, int], bytes]
    marks: Mapping[str, Sequence[Box]]


_STYLE = """
:root{color-scheme:light dark;--line:#8884;--mark:#ffd54a99}*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,sans-serif;display:grid;grid-template-columns:minmax(20rem,1fr) minmax(20rem,1fr)}
main{padding:1.5rem;overflow-wrap:anywhere}aside{position:sticky;top:0;height:100vh;overflow:auto;border-left:1px solid var(--line);padding:1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}blockquote{margin:.5rem 0;padding:.5rem .8rem;border-left:3px solid var(--line)}
button.q{all:unset;display:block;cursor:pointer;width:100%}button.q:hover,button.q:focus-visible,button.q[aria-pressed=true]{background:var(--mark)}
small{opacity:.75}figure{margin:0;position:relative}figure img{width:100%;display:block;background:#fff;border:1px solid var(--line)}
figure i{position:absolute;background:var(--mark);mix-blend-mode:multiply}.bad{color:#b00020;font-weight:bold}svg{max-width:100%;height:auto}
@media(max-width:50rem){body{grid-template-columns:1fr}aside{height:60vh;bottom:0;top:auto;background:Canvas;border-top:1px solid var(--line)}}
"""

_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const figure = document.querySelector("figure"), title = document.getElementById("where");
function show(id) {
  const one = data.quotes[id];
  document.querySelectorAll("button.q").forEach(b => b.setAttribute("aria-pressed", b.dataset.id === id));
  title.textContent = one.where;
  figure.replaceChildren();
  if (!data.pages[one.page]) { figure.textContent = "There is no picture of this page."; return; }
  const image = new Image(); image.src = data.pages[one.page]; image.alt = one.where; figure.append(image);
  for (const [l, t, r, b] of one.marks) {
    const mark = document.createElement("i");
    Object.assign(mark.style, {left: l*100+"%", top: t*100+"%", width: (r-l)*100+"%", height: (b-t)*100+"%"});
    figure.append(mark);
  }
  const first = figure.querySelector("i");
  const side = document.querySelector("aside");
  if (first) image.decode().then(() => { side.scrollTop += first.getBoundingClientRect().top - side.clientHeight / 2; }, () => {});
  history.replaceState(null, "", "#" + id);
}
document.querySelectorAll("button.q").forEach(b => b.addEventListener("click", () => show(b.dataset.id)));
const first = location.hash.slice(1);
if (data.quotes[first]) show(first);
"""


def html(made: Review, shown: Shown) -> str:
    pages = {f"{s}/{n}": "data:image/png;base64," + base64.b64encode(png).decode() for (s, n), png in shown.pages.items()}
    titles = {one.id: one.entry.paper.title for one in made.sources}
    quotes = {
        q["quote_id"]: {
            "page": f"{q['source_id']}/{q['page']}",
            "where": f"{titles[q['source_id']]}, page {q['page']}",
            "marks": shown.marks.get(q["quote_id"], ()),
        }
        for q in made.quotes
    }
    data = json.dumps({"pages": pages, "quotes": quotes}).replace("<", "\\u003c")
    question = escape(made.config["research_question"])
    body = "".join(_source(made, one) for one in made.sources)
    gone = "".join(f"<li>{escape(m.paper.title)}: {escape(m.reason)}</li>" for m in made.missing)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{escape(made.config["project"])}: quotes</title><style>{_STYLE}</style></head>
<body><main><h1>{escape(made.config["project"])}</h1><p>{question}</p>
<p>{len(made.quotes)} quotes, each found on its page. Click on one to see it there.</p>{body}
{f"<h2>Chosen, and not available</h2><ul>{gone}</ul>" if gone else ""}
<h2>How these were found</h2>{prisma.svg(made.flow)}</main>
<aside><p id="where">Click on a quote.</p><figure></figure></aside>
<script type="application/json" id="data">{data}</script><script>{_SCRIPT}</script></body></html>
"""


def _source(made: Review, one: Source) -> str:
    paper = one.entry.paper
    by = f"{', '.join(paper.authors) or 'anonymous'} ({paper.year or 'n. d.'})"
    bad = '<p class="bad">Withdrawn: a service says that this paper was retracted.</p>' if one.retracted else ""
    said = f"<p>{escape(one.annotation)}</p>" if one.annotation else ""
    listed = "".join(
        f'<blockquote><button class="q" data-id="{escape(q["quote_id"])}" aria-pressed="false">{escape(q["quote"])}<br>'
        f"<small>p. {q['page']}, {escape(q['context'])}, relevance {q['relevance']:g}</small></button></blockquote>"
        for q in made.of(one)
    )
    why = "" if listed else f"<p><small>{escape(one.skipped or 'No verified quote answers the question.')}</small></p>"
    return f"<section><h2>{escape(paper.title)}</h2><p><small>{escape(by)} · {escape(one.filename)}</small></p>{bad}{said}{listed}{why}</section>"
