"""References between the stages of an orchestrator: each must lead to something that is there when it is needed."""

from __future__ import annotations

import re
from typing import Any

from lib.contract import StrataError, nearest
from lib.disk.config import Document
from lib.plan import written
from lib.plan.orchestration import PLACEHOLDER, Reference
from lib.plan.written import Param

_BRACES = re.compile(r"\{([A-Za-z][\w .*-]*)\}")
Place = list[Any]  # of something in the file: the keys and numbers that lead to it


def mentioned(spec: written.Stage) -> list[tuple[Place, str]]:
    """Every reference of a stage, with its place below the stage."""
    found: list[tuple[Place, str]] = [(["inputs", k], v) for k, v in spec.inputs.items()]
    for name, member in spec.members.items():
        found += [(["members", name, "inputs", k], v) for k, v in member.inputs.items()]
    for key, texts in spec.texts.items():
        found += [([key], inner) for text in texts for inner in PLACEHOLDER.findall(text)]
    if spec.foreach:
        found.append((["foreach", "items"], spec.foreach.items))
    found += [(["ask", "show", i], v) for i, v in enumerate(spec.ask.show if spec.ask else ())]
    return found


class References:
    def __init__(self, document: Document, stages: tuple[written.Stage, ...], params: dict[str, Param]) -> None:
        self.document = document
        self.stages = {s.name: s for s in stages}
        self.names = list(self.stages)
        self.params = params
        self.known: dict[str, dict[str, set[str]]] = {}  # stage → member, or "" or "*" → outputs

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

    def of_work(self, at: Place, spec: written.Work, index: int, foreach: bool) -> None:
        for key, text in spec.inputs.items():
            self.check([*at, "inputs", key], text, index, foreach)
        for key, texts in spec.texts.items():
            for inner in (found for text in texts for found in _BRACES.findall(text)):
                self.check([*at, key], inner, index, foreach)

    def check(self, at: Place, text: str, index: int, foreach: bool) -> None:
        """Whether a reference of the stage at `index` leads to something."""
        found = Reference.parse(text)
        if not found:
            hint = "write param.NAME, STAGE.OUTPUT, GROUP.*.OUTPUT or item.FIELD"
            raise self._error(at, f"{text!r} is not a reference", hint)
        if found.head == "param":
            self._param(at, found)
        elif found.head == "item":
            if not foreach:
                raise self._error(at, f"{text!r} means something only in a foreach", "refer to a stage's output")
        else:
            self._stage(at, text, found, index)

    def _param(self, at: Place, found: Reference) -> None:
        name = ".".join(found.rest)
        if name not in self.params:
            hint = f"{nearest(name, self.params)} (or declare it under params:)"
            raise self._error(at, f"there is no parameter {name!r}", hint)

    def _stage(self, at: Place, text: str, found: Reference, index: int) -> None:
        if found.head not in self.stages:
            message = f"{text!r} refers to nothing: there is no stage {found.head!r}"
            raise self._error(at, message, nearest(found.head, self.names))
        if not self.stages[found.head].required and not found.optional and "*" not in found.rest:
            hint = f"write `optional {text}`, or make it required"
            raise self._error(at, f"{text!r} comes from an optional stage, which may fail", hint)
        if found.head not in self.known:
            where = "comes later" if self.names.index(found.head) >= index else "has no outputs"
            raise self._error(at, f"{text!r} refers to a stage that {where}", "refer to an earlier one")
        table = self.known[found.head]
        member = found.rest[0] if len(found.rest) > 1 else ""
        output = found.rest[-1] if found.rest else ""
        if member not in table or len(found.rest) > 2:
            shapes = ", ".join(f"{found.head}.{m + '.' if m else ''}OUTPUT" for m in table)
            raise self._error(at, f"{text!r} does not fit the stage {found.head!r}", f"write {shapes}")
        if output not in table[member]:
            message = f"{text!r} refers to nothing: {found.head!r} has no output {output!r}"
            raise self._error(at, message, nearest(output, sorted(table[member])))

    def _error(self, path: Place, message: str, hint: str = "") -> StrataError:
        return self.document.error(path, message, hint)
