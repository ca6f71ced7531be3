"""Children: every line whole, nothing left behind, nothing believed that does not add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lib import names
from lib.contract import ExitCode, StrataError
from lib.process import backend, local, processes, running, tools
from support import CORE, alive, wait_for, with_marker

PYTHON = sys.executable


def run(code: str, **options):
    return running.run([PYTHON, "-c", code], env=dict(os.environ), **options)


def test_no_line_is_lost_and_none_are_glued_however_the_bytes_are_cut() -> None:
    code = """
import os, sys, time
text = "".join(f"line {n} äöü {'x' * (n % 97)}\\n" for n in range(20000)).encode()
for start in range(0, len(text), 7919):
    os.write(2, text[start:start + 7919])
    os.write(1, b"o" * 100)
os.write(2, b"last without newline")
"""
    lines: list[str] = []
    finished = run(code, on_line=lines.append)
    assert lines == [f"line {n} äöü {'x' * (n % 97)}" for n in range(20000)] + ["last without newline"]
    assert finished.stdout == b"o" * (100 * len(range(0, sum(len(f"{line}\n".encode()) for line in lines[:-1]), 7919)))


def test_large_input_and_large_output_do_not_block_each_other() -> None:
    data = os.urandom(5_000_000)
    code = "import sys; d = sys.stdin.buffer.read(); sys.stderr.write('e' * 300000 + '\\n'); sys.stdout.buffer.write(d)"
    finished = run(code, stdin=data)
    assert finished.stdout == data


def test_a_child_that_does_not_read_its_input_is_no_error() -> None:
    assert run("print('ok')", stdin=b"x" * 1_000_000).stdout == b"ok\n"


def test_output_without_end_is_cut_off_and_the_child_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "STDOUT_LIMIT", 1_000_000)
    finished = run("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    assert finished.exit_code == -signal.SIGKILL
    assert len(finished.stdout) == 1_000_000


def test_a_timeout_ends_the_child_and_says_so() -> None:
    finished = run("import time; time.sleep(600)", timeout_seconds=0.3, grace=5)
    assert finished.timed_out


def test_a_child_that_ignores_the_request_to_stop_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    finished = run(code, timeout_seconds=1, grace=0.3)
    assert (finished.timed_out, finished.exit_code) == (True, -signal.SIGKILL)


def test_a_grandchild_that_keeps_the_pipe_open_does_not_keep_us(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"""
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open({str(pid_file)!r}, "w").write(str(child.pid))
print("done", flush=True)
"""
    finished = running.run_kept([PYTHON, "-c", code], env=dict(os.environ))
    assert finished.stdout == b"done\n"
    wait_for(lambda: not alive(int(pid_file.read_text())), what="the end of the grandchild")


def test_a_killed_keeper_leaves_its_command_to_us_and_we_end_it(tmp_path: Path) -> None:
    """The subreaper's work: without it the command would go to init and live on."""
    script = tmp_path / "tool.py"
    script.write_text(f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(CORE)!r})
from lib.process import keeper
from lib.process import running
keeper.become_subreaper()
def murder():
    while True:
        for pid in keeper.descendants(os.getpid()):
            line = open(f"/proc/{{pid}}/cmdline").read()
            if "keeper.py" in line and keeper.descendants(pid):
                print(keeper.descendants(pid)[0], flush=True)
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.02)
threading.Thread(target=murder).start()
running.run_kept(["sleep", "600"], env=dict(os.environ))
""")
    done = subprocess.run([PYTHON, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert not alive(int(done.stdout))


def test_a_kept_command_gets_three_streams_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No lease, no lock, no signal that only Python ignores, and none that is held back."""
    code = "import os; print(sorted(os.listdir('/proc/self/fd')), [n for n in os.environ if n.endswith('_FD')])"
    with (tmp_path / ".lock").open("w") as lock:
        monkeypatch.setattr(processes, "session_lock", lock.fileno())
        told = running.run_kept([PYTHON, "-I", "-S", "-c", code], env=dict(os.environ)).stdout.decode()
        status = running.run_kept(["/bin/cat", "/proc/self/status"], env=dict(os.environ)).stdout.decode()
    assert told == "['0', '1', '2', '3'] []\n"  # 3 is the listing itself
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    assert int(masks["SigIgn"], 16) & 0x7FFFFFFF == int(masks["SigBlk"], 16) == 0  # those above are the C library's own


def test_a_command_that_is_not_there_is_said_and_not_started() -> None:
    finished = running.run_kept(["/no/such/program"], env=dict(os.environ))
    assert finished.exit_code == 127
    assert finished.tail == "cannot start /no/such/program: No such file or directory"


_INTERFERES = """
import errno, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from lib.process import keeper
real = os.fork
def fork():
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # whoever is to hear it has heard it
    if sys.argv[2] == "refused":
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    pid = real()
    if sys.argv[2] == "after" and pid:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
    return pid
os.fork = fork
print(keeper.keep(["sleep", "30"], 0))
"""


def interfered(when: str) -> subprocess.CompletedProcess[str]:
    lease, held = os.pipe()
    env = {**os.environ, names.LEASE: str(lease)}
    argv = [PYTHON, "-c", _INTERFERES, str(CORE), when]
    try:
        return subprocess.run(argv, env=env, pass_fds=(lease,), capture_output=True, text=True, timeout=60, check=True)
    finally:
        os.close(lease)
        os.close(held)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_that_comes_while_the_command_is_started_ends_it(when: str) -> None:
    """The keeper has threads by then, and any of them may be the one that a signal reaches."""
    assert interfered(when).stdout == f"{128 + signal.SIGTERM}\n"


def test_a_command_that_no_process_can_be_had_for_is_said() -> None:
    done = interfered("refused")
    assert (done.stdout, done.stderr) == ("127\n", "cannot start sleep: Resource temporarily unavailable\n")


def test_a_lease_that_ends_at_any_moment_of_the_start_ends_the_command(tmp_path: Path) -> None:
    """Its end is noticed by a thread, while another starts the command and begins to wait for it."""
    for turn in range(40):
        mark = f"60.{os.getpid()}{turn:02}"
        argv = [PYTHON, "-S", "-E", str(CORE / "lib/process/start_keeper.py"), "--", "sleep", mark]
        lease, held = os.pipe()
        child = subprocess.Popen(argv, env={**os.environ, names.LEASE: str(lease)}, pass_fds=(lease,), start_new_session=True)
        os.close(lease)
        threading.Event().wait(0.008 + turn * 0.0005)
        os.close(held)
        assert child.wait(timeout=30) == 128 + signal.SIGTERM, turn
        assert not with_marker(mark)


def test_children_in_threads_end_when_the_process_is_asked_to_stop(tmp_path: Path) -> None:
    script = tmp_path / "tool.py"
    script.write_text(f"""
import os, sys
sys.path.insert(0, {str(CORE)!r})
from lib import cli
from lib.process import fanout
from lib.process import running
from lib.cli import Tool
def main(call):
    print("ready", file=sys.stderr, flush=True)
    fanout.run({{str(n): () for n in range(3)}}, 3, lambda k: running.run_kept(["sleep", "600"], env=dict(os.environ)),
               lambda r: True, lambda k, c: None, lambda r: True)
cli.run(Tool("trial", 1, "", ""), lambda parser: None, main)
""")
    child = subprocess.Popen([PYTHON, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    from lib.process import keeper

    def sleepers() -> list[int]:
        return [p for p in keeper.descendants(child.pid) if Path(f"/proc/{p}/cmdline").read_bytes().startswith(b"sleep")]

    found = wait_for(lambda: sleepers() if len(sleepers()) == 3 else None, what="three sleepers")
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 20
    assert not any(alive(p) for p in found)


@pytest.mark.parametrize(
    ("exit_code", "stdout", "believed", "reason"),
    [
        (0, '{"exit_code": 0}', 0, ""),
        (12, '{"summary": {"exit_code": 12}}', 12, ""),
        (0, '{"exit_code": 1}', 1, "says 1"),
        (1, '{"exit_code": 0}', 1, "says 0"),
        (0, "", 1, "printed no document"),
        (0, '{"exit_code": 0}{"exit_code": 0}', 1, "printed no document"),
        (0, '["exit_code", 0]', 1, "printed no document"),
        (0, '{"exit_code": false}', 1, "says False"),
        (99, '{"exit_code": 99}', 1, "says 99"),
        (-9, "", 1, "SIGKILL"),
    ],
)
def test_a_code_is_believed_only_if_the_document_agrees(exit_code: int, stdout: str, believed: int, reason: str) -> None:
    result = tools.believe("x.py", backend.Finished(exit_code, stdout.encode(), "the tail"))
    assert result.exit_code == believed
    if reason:
        assert result.error
        assert result.error["code"] == "CHILD_CRASHED"
        assert reason in result.error["message"]
        assert result.error["stderr"] == "the tail"


@pytest.mark.parametrize(
    ("caller", "tool", "judgement", "allowed"),
    [
        (1, "spawn.py", False, True),
        (2, "agent.py", False, True),
        (2, "spawn.py", False, False),
        (1, "agent.py", False, False),
        (3, "agent.py", False, False),
        (3, "agent.py", True, True),
        (3, "orchestrator.py", False, True),
        (4, "orchestrator.py", False, False),
        (1, "check.py", True, False),
    ],
)
def test_a_tool_calls_only_the_layer_below(caller: int, tool: str, judgement: bool, allowed: bool) -> None:
    if allowed:
        tools.check_layer(caller, CORE / tool, judgement)
    else:
        with pytest.raises(StrataError, match="may not call"):
            tools.check_layer(caller, CORE / tool, judgement)


def test_a_child_with_another_block_is_started_through_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("# /// script\n# dependencies = []\n# ///\n")
    monkeypatch.setenv("UV", "/some/uv")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(CORE / "spawn.py"), raising=False)
    assert tools.tool_argv(CORE / "agent.py") == [sys.executable, str(CORE / "agent.py")]
    assert tools.tool_argv(other)[:2] == ["/some/uv", "run"]


def test_every_layer_waits_longer_than_the_one_below() -> None:
    assert [processes.grace_seconds(n) for n in range(5)] == sorted({processes.grace_seconds(n) for n in range(5)})


def test_exit_codes_are_the_seeds() -> None:
    assert {c.name: int(c) for c in ExitCode} == {
        "SUCCESS": 0,
        "FAILURE": 1,
        "DEPTH_EXCEEDED": 2,
        "HUMAN_INPUT": 3,
        "NEEDS_REFINEMENT": 10,
        "NEEDS_ESCALATION": 11,
        "PARTIAL_SUCCESS": 12,
        "INTERRUPTED": 20,
        "TIMEOUT": 21,
    }


def test_threads_relaying_at_once_write_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    from lib.session import events

    def talk(who: int) -> None:
        for n in range(200):
            events.relay(json.dumps({"who": who, "n": n, "pad": "y" * 5000}))

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert sorted((x["who"], x["n"]) for x in lines) == [(w, n) for w in range(4) for n in range(200)]


def test_a_question_of_ours_outlives_the_orphans_of_a_step_that_failed() -> None:
    """git at work in one thread, while a child that another thread follows fails."""
    failed = threading.Event()

    def fail() -> None:
        wait_for(lambda: processes.own_children, what="the question is asked")
        run("raise SystemExit(1)")
        failed.set()

    other = threading.Thread(target=fail)
    other.start()
    done = processes.ask([PYTHON, "-c", "import sys, time; time.sleep(3); print(sys.stdin.read())"], stdin=b"whole")
    other.join()
    assert failed.is_set()
    assert (done.returncode, done.stdout.strip()) == (0, b"whole")
