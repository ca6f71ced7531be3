"""Nothing runs away: money, agents, tokens and time are counted for the whole tree, by every process in it."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from pathlib import Path

import pytest
from lib.contract import StrataError
from lib.process import keeper
from lib.session import budget
from lib.session.ledger import Figures, Ledger, Reservation
from lib.session.ledger_lines import Line
from lib.session.step import Step
from scripted_model.server import by_agent, say, scripted, turns
from support import House, Ran, wait_for, with_marker

STEP = Step("phase-01-one", "o", "01-a")


def session(folder: Path, **limits: float) -> Ledger:
    (folder / "budget.json").write_text(json.dumps({"": limits}))
    return Ledger(folder)


def at_once(tmp_path: Path, cost: float) -> tuple[list[int], float]:
    """Sixteen agents, each with a descriptor of its own, as in processes of their own, and all at the same moment. Returns how
    they fared, and the most that was held at one time."""
    together = threading.Barrier(16)
    codes: list[int] = []
    most: list[float] = []

    def start(number: int) -> None:
        ledger = Ledger(tmp_path)
        together.wait()
        try:
            room = ledger.reserve(STEP, "x", str(number), 1.0)
            most.append(Ledger(tmp_path).figures().held)
            time.sleep(0.05)
            ledger.settle(room, cost, 0, "reported")
            codes.append(0)
        except StrataError as error:
            codes.append(int(error.exit_code))

    threads = [threading.Thread(target=start, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(codes), max(most)


def test_who_finds_no_room_waits_for_those_who_hold_it(tmp_path: Path) -> None:
    session(tmp_path, usd=5)
    codes, held = at_once(tmp_path, 0.00004)
    assert codes == [0] * 16, "their caps are held one after the other, and they cost next to nothing"
    assert held <= 5
    assert Ledger(tmp_path).figures().usd == pytest.approx(16 * 0.00004)
    assert Ledger(tmp_path).figures().held == 0


def test_a_budget_for_five_lets_five_of_sixteen_spend_it(tmp_path: Path) -> None:
    session(tmp_path, usd=5)
    codes, held = at_once(tmp_path, 1.0)
    assert codes == [0] * 5 + [11] * 11
    assert held <= 5
    assert Ledger(tmp_path).figures().usd == 5


def test_an_agent_does_not_wait_for_the_one_that_waits_for_it(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=2)
    ledger.reserve(STEP, "outer", "outer", 1.5)
    with pytest.raises(StrataError, match=r"1\.5 is held"):
        ledger.reserve(STEP, "inner", "inner", 1.0, parent="outer")


def test_two_whose_children_have_no_room_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is a moment between a decision and the next line."""
    session(tmp_path, usd=2)
    note = Ledger._note
    monkeypatch.setattr(Ledger, "_note", lambda self, line: (time.sleep(0.5 * (line.kind == "waited")), note(self, line)))
    for name in ("left", "right"):
        Ledger(tmp_path).reserve(STEP, name, name, 1.0)
    codes: list[int] = []

    def child(above: str) -> None:
        ledger = Ledger(tmp_path)
        try:
            ledger.settle(ledger.reserve(STEP, "child", f"{above}-child", 0.5, parent=above), 0.1, 0, "reported")
            codes.append(0)
        except StrataError as error:
            codes.append(int(error.exit_code))
            Ledger(tmp_path).settle(Reservation(above, STEP.phase, 1.0), 0.2, 0, "reported")  # its parent ends then

    threads = [threading.Thread(target=child, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(codes) == [0, 11], "one gives up, and by that the other has room"


def test_what_is_unknown_is_held_at_the_cap_and_nobody_earns_money(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=10)
    for number, reported in enumerate((None, math.nan, -3.0)):
        room = ledger.reserve(STEP, "x", str(number), 2.0)
        ledger.settle(room, reported, 0, "reported")
    assert ledger.figures() == Figures(0.0, 6.0, 0, 3)
    room = ledger.reserve(STEP, "x", "3", 2.0)
    ledger.settle(room, 0.5, 100, "reported")
    assert ledger.figures() == Figures(0.5, 6.0, 100, 4)
    assert ledger.figures("phase-01-one") == Figures(0.5, 6.0, 100, 4)
    with pytest.raises(StrataError, match="6 is held"):
        ledger.reserve(STEP, "x", "4", 4.0)


def test_a_session_that_was_cut_off_settles_when_it_is_continued(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=2)
    ledger.reserve(STEP, "x", "a/attempt-1", 1.0)
    (tmp_path / "a/attempt-1").mkdir(parents=True)
    (tmp_path / "a/attempt-1/agent-session.json").write_text('{"id": "one"}')
    ledger.reserve(STEP, "y", "b/attempt-1", 0.5, driver="replay")
    Ledger(tmp_path).close_open()
    assert ledger.figures() == Figures(0.0, 1.0, 0, 2), "a replay has cost nothing; what the other cost is not known"
    assert not ledger.open()
    Ledger(tmp_path).close_open()
    room = ledger.reserve(STEP, "x", "a/attempt-2", 1.0)
    ledger.settle(room, 0.02, 10, "reported", Line("settle", agent_session_id="one", session_usd=0.02))
    assert ledger.figures() == Figures(0.02, 0.0, 10, 3), "all of it is said"


def test_what_is_not_known_stays_held_where_the_session_could_not_go_on(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=5, agents=1)
    ledger.reserve(STEP, "x", "a/attempt-1", 1.0)
    (tmp_path / "a/attempt-1").mkdir(parents=True)
    (tmp_path / "a/attempt-1/agent-session.json").write_text('{"id": "one"}')
    Ledger(tmp_path).close_open()
    with pytest.raises(StrataError, match="agents left"):
        ledger.reserve(STEP, "x", "a/attempt-2", 1.0, continues="one")
    assert ledger.figures().held == 1.0, "never at 0"


def test_nobody_waits_for_an_agent_that_is_gone(house: House, model) -> None:
    """A spawn that breaks before it can ask anything has spent nothing, and says so."""
    house.agent("helper", strata={"completion": "cluster"})
    house.orchestrator("version: 1\nname: trial\nstages:\n  - {name: a, agent: helper, action: DO, retry: {max: 0}}\n")
    (house.folder / "s").mkdir()
    (house.folder / "s/budget.json").write_text('{"": {"usd": 1.5}}')
    flags = ("--driver", "replay", "--fixtures", str(house.workspace), "--session-dir", str(house.folder / "s"))
    ran = house.json("orchestrator", "trial", *flags)
    assert "FIXTURE_MISSING" in ran.stdout
    assert Ledger(house.folder / "s").figures() == Figures(0.0, 0.0, 0, 1)


@pytest.mark.rehearsed
def test_nobody_waits_for_an_agent_that_was_killed_whole(house: House, model) -> None:
    """It holds 1 of 1.5, and cannot settle any more. Its wave has one with no room beside it."""
    house.agent("helper", strata={"completion": "cluster"})
    each = "foreach: {items: param.names, cap: 2}, retry: {max: 0}, on_item_failure: skip"
    house.orchestrator(
        "version: 1\nname: trial\nparams: {names: {type: list, default: 'first,second'}}\n"
        f"stages:\n  - {{name: a, agent: helper, action: DO, {each}}}\n"
    )
    killed: list[int] = []
    model(lambda request: say("DONE: yes", hang_seconds=0 if killed else 600))
    session = house.folder / "s"
    session.mkdir()
    (session / "budget.json").write_text('{"": {"usd": 1.5}}')
    with house.start("orchestrator", "trial", "--session-dir", str(session), "--output-format", "json") as run:
        kinds = lambda: [line.kind for line in Ledger(session, strict=False).lines()]  # noqa: E731
        wait_for(lambda: "wait" in kinds() and [*session.rglob("agent-session.json")], 60, "one waits for the other")
        (line,) = Ledger(session, strict=False).open().values()
        item = line.step.rpartition("/")[2]
        tree = [*with_marker("core/agent.py"), *with_marker("core/spawn.py")]  # at once: none can put its affairs in order
        killed += [p for p in tree if item.encode() in Path(f"/proc/{p}/cmdline").read_bytes()]
        assert len(killed) > 1
        for number, pid in [(n, p) for n in (signal.SIGSTOP, signal.SIGKILL) for p in killed]:
            keeper.send(pid, number)
        assert run.wait(60) == 12
    assert Ledger(session).figures().held >= 1.0, "what it cost is not known"
    assert Ledger(session).figures().agents == 2


def test_an_agent_without_a_cap_gets_one_where_there_is_a_limit(tmp_path: Path) -> None:
    ledger = session(tmp_path, usd=1.5)
    room = ledger.reserve(STEP, "x", "0", None)
    assert room.cap_usd == 1.0
    ledger.settle(room, 1.0, 0, "reported")
    room = ledger.reserve(STEP, "x", "1", None)
    assert room.cap_usd == 0.5
    ledger.settle(room, 0.5, 0, "reported")
    with pytest.raises(StrataError) as caught:
        ledger.reserve(STEP, "x", "2", None)
    assert caught.value.detail["spent"] == [{"agent": "x", "agents": 2, "usd": 1.5, "held": 0.0}]
    (tmp_path / "free").mkdir()
    assert Ledger(tmp_path / "free").reserve(STEP, "x", "0", None).cap_usd is None


def test_a_phase_has_limits_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text(json.dumps({"phase-01-one": {"agents": 1}}))
    ledger = Ledger(tmp_path)
    ledger.reserve(STEP, "x", "0", None)
    ledger.reserve(Step("phase-02-two", "o", "01-a"), "x", "1", None)
    with pytest.raises(StrataError, match="the phase phase-01-one"):
        ledger.reserve(STEP, "x", "2", None)


@pytest.mark.parametrize("line", ['{"kind": "reserve", "agents": 1, "su', "[1, 2]", '{"kind": 1, "at": "x", "sums": []}', "null"])
def test_a_line_that_cannot_be_read_stops_the_run_is_kept_aside_and_the_next_goes_on(tmp_path: Path, line: str) -> None:
    ledger = session(tmp_path, agents=3)
    ledger.reserve(STEP, "x", "0", None)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write(f"{line}\n")
    assert Ledger(tmp_path, strict=False).figures().agents == 1, "who looks on goes by it"
    with pytest.raises(StrataError, match="cannot be read") as caught:
        ledger.figures()
    assert (caught.value.code, "ledger.jsonl.corrupt-1" in caught.value.hint) == ("CORRUPT_STATE", True)
    assert line in (tmp_path / "ledger.jsonl.corrupt-1").read_text()
    ledger.reserve(STEP, "x", "1", None)
    assert ledger.figures().agents == 2


def test_time_is_counted_per_run_and_per_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = session(tmp_path, wall_seconds=100)
    clock = [0]
    for module in ("ledger", "ledger_lines"):
        at = f"lib.session.{module}.now"
        monkeypatch.setattr(at, lambda: f"2026-01-01T00:{clock[0] // 60:02d}:{clock[0] % 60:02d}+00:00")
    for seconds, does in (
        *((0, ledger.begin_run), (5, lambda: ledger.begin_run("p")), (12, lambda: ledger.end_run("p"))),
        *((20, ledger.begin_run), (30, lambda: ledger.begin_run("p"))),
    ):
        clock[0] = seconds
        does()
    clock[0] = 34
    assert ledger.wall_seconds() == 12 + 14, "from each beginning to the last that was written, and until now"
    assert ledger.wall_seconds("p") == 7 + 4


def test_nearly_there_is_said_once(tmp_path: Path) -> None:
    ledger = session(tmp_path, tokens=1000)
    said = [ledger.settle(ledger.reserve(STEP, "x", str(n), None), 0, 300, "reported") for n in range(3)]
    assert said == [[], [], ["the campaign: 900 of 1000 tokens"]]
    assert ledger.settle(ledger.reserve(STEP, "x", "3", None), 0, 50, "reported") == []


@pytest.mark.parametrize("text", ["usd", "usd=", "usd=x", "usd=-1", "usd=nan", "euros=5", ""])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StrataError):
        budget.given(text)


PLAN = """version: 1
name: trial
budget: {agents: 1}
phases:
  - {name: one, run: [{orchestrator: two-agents}], verify: {none: a test}}
"""


def test_out_of_budget_is_11_and_more_of_it_goes_on_from_there(house: House) -> None:
    house.agent("first")
    house.agent("second")
    house.orchestrator(
        "version: 1\nname: two-agents\nstages:\n  - {name: a, agent: first}\n  - {name: b, agent: second}\n", "two-agents"
    )
    (house.workspace / "plan.yaml").write_text(PLAN)
    done = turns(say("STAGE_TASK_COMPLETE"))
    with scripted(by_agent(first=done, second=done)) as model:
        env = model.environment(str(house.folder / "claude"))

        def run(*flags: str) -> Ran:
            return house.json("campaign", *flags, **env)

        ran = run("plan.yaml")
        assert (ran.code, ran.error["code"]) == (11, "BUDGET_EXCEEDED"), ran.stderr
        assert ran.error["spent"] == [{"agent": "first", "agents": 1, "usd": pytest.approx(0, abs=0.1), "held": 0.0}]
        assert "--budget agents=" in ran.error["hint"]
        assert len(model.requests) == 1, ran.stderr
        assert run("--resume", house.session.name).code == 11, "the ledger survives a resume"
        ran = run("--resume", house.session.name, "--budget", "agents=5")
        assert ran.code == 0, ran.stderr
        assert len(model.requests) == 2, "the first was not asked again"
        kinds = [line.kind for line in Ledger(house.session).lines()]
        assert kinds.count("reserve") == kinds.count("settle") == 2
