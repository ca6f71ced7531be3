"""P1 to P7 under the seed's names, and signal files that never contradict each other."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
import yaml
from lib import observability
from lib.contract import StrataError
from lib.session import signals


def test_p1_stderr_is_passed_on_and_stdout_comes_back(capfd) -> None:
    code = "import sys; print('out'); print('{\"event\": \"x\"}', file=sys.stderr); sys.exit(7)"
    assert observability.run_streaming([sys.executable, "-c", code], timeout=30, label="t") == (7, "out\n")
    assert json.loads(capfd.readouterr().err) == {"event": "x"}


def test_p1_a_timeout_is_21() -> None:
    code, _ = observability.run_streaming([sys.executable, "-c", "import time; time.sleep(99)"], timeout=0.3, label="t")
    assert code == 21


def test_p2_a_signal_holds_the_seeds_fields_and_a_stale_one_goes_away(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("12345")
    observability.signal_completion(tmp_path, "exec", "plan", "fail", trace_id="0123456789abcdef")
    path = observability.signal_completion(tmp_path, "exec", "plan", "success", tmp_path / "report.md", "0123456789abcdef", 1.5)
    assert path == tmp_path / ".signals/exec-plan.done"
    assert [p.name for p in (tmp_path / ".signals").iterdir()] == ["exec-plan.done"]
    fields = yaml.safe_load(path.read_text())
    assert list(fields) == [
        *("path", "size", "status", "created_at", "completed_at"),
        *("trace_id", "layer", "name", "elapsed_seconds", "version"),
    ]
    assert (fields["path"], fields["size"], fields["status"], fields["version"]) == ("report.md", 5, "success", 1)
    assert fields["trace_id"] == "0123456789abcdef"
    observability.signal_completion(tmp_path, "exec", "plan", "needs-refinement")
    assert [p.name for p in (tmp_path / ".signals").iterdir()] == ["exec-plan.refine"]


def test_p2_says_nothing_without_a_session() -> None:
    assert observability.signal_completion(None, "exec", "plan", "success") is None


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\nb", "x" * 300])
def test_p2_a_signals_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(StrataError):
        observability.signal_completion(tmp_path, "exec", name, "success")


def test_p3_one_trace_id_is_kept_and_handed_down(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("AGENTIC_TRACE_ID", raising=False)
    assert observability.get_trace_id() is None
    trace = observability.propagate_trace_id()
    monkeypatch.setenv("AGENTIC_TRACE_ID", trace)
    assert observability.propagate_trace_id() == trace
    env = observability.build_child_env_with_trace(2)
    assert (env["AGENTIC_TRACE_ID"], env["AGENTIC_SPAWN_DEPTH"]) == (trace, "2")
    (tmp_path / ".trace").write_text("aaaaaaaaaaaaaaaa\n")
    assert observability.propagate_trace_id(tmp_path) == "aaaaaaaaaaaaaaaa"


def test_p4_a_timer_stands_still_after_its_block() -> None:
    with observability.Timer() as timer:
        assert timer.running_elapsed_ms() >= 0
    assert timer.elapsed_ms() == timer.elapsed_ms()
    assert timer.elapsed_seconds() == timer.elapsed_seconds()


def test_p5_an_event_is_one_json_line(capfd, monkeypatch) -> None:
    monkeypatch.setenv("AGENTIC_TRACE_ID", "0123456789abcdef")
    observability.emit_event("orch", "plan", "started", elapsed_ms=5, detail={"a": "b\nc"})
    (line,) = capfd.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["layer"], event["stage"], event["status"], event["elapsed_ms"]) == ("orch", "plan", "started", 5)
    assert (event["trace_id"], event["depth"], event["timestamp"][-1]) == ("0123456789abcdef", 0, "Z")


def test_p6_the_live_report_grows_by_lines(tmp_path: Path) -> None:
    observability.write_live_report(tmp_path, "orch", "plan", "started")
    observability.write_live_report(tmp_path, "orch", "plan", "success", elapsed_seconds=1.0)
    lines = [json.loads(x) for x in (tmp_path / ".live-report").read_text().splitlines()]
    assert [x["status"] for x in lines] == ["started", "success"]


def test_p7_the_report_is_made_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "ospec").mkdir()
    stages = [{"name": "plan", "status": "failure", "exit_code": 1, "artifact": None, "error": "no spec"}]
    (tmp_path / "ospec" / "manifest.json").write_text(json.dumps({"orchestrator": "ospec", "stages": stages}))
    observability.signal_completion(tmp_path, "orch", "ospec", "fail")
    text = observability.write_consolidated_report(tmp_path).read_text()
    assert "no spec" in text
    assert "`orch-ospec`: fail" in text


def test_waiting_ends_when_the_last_expected_signal_comes(tmp_path: Path) -> None:
    timer = threading.Timer(0.3, lambda: observability.signal_completion(tmp_path, "exec", "b", "fail"))
    observability.signal_completion(tmp_path, "exec", "a", "success")
    timer.start()
    found, missing = signals.wait(tmp_path, ["exec-a", "exec-b"], 30)
    assert ([s.status for s in found], missing) == (["done", "fail"], [])
    assert signals.wait(tmp_path, ["exec-c"], 0.05)[1] == ["exec-c"]
