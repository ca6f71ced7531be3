"""References between the stages of an orchestrator: each must lead to something that is there when it is needed."""

from __future__ import annotations

import re
from typing import Any

from lib.contract import StrataError, nearest
from lib.disk.config import Document
from lib.plan import written
from lib.plan.orchestration import CAUSE, PLACEHOLDER, ROSTER, Reference, Worker
from lib.plan.written import Loop, Param

_BRACES = re.compile(r"\{([A-Za-z][\w .*-]*)\}")
Place = list[Any]  # of something in the file: the keys and numbers that lead to it
SHAPES = "write param.NAME, STAGE.OUTPUT, GROUP.*.OUTPUT, STAGE.roster or item.FIELD"


def mentioned(spec: written.Stage) -> list[tuple[Place, str]]:
    """Every reference of a stage, with its place below the stage."""
    found: list[tuple[Place, str]] = [(["inputs", k], v) for k, v in spec.inputs.items()]
    for name, member in spec.members.items():
        found += [(["members", name, "inputs", k], v) for k, v in member.inputs.items()]
    for key, texts in spec.texts.items():
        found += [([key], inner) for text in texts for inner in PLACEHOLDER.findall(text)]
    found += [(["foreach", "items"], text) for text in (spec.foreach.lists if spec.foreach else ())]
    found += [(["ask", "show", i], v) for i, v in enumerate(spec.ask.show if spec.ask else ())]
    return found


class References:
    def __init__(
        self, document: Document, stages: tuple[written.Stage, ...], params: dict[str, Param], loops: dict[str, Loop]
    ) -> None:
        self.document = document
        self.stages = {s.name: s for s in stages}
        self.names = list(self.stages)
        self.params = params
        self.loops = loops
        self.known: dict[str, dict[str, set[str]]] = {}  # stage → member, or "" or "*" → outputs
        self._later: list[tuple[Place, str, str, list[str]]] = []  # place, text, output, and the stages that are to have it

    def settle(self) -> None:
        """When all stages are known: what is handed back, or over from one round to the next, is there to be handed."""
        for at, text, output, names in self._later:
            there = set[str]().union(*(outputs for name in names for outputs in self.known[name].values()))
            if output not in there:
                message = f"{text!r} refers to nothing: {' and '.join(names)} has no output {output!r}"
                raise self._error(at, message, nearest(output, sorted(there)))

    def know(self, stage: str, outputs: dict[str, set[str]]) -> None:
        self.known[stage] = outputs

    def survive(self, modifier: str, chosen: set[str]) -> None:
        """Whether what is left by a modifier refers to nothing that it leaves out."""
        for index, spec in enumerate(self.stages.values()):
            for path, text in mentioned(spec) if spec.name in chosen else ():
                found = Reference.parse(text)
                if found and found.head in self.stages and found.head not in chosen and not found.optional:
                    message = f"{text!r} needs the stage {found.head!r}, which {modifier} leaves out"
                    raise self._error(["stages", index, *path], message, f"write `optional {text}` if it can do without")

    def of_work(self, at: Place, spec: written.Work, index: int) -> None:
        for key, text in spec.inputs.items():
            self.check([*at, "inputs", key], text, index)
        for key, texts in spec.texts.items():
            for inner in (found for text in texts for found in _BRACES.findall(text)):
                self.check([*at, key], inner, index)

    def of_members(self, at: Place, members: dict[str, Worker]) -> None:
        """What members read of those they wait for."""
        for name, worker in members.items():
            for key, text, found in _behind(worker):
                wanted = worker.after if found.rest[:1] == ("*",) else found.rest[:1]
                if len(found.rest) != 2 or not set(wanted) <= set(worker.after) or not worker.after:
                    hint = f"write after.{(worker.after or ('MEMBER',))[0]}.OUTPUT, or after.*.OUTPUT, and `after: [MEMBER]`"
                    raise self._error([*at, name, "inputs", key], f"{text!r}: {name!r} does not wait for that", hint)
                there = set[str]().union(*({o.name for o in members[other].outputs} for other in wanted))
                if found.rest[1] not in there:
                    message = f"{text!r} refers to nothing: no output {found.rest[1]!r}"
                    raise self._error([*at, name, "inputs", key], message, nearest(found.rest[1], there))

    def of_items(self, at: Place, worker: Worker, waits: bool) -> None:
        """What items read of those they wait for: they do the same work, so they leave the same."""
        there = {o.name for o in worker.outputs}
        for key, text, found in _behind(worker):
            if not waits or found.rest[:1] != ("*",) or len(found.rest) != 2:
                hint = "write after.*.OUTPUT, and foreach.after: the field that lists whom an item waits for"
                raise self._error([*at, "inputs", key], f"{text!r} means something only where items wait for each other", hint)
            if found.rest[1] not in there:
                message = f"{text!r} refers to nothing: no output {found.rest[1]!r}"
                raise self._error([*at, "inputs", key], message, nearest(found.rest[1], there))

    def check(self, at: Place, text: str, index: int) -> None:
        """Whether a reference of the stage at `index` leads to something."""
        found = Reference.parse(text)
        if not found:
            raise self._error(at, f"{text!r} is not a reference", SHAPES)
        spec = self.stages[self.names[index]]
        if found.head == "param":
            self._param(at, found)
        elif found.head == "item":
            if not spec.foreach:
                raise self._error(at, f"{text!r} means something only in a foreach", "refer to a stage's output")
        elif found.head == "after":
            if not spec.members and not spec.foreach:
                raise self._error(at, f"{text!r} means something only for members and items", "refer to a stage's output")
        elif found.head == "previous":
            self._previous(at, text, found, index)
        elif found.head == "loop":
            self._loop(at, text, found, index)
        else:
            self._stage(at, text, found, index)

    def _param(self, at: Place, found: Reference) -> None:
        name = ".".join(found.rest)
        if name not in self.params:
            hint = f"{nearest(name, self.params)} (or declare it under params:)"
            raise self._error(at, f"there is no parameter {name!r}", hint)

    def _previous(self, at: Place, text: str, found: Reference, index: int) -> None:
        again = any(self._goes_over(name, index) for name in self.loops)
        if len(found.rest) != 1 or not again:
            hint = "write previous.OUTPUT, in a stage that a loop goes back over"
            raise self._error(at, f"{text!r}: there is no round before", hint)
        self._later.append((at, text, found.rest[0], [self.names[index]]))

    def _goes_over(self, loop: str, index: int) -> bool:
        senders = [i for i, s in enumerate(self.stages.values()) if loop in s.loops]
        return self.names.index(self.loops[loop].to) <= index <= max(senders, default=-1)

    def _loop(self, at: Place, text: str, found: Reference, index: int) -> None:
        """What the stage that takes a loop hands to those it goes back over."""
        name = found.rest[0] if found.rest else ""
        if name not in self.loops:
            raise self._error(at, f"there is no loop {name!r}", nearest(name, list(self.loops)))
        if not self._goes_over(name, index):
            raise self._error(at, f"{text!r}: the loop {name!r} does not go back over this stage", "refer to a stage's output")
        if len(found.rest) not in (2, 3):
            hint = f"write loop.{name}.{CAUSE}, loop.{name}.{ROSTER} or loop.{name}.OUTPUT of the stage that takes it"
            raise self._error(at, f"{text!r} does not fit", hint)
        if found.rest[-1] not in (CAUSE, ROSTER):
            self._later.append((at, text, found.rest[-1], [s.name for s in self.stages.values() if name in s.loops]))

    def _stage(self, at: Place, text: str, found: Reference, index: int) -> None:
        if found.head not in self.stages:
            message = f"{text!r} refers to nothing: there is no stage {found.head!r}"
            raise self._error(at, message, nearest(found.head, self.names))
        whole = found.rest == (ROSTER,)
        if not self.stages[found.head].required and not found.optional and "*" not in found.rest and not whole:
            hint = f"write `optional {text}`, or make it required"
            raise self._error(at, f"{text!r} comes from an optional stage, which may fail", hint)
        if found.head not in self.known:
            where = "comes later" if self.names.index(found.head) >= index else "has no outputs"
            raise self._error(at, f"{text!r} refers to a stage that {where}", "refer to an earlier one")
        table = self.known[found.head]
        member = found.rest[0] if len(found.rest) > 1 else ""
        output = found.rest[-1] if found.rest else ""
        if whole and "*" in table:
            return
        if member not in table or len(found.rest) > 2:
            shapes = ", ".join(f"{found.head}.{m + '.' if m else ''}OUTPUT" for m in table)
            raise self._error(at, f"{text!r} does not fit the stage {found.head!r}", f"write {shapes}")
        if output not in table[member]:
            message = f"{text!r} refers to nothing: {found.head!r} has no output {output!r}"
            raise self._error(at, message, nearest(output, sorted(table[member])))

    def _error(self, path: Place, message: str, hint: str = "") -> StrataError:
        return self.document.error(path, message, hint)


def _behind(worker: Worker) -> list[tuple[str, str, Reference]]:
    """The inputs of a worker that come from those it waits for."""
    known = [(key, text, Reference.parse(text)) for key, text in worker.inputs.items()]
    return [(key, text, found) for key, text, found in known if found and found.head == "after"]
