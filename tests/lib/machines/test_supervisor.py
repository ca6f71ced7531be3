"""Ring 2: a supervisor over one command, as a worker starts it: a real process over a real one, without any server."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lib import names
from lib.contract import HANDED
from lib.disk import files, locks, records
from lib.machines import captive, lease, placed
from lib.machines.lease import Lease
from lib.machines.placed import CUT, FAILED, REFUSED, RESULT, UNSEEN, WITHDRAWN, Order, Result, Ticket, Word
from lib.machines.supervisor import TIMES, Assignment
from support import CORE, alive, wait_for

KEY = secrets.token_hex(32)
LOCK = json.dumps({"pid": 1, "host": "h", "boot": "b", "began": "1", "renewed": 1.0})
# Says that it runs, starts a child that goes its own way, and stays; a word in `stay` ends it.
LONG = """
import os, subprocess, sys, time
subprocess.Popen(["setsid", "sleep", "600.25"])
print("here", file=sys.stderr, flush=True)
while not os.path.exists("stay"):
    open("beats", "a").write(".")
    time.sleep(0.05)
"""


class Bench:
    """A session with an order in it, and whoever holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.session = folder / "s"
        self.session.mkdir()
        (self.session / ".lock").write_text(LOCK)
        self.folder = self.session / placed.PLACED / "one"
        self.started: list[subprocess.Popen[bytes]] = []
        order = Order(
            "one", "x.py", (), {names.DEPTH: "1"}, str(folder), str(self.session), placed.owner_of(self.session), "h", stdin=True
        )
        self.ticket = Ticket(str(self.folder), placed.write(self.folder, order, b"given"), KEY, "h")

    def start(self, program: str, ticket: Ticket | None = None, **env: str) -> subprocess.Popen[bytes]:
        assignment = Assignment(ticket or self.ticket, (sys.executable, "-c", program), str(self.session.parent), "w1")
        child = subprocess.Popen(
            [sys.executable, str(CORE / "lib/machines/supervisor.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, names.MAX_DEPTH: "9", "TEMPORAL_API_KEY": "x", "STRATA_PAYLOAD_KEY": "x", **env},
        )
        self.started.append(child)
        assert child.stdin
        child.stdin.write(json.dumps(records.document(assignment)).encode() + b"\n")
        child.stdin.flush()
        return child

    def word(self, child: subprocess.Popen[bytes], seconds: float = 60) -> Word:
        assert child.stdout and child.stdin
        child.wait(seconds)
        said = child.stdout.read()
        child.stdin.close()
        child.stdout.close()
        return records.of(json.loads(said), Word)

    def run(self, program: str, ticket: Ticket | None = None) -> Word:
        return self.word(self.start(program, ticket))

    def running(self, program: str = LONG, **env: str) -> subprocess.Popen[bytes]:
        child = self.start(program, **env)
        wait_for(lambda: b"here" in self.printed("stderr"), what="the command runs")
        return child

    def printed(self, stream: str, number: int = 1) -> bytes:
        path = self.folder / f"{stream}-{number}"
        return path.read_bytes() if path.exists() else b""

    @property
    def left(self) -> list[int]:
        """What the command started, wherever it went."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if b"600.25" in (entry / "cmdline").read_bytes() and alive(int(entry.name)):
                        ours = (entry / "cwd").readlink() == self.session.parent
                        found += [int(entry.name)] if ours else []
                except OSError:
                    continue
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with locks.held(made.session / ".lock"):
        yield made
        for child in made.started:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                assert stream
                stream.close()


def test_what_a_command_came_to_is_sealed_and_what_it_printed_kept(bench: Bench) -> None:
    program = "import sys, os; print(sys.stdin.read()); print(sorted(k for k in os.environ), file=sys.stderr); sys.exit(12)"
    word = bench.run(program)
    assert word.kind == RESULT
    assert word.result and word.result.genuine(KEY) and (word.result.exit_code, word.result.worker) == (12, "w1")
    assert bench.printed("stdout") == b"given\n"
    told = bench.printed("stderr").decode()
    assert names.DEPTH in told and names.WORKER in told, "what the order says, and who runs it"
    assert names.MAX_DEPTH not in told, "what travels is the order's, not the worker's"
    assert "TEMPORAL" not in told and "STRATA_PAYLOAD_KEY" not in told, "the worker's own secrets reach no tool"
    text = placed.text(bench.folder, 1, "stdout", word.result.stdout, word.result.stdout_size)
    assert text == b"given\n"
    (bench.folder / "stdout-1").write_bytes(b"other\n")
    assert placed.text(bench.folder, 1, "stdout", word.result.stdout, word.result.stdout_size) is None


def test_a_result_that_is_there_is_returned_and_not_made_again(bench: Bench) -> None:
    program = "open('ran', 'a').write('x')"
    first, second = bench.run(program), bench.run(program)
    assert first == second
    assert (bench.session.parent / "ran").read_text() == "x"


def test_a_result_that_merely_appeared_is_not_believed(bench: Bench) -> None:
    forged = Result(1, 0, "w1").sealed(secrets.token_hex(32))
    (bench.folder / "result-1.json").write_text(json.dumps(records.document(forged)))
    assert bench.run("import sys; sys.exit(3)").result.exit_code == 3  # type: ignore[union-attr]


def test_an_order_that_was_changed_is_not_run(bench: Bench) -> None:
    path = bench.folder / placed.ORDER
    path.write_text(path.read_text().replace("x.py", "y.py"))
    assert bench.run("open('ran', 'w')").kind == WITHDRAWN
    assert not (bench.session.parent / "ran").exists()


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_worker_that_dies_takes_its_command_with_it_and_frees_the_lease(bench: Bench, namespaces: bool) -> None:
    program = LONG.replace("setsid", str(shutil.which("setsid"))).replace('"sleep"', f'"{shutil.which("sleep")}"')
    child = bench.running(program, **({} if namespaces else {"PATH": "/nowhere"}))
    assert bench.left
    assert child.stdin
    child.stdin.close()
    assert bench.word(child).kind == CUT
    assert not bench.left, "nothing of it is left, wherever it went"
    started = time.monotonic()
    (bench.session.parent / "stay").touch()
    assert bench.run(LONG).kind == RESULT
    assert time.monotonic() - started < lease.TAKE_SECONDS, "who released the lease is not waited for"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_supervisor_that_is_killed_or_frozen_ends_with_its_command(bench: Bench, number: signal.Signals) -> None:
    """The kernel does it: before the lease can be taken, nothing of the command is left."""
    if not captive.namespace() and number == signal.SIGKILL:
        pytest.skip("without PID namespaces a grandchild that went its own way is ended by whoever started it")
    child = bench.running()
    child.send_signal(number)
    started = time.monotonic()
    assert child.wait(60) == -signal.SIGKILL
    wait_for(lambda: not bench.left, what="the end of all it started")
    assert time.monotonic() - started < lease.TAKE_SECONDS + 20  # it does not depend on anybody's being fast
    beats = (bench.session.parent / "beats").read_text()
    held = Lease.take(bench.folder, 2, "another")
    assert held
    time.sleep(0.3)
    assert (bench.session.parent / "beats").read_text() == beats


def test_what_is_frozen_whole_is_gone_when_another_may_begin(bench: Bench) -> None:
    child = bench.running()
    from lib.process import keeper

    tree = [child.pid, *keeper.descendants(child.pid)]
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    (bench.session.parent / "stay").touch()
    assert bench.run(LONG).kind == RESULT
    if captive.namespace():
        assert not any(alive(pid) for pid in tree), "the kernel has ended it, frozen as it was"


def test_an_order_that_is_withdrawn_is_ended_with_the_grace_it_was_given(bench: Bench) -> None:
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(20))\nprint('here', file=sys.stderr, flush=True)\n"
    child = bench.running(program + "time.sleep(600)")
    placed.stop(bench.folder, 30.0)
    word = bench.word(child)
    assert (word.kind, word.result and word.result.exit_code) == (RESULT, 20), "it could put things in order"
    assert bench.run("1").kind == RESULT, "and that is its result"


def test_an_order_that_is_withdrawn_before_it_begins_is_not_begun(bench: Bench) -> None:
    assert not placed.withdraw([bench.folder], 1.0, 1.0)
    assert not bench.folder.exists()
    assert bench.run("open('ran', 'w')").kind == WITHDRAWN
    assert not (bench.session.parent / "ran").exists()


def test_a_command_whose_run_has_ended_is_ended(bench: Bench) -> None:
    child = bench.running()
    (bench.session / ".lock").write_text(LOCK.replace("1.0", "0.0"))
    assert bench.word(child).kind == WITHDRAWN
    assert not bench.left


def test_where_the_lock_of_the_run_is_not_seen_nothing_is_run(tmp_path: Path) -> None:
    made = Bench(tmp_path)  # whose lock nobody holds: as on a file system that keeps none
    word = made.run("open('ran', 'w')")
    assert (word.kind, "keeps no locks" in word.why) == (UNSEEN, True)
    assert not (tmp_path / "ran").exists()


def test_a_worker_that_is_cut_off_yields_only_to_somebody_who_was_given_the_work(bench: Bench) -> None:
    child = bench.running()
    time.sleep(lease.HOLD_SECONDS + 1.5)  # it hears nothing from its worker
    assert child.poll() is None, "and goes on: nobody else wants the work"
    (bench.session.parent / "stay").touch()
    assert bench.word(child).kind == RESULT


def test_a_worker_that_is_cut_off_yields(bench: Bench) -> None:
    child = bench.running()
    other = bench.start("print('other')")
    assert bench.word(child).kind == CUT
    word = bench.word(other)
    assert word.result and (word.result.number, word.result.exit_code) == (2, 0)
    assert not bench.left


def test_a_worker_in_touch_keeps_its_command(bench: Bench) -> None:
    child = bench.running()
    other = bench.start("print('other')")
    assert child.stdin
    until = time.monotonic() + lease.TAKE_SECONDS + 2
    while time.monotonic() < until:
        child.stdin.write(b".")
        child.stdin.flush()
        time.sleep(0.5)
    (bench.session.parent / "stay").touch()
    first, second = bench.word(child), bench.word(other)
    assert first == second, "the other returns what this one came to"
    assert first.result and first.result.number == 1


def test_what_was_handed_over_counts_although_its_supervisor_died(bench: Bench) -> None:
    outcome = bench.session / "outcome.json"
    outcome.write_text("{}")
    told = {"event": HANDED, "attempt": "attempt-1", "sha256": files.sha256(outcome), "path": "outcome.json"}
    handed = json.dumps(told)
    program = f"import sys, time\nprint('here', file=sys.stderr)\nprint({handed!r}, file=sys.stderr, flush=True)\ntime.sleep(600)"
    child = bench.running(program)
    wait_for((bench.folder / "handed-1.json").exists, what="the record of it")
    child.kill()
    word = bench.run("open('ran', 'w')")
    assert word.result and (word.result.number, word.result.exit_code) == (1, -signal.SIGKILL)
    said = placed.text(bench.folder, 1, "stderr", word.result.stderr, word.result.stderr_size)
    assert said and handed in said.decode()
    assert not (bench.session.parent / "ran").exists(), "it is not run again"


def test_what_was_handed_over_and_never_written_is_done_again(bench: Bench) -> None:
    handed = json.dumps({"event": HANDED, "attempt": "attempt-1", "sha256": "0" * 64, "path": "outcome.json"})
    program = f"import sys, time\nprint('here', file=sys.stderr)\nprint({handed!r}, file=sys.stderr, flush=True)\ntime.sleep(600)"
    child = bench.running(program)
    wait_for((bench.folder / "handed-1.json").exists, what="the record of it")
    child.kill()
    word = bench.run("open('ran', 'w')")
    assert word.result and (word.result.number, word.result.exit_code) == (2, 0)
    assert (bench.session.parent / "ran").exists()


def test_a_command_that_never_comes_to_an_end_is_given_up(bench: Bench) -> None:
    for number in range(1, TIMES + 1):
        held = Lease.take(bench.folder, number, "w1")
        assert held
        held.release()
    word = bench.run("open('ran', 'w')")
    assert (word.kind, str(TIMES) in word.why) == (REFUSED, True)


def test_a_document_without_end_is_ended(bench: Bench, tmp_path: Path) -> None:
    word = bench.run("import sys\nwhile True: sys.stdout.write('x' * 1000000)")
    assert word.result and word.result.exit_code == -signal.SIGKILL
    assert len(bench.printed("stdout")) <= captive.STDOUT_LIMIT
    assert hashlib.sha256(bench.printed("stdout")).hexdigest() == word.result.stdout


def test_a_command_that_does_not_end_when_it_is_asked_is_ended(bench: Bench) -> None:
    stays = (
        "import signal, sys, time\nsignal.signal(15, signal.SIG_IGN)\nprint('here', file=sys.stderr, flush=True)\ntime.sleep(600)"
    )
    child = bench.running(stays)
    placed.stop(bench.folder, 0.5)
    word = bench.word(child)
    assert (word.kind, word.result and word.result.exit_code) == (RESULT, -signal.SIGKILL)


def test_a_command_that_somebody_on_its_machine_stops_is_left_to_others(bench: Bench) -> None:
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(20))\nprint('here', file=sys.stderr, flush=True)\n"
    child = bench.running(program + "time.sleep(600)")
    from lib.process import keeper

    for pid in keeper.descendants(child.pid):
        keeper.send(pid, signal.SIGTERM)
    assert bench.word(child).kind == CUT
    (bench.session.parent / "stay").touch()
    word = bench.run(LONG)
    assert word.result and word.result.exit_code == 0, "no result of the stopped one is in the way"


def test_a_lease_that_another_has_taken_ends_the_command(bench: Bench) -> None:
    child = bench.running()
    assert Lease.take(bench.folder, 2, "another")
    assert bench.word(child).kind == CUT
    assert not bench.left
    assert not (bench.folder / "result-1.json").exists()


def test_a_folder_that_cannot_be_reached_any_more_ends_the_command_in_time(bench: Bench) -> None:
    """It is moved away: nothing can be renewed, and nothing be read."""
    child = bench.running()
    bench.session.rename(bench.session.with_name("away"))
    bench.word(child)
    assert not bench.left
    bench.session.with_name("away").rename(bench.session)
    assert not list(bench.folder.glob("result-*"))


def test_a_disk_that_is_full_is_said_and_not_tried_again(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "strata", small], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        made = Bench(small)
        with locks.held(made.session / ".lock"):
            word = made.run("import sys\nfor _ in range(100): print('x' * 10000, file=sys.stderr)")
        assert word.kind == FAILED
        assert "No space left" in word.why
    finally:
        for child in made.started:
            child.wait()
        subprocess.run(["umount", "-l", small], check=True)


def test_a_run_that_is_not_heard_of_any_more_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bench(tmp_path)
    order = placed.read(made.folder, made.ticket.sha256)
    assert order
    monkeypatch.setattr(placed.OwnRun, "SILENT_SECONDS", 0.3)
    run = placed.OwnRun(order)
    assert not run.over()
    time.sleep(0.4)
    (made.session / ".lock").write_text(LOCK.replace('"renewed": 1.0', '"renewed": 2.0'))
    assert not run.over(), "it has renewed its lock"
    time.sleep(0.4)
    assert "nothing was heard" in run.over()
    (made.session / ".lock").unlink()
    assert "gone" in run.over()
