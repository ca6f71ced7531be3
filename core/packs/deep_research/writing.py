"""The report: numbered references made from citations, as Markdown, and as one page where a citation shows its passage."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from packs.deep_research import contract, corpus
from packs.deep_research.citing import CITED, PAYWALLED, Citation
from packs.deep_research.claims import Looked

STYLE = Path(__file__).with_name("style.css")


class Report(Struct, frozen=True):
    query: str
    text: str  # the synthesis, with [@cid]
    citations: Mapping[str, Citation]
    claims: Sequence[Looked]
    figures: Mapping[str, int]
    made: Sequence[str] = ()  # how it was made, in sentences

    @property
    def numbered(self) -> dict[str, int]:
        """By citation, in the order they are first mentioned."""
        return {cid: n for n, cid in enumerate(dict.fromkeys(CITED.findall(self.text)), 1)}

    def summary(self) -> str:
        return CITED.sub("", contract.sections(self.text).get("Summary", "")).strip()

    def markdown(self) -> str:
        numbers = self.numbered
        body = CITED.sub(lambda match: f"[{numbers[match[1]]}]", self.text).strip()
        lines = [f"# {self.query}", "", body, "", "## References", ""]
        lines += [
            f"{n}. {self._reference(cid)} <{_shown(self.citations[cid].url)}>"
            for cid, n in numbers.items()
            if cid in self.citations
        ]
        lines += ["", "## How it was made", "", *(f"- {name}: {number}" for name, number in self.figures.items())]
        lines += [f"- {line}" for line in self.made]
        return "\n".join(lines) + "\n"

    def _reference(self, cid: str) -> str:
        one = self.citations[cid]
        words = [
            one.title or one.url,
            one.date or "without a date",
            one.sort,
            "behind a paywall" if one.status == PAYWALLED else "",
        ]
        return ", ".join(word for word in words if word)

    def html(self) -> str:
        """One file, without a script: what a citation rests on is shown by the style alone."""
        parts: list[str] = []
        for block in re.split(r"\n\s*\n", self.text.strip()):
            head = re.match(r"(#{1,6})\s+(.+)", block)
            items = contract.items(block)
            if head and "\n" not in block:
                parts.append(f"<h2>{self._inline(head[2])}</h2>")
            elif items and len(items) == len(block.splitlines()):
                parts.append("<ul>" + "".join(f"<li>{self._inline(item)}</li>" for item in items) + "</ul>")
            else:
                parts.append(f"<p>{self._inline(block)}</p>")
        listed = [
            f'<li id="ref-{n}">{html.escape(self._reference(cid))} {_link(self.citations[cid].url)}</li>'
            for cid, n in self.numbered.items()
            if cid in self.citations
        ]
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{number}</td></tr>" for name, number in self.figures.items())
        told = "".join(f"<p>{html.escape(line)}</p>" for line in self.made)
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{html.escape(self.query)}</title><style>{STYLE.read_text(encoding='utf-8')}</style></head><body>",
                f"<h1>{html.escape(self.query)}</h1>",
                *parts,
                f"<h2>References</h2><ol>{''.join(listed)}</ol>",
                f"<h2>How it was made</h2><table>{rows}</table>{told}</body></html>",
            ]
        )

    def _inline(self, text: str) -> str:
        numbers = self.numbered
        pieces: list[str] = []
        last = 0
        for match in CITED.finditer(text):
            pieces += [_plain(text[last : match.start()]), self._cite(match[1], numbers[match[1]])]
            last = match.end()
        return "".join([*pieces, _plain(text[last:])])

    def _cite(self, cid: str, number: int) -> str:
        passages = [c for c in self.claims if c.cid == cid and c.supported][:4]
        shown = "<br><br>".join(f"{_around(c.before)} <b>{html.escape(c.quote)}</b> {_around(c.after)}" for c in passages)
        inner = f'<span class="passage" role="note">{shown}</span>' if shown else ""
        return f'<span class="cite"><a href="#ref-{number}">[{number}]</a>{inner}</span>'


def _plain(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text.replace("\n", " ")))


def _link(url: str) -> str:
    if corpus.is_ours(url):
        return f"<code>{html.escape(corpus.name(url))}</code>"
    return f'<a href="{html.escape(url)}">{html.escape(url)}</a>'


def _shown(url: str) -> str:
    return corpus.name(url) if corpus.is_ours(url) else url


def _around(text: str) -> str:
    return f'<span class="around">{html.escape(text)}</span>'
