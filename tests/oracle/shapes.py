"""Campaigns at random: phases of stages that read, write and edit the files of a small workspace, fail now and then, are sent
back and skipped; as records, as the YAML the engine reads, and as what the model expects of a run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from lib.process.fanout import one_by_one

from oracle.model import Job, Record, World, attempt, key_of, look

FILES = ("a.txt", "b.txt", "c.txt")


@dataclass(frozen=True)
class Member:
    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    fails: int = 0
    revises: int = 0
    variant: int = 0


@dataclass(frozen=True)
class Stage:
    name: str
    kind: str  # one, group, each or ask
    members: tuple[Member, ...]
    retry: int = 0
    required: bool = True
    policy: str = "abort"
    min_success: int | None = None
    on: tuple[tuple[str, str], ...] = ()

    @property
    def many(self) -> bool:
        return self.kind in ("group", "each")


@dataclass(frozen=True)
class Loop:
    name: str
    to: str
    max: int
    then: str


@dataclass(frozen=True)
class Phase:
    name: str
    stages: tuple[Stage, ...]
    loops: tuple[Loop, ...] = ()
    verified: bool = False

    def in_loop(self, stage: Stage) -> bool:
        names = [s.name for s in self.stages]
        for loop in self.loops:
            sources = [i for i, s in enumerate(self.stages) if loop.name in dict(s.on).values()]
            if names.index(loop.to) <= names.index(stage.name) <= max(sources):
                return True
        return False


Campaign = tuple[Phase, ...]

# At random


@st.composite
def members(draw: st.DrawFn, name: str, known: list[Stage], revises: bool) -> Member:
    some = st.lists(st.sampled_from(FILES), max_size=2, unique=True).map(tuple)
    refs = draw(st.lists(st.sampled_from([s.name for s in known]), max_size=1, unique=True)) if known else []
    fails = draw(st.sampled_from((0, 0, 0, 0, 1, 2, 9)))
    return Member(name, draw(some), draw(some), tuple(refs), (), fails, draw(st.integers(0, 2)) if revises else 0)


@st.composite
def stages(draw: st.DrawFn, number: int, known: list[Stage]) -> tuple[Stage, list[Loop]]:
    name = f"s{number}"
    kind = draw(st.sampled_from(("one", "one", "one", "group", "each", "ask" if known else "one")))
    if kind == "ask":
        return Stage(name, "ask", (Member(name, refs=(draw(st.sampled_from([s.name for s in known])),)),)), []
    loops: list[Loop] = []
    on: list[tuple[str, str]] = []
    for event in ("needs_revision", "failure"):
        if draw(st.integers(0, 3)) == 0:
            to = draw(st.sampled_from([*(s.name for s in known if s.kind != "ask"), name]))
            then = "continue" if event == "needs_revision" else draw(st.sampled_from(("continue", "fail")))
            loops.append(Loop(f"{name}-{event[:4]}", to, draw(st.integers(1, 2)), then))
            on.append((event, loops[-1].name))
    revises = "needs_revision" in dict(on)
    optional = [replace(s) for s in known]
    count = 1 if kind == "one" else draw(st.integers(2, 3))
    whole = draw(members(name, optional, revises))
    found: list[Member] = []
    for index in range(count):
        key = name if kind == "one" else f"{name}x{index}"
        one = replace(whole, name=key) if kind == "each" else draw(members(key, optional, revises))
        after = tuple(m.name for m in found if draw(st.integers(0, 2)) == 0)
        fails = one.fails if index == 0 or kind != "each" else draw(st.sampled_from((0, 0, 1, 9)))
        found.append(replace(one, after=after, fails=fails))
    minimum = count - 1 if kind == "group" and draw(st.booleans()) else None
    policy = draw(st.sampled_from(("skip", "abort"))) if kind == "each" else "abort"
    retry, required = draw(st.integers(0, 1)), draw(st.integers(0, 3)) > 0
    return Stage(name, kind, tuple(found), retry, required, policy, minimum, tuple(on)), loops


@st.composite
def phases(draw: st.DrawFn, number: int) -> Phase:
    known: list[Stage] = []
    loops: list[Loop] = []
    for index in range(draw(st.integers(1, 4))):
        stage, own = draw(stages(index, known))
        known.append(stage)
        loops += own
    return Phase(f"p{number}", tuple(known), tuple(loops), draw(st.booleans()))


@st.composite
def campaigns(draw: st.DrawFn) -> Campaign:
    return tuple(draw(phases(number)) for number in range(draw(st.integers(1, 2))))


# As the engine reads them


def spec(member: Member, stage: Stage) -> dict[str, Any]:
    """What a worker is told. The items of a fan-out share one: each finds its own part of it."""
    fails = {m.name: m.fails for m in stage.members} if stage.kind == "each" else member.fails
    return {
        "n": stage.name if stage.kind == "each" else member.name,
        "fails": fails,
        "revises": member.revises,
        "v": member.variant,
    }


def _worker(member: Member, stage: Stage, phase: Phase) -> dict[str, Any]:
    kinds = {s.name: s for s in phase.stages}
    inputs = {f"r-{f[0]}": f"param.{f[0]}" for f in member.reads}
    for ref in member.refs:
        source = f"{ref}.*.made" if kinds[ref].many else f"{ref}.{'answer' if kinds[ref].kind == 'ask' else 'made'}"
        inputs[f"p-{ref}"] = source if kinds[ref].many else f"optional {source}"
    outputs: dict[str, Any] = {"made": {"path": "made.json"}}
    outputs |= {f"w-{f[0]}": {"path": f, "in": "workspace"} for f in member.writes}
    return {"tool": "worker.py", "args": [json.dumps(spec(member, stage))], "inputs": inputs, "outputs": outputs}


def orchestrator(phase: Phase, name: str) -> str:
    listed: list[Any] = []
    for stage in phase.stages:
        entry: dict[str, Any] = {"name": stage.name}
        if stage.kind == "ask":
            many = next(s for s in phase.stages if s.name == stage.members[0].refs[0])
            shown = f"{many.name}.*.made" if many.many else f"optional {many.name}.{'answer' if many.kind == 'ask' else 'made'}"
            listed.append(entry | {"ask": {"question": "Is it good?", "show": [shown]}})
            continue
        entry |= {"retry": {"max": stage.retry}} | ({} if stage.required else {"required": False})
        entry |= {"on": dict(stage.on)} if stage.on else {}
        if stage.kind == "group":
            own = {m.name: _worker(m, stage, phase) | ({"after": list(m.after)} if m.after else {}) for m in stage.members}
            few = {} if stage.min_success is None else {"min_success": stage.min_success}
            entry |= {"members": own, "parallel": {"cap": 1, **few}}
        else:
            entry |= _worker(stage.members[0], stage, phase)
        if stage.kind == "each":
            entry |= {"on_item_failure": stage.policy}
            entry["foreach"] = {"items": f"param.{stage.name}", "key": "id", "after": "after", "cap": 1}
        listed.append(entry)
    params: dict[str, Any] = {f[0]: {"default": f} for f in FILES}
    for stage in phase.stages:
        if stage.kind == "each":
            items = [{"id": m.name, "after": list(m.after)} for m in stage.members]
            params[stage.name] = {"type": "list", "default": items}
    loops = {loop.name: {"to": loop.to, "max": loop.max, "then": loop.then} for loop in phase.loops}
    whole: dict[str, Any] = {"version": 1, "name": name, "params": params, "stages": listed}
    return yaml.safe_dump(whole | ({"loops": loops} if loops else {}), sort_keys=False)


def write(campaign: Campaign, folder: Path) -> Path:
    entries: list[Any] = []
    for phase in campaign:
        (folder / f"{phase.name}.yaml").write_text(orchestrator(phase, phase.name))
        verify = {"checks": ["good"], "fix": False} if phase.verified else {"none": "a test"}
        entry: dict[str, Any] = {"name": phase.name, "run": [{"orchestrator": f"{phase.name}.yaml"}], "verify": verify}
        entries.append(entry | ({"depends_on": [entries[-1]["name"]]} if entries else {}))
    (folder / "checks.yaml").write_text("version: 1\nchecks: {good: {command: 'true'}}\n")
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "name": "trial", "checks": "checks.yaml", "phases": entries}, sort_keys=False))
    return path


# As the model runs them


@dataclass
class Result:
    code: int
    verdict: str
    steps: dict[str, Record | None]  # None: blocked, or not begun
    open: bool = False


class Waiting(Exception):  # noqa: N818 - not an error
    """A person is asked."""


@dataclass
class Run:
    """One run of the whole campaign over a world, by the rules alone."""

    world: World
    campaign: Campaign
    answered: dict[str, Any]  # by step: what was shown when a person answered
    damaged: set[str] = field(default_factory=set)
    answer: bool = False  # a person answers what is asked in this run
    asked: int = 0

    def go(self) -> int:
        codes: list[int] = []
        before: set[str] = set()
        for number, phase in enumerate(self.campaign, 1):
            folder = f"phase-{number:02d}-{phase.name}"
            code = self.phase(phase, folder, before)
            codes.append(code)
            if code not in (0, 12):
                break
            before |= {step for step in self.world.records if step.startswith(f"{folder}/")}
        if codes[-1] not in (0, 12):
            return 3
        return 12 if 12 in codes else 0

    def phase(self, phase: Phase, folder: str, before: set[str]) -> int:
        try:
            begun = self.world.begun
            code = 1 if begun[folder] else Walk(self, phase, folder, before, rerun=0).go()
            if not begun[folder] and code in (1, 12) and self.news(folder):  # not what was given up long ago
                begun[folder] = self.world.tick()
            if begun[folder]:
                code = Walk(self, phase, folder, before, rerun=begun[folder]).go()
            self.world.done[folder], begun[folder] = self.world.tick(), 0
        except Waiting:
            return 3
        if code in (0, 12) and phase.verified:
            self.verify(folder, before)
        return code

    def news(self, folder: str) -> bool:
        own = [r for step, r in self.world.records.items() if step.startswith(f"{folder}/") and "/sentinel/" not in step]
        return any(r.ended > self.world.done[folder] for r in own)

    def verify(self, folder: str, before: set[str]) -> None:
        world, name = self.world, f"{folder}/sentinel/02-checks/1/_"
        known = world.records.get(name)
        upstream = before | {s for s in world.records if s.startswith(f"{folder}/") and "/sentinel/" not in s}
        table = {file: world.files.get(file, "") for file in FILES}
        if known and not world.stale(replace(known, made={}), name, upstream):
            return
        world.ran.append("check")
        at = world.tick()
        world.records[name] = Record("", table, {}, "", at, at, True, False)


class Walk:
    def __init__(self, run: Run, phase: Phase, folder: str, before: set[str], rerun: int) -> None:
        self.run, self.world, self.spec, self.rerun = run, run.world, phase, rerun
        self.home = f"{folder}/{phase.name}"
        self.passed = set(before)
        self.rounds: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.results: dict[str, Result] = {}
        self.causes: dict[str, Any] = {}
        self.loops = {loop.name: loop for loop in phase.loops}

    def go(self) -> int:
        stages, names = self.spec.stages, [s.name for s in self.spec.stages]
        position = 0
        while position < len(stages):
            stage = stages[position]
            self.rounds[stage.name] += 1
            result = self.ask(stage) if stage.kind == "ask" else self.work(stage)
            back = self.route(stage, result)
            self.results[stage.name] = result
            if back:
                position = names.index(back)
            elif result.code == 0 or result.open:
                position += 1
            else:
                return result.code
        return 12 if any(r.code for r in self.results.values()) else 0

    def path(self, stage: Stage, key: str = "") -> str:
        place = 1 + [s.name for s in self.spec.stages].index(stage.name)
        turn = self.rounds[stage.name] if self.spec.in_loop(stage) else 0
        return f"{self.home}/{place:02d}-{stage.name}/{turn}/{key or '_'}"

    def ask(self, stage: Stage) -> Result:
        source = self.results.get(stage.members[0].refs[0])
        shown = [r.value for r in source.steps.values() if r and r.ok] if source else []
        place = self.path(stage)
        if self.run.answered.get(place) != shown:
            if not self.run.answer:
                self.run.asked += 1
                raise Waiting
            self.run.answered[place] = shown
        return Result(0, "done", {"": Record("", {}, {}, "yes", 0, 0, True, False)})

    def job(self, stage: Stage, member: Member, known: dict[str, Record | None]) -> Job:
        values: list[str] = []
        for ref in member.refs:
            found = self.results.get(ref)
            values += [r.value for r in found.steps.values() if r and r.ok] if found else []
        after = tuple((other, came_to(known[other])) for other in member.after)
        each = stage.kind == "each"
        key = member.name if stage.many else ""
        did = tuple(sorted((ref, did_of(self.results.get(ref))) for ref in member.refs))
        turn = self.rounds[stage.name] if self.spec.in_loop(stage) else 0
        name, item = (stage.name, member.name) if each else (member.name, "")
        first = stage.members[0]
        told = repr(spec(member if not each else first, stage))
        job = Job(self.path(stage, key), name, item, turn, member.reads, member.writes, member.fails, member.revises,
                  tuple(values), after, repr((self.causes.get(stage.name), told, did, member.after)), member.variant)  # fmt: skip
        return job

    def work(self, stage: Stage) -> Result:
        table = {m.name: m for m in stage.members}
        order = one_by_one({m.name: m.after for m in stage.members})
        past = any(stage.name in rounds and rounds[stage.name] == self.rounds[stage.name] for rounds in self.history())
        known: dict[str, Record | None] = {}
        self.looked: dict[str, tuple[Any, Record | None]] = {}  # a stage is looked at as a whole, before any of it runs
        for key in order:
            if all(other in known for other in table[key].after):
                if self.blocked(table[key], known):
                    known[key] = None
                    continue
                found = self.word(stage, table[key], known, past)
                if found:
                    known[key] = found
        if len(known) == len(order):
            result = self.sum_up(stage, {m.name: known[m.name] for m in stage.members})
            if past or all(r and r.ok for r in known.values()) or self.goes_on(stage, result):
                self.pass_by(stage)
                return result
        final = len(known) < len(order) and self.absorbs(stage)
        steps: dict[str, Record | None] = {}
        for key in order:
            member = table[key]
            if self.blocked(member, steps):
                steps[key] = None
                continue
            found = self.word(stage, member, steps, past)
            steps[key] = found if found and (found.ok or final) else self.perform(stage, self.job(stage, member, steps))
            record = steps[key]
            if not (record and record.ok) and stage.kind == "each" and stage.policy != "skip":
                break
        self.pass_by(stage)
        return self.sum_up(stage, {m.name: steps[m.name] for m in stage.members if m.name in steps})

    def blocked(self, member: Member, known: dict[str, Record | None]) -> bool:
        return any(not ((r := known[other]) and r.ok) for other in member.after)

    def word(self, stage: Stage, member: Member, known: dict[str, Record | None], past: bool) -> Record | None:
        job = self.job(stage, member, known)
        upstream = self.passed | self.waits(stage, member)
        if job.path not in self.looked or self.looked[job.path][0] != key_of(job):
            found = look(self.world, job, upstream) if job.path not in self.run.damaged else None
            self.looked[job.path] = (key_of(job), found)
        record = self.looked[job.path][1]
        if not record or record.ok:
            return record
        return record if past or self.used_up(stage, record) else None

    def waits(self, stage: Stage, member: Member) -> set[str]:
        table = {m.name: m for m in stage.members}
        found: set[str] = set()
        queue = list(member.after)
        while queue:
            other = queue.pop()
            found.add(self.path(stage, other))
            queue += table[other].after
        return found

    def used_up(self, stage: Stage, record: Record) -> bool:
        names = [s.name for s in self.spec.stages]
        later = [s for s in self.spec.stages[names.index(stage.name) :] if s.kind == "ask"]
        answered = any(f"/{1 + names.index(s.name):02d}-{s.name}/" in place for s in later for place in self.answers())
        once_more = record.ended < self.rerun and record.tries <= stage.retry + 1 and not answered
        return record.tries > stage.retry and not once_more

    def answers(self) -> list[str]:
        return [place for place in self.run.answered if place.startswith(self.home)]

    def perform(self, stage: Stage, job: Job) -> Record:
        record = self.world.records.get(job.path)
        same = look(self.world, job, self.passed) if record and not record.ok else None
        if same and self.used_up(stage, same) and same.ended >= self.world.reported:
            return same
        left = 1 + stage.retry - (same.tries if same else 0)
        for _ in range(max(left, 1)):
            self.run.damaged.discard(job.path)
            record = attempt(self.world, job, same)
            same = record
            if record.ok:
                break
        assert record
        return record

    def pass_by(self, stage: Stage) -> None:
        self.passed |= {self.path(stage, m.name if stage.many else "") for m in stage.members}

    def sum_up(self, stage: Stage, steps: dict[str, Record | None]) -> Result:
        good = [r for r in steps.values() if r and r.ok]
        wanted = len(stage.members) if stage.min_success is None else stage.min_success
        if len(good) >= wanted:
            return Result(10, "needs_revision", steps) if any(r.revise for r in good) else Result(0, "done", steps)
        if stage.kind == "each" and stage.policy == "skip" and good:
            return Result(12, "done", steps, open=True)
        return Result(1, "failed", steps)

    def loop(self, stage: Stage, result: Result) -> Loop | None:
        event = {"needs_revision": "needs_revision", "failed": "failure"}.get(result.verdict, "")
        return self.loops.get(dict(stage.on).get(event, ""))

    def goes_on(self, stage: Stage, result: Result) -> bool:
        if result.code == 0 or result.open:
            return True
        loop = self.loop(stage, result)
        if loop:
            return self.taken[loop.name] < loop.max or loop.then != "fail"
        return not stage.required

    def absorbs(self, stage: Stage) -> bool:
        loop = self.loops.get(dict(stage.on).get("failure", ""))
        back = loop is not None and (self.taken[loop.name] < loop.max or loop.then != "fail")
        return (stage.kind == "each" and stage.policy == "skip") or stage.min_success is not None or not stage.required or back

    def route(self, stage: Stage, result: Result) -> str:
        if result.code == 0:
            return self.forget(stage)
        loop = self.loop(stage, result)
        if loop and self.taken[loop.name] < loop.max:
            self.take(loop, stage, result)
            return loop.to
        if loop:
            result.open = result.open or loop.then == "continue"
        elif not stage.required:
            result.open = True
        return self.forget(stage)

    def take(self, loop: Loop, stage: Stage, result: Result) -> None:
        self.taken[loop.name] += 1
        results = self.results | {stage.name: result}
        names = [s.name for s in self.spec.stages]
        span = names[names.index(loop.to) : names.index(stage.name) + 1]
        for name in span:
            self.causes.pop(name, None)
        told = [(n, [k for k, r in results[n].steps.items() if r and r.ok]) for n in dict.fromkeys((stage.name, loop.to))]
        self.causes[loop.to] = (loop.name, self.taken[loop.name], result.verdict, told)
        self.history_table()[loop.name, self.taken[loop.name]] = {n: self.rounds[n] for n in span} | {"from": stage.name}

    def history_table(self) -> dict[Any, dict[str, Any]]:
        return self.world.__dict__.setdefault("loops", {}).setdefault(self.home, {})

    def history(self) -> list[dict[str, Any]]:
        return list(self.history_table().values())

    def forget(self, stage: Stage) -> str:
        table = self.history_table()
        for key in [k for k, r in table.items() if r["from"] == stage.name and r[stage.name] == self.rounds[stage.name]]:
            del table[key]
        return ""


def came_to(record: Record | None) -> str:
    return repr((record.value, sorted(record.made.items()))) if record else ""


def did_of(result: Result | None) -> str:
    return repr([sorted(r.made.items()) if r else None for r in result.steps.values()]) if result else ""
