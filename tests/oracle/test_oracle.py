"""Generated campaigns against the model: undisturbed, killed anywhere and resumed, and with one thing changed.

`STRATA_CASES=1000 uv run pytest tests/oracle` runs more of them than an ordinary run does.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lib.attempt.verdicts import Verdict
from lib.contract import StrataError
from lib.plan.task import Task
from lib.session.step import Step
from lib.tool.call import Call

from oracle.engine import Engine, points
from oracle.model import World, content_of, value_of
from oracle.shapes import FILES, Campaign, Run, campaigns, write

START = {name: f"{name} at first\n" for name in FILES}
CASES = int(os.environ.get("STRATA_CASES", "18"))
few = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


@dataclass
class Trial:
    """One campaign in a folder of its own, with the engine that runs it."""

    folder: Path
    campaign: Campaign

    def __post_init__(self) -> None:
        self.cwd, self.session = self.folder / "work", self.folder / "session"
        self.cwd.mkdir(parents=True)
        for name, text in START.items():
            (self.cwd / name).write_text(text)
        script = self.folder / "worker.py"
        script.write_text("# the worker\n")
        self.plan = write(self.campaign, self.folder)
        self.engine = Engine(self.work, script, self.cwd)
        self.ran: list[str] = []
        self.good: Counter[str] = Counter()

    def work(self, task: Task, out: Path, call: Call) -> Any:
        told = json.loads(call.options.words[0])
        step = Step.parse(call.options.step)
        self.ran.append(str(step))
        item = task.item["id"] if task.item else ""
        fails = told["fails"][item] if isinstance(told["fails"], dict) else told["fails"]
        reads = {f"{k[2:]}.txt": text(call.cwd / f"{k[2:]}.txt") for k in task.inputs if k.startswith("r-")}
        refs = [
            v for k, value in task.inputs.items() if k.startswith("p-") for v in (value if isinstance(value, list) else [value])
        ]
        values = [json.loads(Path(p).read_text()) for p in refs]
        value = value_of(told["n"], item, step.round, reads, values, told["v"])
        ended = len(list(out.parent.parent.glob("attempt-*/outcome.json")))
        points.reach()
        for output in task.outputs:
            if output.place == "workspace":
                failing = ended < fails
                (call.cwd / output.path).write_text("half\n" if failing else content_of(value, output.path))
                points.reach()
        if ended < fails:
            raise StrataError("TRIAL", "it fails")
        (out / "made.json").write_text(json.dumps(value))
        self.good[str(step)] += 1
        return Verdict("needs_revision", "once more") if 0 < step.round <= told["revises"] else Verdict("done")

    def go(self, kill_at: int = 0, answer: bool = False) -> int | None:
        flags: list[str] = []
        names = {s.name for p in self.campaign for s in p.stages if s.kind == "ask"}
        for name in sorted(names) if answer else []:
            flags += ["--answer", f'{name}="yes"']
        begun = (self.session / "effective-config.json").exists()
        words = ["--resume", str(self.session)] if begun else [str(self.plan), "--session-dir", str(self.session)]
        done = self.engine.run("campaign", *words, *flags, kill_at=kill_at)
        return None if done is None else int(done.exit_code)

    def to_the_end(self, kills: tuple[int, ...] = ()) -> int:
        """Resumed as often as it was killed, and answered where it asked."""
        left = list(kills)
        answer = False
        for _ in range(20):
            code = self.go(left.pop(0) if left else 0, answer)
            if code is None:
                continue
            if code != 3 or not self.waits():
                return code
            answer = True
        raise AssertionError("it does not come to an end")

    def waits(self) -> bool:
        manifests = [json.loads(p.read_text()) for p in self.session.glob("phases/*/*/manifest.json")]
        return any(m.get("exit_code") == 3 for m in manifests)

    def files(self) -> dict[str, str]:
        return {name: text(self.cwd / name) for name in FILES}

    def published(self) -> dict[str, str]:
        found = [p for p in self.session.glob("phases/*/artifacts/**/*") if p.is_file()]
        return {str(p.relative_to(self.session)): p.read_text() for p in found}

    def checks(self) -> int:
        return len(list(self.session.glob("phases/*/sentinel/stages/02-checks/**/outcome.json")))


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def expected(world: World, campaign: Campaign, answered: dict[str, Any], damaged: set[str] = frozenset()) -> int:  # type: ignore[assignment]
    """What the model says: run, and answered where it asks, until it ends."""
    world.ran.clear()
    answer = False
    for _ in range(10):
        run = Run(world, campaign, answered, set(damaged), answer)
        code = run.go()
        world.reported = world.tick()
        damaged = run.damaged  # type: ignore[assignment]
        if not run.asked:
            return code
        answer = True
    raise AssertionError("the model does not come to an end")


def compare(trial: Trial, world: World, before: int, checked: int, code: int, wanted: int) -> None:
    ran = [s for s in world.ran if s != "check"]
    assert trial.ran[before:] == ran, f"exactly what has to run runs: {trial.ran[before:]}, not {ran}"
    assert code == wanted, f"{code} instead of {wanted}"
    assert trial.files() == {n: world.files.get(n, "") for n in FILES}
    assert trial.checks() - checked == len(world.ran) - len(ran), "verified as often as there was something to verify"


def change(trial: Trial, world: World, what: str, which: int) -> tuple[Campaign, set[str]]:
    """One thing, from outside; in the engine's world and in the model's."""
    campaign = trial.campaign
    if what == "edit":
        name = FILES[which % len(FILES)]
        world.files[name] = f"a person was here {which}\n"
        (trial.cwd / name).write_text(world.files[name])
        later = time.time() + 60  # a person is slower than a test
        os.utime(trial.cwd / name, (later, later))
    if what == "artifact":
        found = sorted(s for s, r in world.records.items() if r.ok and "/sentinel/" not in s)
        if found:
            step = Step.parse(found[which % len(found)])
            (trial.session / step.artifacts / "made.json").write_text('"damaged"')
            return campaign, {str(step)}
    if what == "variant":
        phase = campaign[which % len(campaign)]
        stage = phase.stages[which % len(phase.stages)]
        if stage.kind != "ask":
            place = which % len(stage.members)
            changed = [replace(m, variant=1) if stage.kind == "each" or n == place else m for n, m in enumerate(stage.members)]
            new = replace(stage, members=tuple(changed))
            stages = tuple(new if s is stage else s for s in phase.stages)
            campaign = tuple(replace(p, stages=stages) if p is phase else p for p in campaign)
            write(campaign, trial.folder)
    return campaign, set()


def in_a_folder(check: Any, *given: Any) -> None:
    folder = Path(tempfile.mkdtemp(prefix="strata-oracle-"))
    try:
        check(folder, *given)
    finally:
        shutil.rmtree(folder)


def undisturbed_then_changed(folder: Path, campaign: Campaign, changes: list[tuple[str, int]]) -> None:
    trial, world, answered = Trial(folder / "one", campaign), World(dict(START)), {}
    wanted = expected(world, campaign, answered)
    compare(trial, world, 0, 0, trial.to_the_end(), wanted)
    for what, which in [("nothing", 0), *changes]:
        ran, checked = len(trial.ran), trial.checks()
        trial.campaign, damaged = change(trial, world, what, which)
        wanted = expected(world, trial.campaign, answered, damaged)
        code = trial.to_the_end()
        compare(trial, world, ran, checked, code, wanted)


def killed_and_resumed(folder: Path, campaign: Campaign, kills: list[float]) -> None:
    whole = Trial(folder / "whole", campaign)
    code = whole.to_the_end()
    points.begin()
    count = Trial(folder / "count", campaign)
    count.go()
    at = tuple(1 + int(k * max(points.count - 1, 1)) for k in kills)
    cut = Trial(folder / "cut", campaign)
    total = points.count
    killed = cut.to_the_end(at)
    assert killed == code, f"killed at {at} of {total}: {killed} instead of {code}"
    assert cut.files() == whole.files(), f"{cut.files()} instead of {whole.files()}"
    assert cut.published() == whole.published(), f"{cut.published()} instead of {whole.published()}"
    assert cut.checks() == whole.checks(), f"{cut.checks()} checks instead of {whole.checks()}"
    twice = finished(cut) - finished(whole)
    assert not twice, f"finished, and done again: {twice}"
    assert finished(cut) == finished(whole), f"{finished(cut)} instead of {finished(whole)}"
    assert tries(cut) == tries(whole), f"{tries(cut)} instead of {tries(whole)}"
    ran, checked = len(cut.ran), cut.checks()
    again = cut.to_the_end()
    assert code == 3 or (again, cut.checks(), cut.ran[ran:]) == (code, checked, []), f"resumed once more: {cut.ran[ran:]}"


def tries(trial: Trial) -> Counter[str]:
    """How many attempts at each step came to an end."""
    return Counter(json.loads(p.read_text())["step"] for p in trial.session.glob("phases/*/p*/stages/**/outcome.json"))


def finished(trial: Trial) -> Counter[str]:
    """How often each step was finished, by the outcomes on disk."""
    found: Counter[str] = Counter()
    for path in trial.session.glob("phases/*/p*/stages/**/outcome.json"):
        outcome = json.loads(path.read_text())
        found[outcome["step"]] += outcome["verdict"] in ("done", "needs_revision")
    return +found


CHANGES = st.lists(st.tuples(st.sampled_from(("edit", "edit", "artifact", "variant")), st.integers(0, 5)), min_size=1, max_size=2)
KILLS = st.lists(st.floats(0, 1), min_size=1, max_size=2)


@few
@given(campaigns(), CHANGES)
def test_exactly_what_must_run_runs(campaign: Campaign, changes: list[tuple[str, int]]) -> None:
    in_a_folder(undisturbed_then_changed, campaign, changes)


@few
@given(campaigns(), KILLS)
def test_a_kill_anywhere_changes_nothing_but_the_time_it_takes(campaign: Campaign, kills: list[float]) -> None:
    in_a_folder(killed_and_resumed, campaign, kills)
