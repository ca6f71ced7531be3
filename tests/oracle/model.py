"""What must happen, said once more in a page: a campaign as a list of steps that read, write and wait for each other.

The model knows no files of a session, no fingerprints and no attempts. It keeps, per step, what it was made of and what it came
to, and one log of who left which file how. Finished is what is made of the same things, whose files are as it left them or as
later work left them. The engine has to agree with it, run by run and step by step.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


def digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@dataclass
class Record:
    key: Any  # what it is made of
    read: dict[str, str]
    made: dict[str, str]
    value: str
    begun: int
    ended: int
    ok: bool
    revise: bool
    tries: int = 1


@dataclass
class World:
    """One session and its workspace."""

    files: dict[str, str]
    records: dict[str, Record] = field(default_factory=dict)
    log: list[tuple[int, str, str, str]] = field(default_factory=list)  # moment, step, file, content
    clock: int = 0
    ended: Counter[str] = field(default_factory=Counter)  # attempts that ended, by step
    ran: list[str] = field(default_factory=list)  # of the present run: which steps were worked on
    done: Counter[str] = field(default_factory=Counter)  # by phase: when its coordinator was last done with it
    begun: Counter[str] = field(default_factory=Counter)  # by phase: when its coordinator began to run it once more
    reported: int = 0  # when the last run came to its end

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def left(self, name: str) -> str | None:
        """How the session left a file last; None: it never touched it."""
        found = [content for _, _, file, content in self.log if file == name]
        return found[-1] if found else None

    def stale(self, record: Record, step: str, upstream: set[str]) -> bool:
        for table, since, made in ((record.read, record.begun, False), (record.made, record.ended, True)):
            for name, content in table.items():
                if self.files.get(name) == content:
                    continue
                before = [c for at, who, file, c in self.log if file == name and at > since and who in upstream]
                if before and (made or before[-1] != content):
                    return True
                later = [who for at, who, file, _ in self.log if file == name and (at > since or who == step)]
                if not later or self.files.get(name) != self.left(name):
                    return True
        return False


@dataclass(frozen=True)
class Job:
    """One step as the generator made it."""

    path: str  # the engine's name for it
    name: str
    item: str
    round: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    fails: int  # how many attempts fail
    revises: int  # in how many rounds it asks for a revision
    refs: tuple[str, ...]  # values of what it refers to
    after: tuple[tuple[str, str], ...]  # what it waited for, and what that came to
    cause: str
    variant: int


def value_of(name: str, item: str, round_: int, reads: dict[str, str], refs: Any, variant: int) -> str:
    return digest(name, item, round_, sorted(reads.items()), list(refs), variant)


def content_of(value: str, file: str, bad: bool = False) -> str:
    return f"{file} {value}{' BAD' if bad else ''}\n"


def look(world: World, job: Job, upstream: set[str]) -> Record | None:
    """The record of a step that stands, finished or failed: what made it is the same."""
    record = world.records.get(job.path)
    if record and record.key == key_of(job) and not world.stale(record, job.path, upstream):
        return record
    return None


def key_of(job: Job) -> Any:
    return (job.name, job.item, job.refs, job.after, job.cause, job.variant)


def attempt(world: World, job: Job, before: Record | None) -> Record:
    """One attempt: what it writes if it succeeds; a failed one leaves its outputs as they were."""
    world.ran.append(job.path)
    begun = world.tick()
    reads = {name: world.files.get(name, "") for name in job.reads}
    value = value_of(job.name, job.item, job.round, reads, job.refs, job.variant)
    ok = world.ended[job.path] >= job.fails
    world.ended[job.path] += 1
    made = {name: content_of(value, name) for name in job.writes} if ok else {}
    ended = world.tick()
    for name, content in made.items():
        world.files[name] = content
        world.log.append((ended, job.path, name, content))
    read = {n: c for n, c in reads.items() if n not in job.writes}
    tries = 1 + (before.tries if before else 0)
    record = Record(key_of(job), read, made, value, begun, ended, ok, ok and 0 < job.round <= job.revises, tries)
    world.records[job.path] = record
    return record
