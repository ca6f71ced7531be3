"""Handovers: one schema and one example each; a run folder that loses nothing; no phase begins with what is broken."""

import json
import threading
from pathlib import Path

import pytest
from lib.contract import HOUSE, StrataError
from lib.disk import schemas
from packs.academic import folder as folders
from packs.academic.folder import HANDOVERS, Folder
from packs.academic.state import ALARMS

EXAMPLES = HOUSE / "config/packs/academic/examples"


def example(name: str) -> dict:
    return json.loads((EXAMPLES / f"{name}.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "run")
    folder.make()
    folder.state.begin("wikis", tmp_path / "session")
    return folder


@pytest.mark.parametrize("name", [*HANDOVERS, "research_state"])
def test_every_handover_has_an_example_that_its_schema_accepts(name):
    assert schemas.describe(example(name), schemas.load(f"academic/{name}")) == []


@pytest.mark.parametrize("name", [*HANDOVERS])
def test_a_handover_that_lacks_a_required_field_is_refused(name, run):
    whole = example(name)
    for field in schemas.load(f"academic/{name}")["required"]:
        with pytest.raises(StrataError) as refused:
            run.give(name, {key: value for key, value in whole.items() if key != field})
        assert refused.value.code == "GATE_REFUSED"
        assert field in refused.value.message
    assert not run.path(name).exists()


@pytest.mark.parametrize("name", [*HANDOVERS])
def test_a_phase_without_its_input_says_who_owes_it(name, run):
    with pytest.raises(StrataError) as missing:
        run.take(name, 5)
    assert missing.value.code == "MISSING_HANDOVER"
    owner = HANDOVERS[name].phase
    assert ("setup" if owner is None else f"phase {owner}") in missing.value.hint
    run.path(name).write_text('{"half": ')
    with pytest.raises(StrataError, match="not JSON"):
        run.take(name, 5)
    run.path(name).write_text("{}")
    with pytest.raises(StrataError, match="breaks its contract"):
        run.take(name, 5)


def test_what_was_given_can_be_taken(run):
    for name in HANDOVERS:
        assert run.give(name, example(name)) == []
        assert run.take(name, 6) == example(name)


def test_an_edit_by_hand_stays_while_nothing_else_is_new(run):
    given = example("databases")
    run.give("databases", given)
    edited = {**given, "databases": given["databases"][:1]}
    run.path("databases").write_text(json.dumps(edited))
    assert run.take("databases", 1) == edited
    assert run.give("databases", given) == ["metadata/databases.json was edited by hand, and stays"]
    assert run.take("databases", 1) == edited
    assert [e.file for e in run.state.read().edits] == ["metadata/databases.json"]


def test_an_edit_by_hand_that_has_to_give_way_is_kept_aside(run):
    given = example("databases")
    run.give("databases", given)
    edited = json.dumps({**given, "source": "config"})
    run.path("databases").write_text(edited)
    new = {**given, "source": "portal"}
    (said,) = run.give("databases", new)
    assert "databases.edited-1.json" in said
    assert (run.root / "metadata/databases.edited-1.json").read_text() == edited
    assert run.take("databases", 1) == new
    assert run.state.read().edits[-1].kept_as == "metadata/databases.edited-1.json"


def test_the_state_is_one_that_its_schema_knows_whatever_many_write_at_once(run):
    def work(number: int) -> None:
        for _ in range(10):
            run.state.failed(2, "search", f"database {number}", "TIMEOUT: no answer")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = run.state.read()
    assert len(state.errors) == 40
    assert sorted(e.retry_count for e in state.errors if e.item == "database 2") == list(range(10))
    assert schemas.describe(json.loads(run.state.path.read_text()), schemas.load("academic/research_state")) == []


@pytest.mark.parametrize(("name", "bounds"), ALARMS.items())
def test_alarms_are_raised_at_their_thresholds_and_taken_back(name, bounds, run):
    warn, critical = bounds
    for count, level in ((critical - 1, "critical"), (critical, "warn"), (warn - 1, "warn"), (warn, "ok")):
        said = run.state.counted(name, count)
        assert run.state.read().alarms[name].level == level
        assert said.startswith(level) if level != "ok" else said == ""


def test_a_handover_that_was_cut_off_is_not_there(run, monkeypatch):
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders.files, "write_atomic", cut)
    with pytest.raises(KeyboardInterrupt):
        run.give("databases", example("databases"))
    assert not run.path("databases").exists()
