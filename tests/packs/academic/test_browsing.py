"""Portals and search pages in a real browser: what is read, what is tried again, what a person is asked, and what it may not load."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from lib.contract import AsksPerson, Json, StrataError
from lib.plan.task import Output, Task
from packs.academic import browsing
from packs.academic.at import At, Step, carry_out
from scripted_model.academic_desk import CHROMIUM, needs_browser
from scripted_model.academic_library import Library, slow, times
from support import ROOT

pytestmark = needs_browser
FIELD = {"key": "geography", "portal": "Local", "discipline": "Geography"}
NO: Any = (503, {}, b"overloaded")


def query(database: str = "Alpha Index", interface: str = "alpha", page: int = 1) -> Json:
    words = "(trees OR canopy) AND night"
    return {
        "key": database,
        "database": database,
        "interface": interface,
        "query": words,
        "page": page,
        "iteration": page,
        "size": 25,
    }


class Reader:
    """Walks as one step of a run would, in this process."""

    def __init__(self, folder: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.library, self.root = folder, library, folder / "run"
        (self.root / "config").mkdir(parents=True)
        shutil.copyfile(ROOT / "config/packs/academic/examples/run_config.json", self.root / "config/run_config.json")
        (folder / ".strata").mkdir()
        (folder / ".strata/web.yaml").write_text(
            f"version: 1\nprivate: ['127.0.0.1:{library.port}']\nrobots: false\ndelay_seconds: 0\n"
        )
        monkeypatch.setattr("lib.disk.places.roots", lambda: [folder / ".strata"])
        self.configure()

    def configure(self, **browser: Any) -> None:
        settings = self.library.settings()
        settings["browser"] = settings["browser"] | browser
        (self.root / "config/academic_settings.yaml").write_text(yaml.safe_dump(settings))

    def at(self, name: str, item: Json, answer: Any = None, driver: str = "live") -> At:
        session = self.folder / ("session" if driver == "live" else "again")
        out = session / f"trial/stages/01-{name}/attempt-1/out"
        out.mkdir(parents=True, exist_ok=True)
        options = Namespace(fixtures=str(self.folder / "session"))
        call: Any = SimpleNamespace(
            driver=driver, options=options, session=SimpleNamespace(folder=session), report=lambda *_: None, cwd=self.folder
        )
        task = Task(action="X", item=item, outputs=(Output("found", "found.json"),), answer=answer)
        return At(call, task, out, "run")

    def reads(self, work: Any, name: str, item: Json, **more: Any) -> Json:
        at = self.at(name, item, **more)
        carry_out(at, Step(0 if work is browsing.portal else 2, "browse", work, "key"))
        return json.loads((at.out / "found.json").read_text())

    @property
    def state(self) -> Json:
        return json.loads((self.root / "research_state.json").read_text())

    @property
    def health(self) -> str:
        return (self.root / "logs/cdp_health.log").read_text()


@pytest.fixture
def reader(tmp_path: Path, library: Library, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, library, monkeypatch)


def test_a_portal_is_walked_page_by_page_and_again_offline(reader: Reader) -> None:
    live = reader.reads(browsing.portal, "portal", FIELD)
    assert [row["name"] for row in live["rows"]] == ["Alpha Index", "OpenAlex", "Old Card File", "Beta Abstracts", "arXiv"]
    assert live["rows"][0] == {
        "name": "Alpha Index", "url": f"{reader.library.url}/alpha", "relevance": "top", "discipline": "Geography",
    }  # fmt: skip
    assert "with a clean profile" in reader.health and "closed" in reader.health
    seen = len(reader.library.seen)
    assert reader.reads(browsing.portal, "portal", FIELD, driver="replay") == live
    assert len(reader.library.seen) == seen, "nothing is asked of the network"


@pytest.mark.long
def test_a_search_is_typed_into_a_form_and_its_results_are_read_when_a_script_has_written_them(reader: Reader) -> None:
    first = reader.reads(browsing.search, "first", query())
    second = reader.reads(browsing.search, "second", query(page=2))
    titles = [r["title"] for found in (first, second) for r in found["records"]]
    assert len(titles) == len(set(titles)) == 7 == first["hits"], "two pages of two a round, and no page twice"
    assert first["records"][0]["authors"] and first["records"][0]["year"] in range(2018, 2026)
    assert reader.reads(browsing.search, "first", query(), driver="replay")["records"] == first["records"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("broken", "tries", "code"),
    [pytest.param(2, 3, "", marks=pytest.mark.long), pytest.param(3, 4, "", marks=pytest.mark.long), (9, 4, "HTTP_503")],
    ids=["twice", "three times", "always"],
)
def test_a_portal_that_is_down_is_tried_three_times_more_each_after_a_longer_wait(
    reader: Reader, broken: int, tries: int, code: str
) -> None:
    reader.library.trouble["/portal"] = times(broken, NO)
    if code:
        with pytest.raises(StrataError) as refused:
            reader.reads(browsing.portal, "portal", FIELD)
        assert refused.value.code == code
        assert reader.state["errors"][-1]["phase"] == 0 and code in reader.state["errors"][-1]["error"]
    else:
        assert reader.reads(browsing.portal, "portal", FIELD)["rows"]
    assert reader.library.counts()["/portal"] == tries + (0 if code else 1), "and then its second page"
    waits = [one["after_seconds"] for one in reader.state["retries"]]
    assert all(least - 0.01 <= one <= least * 1.1 + 0.01 for one, least in zip(waits, (0.05, 0.15, 0.45), strict=False))
    assert len(waits) == tries - 1
    assert all(one["why"].startswith("HTTP_503") for one in reader.state["retries"]), "it is said what was retried and why"


@pytest.mark.parametrize("status", [pytest.param(401, marks=pytest.mark.long), 403, pytest.param(404, marks=pytest.mark.long)])
def test_what_a_site_refuses_for_good_is_not_tried_again(reader: Reader, status: int) -> None:
    reader.library.trouble["/portal"] = lambda: (status, {}, b"no")
    with pytest.raises(StrataError) as refused:
        reader.reads(browsing.portal, "portal", FIELD)
    assert refused.value.code == f"HTTP_{status}" and reader.library.counts()["/portal"] == 1
    with pytest.raises(StrataError, match=f"{status}"):
        reader.reads(browsing.portal, "portal", FIELD, driver="replay")


def test_a_captcha_is_a_persons_and_the_page_is_shown(reader: Reader) -> None:
    reader.library.captcha = True
    with pytest.raises(AsksPerson) as asked:
        reader.reads(browsing.search, "one", query())
    assert "wants to see that you are a person" in asked.value.message
    (picture,) = (Path(p) for p in asked.value.detail["show"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert reader.state["waiting"]["stage"] == "browse/Alpha Index" and reader.state["retries"] == []
    assert reader.library.counts()["/alpha"] == 1, "a CAPTCHA is not tried again"
    with pytest.raises(StrataError) as skipped:
        reader.reads(browsing.search, "one", query(), answer="skip")
    assert skipped.value.code == "SKIPPED"
    reader.library.captcha = False
    assert reader.reads(browsing.search, "one", query(), answer="yes")["records"]


@pytest.mark.long
def test_a_login_that_has_expired_is_asked_for_and_then_the_search_goes_on(reader: Reader) -> None:
    item = query("Beta Abstracts", "beta")
    with pytest.raises(AsksPerson, match="wants somebody to log in"):
        reader.reads(browsing.search, "one", item)
    reader.library.logged_in = True
    found = reader.reads(browsing.search, "one", item, answer="yes")
    assert found["hits"] == 7 and len(found["records"]) == 5


@pytest.mark.long
def test_a_browser_that_dies_is_started_again_with_a_clean_profile(reader: Reader, tmp_path: Path) -> None:
    """The first one is killed while its page is on its way; it had the profile that is kept."""
    died, command = tmp_path / "died", tmp_path / "browser"
    kill = f"[ -e {died} ] || {{ touch {died}; sleep 2; kill -9 $$; }} &"
    command.write_text(f'#!/bin/sh\n{kill}\nexec {CHROMIUM} "$@"\n')
    command.chmod(0o755)
    reader.configure(command=str(command), profiles=str(tmp_path / "profiles"))
    reader.library.trouble["/portal"] = slow(4)
    found = reader.reads(browsing.portal, "portal", FIELD)
    assert len(found["rows"]) == 5
    assert [one["why"].partition(":")[0] for one in reader.state["retries"]] == ["BROWSER_CRASHED"]
    started = [line.partition(" with ")[2] for line in reader.health.splitlines() if " started " in line]
    assert started[0] == str(tmp_path / "profiles/Local") and started[1] == "a clean profile"
    assert "crashed:" in reader.health


def test_a_page_loads_nothing_that_the_door_would_refuse(reader: Reader) -> None:
    """A page of a stranger points at another service of this machine, and at the metadata of a cloud."""
    with Library() as other:
        there = f'<img src="{other.url}/pdf/night.pdf"><script src="http://169.254.169.254/latest/"></script>'
        rows = '<table><tr class="db"><td class="name">Only</td><td><a href="/x">x</a></td></tr></table>'
        body = f"<!doctype html><html><body>{there}{rows}</body></html>".encode()
        reader.library.trouble["/portal"] = lambda: (200, {"Content-Type": "text/html"}, body)
        assert [row["name"] for row in reader.reads(browsing.portal, "portal", FIELD)["rows"]] == ["Only"]
        assert other.seen == []


def test_a_redirect_leads_nowhere_that_the_door_would_refuse(reader: Reader) -> None:
    """An allowed host sends the browser on to a service of this machine that is not allowed: as a page, as a picture, as a script."""
    with Library() as other:
        inner = f"{other.url}/portal?discipline=Secrets"
        reader.library.trouble["/portal"] = lambda: (302, {"Location": inner}, b"")
        with pytest.raises(StrataError) as refused:
            reader.reads(browsing.portal, "portal", FIELD)
        assert refused.value.code == "HTTP_403"
        picture = f'<img src="{reader.library.url}/jump"><script>fetch("{reader.library.url}/jump", {{mode: "no-cors"}})</script>'
        rows = '<table><tr class="db"><td class="name">Only</td><td><a href="/x">x</a></td></tr></table>'
        body = f"<!doctype html><html><body>{picture}{rows}</body></html>".encode()
        reader.library.trouble["/portal"] = lambda: (200, {"Content-Type": "text/html"}, body)
        reader.library.trouble["/jump"] = lambda: (302, {"Location": inner}, b"")
        assert reader.reads(browsing.portal, "again", FIELD)["rows"]
        assert reader.library.asked("/jump") >= 1 and other.seen == []


@pytest.mark.long
def test_a_page_without_a_result_is_an_answer_and_no_timeout(reader: Reader) -> None:
    reader.configure(page_seconds=2, retry_seconds=[])
    body = b"<!doctype html><html><body>Nothing matches.</body></html>"
    reader.library.trouble["/portal"] = lambda: (200, {"Content-Type": "text/html"}, body)
    assert reader.reads(browsing.portal, "portal", FIELD)["rows"] == []


@pytest.mark.long
def test_a_captcha_behind_a_403_asks_a_person_too(reader: Reader) -> None:
    body = b'<!doctype html><html><body><div id="captcha">Are you?</div></body></html>'
    reader.library.trouble["/portal"] = lambda: (403, {"Content-Type": "text/html"}, body)
    with pytest.raises(AsksPerson, match="profiles"):
        reader.reads(browsing.portal, "portal", FIELD)


@pytest.mark.long
def test_a_page_that_never_comes_is_given_up(reader: Reader) -> None:
    reader.configure(page_seconds=1, retry_seconds=[0.05])
    reader.library.trouble["/portal"] = slow(3)
    with pytest.raises(StrataError) as refused:
        reader.reads(browsing.portal, "portal", FIELD)
    assert refused.value.code == "TIMEOUT" and len(reader.state["retries"]) == 1


def test_without_a_browser_it_is_said_what_to_do(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PROGRAMS", ("no-such-browser",))
    with pytest.raises(StrataError, match="no Chromium") as refused:
        reader.reads(browsing.portal, "portal", FIELD)
    assert "apt-get install chromium" in refused.value.hint and "retries" not in json.dumps(reader.state.get("retries"))
