"""The backend that hands tools to workers on other machines. Which engine brings an order to a worker is the placer's affair: a
process that the outermost tool starts (`submission`), and that every tool of the run asks over a socket.

What a command prints is read from the folder of its order as it comes. What decides is believed only when the worker's sealed
result says that these are the words: a line that hands an outcome over is passed on at the end.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import time
from pathlib import Path

import msgspec

from lib import names
from lib.contract import HANDING_OVER, STATUS, ExitCode, Interrupted, Json, StrataError
from lib.machines import lease, placed
from lib.machines.address import Asked, Told, Way
from lib.machines.placed import FAILED, REFUSED, STOPPED, Order, Result, Ticket
from lib.process import nursery, processes, running
from lib.process.backend import Backend, Command, Finished, OnLine, Running, Status, ToolCall

TEXT_SECONDS = 90.0  # until what another machine wrote is seen here
LOOK_SECONDS = 0.5
TAIL_LINES = 20
END_GRACE_SECONDS = 5.0


class Placing:
    """Places tools of some layer; everything else runs beside the caller."""

    def __init__(self, way: Way, beside: Backend) -> None:
        self._way, self._beside = way, beside

    def start(self, command: Command, on_line: OnLine) -> Running:
        tool = command.tool
        if tool is None or tool.layer != self._way.layer:
            return self._beside.start(command, on_line)
        return PlacedRunning(command, tool, self._way, on_line)


class PlacedRunning:
    def __init__(self, command: Command, tool: ToolCall, way: Way, on_line: OnLine) -> None:
        self.heard = time.monotonic()
        nursery.require_words(tool.arguments)
        session = Path(command.env[names.SESSION]).resolve()
        self.folder = session / placed.PLACED / command.id
        self._key = secrets.token_hex(32)
        self._on_line = on_line
        self._number: int = 0  # of the lease under which it runs, as far as is known
        self._read = 0  # bytes of its stderr
        self._rest = b""
        self._looked = 0.0
        self._there = self.heard  # when its folder was seen last
        self._tail: list[str] = []
        self._data = b""
        self._told: Told | None = None
        self._finished: Finished | None = None
        self._socket = _connect(way)
        env = {name: command.env[name] for name in placed.TRAVELS if name in command.env}
        order = Order(
            command.id,
            tool.name,
            tool.arguments,
            env,
            str(command.cwd or _here(session)),
            str(session),
            placed.owner_of(session),
            way.house,
            command.stdin is not None,
        )
        ticket = Ticket(str(self.folder), placed.write(self.folder, order, command.stdin), self._key, way.house)
        self._say(Asked(f"{session.name}-{command.id}", ticket, tool.needs, tool.name))

    def stop(self, grace: float) -> None:
        placed.stop(self.folder, grace)
        self._say(None)

    def wait(self, seconds: float) -> Finished | None:
        self._listen(seconds)
        if self._told:
            self._finished = self._ended(self._told)
        elif time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._follow()
            # A result that is there counts, also while the server is away.
            found = placed.result(self.folder, self._key)
            self._finished = self._printed(found) if found else None
            if self.folder.is_dir():
                self._there = self._looked
            elif self._looked - self._there > lease.TAKE_SECONDS + LOOK_SECONDS:  # who ran it has ended by then
                self._finished = Finished(1, b"", "the folder of its order is gone", Status.LOST)
        return self._finished

    def close(self, grace: float) -> None:
        if not self._finished:
            self._withdraw(grace)
        self._socket.close()
        placed.remove(self.folder)

    def _withdraw(self, grace: float) -> None:
        """Nobody runs it any more when this returns, and nobody begins it."""
        if placed.withdraw([self.folder], grace, placed.PATIENCE_SECONDS):
            raise StrataError(
                "NOT_STOPPED",
                f"worker {lease.holder(self.folder) or '?'} did not end what it runs for {self.folder.name} in time",
                "it ends by itself when it sees that its run is over; resume then",
            )

    # Listening

    def _say(self, asked: Asked | None) -> None:
        try:
            self._socket.sendall(msgspec.json.encode(asked) + b"\n")
        except OSError:
            pass  # the placer is gone: the next look at the socket says so

    def _listen(self, seconds: float) -> None:
        ready, _, _ = select.select([self._socket], [], [], seconds)
        if not ready:
            return
        try:
            data = self._socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise Interrupted("the program that places commands on workers has ended")
        self.heard = time.monotonic()
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            told = msgspec.json.decode(line, type=Told)
            self._told = told if told.word or told.lost else self._told

    def _follow(self) -> None:
        """Passes on what it has said since, but for what decides."""
        number = placed.lease_number(self.folder)
        if number == 0:
            self.heard = time.monotonic()  # it waits for a worker; that it does is the placer's to say
        if number != self._number:
            self._number, self._read, self._rest = number, 0, b""
        try:
            with (self.folder / f"stderr-{number}").open("rb") as file:
                file.seek(self._read)
                data = file.read(1 << 20)
        except OSError:
            return  # it has not begun
        if data:
            self.heard = time.monotonic()
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._pass_on(line, decides=False)

    def _pass_on(self, line: bytes, decides: bool) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if text.startswith(HANDING_OVER) == decides:
            self._on_line(text)
        if not decides:
            self._tail = [*self._tail[1 - TAIL_LINES :], text[:2000]]

    # The end

    def _ended(self, told: Told) -> Finished:
        """A word without a result says only that nobody will bring one. Some worker may run it yet: that one is ended first."""
        word = told.word
        known = word.result if word and word.result and word.result.genuine(self._key) else None
        if not known:
            placed.stop(self.folder, END_GRACE_SECONDS)
            placed.await_free(self.folder, END_GRACE_SECONDS + placed.PATIENCE_SECONDS)
            known = placed.result(self.folder, self._key, ended=True)
            known = None if known and known.exit_code in STOPPED else known  # it was we who stopped it: that is no verdict
        if known:
            return self._printed(known)
        self._withdraw(END_GRACE_SECONDS)
        why = word.why if word else told.lost
        if word and word.kind in (REFUSED, FAILED):
            refused: Json = {"code": "REFUSED_BY_WORKER", "hint": "see config/machines/README.md", "final": True}
            failed: Json = {"code": "NOT_RUN", "hint": "fix what keeps every worker from taking it, then resume"}
            error: Json = {"message": why, **(refused if word.kind == REFUSED else failed)}
            document: Json = {"status": STATUS[ExitCode.FAILURE], "exit_code": 1, "error": error}
            return Finished(1, json.dumps(document).encode(), why)
        return Finished(1, b"", why, Status.LOST)

    def _printed(self, result: Result) -> Finished:
        """What it printed, once all of that is seen here. Words that are not what the worker sealed are nobody's."""
        until = time.monotonic() + TEXT_SECONDS
        while True:
            out = placed.text(self.folder, result.number, "stdout", result.stdout, result.stdout_size)
            err = placed.text(self.folder, result.number, "stderr", result.stderr, result.stderr_size)
            if out is not None and err is not None:
                break
            if time.monotonic() > until or processes.stopping.is_set():
                return Finished(1, b"", "what it printed is not what its worker sealed", Status.LOST)
            time.sleep(LOOK_SECONDS)
        seen = self._read - len(self._rest) if self._number == result.number else 0
        for line in err[seen:].split(b"\n")[: err[seen:].count(b"\n") + bool(err and not err.endswith(b"\n"))]:
            self._pass_on(line, decides=False)
        for line in err.split(b"\n"):
            self._pass_on(line, decides=True)
        return Finished(result.exit_code, out, "\n".join(self._tail))


def _connect(way: Way) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(way.socket)
    except OSError:
        channel.close()
        raise Interrupted("the program that places commands on workers has ended") from None
    return channel


def _here(session: Path) -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return session


def join() -> None:
    """What this process starts from here on is placed, if it is of the layer for that."""
    way = Way.read()
    if way and not isinstance(running.backend, Placing):
        running.backend = Placing(way, running.backend)
