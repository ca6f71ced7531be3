"""Nothing is cited that was not read: every address is fetched, kept and classified, and every claim is looked up in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.attempt.verdicts import Verdict
from lib.contract import Json
from lib.disk import files, records
from msgspec import Struct

from packs.deep_research import citing, claims, contract, gating
from packs.deep_research.at import At
from packs.deep_research.citing import Citation


def outputs(root: Path) -> list[str]:
    """What both waves have left, by the plans; retries beside them are no perspectives."""
    found: list[str] = []
    for number in ("1", "2"):
        plan = root / f"wave-{number}" / f"wave{number}-plan.json"
        names = [entry["perspective_id"] for entry in files.read_json(plan)["entries"]] if plan.is_file() else []
        found += [f"wave-{number}/{name}" for name in names if (root / f"wave-{number}" / f"{name}.md").is_file()]
    return found


def extract(at: At) -> dict[str, list[str]]:
    """citations_extract_urls and citations_normalize: by address in its one form, who named it."""
    found: dict[str, list[str]] = {}
    for name in outputs(at.root):
        text = (at.root / f"{name}.md").read_text(encoding="utf-8")
        said = claims.read(files.read_json(at.root / f"{name}.claims.json"))
        for url in [*citing.extract(contract.sections(text).get("Sources", "")), *(claim.url for claim in said)]:
            try:
                found.setdefault(citing.normal(url), [])
            except ValueError:
                continue
            if name not in found[citing.normal(url)]:
                found[citing.normal(url)].append(name)
    return found


class Got(Struct, frozen=True):
    """What came of fetching an address."""

    status: int = 0
    final_url: str = ""
    title: str = ""
    date: str = ""
    text: str = ""
    note: str = ""


def citations(at: At, fetch: Callable[[str], Got]) -> Verdict:
    """citations_validate and gate C: every address is fetched, kept and classified; every claim is looked up in what was read."""
    if not at.is_past("citations"):
        named = at.tool("citations_extract_urls", {"outputs": outputs(at.root)}, lambda: extract(at))
        at.tool("citations_normalize", {"urls": len(named)}, lambda: sorted(named))
        found = [_fetched(at, url, who, fetch) for url, who in sorted(named.items())]
        at.write("citations/citations.jsonl", _lines(found))
        counts = {kind: sum(one.status == kind for one in found) for kind in citing.KINDS}
        at.tool("citations_validate", {"citations": len(found)}, lambda: counts)
        looked = _look_up(at, found)
        at.write("citations/claims.jsonl", _lines(looked))
        decision = at.tool("gate_c_compute", {"citations": len(found)}, lambda: gating.citations(found))
        at.gate(decision)
        at.advance("what is cited was read")
    items = [{"name": name.replace("/", "-"), "output": name} for name in outputs(at.root)]
    for item in items:
        own = [c for c in read_claims(at.root) if c.perspective == item["output"] and c.supported]
        item["report_md"] = (at.root / f"{item['output']}.md").read_text(encoding="utf-8")
        item["claims"] = json.dumps(
            [{"id": c.id, "text": c.text, "cid": c.cid, "quote": c.quote} for c in own], ensure_ascii=False
        )
    at.leave("entries.json", {"entries": items})
    return Verdict("done")


def _fetched(at: At, url: str, who: list[str], fetch: Callable[[str], Got]) -> Citation:
    cid = citing.cid(url)
    got = fetch(url)
    body = f"evidence/pages/{cid}.txt" if got.text.strip() else ""
    if body:
        at.write(body, got.text)
    return Citation(cid, url, citing.kind(got.status), tuple(who), got.status, got.final_url, got.title, got.date, body, got.note)


def _look_up(at: At, found: list[Citation]) -> list[claims.Looked]:
    texts = {one.cid: at.root / one.body for one in found if one.usable and one.body}
    looked: list[claims.Looked] = []
    for name in outputs(at.root):
        said = claims.read(files.read_json(at.root / f"{name}.claims.json"))
        looked += [claims.look(claim, name, n, texts) for n, claim in enumerate(said, 1) if claim.url]
    return looked


def _lines(found: list[Any]) -> str:
    return "".join(json.dumps(records.document(one), ensure_ascii=False, sort_keys=True) + "\n" for one in found)


def read_claims(root: Path) -> list[claims.Looked]:
    lines = (root / "citations/claims.jsonl").read_text(encoding="utf-8").splitlines()
    return [records.of(json.loads(line), claims.Looked) for line in lines]


def read_citations(root: Path) -> list[Citation]:
    lines = (root / "citations/citations.jsonl").read_text(encoding="utf-8").splitlines()
    return [records.of(json.loads(line), Citation) for line in lines]


def shown(claim: claims.Looked) -> Json:
    """As an agent is given it."""
    return {"id": claim.id, "text": claim.text, "cid": claim.cid, "quote": claim.quote}
