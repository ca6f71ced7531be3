"""What is cited is read by Python itself, through the one door to the web or from the corpus; what cannot be read is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from lib.attempt.verdicts import Verdict
from lib.contract import Json, StrataError
from lib.disk import files
from lib.disk.clock import now
from lib.plan.task import Task
from lib.tool.call import Call
from lib.web.door import Door
from lib.web.evidence import BODIES, Fetched
from msgspec.structs import replace

from packs.deep_research import claims, corpus, planning, serving, sources, tools
from packs.deep_research.at import At, Desk
from packs.deep_research.contract import Contract
from packs.deep_research.corpus import Corpus, Hit
from packs.deep_research.sources import Got

NOT_THERE: Json = {"status": 404, "title": "", "date": "", "text": "", "type": ""}
MOST_HITS = 8  # for one perspective


class Library:
    """All that a run may read: pages, a search service, a folder. Every answer is kept, and replayed."""

    def __init__(self, call: Call, out: Path, desk: Desk) -> None:
        manifest = desk.run.manifest()
        self.door = Door(call, out)
        self.served, self.sensitivity = manifest.served, manifest.query.sensitivity
        self.settings = serving.settings()
        self.service = self.settings.search if self.served.service else None
        self.corpus = Corpus(Path(self.served.corpus), desk.root / "evidence/corpus.sqlite") if self.served.corpus else None
        if self.corpus and not self.door.shelf.recorded:
            self.corpus.build()

    @property
    def offline(self) -> bool:
        """Also where the settings have come to forbid it since the run began, and where no list says which hosts may be asked."""
        unlisted = self.sensitivity == "restricted" and not self.served.listed
        return self.sensitivity == "no_web" or not self.served.web or unlisted or self.settings.no_web

    @property
    def searches(self) -> bool:
        return bool(self.corpus) or (self.service is not None and not self.offline)

    def get(self, url: str) -> Got:
        try:
            if corpus.is_ours(url):
                return self._document(url)
            if self.offline:
                return Got(note="NO_WEB: nothing is fetched")
            page = self.door.get(url, "it is cited")
        except StrataError as error:  # refused, too slow, too large, not there: blocked, with the reason
            return Got(note=f"{error.code}: {error}"[:300])
        kind = page.evidence.headers.get("content-type", "")
        got = Got(page.evidence.status, page.evidence.final_url, content_type=kind)
        if not page.ok:
            return got
        try:
            text = page.readable()
        except StrataError as error:
            return Got(0, page.evidence.final_url, note=f"{error.code}: {error}"[:300])
        return replace(got, title=text.title, date=text.date, text=text.text)

    def _document(self, url: str) -> Got:
        if self.corpus is None:
            return Got(404, url, note="this run has no corpus")
        found = self._kept("READ", url, lambda: self._read(url))
        return Got(int(found["status"]), url, found["title"], found["date"], found["text"], content_type=found["type"])

    def _read(self, url: str) -> Json:
        assert self.corpus
        try:
            found = self.corpus.get(url)
        except StrataError as error:
            if error.code not in ("NOT_FOUND", "USAGE"):
                raise
            return NOT_THERE
        except OSError:  # it may not be read
            return NOT_THERE
        return {"status": 200, "title": found.title, "date": found.date, "text": found.text, "type": "pdf" if found.pages else ""}

    def search(self, query: str) -> list[Hit]:
        """Of the folder and of the service, in turns, each address once."""
        found: list[Hit] = []
        if self.corpus:
            folder = self.corpus
            rows = self._kept("SEARCH", f"http://{corpus.HOST}/?q={quote(query)}", lambda: _rows(folder.search(query, MOST_HITS)))
            found += [Hit(str(r["url"]), str(r["title"]), str(r["text"])) for r in rows]
        if self.service and not self.offline:
            url = self.service.url.replace("{query}", quote(query))
            page = self.door.get(url, f"search: {query}", self.service.headers()).require()
            found += _hits(page.json(), self.service)
        return list({hit.url: hit for hit in found}.values())

    def _kept(self, method: str, url: str, look: Callable[[], Any]) -> Any:
        """An answer of the folder, as evidence like one of the web: a recorded run replays without the folder."""
        asked, shelf = Fetched(method, url, "it is cited" if method == "READ" else "search", now()), self.door.shelf
        if shelf.recorded:
            return json.loads((self.door.session / shelf.replayed(asked).body).read_bytes())
        content = json.dumps(look(), ensure_ascii=False).encode()
        sha = files.digest_bytes(content)
        body = BODIES / sha
        files.write_atomic(self.door.session / body, content)
        shelf.keep(replace(asked, final_url=url, status=200, sha256=sha, size=len(content), body=str(body)))
        return json.loads(content)


def _rows(found: list[Hit]) -> list[Json]:
    return [{"url": hit.url, "title": hit.title, "text": hit.text} for hit in found]


def _hits(document: Any, service: serving.Service) -> list[Hit]:
    rows: Any = document
    for part in service.results.strip("/").split("/"):
        rows = cast(Json, rows)[part] if isinstance(rows, dict) and part in rows else None
    known = {"url": "url", "title": "title", "text": "content"} | service.fields
    listed = [cast(Json, row) for row in cast(list[Any], rows) if isinstance(row, dict)] if isinstance(rows, list) else []
    made = [Hit(*(str(row.get(known[name], "")) for name in ("url", "title", "text"))) for row in listed]
    return [hit for hit in made if claims.is_url(hit.url)]


def citations(at: At) -> Verdict:
    """citations_extract_urls, _normalize, _validate and gate C."""
    if not at.is_past("citations"):
        tools.use(at, "citations_extract_urls")
        named = tools.use(at, "citations_normalize")
        validate(at, Library(at.call, at.out, at), len(named))
        at.gate(tools.use(at, "gate_c_compute"))
        tools.advance(at, "what is cited was read")
    at.leave("entries.json", {"entries": sources.items(at.root)})
    return Verdict("done")


def validate(desk: Desk, library: Library, count: int = 0) -> Any:
    """citations_validate, as a call of a tool."""
    return desk.tool(tools.FETCHES, {"citations": count}, lambda: sources.validate(desk, library.get))


def search(at: At) -> Verdict:
    """Before a wave: where Python searches, what it finds is handed to each agent, with its text where the agent has no web."""
    (number,) = at.words
    stage = f"wave{number}"
    entries = planning.entries(at.root, stage)
    library = Library(at.call, at.out, at)
    listed: list[str] = []
    for entry in entries if library.searches else ():
        hits = _searched(library, entry, tools.BOUNDS[stage])
        listed += [f"{entry['perspective_id']}: {query}" for query in entry["queries"][: tools.BOUNDS[stage].searches]]
        entry["found_md"] = "\n".join(_found(at.out / "found" / str(entry["perspective_id"]), library, entry, hits))
    if listed:
        at.write_json(f"evidence/search/{stage}.json", {"searched": listed})
    readme = at.out / "found/README.md"
    readme.parent.mkdir(parents=True, exist_ok=True)
    readme.write_text(
        "\n".join(["# What was searched", "", *(f"- {line}" for line in listed or ["nothing, by Python"])]) + "\n",
        encoding="utf-8",
    )
    at.leave("entries.json", {"entries": entries})
    return Verdict("done", f"{len(listed)} searches")


def _searched(library: Library, entry: Json, bounds: Contract) -> list[Hit]:
    found: dict[str, Hit] = {}
    for query in entry["queries"][: bounds.searches]:
        for hit in library.search(str(query)):
            found.setdefault(hit.url, hit)
    return list(found.values())[:MOST_HITS]


def _found(folder: Path, library: Library, entry: Json, hits: list[Hit]) -> list[str]:
    """The list an agent is given. Texts stand in files where it has no web tools of its own."""
    lines: list[str] = []
    own = any(entry["max_uses"].values())
    for n, hit in enumerate(hits, 1):
        line = f"- {hit.title or hit.url} <{hit.url}>: {' '.join(hit.text.split())[:300]}"
        if corpus.is_ours(hit.url) or not own:
            got = library.get(hit.url)
            if got.text.strip():
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{n:02d}.md").write_text(f"{hit.url}\n\n{got.text}\n", encoding="utf-8")
                line += f" (all of it: {folder.name}/{n:02d}.md in the folder `found`)"
        lines.append(line)
    return lines or ["- nothing was found"]


def by_hand(at: At) -> Verdict:
    """citations_validate on its own, for an operator."""
    counts = validate(at, Library(at.call, at.out, at))
    return Verdict("done", ", ".join(f"{number} {kind}" for kind, number in counts.items() if number))


TICKS: dict[str, Callable[[At], Verdict]] = {"search": search, "citations": citations}


def tick(name: str, call: Call, task: Task, out: Path, words: tuple[str, ...]) -> Verdict:
    return At.of(call, task, out, words).tick(name, TICKS.get(name, by_hand))
