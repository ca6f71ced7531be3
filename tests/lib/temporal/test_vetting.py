"""Ring 1: what a worker runs, and what it does not: an order is looked at word by word."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib import names
from lib.contract import HOUSE
from lib.machines.placed import Order
from lib.temporal import vetting
from lib.temporal.vetting import Misplaced, Unfit
from msgspec.structs import replace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "root"
    (made / "s/.placed/id").mkdir(parents=True)
    (made / "work").mkdir()
    (made / "task.json").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    (made / "leads-out").symlink_to(tmp_path / "outside")
    return made


def order(root: Path, *more: str) -> Order:
    session = str(root / "s")
    words = ("--output-format", "json", "--cwd", str(root / "work"), "--session-dir", session, "--task", str(root / "task.json"))
    return Order("id", "check.py", (*words, *more), {names.SESSION: session}, str(root), session, "me", "house")


def argv(root: Path, given: Order) -> list[str]:
    return vetting.argv_of(given, root / "s/.placed/id", root, "executors")


def test_an_order_of_a_run_is_run_with_the_tool_of_this_house(root: Path) -> None:
    given = order(root, "--step", "one/two", "--", "pytest", "/words/for/it", "--cwd=/x")
    assert argv(root, given)[1:] == [str(HOUSE / "core/check.py"), *given.arguments]
    assert vetting.given(given.arguments, ("--step",)) == ["one/two"]
    assert vetting.given((), ("--step",)) == []
    house = str(HOUSE / "config/checks.yaml")
    assert argv(root, order(root, "--checks", house)), "the house is read on every machine"


@pytest.mark.parametrize(
    "tool", ["../core/check.py", "/bin/sh", "check", "nothing.py", "lib/names.py", "campaign.py", "spawn.py"]
)
def test_only_tools_of_the_house_and_of_the_layer_are_run(root: Path, tool: str) -> None:
    with pytest.raises(Unfit):
        argv(root, replace(order(root), tool=tool))


@pytest.mark.parametrize(
    "words",
    [
        ("--cwd", "OUT"),
        ("--cwd=OUT",),
        ("--cwd", "ROOT/leads-out"),
        ("--cwd", "ROOT/../outside"),
        ("--session-base", "OUT"),
        ("--task", "OUT/file"),
        ("--checks", "OUT/file"),
        ("--fixtures", "OUT"),
        ("--fixtures", "ROOT/is-not-there"),
        ("--anything", "OUT/file"),
        ("--anything=OUT/file",),
        ("OUT/file",),
    ],
)
def test_what_lies_elsewhere_is_left_to_a_worker_who_has_it(root: Path, words: tuple[str, ...]) -> None:
    said = [w.replace("OUT", str(root.parent / "outside")).replace("ROOT", str(root)) for w in words]
    with pytest.raises(Misplaced):
        argv(root, order(root, *said))


@pytest.mark.parametrize("words", [("--cwd", "."), ("--cwd", "work"), ("--cw", "/"), ("--sess=/",), ("--task=t",), ("a\0b",)])
def test_an_argument_that_is_not_what_a_run_says_is_refused_for_good(root: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(Unfit) as refused:
        argv(root, order(root, *words))
    assert not isinstance(refused.value, Misplaced)


@pytest.mark.parametrize("env", [{}, {names.SESSION: "/"}, {names.SESSION: ""}, {"PATH": "/x"}, {"LD_PRELOAD": "x"}])
def test_an_order_sets_nothing_but_what_travels_and_its_own_session(root: Path, env: dict[str, str]) -> None:
    known = order(root)
    with pytest.raises(Unfit):
        argv(root, replace(known, env=env if names.SESSION in env or not env else known.env | env))


def test_a_session_is_the_one_that_the_order_lies_in(root: Path) -> None:
    other = str(root / "work")
    with pytest.raises(Unfit, match="not the one"):
        argv(root, replace(order(root), session=other, env={names.SESSION: other}))


def test_who_started_the_run_may_stand_where_no_other_machine_is(root: Path) -> None:
    assert vetting.cwd_of(order(root), root) == str(root)
    assert vetting.cwd_of(replace(order(root), cwd="/"), root) == str(root / "s")
    assert vetting.cwd_of(replace(order(root), cwd=str(root / "leads-out")), root) == str(root / "s")


@pytest.mark.parametrize("given", [{}, {"folder": 3}, {"folder": "/x", "sha256": "x", "key": "no hex", "house": "h"}])
def test_a_ticket_that_is_none_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(Unfit):
        vetting.ticket_of(given)
