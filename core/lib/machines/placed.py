"""A command that is placed on another machine, as files in a folder of its session that both machines see.

`order.json` says what is to be run, `stop` that nobody wants it any more. Whoever runs it holds the folder's lease, and under the
number of that lease keeps `stdout-N`, `stderr-N` and, last of all, `result-N.json`, which is sealed with a key that only the
submitter and the worker have: what merely appears in the folder is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from lib import names
from lib.contract import ExitCode, StrataError
from lib.disk import files, locks, records
from lib.machines import lease
from lib.machines.lease import Lease, Watch
from lib.session.owner import LOCK_NAME, PLACED, Owner

ORDER, STOP, WANTED = "order.json", "stop", "wanted"
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 30.0  # beyond the grace: a holder that says nothing has ended long before
RESULT_LIMIT = 64 * 1024  # bytes; what is larger is none
NOTHING = hashlib.sha256(b"").hexdigest()
_RESULT = re.compile(r"(result|handed)-([0-9]{1,9})\.json")
_ID = re.compile(r"[0-9a-f]{16}")
# Of an environment, what is about the session and travels. All else, every secret above all, is the worker's own.
TRAVELS = (
    *(names.DEPTH, names.MAX_DEPTH, names.TRACE, names.SESSION, names.DRIVER, names.GRANT, names.AGENT, names.CHECKED),
    *(names.CALLER, names.USER),
)


class Order(Struct, frozen=True):
    id: str
    tool: str  # by its name: whoever runs it takes that of its own house
    arguments: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    session: str
    owner: str  # the run it belongs to, as its lock names it
    house: str  # the name of the facts of the house that ordered it
    stdin: bool = False


class Ticket(Struct, frozen=True):
    """What travels through an engine: where the order is, and how to know it. Everything else is in the folder."""

    folder: str
    sha256: str  # of the order
    key: str  # for the seal
    house: str


class Result(Struct, frozen=True):
    number: int  # of the lease it was run under
    exit_code: int
    worker: str
    stdout: str = NOTHING  # the hash of what it printed …
    stderr: str = NOTHING
    stdout_size: int = 0  # … and how much of the file that is
    stderr_size: int = 0
    outcome: str = ""  # what it was about to write in the session when it was heard of last …
    outcome_sha256: str = ""  # … by its hash: where that is there, it has come to its end
    seal: str = ""

    def sealed(self, key: str) -> Result:
        return replace(self, seal=self._sign(key))

    def genuine(self, key: str) -> bool:
        return hmac.compare_digest(self.seal.encode("utf-8", "replace"), self._sign(key).encode())

    def _sign(self, key: str) -> str:
        text = json.dumps({**asdict(self), "seal": ""}, sort_keys=True)
        return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()


class Word(Struct, frozen=True):
    """What became of it."""

    kind: str  # one of the six below
    why: str = ""
    result: Result | None = None


RESULT = "result"
CUT = "cut"  # whoever had it is cut off or gone: another may have it
WITHDRAWN = "withdrawn"  # nobody wants it any more
REFUSED = "refused"  # no worker of this kind may run it
UNSEEN = "unseen"  # the worker does not see what it has to
FAILED = "failed"  # it cannot be run for now, wherever it is tried


STOPPED = (ExitCode.INTERRUPTED, -signal.SIGTERM)  # how a command ends that somebody has asked to


def write(folder: Path, order: Order, stdin: bytes | None) -> str:
    """Puts the order there, and returns its hash: what is run is what was ordered."""
    folder.mkdir(parents=True)
    if stdin is not None:
        (folder / "stdin").write_bytes(stdin)
    data = json.dumps(records.document(order), indent=2).encode()
    files.write_atomic(folder / ORDER, data)
    return hashlib.sha256(data).hexdigest()


def read(folder: Path, sha256: str) -> Order | None:
    """The order, if it is the one that was given."""
    try:
        data = (folder / ORDER).read_bytes()
        return records.of(json.loads(data), Order) if hashlib.sha256(data).hexdigest() == sha256 else None
    except (OSError, ValueError):
        return None


def stop(folder: Path, grace: float) -> None:
    """Nobody wants it any more. Where the folder is gone, nobody has it any more either."""
    if folder.is_dir() and not (folder / STOP).exists():
        files.write_atomic(folder / STOP, f"{grace:g}\n")


def stopped(folder: Path) -> float | None:
    """The seconds it is given to end, if it is to end."""
    try:
        return float((folder / STOP).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None if folder.is_dir() else 0.0


def result(folder: Path, key: str, ended: bool = False) -> Result | None:
    """What it came to under anybody's lease. `ended`: whoever had it is known to be gone; then an outcome that it had handed
    over, and that is there, counts, although it could not say how it ended."""
    found: list[Result] = []
    for path in sorted(folder.glob("*-*.json")):
        known = _RESULT.fullmatch(path.name)
        wanted = known and (ended or known[1] == RESULT) and path.is_file() and path.stat().st_size < RESULT_LIMIT
        read = records.look(path, Result) if wanted else None
        if read and read.genuine(key) and ((known and known[1] == RESULT) or _is_there(folder, read)):
            found.append(read)
    return max(found, key=lambda r: (r.exit_code >= 0, r.number), default=None)


def _is_there(folder: Path, known: Result) -> bool:
    path = folder.parent.parent / known.outcome
    return bool(known.outcome) and path.is_file() and files.sha256(path) == known.outcome_sha256


def text(folder: Path, number: int, stream: str, sha256: str, size: int) -> bytes | None:
    """What it printed, if it is what it printed."""
    if not size:
        return b""
    try:
        with (folder / f"{stream}-{number}").open("rb") as file:
            data = file.read(size)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha256 else None


def remove(folder: Path) -> None:
    """At once, not file by file: who looks sees it whole, or not at all, and begins nothing that has ended."""
    if folder.is_dir():
        aside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        try:
            folder.rename(aside)
        except FileNotFoundError:
            return
        shutil.rmtree(aside, ignore_errors=True)


def withdraw(folders: Sequence[Path], grace: float, patience: float) -> list[Path]:
    """Has whoever runs these end that, and takes their place, so that nobody begins them any more; then they go. Returns those
    that did not end in time."""
    for folder in folders:
        stop(folder, grace)
    watches, until = {folder: Watch(folder) for folder in folders}, time.monotonic() + grace + patience
    while True:
        for folder, watch in list(watches.items()):
            if not folder.is_dir() or (watch.free() and Lease.take(folder, watch.number + 1, "withdrawn")):
                remove(folder)
                del watches[folder]
        if not watches or time.monotonic() > until:
            return list(watches)
        time.sleep(LOOK_SECONDS)


def await_free(folder: Path, seconds: float) -> None:
    """Until nobody runs it any more, as far as looking tells."""
    watch, until = Watch(folder), time.monotonic() + seconds
    while folder.is_dir() and not watch.free() and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def settle(session: Path, say: Callable[[int], None], grace: float = 5.0) -> None:
    """Ends what an earlier run of a session left on other machines: two do not work on one step. `say` hears how many."""
    folder = session / PLACED
    if folder.is_symlink():  # none of ours, and what it leads to even less
        folder.unlink()
        return
    left = [p for p in folder.iterdir() if p.is_dir() and not p.is_symlink() and _ID.fullmatch(p.name)] if folder.is_dir() else []
    if left:
        say(len(left))
    if still := withdraw(left, grace, PATIENCE_SECONDS):
        hint = "wait for it, or stop that worker; then run this again"
        raise StrataError("STILL_RUNNING", f"{_holders(still)} still runs what an earlier run placed", hint)
    tidy(folder)


def tidy(folder: Path) -> None:
    """What is left of orders that were removed, and the folder itself, where nothing else is in it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        if path.name.startswith(".") and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _holders(folders: Sequence[Path]) -> str:
    return "worker " + ", ".join(sorted({lease.holder(folder) or "?" for folder in folders}))


class OwnRun:
    """The run that ordered the work: whether it still goes on, as its lock says. On another machine only its renewals tell."""

    SILENT_SECONDS = 25.0  # it renews every 5

    def __init__(self, order: Order) -> None:
        self._session = Path(order.session)
        self._owner = order.owner
        self._known: Owner | None = None
        self._since = time.monotonic()

    def over(self) -> str:
        try:
            (self._session / LOCK_NAME).stat()  # a folder that is not to be reached is away, and the run not over
        except FileNotFoundError:
            return "its session is gone, or the lock of it"
        known = Owner.read(self._session)
        if known is None:
            return "the lock of its session cannot be read"
        if known.name != self._owner:
            return "its run has ended"
        now = time.monotonic()
        if known != self._known:
            self._known, self._since = known, now
        return "nothing was heard of its run" if now - self._since > self.SILENT_SECONDS else ""

    def lock_holds(self) -> bool:
        """Whether the lock that the run holds is seen from here, as it must be: budgets and reports count on locks."""
        return locks.is_held(self._session / LOCK_NAME)


def owner_of(session: Path) -> str:
    known = Owner.read(session)
    return known.name if known else ""


def lease_number(folder: Path) -> int:
    """Of who runs it, or ran it last; 0 where nobody has begun."""
    try:
        return lease.newest(folder)
    except OSError:
        return 0
