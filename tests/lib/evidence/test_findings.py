"""Findings are merged with who said so, tensions are shown, one scale is used by all; gates keep what they decided from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.attempt import verdicts
from lib.contract import StrataError
from lib.evidence import findings, gates
from lib.evidence.findings import SEVERITIES, Finding
from lib.evidence.gates import Rule
from support import House


@pytest.mark.parametrize(
    ("word", "is_"),
    [
        ("Blocker", "blocker"), ("critical", "critical"), ("HIGH", "critical"), ("medium", "major"), (" low ", "minor"),
        ("warning", "minor"), ("blocking", "blocker"), ("catastrophic", "blocker"), ("", "blocker"), (None, "blocker"),
        (3, "blocker"),
    ],
)  # fmt: skip
def test_there_is_one_scale_and_an_unknown_word_is_the_worst(word: object, is_: str) -> None:
    assert findings.severity(word) == is_


one = st.builds(
    Finding,
    st.sampled_from(SEVERITIES),
    st.sampled_from(["a", "b"]),
    where=st.sampled_from(["", "x.py"]),
    who=st.sampled_from([("p",), ("q",)]),
    topic=st.sampled_from(["", "t", "u"]),
    stance=st.sampled_from(["", "for", "against"]),
)


@given(st.lists(one, max_size=12))
def test_merging_loses_nobody_and_makes_nothing_milder(found: list[Finding]) -> None:
    merged = findings.merge(found)
    keys = {(f.claim, f.where, f.topic, f.stance) for f in found}
    assert {(f.claim, f.where, f.topic, f.stance) for f in merged} == keys and len(merged) == len(keys)
    for each in merged:
        same = [f for f in found if (f.claim, f.where, f.topic, f.stance) == (each.claim, each.where, each.topic, each.stance)]
        assert each.severity == min((f.severity for f in same), key=SEVERITIES.index)
        assert set(each.who) == {w for f in same for w in f.who}
    assert [SEVERITIES.index(f.severity) for f in merged] == sorted(SEVERITIES.index(f.severity) for f in merged)
    assert findings.merge(merged) == merged
    for tension in findings.tensions(merged):
        assert len(tension.sides) > 1 and len({w for fs in tension.sides.values() for f in fs for w in f.who}) > 1


def test_what_anybody_writes_is_read_and_what_says_nothing_is_refused(tmp_path: Path) -> None:
    said = {"fixes": [{"severity": "blocking", "file": "a.py", "issue": "it breaks", "suggested_fix": "do not"}]}
    (found,) = findings.of(said, "me")
    assert (found.severity, found.claim, found.where, found.fix, found.who) == ("blocker", "it breaks", "a.py", "do not", ("me",))
    for bad in ({}, {"findings": "none"}, [{"severity": "minor"}], [3]):
        with pytest.raises(StrataError, match=r"findings|claim"):
            findings.of(bad)
    (tmp_path / "x.json").write_text("nope")
    with pytest.raises(StrataError, match="not JSON"):
        findings.read(tmp_path / "x.json")


def test_an_agents_own_findings_are_read_on_the_same_scale() -> None:
    for word in ("high", "Blocker", "gruesome"):
        assert verdicts.of({"verdict": "done", "findings": [{"severity": word, "issue": "x"}]}).word == "needs_revision"
    for word in ("low", "major", "minor"):
        assert verdicts.of({"verdict": "done", "findings": [{"severity": word, "issue": "x"}]}).word == "done"


def test_a_gate_says_what_it_looked_at_and_counts_its_revisions(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    (tmp_path / "in.md").write_text("one")

    def look(ok: bool, warn: bool = True) -> gates.Decision:
        rules = [Rule("sources", ok, 3, 5), Rule("dates", warn, note="two are missing", blocking=False)]
        return gates.keep(gates.decide("coverage", rules, {"report": tmp_path / "in.md"}, path), path)

    first = look(False, warn=False)
    assert (first.decision, first.revision, first.passed) == ("revise", 1, False)
    assert first.reasons == ("sources: 3, wanted 5",) and first.warnings == ("dates (two are missing)",)
    assert len(first.evaluated) == 2
    assert look(True).revision == 1, "the same inputs are the same revision"
    (tmp_path / "in.md").write_text("two")
    third = look(True)
    assert (third.decision, third.revision) == ("pass", 2)
    assert third.inputs_digest != first.inputs_digest
    assert json.loads(path.read_text())["decision"] == "pass"
    assert gates.decide("x", [Rule("a", False, otherwise="fail"), Rule("b", False)], {}).decision == "fail"
    with pytest.raises(StrataError, match="evaluates nothing"):
        gates.decide("x", [], {})


def test_the_tool_merges_for_an_orchestrator_and_asks_for_a_revision(house: House) -> None:
    for who, word in (("ct-security", "high"), ("ct-strategy", "low")):
        folder = house.workspace / who
        folder.mkdir()
        said = [{"severity": word, "claim": "Logins are not checked", "topic": "login", "stance": who[3:]}]
        (folder / "f.json").write_text(json.dumps({"findings": said}))
    words = ["--input", "all=ct-security/f.json", "--input", "all=ct-strategy/f.json"]
    words += ["--output", "findings=findings.json", "--output", "review=review.md", "Review", "revise-at=critical"]
    ran = house.json("findings", *words, "--session-dir", str(house.folder / "s"))
    assert ran.code == 10, ran.stderr
    made = {o["output"]: Path(o["path"]) for o in ran.document["outputs"]}
    merged = json.loads(made["findings"].read_text())
    assert merged["counts"] == {"blocker": 0, "critical": 1, "major": 0, "minor": 1}
    assert [t["topic"] for t in merged["tensions"]] == ["login"]
    page = made["review"].read_text()
    assert page.startswith("# Review") and "## Unresolved tensions" in page and "(ct-security)" in page
    assert house.json("findings", *words[:-1], "--session-dir", str(house.folder / "t")).code == 0
    assert "no such severity" in house.json("findings", "revise-at=awful").error["message"]
