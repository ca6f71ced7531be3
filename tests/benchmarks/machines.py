"""Many machines: what placing costs, how long a lost step waits, and what the submitter needs for many."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from farm import PROGRAM, Farm
from lib.process import keeper
from replayed import fan
from support import House, wait_for

HEARTBEAT_SECONDS = 5.0
SMALL, LARGE = 100, 2000


def figures(folder: Path) -> dict[str, float | str]:
    here: dict[str, float | str] = {"machines: a stage without a backend ÷ with none of it there": _without(folder)}
    if not PROGRAM:
        return here | {"machines": "no Temporal server here"}
    return here | {
        "machines: a stage on two workers ÷ beside": _stage(House(folder / "stage"), 60),
        "machines: a lost step runs again ÷ 5 s heartbeat": _lost(House(folder / "lost")) / HEARTBEAT_SECONDS,
        f"machines: memory of the submitter at {LARGE} stages ÷ at {SMALL}": _memory(folder, LARGE) / _memory(folder, SMALL),
    }


def _without(folder: Path, count: int = 60, repeats: int = 7) -> float:
    """A plan without a backend, in a house as it is, and in one from which all that is about other machines was taken out."""
    houses = [House(folder / name) for name in ("with", "without")]
    argvs = [fan(house, count, 8, "many") for house in houses]
    for path in ("core/lib/machines", "core/lib/temporal"):
        shutil.rmtree(houses[1].folder / path)
    (houses[1].folder / "core/worker.py").unlink()

    def seconds(number: int) -> float:
        started = time.monotonic()
        subprocess.run(argvs[number], env=houses[number].env, cwd=houses[number].workspace, capture_output=True, check=True)
        return time.monotonic() - started

    seconds(0), seconds(1)
    return statistics.median(seconds(0) / seconds(1) for _ in range(repeats))


def _stage(house: House, count: int, repeats: int = 3) -> float:
    local = fan(house, count, 8, "many")
    with Farm(house) as farm:
        for name in ("w1", "w2"):
            farm.worker(name, "--slots", "4")

        def seconds(*more: str) -> float:
            started = time.monotonic()
            subprocess.run([*local, *more], env=house.env, cwd=house.workspace, capture_output=True, check=True)
            return time.monotonic() - started

        placed = ("--backend", farm.address, "--session-base", str(house.sessions))
        seconds(), seconds(*placed)
        return statistics.median(seconds(*placed) / seconds() for _ in range(repeats))


def _lost(house: House) -> float:
    """From the death of a worker to the moment at which its step is begun on another."""
    with Farm(house) as farm:
        farm.furnish(["a"], a="600 0")
        farm.worker("w1")
        with house.start("campaign", *farm.words()) as run:
            wait_for(lambda: farm.log("beat"), 60, "it is at work")
            farm.worker("w2")
            farm.kill("w1")
            started = time.monotonic()
            wait_for(lambda: len(farm.began("a")) == 2, 120, "another has it")
            took = time.monotonic() - started
            run.wait(60)
    return took


def _memory(folder: Path, count: int) -> float:
    """The most that the run itself held at a time, its placer included: all that is not below a worker."""
    house = House(folder / f"memory-{count}")
    most = 0.0
    with Farm(house) as farm:
        farm.furnish([f"n{number:04}" for number in range(count)], cap=16)
        path = house.folder / "config/orchestrators/trial.yaml"
        names = ",".join(f"n{number:04}" for number in range(count))
        path.write_text(path.read_text().replace("max_items: 500", f"max_items: {count}").replace('"a,b"', f'"{names}"'))
        for name in ("w1", "w2"):
            farm.worker(name, "--slots", "4")
        ended = threading.Event()
        with farm.running("orchestrator", "trial", "--backend", farm.address, "--session-dir", str(farm.session)) as run:

            def look() -> None:
                nonlocal most
                while not ended.wait(0.5):
                    most = max(most, sum(_resident(pid) for pid in [run.pid, *keeper.descendants(run.pid)]))

            looking = threading.Thread(target=look)
            looking.start()
            code = run.wait(3600)
            ended.set()
            looking.join()
            assert code == 0
    return most


def _resident(pid: int) -> float:
    """Its own share of what is in memory, in kB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith("Pss:")), 0.0)
