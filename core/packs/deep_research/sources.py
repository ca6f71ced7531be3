"""Nothing is cited that was not read: which addresses were named, what became of each, and every claim looked up in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.contract import Json
from lib.disk import files, records
from msgspec import Struct

from packs.deep_research import citing, claims, contract, planning
from packs.deep_research.at import Desk
from packs.deep_research.citing import Citation

CITATIONS, CLAIMS = "citations/citations.jsonl", "citations/claims.jsonl"


def extract(root: Path) -> dict[str, list[str]]:
    """Every address as it stands under Sources, or in a claim, with who named it."""
    found: dict[str, list[str]] = {}
    for name, path in planning.outputs(root).items():
        named = citing.extract(contract.sections(path.read_text(encoding="utf-8")).get("Sources", ""))
        for url in [*named, *(claim.url for claim in _claims(root, name) if claim.url)]:
            found.setdefault(url, [])
            if name not in found[url]:
                found[url].append(name)
    return found


def normalised(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """In their one form; what is no address is none."""
    made: dict[str, list[str]] = {}
    for url, who in found.items():
        try:
            names = made.setdefault(citing.normal(url), [])
        except ValueError:
            continue
        names += [name for name in who if name not in names]
    return made


def _claims(root: Path, name: str) -> list[claims.Claim]:
    path = root / f"{name}.claims.json"
    return claims.read(files.read_json(path)) if path.is_file() else []


class Got(Struct, frozen=True):
    """What came of fetching an address."""

    status: int = 0
    final_url: str = ""
    title: str = ""
    date: str = ""
    text: str = ""
    note: str = ""
    content_type: str = ""


def validate(desk: Desk, fetch: Callable[[str], Got]) -> dict[str, int]:
    """citations_validate: every address is fetched, kept and classified; every claim is looked up in what was read."""
    named = normalised(extract(desk.root))
    found = [_fetched(desk, url, who, fetch) for url, who in sorted(named.items())]
    looked = _look_up(desk.root, found)
    desk.write(CLAIMS, _lines(looked))
    desk.write(CITATIONS, _lines(found))  # last: with it, they are validated
    return {kind: sum(one.status == kind for one in found) for kind in citing.KINDS}


def _fetched(desk: Desk, url: str, who: list[str], fetch: Callable[[str], Got]) -> Citation:
    cid, got = citing.cid(url), fetch(url)
    body = f"evidence/pages/{cid}.txt" if got.text.strip() else ""
    if body:
        desk.write(body, got.text)
    sort = citing.sort(got.final_url or url, got.content_type)
    return Citation(
        cid, url, citing.kind(got.status), tuple(who), got.status, got.final_url, got.title, got.date, body, got.note, sort
    )


def _look_up(root: Path, found: list[Citation]) -> list[claims.Looked]:
    texts = {one.cid: root / one.body for one in found if one.usable and one.body}
    said = [
        (name, n, claim)
        for name in planning.outputs(root)
        for n, claim in enumerate(_claims(root, name), 1)
        if claims.is_url(claim.url)
    ]
    looked: dict[tuple[str, int], claims.Looked] = {}
    for name, n, claim in sorted(said, key=lambda one: one[2].url):  # those of one text together: it is prepared once
        looked[name, n] = claims.look(claim, name, n, texts)
    return [looked[name, n] for name, n, _ in said]


def items(root: Path) -> list[Json]:
    """What is summarised: each output, with those of its claims that were found again."""
    made: list[Json] = []
    every = read_claims(root)
    for name, path in planning.outputs(root).items():
        own = [shown(c) for c in every if c.perspective == name and c.supported]
        text = path.read_text(encoding="utf-8")
        made.append(
            {"name": name.replace("/", "-"), "output": name, "report_md": text, "claims": json.dumps(own, ensure_ascii=False)}
        )
    return made


def _lines(found: list[Any]) -> str:
    return "".join(json.dumps(records.document(one), ensure_ascii=False, sort_keys=True) + "\n" for one in found)


def read_claims(root: Path) -> list[claims.Looked]:
    return [records.of(one, claims.Looked) for one in _read(root / CLAIMS)]


def read_citations(root: Path) -> list[Citation]:
    return [records.of(one, Citation) for one in _read(root / CITATIONS)]


def _read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line] if path.is_file() else []


def shown(claim: claims.Looked) -> Json:
    """As an agent is given it."""
    known = {"id": claim.id, "text": claim.text, "cid": claim.cid, "quote": claim.quote}
    return known | ({"against": claim.against} if claim.against else {})
