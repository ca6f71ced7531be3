"""The watchdog: a run in which nothing has happened for too long is ended, resumable. A slow agent that talks is not nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lib.contract import ExitCode, StrataError, command
from lib.disk.clock import now, when
from lib.tool.call import Call

from packs.deep_research.at import HOME, Desk
from packs.deep_research.state import PAUSED, Manifest, Run

SECONDS = {
    "init": 120, "perspectives": 600, "wave1": 600, "pivot": 120, "wave2": 600, "citations": 600, "summaries": 600,
    "synthesis": 600, "review": 300, "finalize": 120,
}  # fmt: skip
LOOK_SECONDS = 1.0
SIGNS = ("**/attempt-*/transcript.jsonl", "**/attempt-*/outcome.json", "**/attempt-*/web/*.json", f"{HOME}/*/logs/audit.jsonl")


def overdue(manifest: Manifest, last_sign: float, at: float) -> float:
    """For how many seconds nothing has happened beyond what the stage allows; 0 where that is not so, or while it is paused."""
    most = manifest.limits.watchdog_seconds if manifest.limits.watchdog_seconds > 0 else SECONDS[manifest.stage.current]
    since = max(when(manifest.stage.started_at) or 0.0, when(manifest.stage.last_progress_at) or 0.0, last_sign)
    return max(0.0, at - since - most) if manifest.status != PAUSED and since else 0.0


def last_sign(session: Path) -> float:
    """When an agent last said something, a page came, or a step ended."""
    return max((path.stat().st_mtime for pattern in SIGNS for path in session.glob(pattern)), default=0.0)


@contextmanager
def over(call: Call, run_id: str) -> Generator[None]:
    """Watches while the run is at work here; what is not at work, or paused, is not watched."""
    ended, began = threading.Event(), when(now()) or 0.0
    barked: list[str] = []

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            run = _run(call, run_id)
            if run is None:
                continue
            manifest = run.manifest()
            late = overdue(manifest, max(began, last_sign(call.session.folder)), when(now()) or 0.0)
            if late:
                barked.append(f"nothing has happened in {manifest.stage.current} for too long")
                Desk(run.root).log("run_halted", f"WATCHDOG_TIMEOUT: {barked[0]}")
                os.kill(os.getpid(), signal.SIGTERM)  # as a person would: everything below ends, and can be resumed
                return

    threading.Thread(target=look, name="watchdog", daemon=True).start()
    try:
        yield
    except StrataError as error:
        if barked and error.exit_code == ExitCode.INTERRUPTED:
            hint = f"{command('deep_research')} resume {call.session.folder}; --watchdog SECONDS allows more"
            raise StrataError("WATCHDOG_TIMEOUT", barked[0], hint, ExitCode.TIMEOUT) from None
        raise
    finally:
        ended.set()


def _run(call: Call, run_id: str) -> Run | None:
    """Once it is there."""
    try:
        run = Run(call.session.folder / HOME / run_id)
    except StrataError:
        return None  # the session is not open yet
    return run if run.manifest_path.exists() else None
