"""A fifth system, in a folder outside the house: pack, params, roster, accept, web and outputs, with nothing changed in core/."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Request, say, tool
from support import ROOT, House, Ran

pytestmark = pytest.mark.rehearsed
PORT = 18766
PRICES = {"/lamp": "40 euro", "/chair": "90 euro"}


@contextmanager
def shop() -> Iterator[Counter[str]]:
    """Says the price of the chair only when it is asked a second time."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            known = self.path in PRICES
            price = PRICES.get(self.path, "") if self.path == "/lamp" or asked[self.path] > 1 else "soon"
            words = f"The {self.path[1:]} is a fine thing for every home, and it is made to last for a very long time. "
            told = f"{words}Its price is {price} at this shop, today and tomorrow."
            text = f"<html><body><article><p>{told}</p></article></body></html>"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()


def comparer(r: Request) -> Any:
    return say(tool("Write", file_path=r.path("comparison"), content="# The lamp\n")) if r.turn == 0 else say("DONE: yes")


def run(house: House, session: Path, *flags: str) -> Ran:
    words = ["plan.yaml", "--param", f"shop=http://127.0.0.1:{PORT}", "--param", "products=lamp,chair,table"]
    return house.json("campaign", *words, "--session-dir", str(session), *flags, timeout=280)


def test_it_runs_records_and_replays_with_the_shop_closed(house: House, model, tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "tests/skeletons/prices", project)
    before = sorted(str(p) for p in (house.folder / "core").rglob("*.py"))
    there = House.at(house, project)
    model(comparer)
    one, two = tmp_path / "one", tmp_path / "two"
    with shop() as asked:
        ran = run(there, one, "--driver", "record")
    assert ran.code == 12, ran.stderr
    assert asked == {"/robots.txt": 1, "/lamp": 1, "/chair": 2, "/table": 1}, "what is final is not asked for twice"
    found = json.loads((one / "outputs.json").read_text())
    offers = {o["dimensions"]["product"]: o for o in found["outputs"] if o["type"] == "offer"}
    assert set(offers) == {"lamp", "chair"} and offers["lamp"]["tags"] == ["price"]
    assert found["summary"]["products"] == ["lamp", "chair"]
    roster = json.loads(next(one.glob("phases/*/artifacts/prices/01-pages/roster.json")).read_text())
    ended = {entry["key"]: (entry["status"], entry["code"], entry["dimensions"]) for entry in roster["entries"]}
    assert ended["table"] == ("failure", "HTTP_404", {"product": "table"})
    assert ended["chair"][0] == "success"
    shown = there.json("session", "show", str(one)).document["found"]
    assert shown["orchestrator prices/prices"].startswith(str(project)) and "tool prices/fetch_offer" in shown
    again = run(there, two, "--driver", "replay", "--fixtures", str(one))
    assert again.code == 12, again.stderr
    same = json.loads((two / "outputs.json").read_text())
    assert [(o["id"], o["sha256"]) for o in same["outputs"]] == [(o["id"], o["sha256"]) for o in found["outputs"]]
    assert sorted(str(p) for p in (house.folder / "core").rglob("*.py")) == before
    assert str(project / "packs/prices/tools/fetch_offer.py") in json.dumps(json.loads((one / "places.json").read_text()))
