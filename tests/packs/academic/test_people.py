"""People: set it up, be asked five times, answer at once or later, change their minds, edit files in between, pack it."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packs.academic import operating
from packs.academic.folder import Folder
from scripted_model import academic_papers
from scripted_model.academic_desk import Desk
from support import House, Ran, at_a_terminal

pytestmark = pytest.mark.rehearsed


class Person:
    """Who calls academic.py on a run that asks."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.house = desk, desk.house

    def says(self, *words: str, timeout: float = 250) -> Ran:
        return self.house.json("academic", *words, timeout=timeout)

    def answers(self, *words: str) -> Ran:
        return self.says("answer", self.desk.name, *words)

    def stands(self) -> dict[str, Any]:
        return self.says("status", self.desk.name).document

    def edits(self, file: str, how: Callable[[Any], Any]) -> None:
        path = self.desk.root / file
        path.write_text(json.dumps(how(json.loads(path.read_text()))))


@pytest.fixture
def person(desk: Desk) -> Person:
    desk.configure(checkpoints={}, search={"max_iterations": 1})
    return Person(desk)


def count(desk: Desk, agent: str) -> int:
    return sum(one.startswith(agent) for one in desk.scholars.asked)


@pytest.mark.long
def test_a_person_is_asked_five_times_and_every_answer_does_what_it_says(person: Person) -> None:
    """One run: yes, adjust, a pick, an edit, and later a change of mind. What does not depend on it is not done again."""
    desk = person.desk
    ran = person.says("run", desk.name)
    assert ran.code == 3, ran.stderr[-2000:]
    assert "answer" in ran.error["hint"] and "yes" in ran.error["hint"]
    assert person.stands()["waits"].startswith("Shall these databases be searched?")
    assert person.says("run", desk.name).code == 3, "asking again changes nothing"

    person.edits("metadata/databases.json", lambda d: d | {"databases": [x for x in d["databases"] if x["name"] != "arXiv"]})
    assert person.answers("yes").code == 3
    strings = desk.read("metadata/search_strings.json")
    assert "arXiv" not in strings["databases"], "an edit is kept, and what is behind it uses it"
    assert count(desk, "search-strategist") == 1
    assert "hits" in person.stands()["waits"]

    assert person.answers("adjust:", "say", "canopy", "first").code == 3
    assert count(desk, "search-strategist") == 2
    assert "say canopy first" in desk.scholars.notes[-1], "the note reaches the agent"
    assert desk.library.asked("/arxiv") == 0

    assert person.answers("yes").code == 3
    assert person.stands()["waits"].startswith("Which papers shall be read?")
    wrong = person.answers("the", "good", "ones")
    assert wrong.code in (1, 3) and desk.library.asked("/pdf/") == 0
    assert person.answers("top", "4").code == 3
    assert [d["id"] for d in desk.read("downloads/downloads.json")["downloads"]] and desk.read("downloads/downloads.json")[
        "success_count"
    ] == 3
    assert sum(one["selected"] for one in desk.read("metadata/ranked_candidates.json")["ranked"]) == 4
    assert person.stands()["waits"].startswith("Are these the quotes?")

    gone = desk.read("outputs/quotes.json")["quotes"][0]["quote"]
    invented = "Trees warm every night by nine kelvin, whatever the street."
    person.edits(
        "outputs/quotes.json",
        lambda d: d | {"quotes": [*d["quotes"][1:], d["quotes"][1] | {"quote_id": "Q0099", "quote": invented}]},
    )
    assert person.answers("yes").code == 3
    library = (desk.root / "outputs/quote_library.json").read_text()
    assert gone not in library, "what a person takes out stays out"
    assert invented not in library, "what a person puts in is looked up like everything else"
    assert "Q0099 is left out" in (desk.root / "logs/phase_6.log").read_text()
    assert count(desk, "quote-extractor") == 3

    assert person.answers("yes").code == 0
    assert set(desk.state["phase_status"].values()) == {"completed"}
    asked = list(desk.scholars.asked)
    assert person.says("run", desk.name).code == 0
    assert desk.scholars.asked == asked, "a finished run asks nobody anything"
    done = person.answers("yes")
    assert done.code == 1 and done.error["code"] == "NOT_WAITING"

    packed = person.says("export", desk.name)
    assert packed.code == 0
    with zipfile.ZipFile(packed.document["file"]) as pack:
        assert "outputs/bibliography.bib" in pack.namelist() and "SHA256SUMS" in pack.namelist()
        assert not [n for n in pack.namelist() if "profile" in n]

    assert person.says("phase", "3", desk.name).code == 3, "a phase is done again on purpose, and asks again"
    assert count(desk, "candidate-assessor") == 2 and count(desk, "quote-extractor") == 3


def test_no_stops_and_says_so_and_nothing_behind_it_is_done(person: Person) -> None:
    assert person.says("run", person.desk.name).code == 3
    ran = person.answers("no")
    assert ran.code == 1 and "stopped the run behind phase 0" in json.dumps(ran.document)
    assert person.desk.scholars.asked == []
    assert person.desk.state["phase_status"]["0"] == "failed"


@pytest.mark.long
def test_at_a_terminal_the_questions_come_at_once(person: Person) -> None:
    typed = [("Enter for later", f"{word}\n") for word in ("yes", "yes", "perhaps", "1-3", "yes", "yes")]
    code, shown = at_a_terminal(person.house, "academic", typed, "run", person.desk.name)
    assert code == 0, shown[-3000:]
    assert "is none of these" in shown
    assert sum(one["selected"] for one in person.desk.read("metadata/ranked_candidates.json")["ranked"]) == 3


@pytest.mark.long
def test_an_edit_behind_the_end_does_again_what_depends_on_it_and_nothing_else(desk: Desk) -> None:
    person = Person(desk.configure(search={"max_iterations": 1}))
    assert person.says("run", desk.name).code == 0
    before = list(desk.scholars.asked)
    person.edits(
        "metadata/ranked_candidates.json", lambda d: d | {"ranked": [one | {"selected": one["rank"] <= 2} for one in d["ranked"]]}
    )
    assert person.says("run", desk.name).code == 0
    assert len(desk.read("outputs/quote_library.json")["sources"]) == 2
    again = desk.scholars.asked[len(before) :]
    assert not [one for one in again if one.startswith(("search-strategist", "candidate-assessor"))], again
    assert desk.state["edits"][-1]["file"] == "metadata/ranked_candidates.json"


def test_setup_asks_for_what_it_needs(house: House) -> None:
    nobody = house.json("academic", "setup", "mine")
    assert nobody.code == 1 and "--question" in nobody.error["hint"]
    typed = [
        ("found out?", "Trees?\n"),
        ("found out?", "Do street trees cool the night in recent studies?\n"),
        ("called that it is for", "Trees\n"),
        ("keywords", "street trees, night\n"),
        ("Which fields?", "Alchemy\n"),
        ("Which fields?", "Geography\n"),
        ("Which databases?", "\n"),
        ("mail address", "\n"),
        ("From which year on?", "2019\n"),
    ]
    code, shown = at_a_terminal(house, "academic", typed, "setup", "mine")
    assert code == 0, shown
    made = json.loads((house.workspace / "mine/config/run_config.json").read_text())
    assert made["research_question"].startswith("Do street trees cool the night") and len(made["databases"]) == 4
    assert made["period"] == {"from": 2019, "to": None} and "is too short" in shown and "is not one of" in shown
    assert "## Context" in (house.workspace / "mine/config/Trees_Config.md").read_text()
    flags = ["--question", "Is it else by now?", "--project", "Trees", "--keywords", "a", "--disciplines", "Geography"]
    again = house.json("academic", "setup", "mine", *flags)
    assert again.code == 1 and again.error["code"] == "EXISTS"
    forced = house.json("academic", "setup", "mine", *flags, "--force")
    assert forced.code == 0 and json.loads(Path(forced.document["kept"]).read_text()) == made, "nothing is lost"
    doubtful = house.json("academic", "setup", "fourth", *flags[:1], "What do the latest papers say?", *flags[2:])
    assert doubtful.code == 1 and "'latest' may mean" in doubtful.error["message"] and "--from-year" in doubtful.error["hint"]
    wrong = house.json(
        "academic", "setup", "other", "--question", "Q?", "--project", "T", "--keywords", "a", "--disciplines", "Alchemy"
    )
    assert wrong.code == 1 and "Alchemy" in wrong.error["message"] and "Geography" in json.dumps(wrong.error)
    assert not (house.workspace / "other").exists()
    assert house.json("academic", "status", "mine").document["next"].endswith("mine"), "set up, and not begun"
    from_file = house.json("academic", "setup", "third", "--config", "mine/config/run_config.json")
    assert from_file.code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "of which run"),
        (["run", "nowhere"], "setup"),
        (["status", "nowhere"], "setup"),
        (["phase", "9", "nowhere"], "0 to 6"),
        (["answer", "nowhere", "yes"], "setup"),
        (["export", "nowhere"], "setup"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_wrong_call_says_what_to_do(house: House, words: list[str], says: str) -> None:
    ran = house.json("academic", *words)
    assert ran.code == 1
    assert says in json.dumps(ran.error)


@pytest.mark.long
def test_two_runs_at_once_do_not_meet(desk: Desk) -> None:
    second = Desk(desk.house, desk.library, desk.scholars, "other").configure(search={"max_iterations": 1})
    desk.configure(search={"max_iterations": 1})
    words = ("academic", "run", second.name, "--output-format", "json")
    with desk.house.start(*words) as child:
        ran = Person(desk).says("run", desk.name)
        code = child.wait(250)
    assert (ran.code, code) == (0, 0)
    for one in (desk, second):
        assert len(one.read("outputs/quote_library.json")["quotes"]) == 8
    shutil.rmtree(second.root)


def test_of_two_who_wait_at_once_the_one_that_still_does_is_named(house: House) -> None:
    """Two search pages show a CAPTCHA each; one was answered."""
    root = house.workspace / "run"
    state = Folder(root).state
    waits = [
        {"stage": "browse", "item": name, "question": f"Is it settled at {name}?", "choices": ["yes", "skip"]}
        for name in ("alpha", "beta")
    ]

    def named(asked: list[dict[str, Any]]) -> Any:
        operating.noted(root, {"exit_code": 3, "waiting": asked[0] | {"questions": asked}})
        return state.read().waiting

    assert named(waits).stage == "browse/alpha"
    assert named(waits[::-1]).stage == "browse/alpha", "which still waits"
    second = named(waits[1:])
    assert (second.stage, second.phase, second.choices) == ("browse/beta", 2, ("yes", "skip"))
    third = named([{"stage": "check3", "question": "Which?"}])
    assert (third.stage, third.phase) == ("check3", 3)


def test_a_profile_with_a_login_is_not_packed(house: House) -> None:
    root = house.workspace / "run"
    (root / "profiles/Local").mkdir(parents=True)
    (root / "profiles/Local/Cookies").write_text("secret")
    (root / "config").mkdir()
    (root / "config/academic_settings.yaml").write_text(f"version: 1\nbrowser: {{profiles: {root}/profiles}}\n")
    (root / "config/profiles_of_authors.md").write_text("mine")
    Folder(root).state.begin("run", house.folder)
    packed = house.json("academic", "export", "run")
    assert packed.code == 0, packed.stderr
    with zipfile.ZipFile(packed.document["file"]) as pack:
        assert "config/profiles_of_authors.md" in pack.namelist() and not [n for n in pack.namelist() if "Cookies" in n]


def test_the_question_of_the_story_is_the_quickstarts() -> None:
    assert "street trees" in academic_papers.QUESTION
