"""The base class of downstream agents that are written in Python.

    from packs.downstream.base import DownstreamAgent

    class Digest(DownstreamAgent):
        def execute(self) -> None:
            for one in self.bundle.research_outputs["vertical"]:
                self.write("digest", one.content[:400], one.dimensions)

It runs in a process of its own, with the bundle in `self.bundle`; what it writes, it writes through `write`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from pathlib import Path

from lib.contract import StrataError
from lib.disk import files, records

from packs.downstream.bundles import ContextBundle, Dimensions
from packs.downstream.contract import AgentContract
from packs.downstream.handoff import RESULT, Claimed, Metrics, Result


class DownstreamAgent(ABC):
    def __init__(self, contract: AgentContract, bundle: ContextBundle) -> None:
        self.contract = contract
        self.bundle = bundle
        self.outputs: list[Claimed] = []
        self.metrics = Metrics()  # what it took; a cost that is not said is taken to be its cap

    @abstractmethod
    def execute(self) -> Awaitable[None] | None:
        """Reads from `self.bundle`, and leaves every output of the contract. It may be `async`."""

    def get_output_dir(self) -> Path:
        return Path(self.bundle.output_dir)

    @property
    def output_paths(self) -> list[str]:
        return [one.path for one in self.outputs]

    def output_path(self, output: str, dimensions: Dimensions | None = None) -> Path:
        """Where an output goes. Whoever writes it without `write` calls `leave` besides."""
        spec = self.contract.output(output)
        if not spec:
            known = ", ".join(o.name for o in self.contract.outputs)
            raise StrataError("UNDECLARED_OUTPUT", f"{output!r} is none of its outputs", f"the contract declares {known}")
        path = spec.path(self.contract.variables | self.bundle.job | (dimensions or {}))
        if path is None:
            raise StrataError(
                "BAD_RESULT", f"{output}: its template needs {', '.join(spec.variables)}", "give them as dimensions"
            )
        return files.below(Path(self.bundle.output_dir), path, "the output")

    def write(self, output: str, content: str | bytes, dimensions: Dimensions | None = None) -> Path:
        path = self.output_path(output, dimensions)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, content)
        self.leave(output, dimensions)
        return path

    def write_json(self, output: str, document: object, dimensions: Dimensions | None = None) -> Path:
        return self.write(output, json.dumps(document, indent=2, ensure_ascii=False) + "\n", dimensions)

    def leave(self, output: str, dimensions: Dimensions | None = None) -> None:
        """Says that an output is in its place."""
        path = self.output_path(output, dimensions).relative_to(self.bundle.output_dir)
        self.outputs.append(Claimed(output, str(path), dimensions or {}))

    def finish(self) -> None:
        result = Result(self.contract.name, self.bundle.nonce, "complete", tuple(self.outputs), self.metrics)
        document = records.document(result)
        for one in document["outputs"]:
            del one["content"]
        files.write_json(Path(self.bundle.output_dir) / RESULT, document)
