"""The shipped orchestrator `review`, from three reviewers to checks that are green: a question, tasks in order, a loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_model.server import Request, say, tool
from support import House

pytestmark = pytest.mark.rehearsed
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b  # and not minus\n"  # of another length, or Python takes the compiled one
TEST = "from calc import add\n\n\ndef test_add() -> None:\n    assert add(2, 3) == 5\n"


class Scripted:
    """Two reviewers find something, one fails; the first fix is wrong, the second right."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.plans = 0
        self.told: list[str] = []

    def __call__(self, r: Request) -> Any:
        agent = r.prompt.split()[0]
        if agent == "/reviewer":
            side = r.prompt.split()[1]
            if side == "clarity":
                return say("I could not read anything.")  # no structured answer: it fails
            found = {"severity": "critical", "claim": f"add subtracts ({side})", "where": "calc.py:2"}
            return self.structured(r, {"findings": [found]})
        if agent == "/fix-planner":
            self.told.append(r.prompt)
            self.plans += 1
            first = {"id": "test-first", "goal": "a test says what add does", "files": ["test_calc.py"]}
            second = {"id": "fix-add", "goal": "add adds", "files": ["calc.py"], "after": ["test-first"], "seconds": 60}
            return self.structured(r, {"tasks": [first, second] if self.plans == 1 else [second | {"after": []}]})
        if r.turn > 0:
            return say("DONE: yes")
        name = r.prompt.split()[1]
        if name == "test-first":
            return say(tool("Write", file_path=str(self.house.workspace / "test_calc.py"), content=TEST))
        text = WRONG.replace("-", "*") if self.plans == 1 else RIGHT
        return say(tool("Write", file_path=str(self.house.workspace / "calc.py"), content=text))

    def structured(self, r: Request, data: Any) -> Any:
        return say(tool("StructuredOutput", **data)) if r.turn == 0 else say("done")


def test_a_folder_is_reviewed_and_fixed_behind_a_yes(house: House, model) -> None:
    (house.workspace / "calc.py").write_text(WRONG)
    scripted = Scripted(house)
    model(scripted)
    session = str(house.folder / "s")
    ran = house.json("orchestrator", "review", "--param", "about=the sums", "--session-dir", session)
    assert ran.code == 3, ran.stderr
    assert ran.document["waiting"]["choices"] == ["yes", "again", "no"]
    shown = Path(ran.document["waiting"]["show"][0]).read_text()
    assert shown.startswith("# Review of the sums") and "(correctness)" in shown and "(security)" in shown
    done = house.json("orchestrator", "--resume", session, "--answer", "decide=yes", timeout=200)
    assert done.code == 0, done.stderr
    assert (house.workspace / "calc.py").read_text() == RIGHT
    assert any("clarity did not succeed" in warning for warning in done.document["warnings"])
    assert scripted.plans == 2 and "checked:" in scripted.told[1] and "before:" in scripted.told[1], (
        "it is told why, and what was"
    )
    listed = house.json("session", "outputs", session, "--type", "findings").document["outputs"]
    assert [o["dimensions"] for o in listed] == [{"side": "correctness"}, {"side": "security"}]


def test_no_ends_it_and_again_looks_once_more(house: House, model) -> None:
    (house.workspace / "calc.py").write_text(WRONG)
    model(Scripted(house))
    session = str(house.folder / "s")
    assert house.json("orchestrator", "review", "--session-dir", session).code == 3
    assert house.json("orchestrator", "--resume", session, "--answer", "decide=again").code == 3
    assert (house.folder / "s/review/stages/01-look/round-2").is_dir()
    no = house.json("orchestrator", "--resume", session, "--answer", "decide=no")
    assert (no.code, no.error["code"]) == (1, "REJECTED")
    assert json.loads((house.folder / "s/review/manifest.json").read_text())["stages"][-1]["status"] == "not-run"
