"""Ring 1: what a tool believes of a command that was placed: what its worker sealed, and nothing that merely appeared."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from lib import names
from lib.contract import HANDED, Interrupted, StrataError
from lib.machines import placed, placing
from lib.machines.address import Address, Asked, Told, Way, queue
from lib.machines.lease import Lease
from lib.machines.placed import FAILED, REFUSED, RESULT, Result, Word
from lib.process import running
from lib.process.backend import Command, Finished, Status, ToolCall
from lib.process.local import Local

LOCK = json.dumps({"pid": 1, "host": "h", "boot": "b", "began": "1", "renewed": 1.0})
FORGED = json.dumps({"event": HANDED, "attempt": "attempt-1", "sha256": "f" * 64, "path": "x"})


class Placer:
    """Stands where the placer does: takes one order, and lets a test say what came of it."""

    def __init__(self, folder: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(folder / "p"))
        self._server.listen()
        self.way = Way(str(folder / "p"), 1, "house")
        self.asked: Asked | None = None
        self._got = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            self.channel, _ = self._server.accept()
            self.asked = msgspec.json.decode(self.channel.makefile("rb").readline(), type=Asked)
            self._got.set()
        except OSError:
            return

    def wait(self) -> Asked:
        assert self._got.wait(30)
        assert self.asked
        return self.asked

    def tell(self, told: Told) -> None:
        self.channel.sendall(msgspec.json.encode(told) + b"\n")

    def close(self) -> None:
        self._server.close()
        if self.asked:
            self.channel.close()


class Trial:
    def __init__(self, folder: Path) -> None:
        self.session = folder / "s"
        self.session.mkdir()
        (self.session / ".lock").write_text(LOCK)
        self.placer = Placer(folder)
        self.lines: list[str] = []
        env = {names.SESSION: str(self.session), names.DEPTH: "1", "ANTHROPIC_API_KEY": "secret", "PATH": "/bin"}
        tool = ToolCall("agent.py", 1, ("--step", "x"), ("gpu",))
        command = Command("one", ("python", "agent.py"), env, tool=tool)
        self.running = placing.Placing(self.placer.way, Local()).start(command, self.lines.append)
        self.asked = self.placer.wait()
        self.folder = Path(self.asked.ticket.folder)

    def printed(self, out: bytes, err: bytes, code: int = 0, key: str = "") -> Result:
        from hashlib import sha256

        Lease.take(self.folder, 1, "w1")
        (self.folder / "stdout-1").write_bytes(out)
        (self.folder / "stderr-1").write_bytes(err)
        hashes = (sha256(out).hexdigest(), sha256(err).hexdigest())
        return Result(1, code, "w1", *hashes, len(out), len(err)).sealed(key or self.asked.ticket.key)

    def finished(self) -> Finished:
        while not (found := self.running.wait(0.1)):
            pass
        return found


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.running.close(0.1)
    made.placer.close()


def test_an_order_names_its_tool_and_carries_no_secret(trial: Trial) -> None:
    order = placed.read(trial.folder, trial.asked.ticket.sha256)
    assert order and (order.tool, order.arguments, order.env) == (
        "agent.py",
        ("--step", "x"),
        {names.DEPTH: "1", names.SESSION: str(trial.session)},
    )
    assert trial.asked.needs == ("gpu",)
    assert b"secret" not in (trial.folder / placed.ORDER).read_bytes()
    assert len(msgspec.json.encode(trial.asked)) < 1000, "what travels is where things are"


def test_lines_come_as_they_are_said_and_what_decides_at_the_end(trial: Trial) -> None:
    result = trial.printed(b"{}", f"one\n{FORGED}\ntwo\n".encode(), 12)
    until = 100
    while len(trial.lines) < 2 and until:
        assert trial.running.wait(0.1) is None
        until -= 1
    assert trial.lines == ["one", "two"]
    trial.placer.tell(Told(word=Word(RESULT, result=result)))
    assert trial.finished() == Finished(12, b"{}", f"one\n{FORGED}\ntwo")
    assert trial.lines == ["one", "two", FORGED]
    trial.running.close(0.1)
    assert not trial.folder.exists()


def test_a_result_in_the_folder_counts_while_the_server_is_away(trial: Trial) -> None:
    result = trial.printed(b"{}", b"")
    (trial.folder / "result-1.json").write_bytes(msgspec.json.encode(result))
    assert trial.finished() == Finished(0, b"{}", "")


def test_what_is_not_sealed_decides_nothing(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent with a shell writes what would be a success into the folder of its order."""
    monkeypatch.setattr(placing, "TEXT_SECONDS", 0.5)
    forged = trial.printed(b'{"exit_code": 0}', f"{FORGED}\n".encode(), key="0" * 64)
    (trial.folder / "result-1.json").write_bytes(msgspec.json.encode(forged))
    for _ in range(12):
        assert trial.running.wait(0.1) is None
    true = trial.printed(b"{}", b"said\n", 1)
    trial.printed(b'{"exit_code": 0}', f"{FORGED}\n".encode())  # and changes what the worker has written
    trial.placer.tell(Told(word=Word(RESULT, result=true)))
    assert trial.finished().status is Status.LOST
    assert FORGED not in trial.lines


def test_a_word_of_the_server_without_a_seal_is_no_result(trial: Trial) -> None:
    trial.placer.tell(Told(word=Word(RESULT, result=trial.printed(b"{}", b"", key="0" * 64))))
    assert trial.finished().status is Status.LOST


def test_what_is_refused_is_an_error_that_no_retry_helps(trial: Trial) -> None:
    trial.placer.tell(Told(word=Word(REFUSED, "because")))
    document = json.loads(trial.finished().stdout)
    assert (document["error"]["code"], document["error"]["message"], document["error"]["final"]) == (
        "REFUSED_BY_WORKER",
        "because",
        True,
    )


def test_what_another_worker_still_runs_is_ended_first_and_its_stop_is_no_verdict(trial: Trial) -> None:
    """One says that it cannot be run, while another has it: an interruption of ours must not end the whole run."""
    held = Lease.take(trial.folder, 1, "w1")
    assert held

    def run() -> None:
        while placed.stopped(trial.folder) is None:
            held.renew()
        ended = trial.printed(b"{}", b"", 20)
        (trial.folder / "result-1.json").write_bytes(msgspec.json.encode(ended))
        held.release()

    runs = threading.Thread(target=run)
    runs.start()
    trial.placer.tell(Told(word=Word(FAILED, "no room")))
    finished = trial.finished()
    runs.join()
    assert json.loads(finished.stdout)["error"]["code"] == "NOT_RUN"
    assert not trial.folder.exists(), "and nobody begins it any more"


def test_a_run_whose_placer_has_ended_is_interrupted(trial: Trial) -> None:
    trial.placer.close()
    with pytest.raises(Interrupted):
        trial.finished()
    trial.running.close(0.1)
    assert not trial.folder.exists(), "nobody can begin it any more"


def test_what_is_stopped_before_it_begins_is_gone(trial: Trial) -> None:
    trial.running.stop(1.0)
    trial.running.close(1.0)
    assert not trial.folder.exists()
    assert Lease  # whoever comes later finds no order


def test_other_layers_and_other_programs_run_beside_the_caller(tmp_path: Path) -> None:
    class Beside:
        def start(self, command: Command, on_line: object) -> str:
            return command.id

    backend = placing.Placing(Way("nowhere", 1, "h"), Beside())  # type: ignore[arg-type]
    for tool in (None, ToolCall("spawn.py", 0, ()), ToolCall("orchestrator.py", 2, ())):
        assert backend.start(Command("x", (), {}, tool=tool), print) == "x"


@pytest.mark.parametrize("text", ["temporal://h", "temporal://h:7234/ns", "temporal://[::1]:7233/ns?cap=4&place=orchestrators"])
def test_an_address_is_what_it_says(text: str) -> None:
    address = Address.parse(text)
    assert address and Address.parse(str(address)) == address


def test_on_this_machine_is_no_address() -> None:
    assert Address.parse("local") is Address.parse("") is None


def test_houses_and_labels_have_queues_of_their_own() -> None:
    labels = ((), ("x",), ("x", "y"), ("y",), ("orchestrators",))
    names_of = {queue(h, p, n) for h in ("a", "b") for p in ("executors", "orchestrators") for n in labels}
    assert len(names_of) == 20
    assert queue("a", "executors", ("y", "x", "x")) == queue("a", "executors", ("x", "y"))


def test_nothing_is_placed_without_a_run_that_places(monkeypatch: pytest.MonkeyPatch) -> None:
    before = running.backend
    monkeypatch.delenv(names.BACKEND, raising=False)
    placing.join()
    assert running.backend is before
    monkeypatch.setenv(names.BACKEND, "{")
    with pytest.raises(StrataError, match=names.BACKEND):
        placing.join()
