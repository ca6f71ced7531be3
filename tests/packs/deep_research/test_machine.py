"""The machine: one function leaves a stage, and none reaches the end with a gate that has not passed, whatever is tried."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.contract import StrataError
from lib.evidence.gates import Rule, decide
from packs.deep_research import advancing, state
from packs.deep_research.state import Limits, Manifest, Query, Run
from support import ROOT

AT = "2026-11-18T00:00:00Z"


def begun(root: Path, **fields: object) -> Run:
    run = Run(root)
    run.begin(Manifest("r1", Query("What?"), AT, limits=Limits(max_review_iterations=1), **fields))  # type: ignore[arg-type]
    return run


def put(run: Run, name: str, document: object = "words") -> None:
    path = run.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def gate(run: Run, names: str, holds: bool = True) -> None:
    for name in names:
        run.write_gate(decide(name, [Rule("r", holds)], {"x": name}), {}, AT)


WAVE = {"entries": [{"perspective_id": "p1"}]}
MADE = {  # what makes each way open
    ("init", "perspectives"): ({}, "F"),
    ("perspectives", "wave1"): ({"perspectives.json": {}, "wave-1/wave1-plan.json": WAVE}, "A"),
    ("wave1", "pivot"): ({"wave-1/p1.md": "x", "wave-1/wave-review.json": {}}, "B"),
    ("pivot", "wave2"): ({"pivot.json": {"wave2_required": True, "targets": [1]}}, ""),
    ("wave2", "citations"): ({"wave-2/p1.md": "x", "wave-2/wave2-plan.json": WAVE}, ""),
    ("citations", "summaries"): ({"citations/citations.jsonl": "{}"}, "C"),
    ("summaries", "synthesis"): ({"summaries/summary-pack.json": {}}, "D"),
    ("synthesis", "review"): ({"synthesis/final-synthesis.md": "x"}, ""),
    ("review", "finalize"): ({"review/review-bundle.json": {"decision": "PASS"}}, "E"),
}


def forward(run: Run, to: str) -> None:
    for (_, after), (files, gates) in MADE.items():
        for name, document in files.items():
            put(run, name, document)
        gate(run, gates)
        assert advancing.stage_advance(run, AT, "test").allowed
        if after == to:
            return


@pytest.mark.parametrize(("frm", "to"), list(MADE))
def test_every_way_is_open_only_with_all_it_needs(tmp_path: Path, frm: str, to: str) -> None:
    """One by one, each artifact and each gate is taken away: the way is closed, by name, and nothing has moved."""
    run = begun(tmp_path)
    if frm != "init":
        forward(run, frm)
    files, gates = MADE[frm, to]
    for name, document in files.items():
        put(run, name, document)
    gate(run, gates)
    for name in files:
        kept = (run.root / name).read_text()
        (run.root / name).unlink()
        found = advancing.stage_advance(run, AT, "test", to)
        assert (found.allowed, found.refusal) == (False, "MISSING_ARTIFACT"), name
        put(run, name, "")
        assert advancing.stage_advance(run, AT, "test", to).refusal == "MISSING_ARTIFACT", "an empty one is none"
        put(run, name, kept)
    for name in gates:
        gate(run, name, holds=False)
        found = advancing.stage_advance(run, AT, "test", to)
        assert (found.allowed, found.refusal) == (False, "GATE_BLOCKED")
        gate(run, name)
    assert run.manifest().stage.current == frm
    found = advancing.stage_advance(run, AT, "test", to)
    assert found.allowed and run.manifest().stage.current == to
    moved = run.manifest().stage.history[-1]
    assert (moved.frm, moved.to, moved.inputs_digest) == (frm, to, found.inputs_digest) and moved.evaluated


@pytest.mark.parametrize(
    ("stage", "wish", "files", "refusal"),
    [
        ("init", "finalize", {}, "REQUESTED_NEXT_NOT_ALLOWED"),
        ("pivot", "citations", {"pivot.json": {"wave2_required": True, "targets": [1]}}, "REQUESTED_NEXT_NOT_ALLOWED"),
        ("pivot", "wave2", {"pivot.json": {"wave2_required": False}}, "REQUESTED_NEXT_NOT_ALLOWED"),
        ("pivot", "wave2", {"pivot.json": {"wave2_required": True, "targets": [1] * 7}}, "WAVE_CAP_EXCEEDED"),
        ("pivot", "wave2", {"pivot.json": {"wave2_required": True, "targets": []}}, "WAVE_CAP_EXCEEDED"),
        ("review", "synthesis", {"review/review-bundle.json": {"decision": "PASS"}}, "REQUESTED_NEXT_NOT_ALLOWED"),
    ],
)
def test_refusals_have_names(tmp_path: Path, stage: str, wish: str, files: dict[str, object], refusal: str) -> None:
    run = begun(tmp_path)
    if stage != "init":
        forward(run, stage)
    for name, document in files.items():
        put(run, name, document)
    found = advancing.stage_advance(run, AT, "test", wish)
    assert (found.allowed, found.refusal) == (False, refusal) and found.inputs_digest and found.message


def test_a_review_goes_back_as_often_as_it_may_and_no_more(tmp_path: Path) -> None:
    run = begun(tmp_path)
    forward(run, "review")
    put(run, "review/review-bundle.json", {"decision": "CHANGES_REQUIRED"})
    assert advancing.stage_advance(run, AT, "test", "synthesis").allowed and run.manifest().review_iterations == 1
    assert advancing.stage_advance(run, AT, "test").to == "review"
    assert advancing.stage_advance(run, AT, "test", "synthesis").refusal == "REVIEW_CAP_EXCEEDED"


def test_a_second_wave_may_be_left_out(tmp_path: Path) -> None:
    run = begun(tmp_path)
    forward(run, "pivot")
    put(run, "pivot.json", {"wave2_required": False})
    assert advancing.stage_advance(run, AT, "test").to == "citations"


def test_every_write_raises_the_revision_and_a_stale_one_is_refused(tmp_path: Path) -> None:
    run = begun(tmp_path)
    before = run.manifest().revision, run.gates().revision
    run.write_manifest(AT, expected_revision=before[0], notes=("one",))
    gate(run, "F")
    assert (run.manifest().revision, run.gates().revision) == (before[0] + 1, before[1] + 1)
    for write in (
        lambda: run.write_manifest(AT, expected_revision=before[0], notes=()),
        lambda: run.write_gate(decide("F", [Rule("r", True)], {}), {}, AT, expected_revision=before[1]),
        lambda: advancing.stage_advance(run, AT, "x", expected_revision=before[0]),
    ):
        with pytest.raises(StrataError) as caught:
            write()
        assert caught.value.code == "REVISION_MISMATCH"
    with pytest.raises(StrataError, match="stage_advance alone"):
        run.write_manifest(AT, stage="finalize")
    with pytest.raises(StrataError, match="when was it checked"):
        run.write_gate(decide("F", [Rule("r", True)], {}), {}, "")
    assert not run.begin(Manifest("other", Query("?"), AT)) and run.manifest().run_id == "r1", "a run is begun once"


@pytest.mark.parametrize(
    ("file", "change", "code"),
    [
        ("manifest.json", lambda d: {**d, "status": "fine"}, "INVALID_STATE"),
        ("manifest.json", lambda d: {**d, "revision": "x"}, "SCHEMA_VALIDATION_FAILED"),
        ("gates.json", lambda d: {**d, "gates": {}}, "INVALID_STATE"),
        ("gates.json", None, "NOT_FOUND"),
    ],
)
def test_state_that_was_edited_is_refused_by_name(tmp_path: Path, file: str, change, code: str) -> None:
    run = begun(tmp_path)
    path = tmp_path / file
    if change:
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
    else:
        path.unlink()
    with pytest.raises(StrataError) as caught:
        advancing.stage_advance(run, AT, "x")
    assert caught.value.code == code


ACTIONS = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from(["", *state.STAGES])),
    st.tuples(st.just("gate"), st.tuples(st.sampled_from("ABCDEF"), st.booleans())),
    st.tuples(st.just("files"), st.sampled_from(list(MADE))),
    st.tuples(st.just("bundle"), st.sampled_from(["PASS", "CHANGES_REQUIRED", "?"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=60))
def test_no_order_of_things_reaches_the_end_with_a_gate_that_has_not_passed(actions: list) -> None:
    """The oracle: at the moment of each move, all that the table asks for held; the stage is always where the history says."""
    with tempfile.TemporaryDirectory() as folder:
        run = begun(Path(folder))
        known = {name: False for name in "ABCDEF"}
        for what, about in actions:
            if what == "gate":
                gate(run, about[0], about[1])
                known[about[0]] = about[1]
            elif what == "files":
                for name, document in MADE[about][0].items():
                    put(run, name, document)
            elif what == "bundle":
                put(run, "review/review-bundle.json", {"decision": about})
            else:
                found = advancing.stage_advance(run, AT, "x", about)
                if found.allowed and found.to == "finalize":
                    assert all(known.values())
        manifest = run.manifest()
        history = [moved.to for moved in manifest.stage.history]
        assert manifest.stage.current == (history[-1] if history else "init")
        assert (manifest.status == "completed") == (manifest.stage.current == "finalize")
        assert manifest.review_iterations <= manifest.limits.max_review_iterations


def test_nothing_else_writes_manifest_and_gates() -> None:
    for path in sorted((ROOT / "core/packs/deep_research").glob("*.py")):
        text = path.read_text()
        writes = re.findall(r"write_(?:json|atomic)\([^\n]*(?:manifest_path|gates_path|manifest\.json|gates\.json)", text)
        assert bool(writes) == (path.name == "state.py"), path.name
        assert path.name in ("state.py", "advancing.py") or ".move(" not in text, path.name


def test_a_gate_that_passed_for_another_text_has_not_passed(tmp_path: Path) -> None:
    """Decided, and then the text is another: the way is closed."""
    run = begun(tmp_path)
    forward(run, "review")
    put(run, "review/review-bundle.json", {"decision": "PASS"})
    good, other = (decide("E", [Rule("r", True)], {"x": text}) for text in ("good", "other"))
    run.write_gate(good, {}, AT)
    found = advancing.stage_advance(run, AT, "test", "finalize", fresh=lambda gate: other)
    assert (found.allowed, found.refusal) == (False, "GATE_BLOCKED") and "something else" in found.message
    assert advancing.stage_advance(run, AT, "test", "finalize", fresh=lambda gate: good).allowed
