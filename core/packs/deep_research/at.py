"""A run at work: the calls of tools it makes, what it writes, and how a tick ends. Everything it does is an audit event."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.attempt.verdicts import Verdict
from lib.contract import StrataError, usage
from lib.disk import files, records
from lib.disk.clock import now
from lib.evidence.gates import Decision
from lib.plan.task import Task
from lib.tool.call import Call
from msgspec import Struct

from packs.deep_research.state import FAILED, STAGES, Run

REFUSALS = ("MISSING_ARTIFACT", "GATE_BLOCKED", "WAVE_CAP_EXCEEDED", "REVIEW_CAP_EXCEEDED", "RETRY_CAP_EXHAUSTED")
HOME = "research"  # in the session: the runs it holds


class Desk(Struct, frozen=True):
    """Where a run is worked on: by a tick, or by an operator who calls one tool by hand."""

    root: Path

    @property
    def run(self) -> Run:
        return Run(self.root)

    @property
    def session(self) -> Path:
        return self.root.parent.parent

    @property
    def tick_id(self) -> str:
        """The same for the same question, however often a tick is killed."""
        manifest, gates = self.run.manifest(), self.run.gates()
        return files.digest([manifest.run_id, manifest.stage.current, manifest.review_iterations, gates.revision])[:16]

    def log(self, kind: str, reason: str = "", **payload: Any) -> None:
        self.run.log(now(), kind, self.tick_id, reason, **payload)

    def tool(self, tool_id: str, arguments: Any, work: Callable[[], Any]) -> Any:
        """A tool of the seed by its name: its call is an event, and a bundle of what it was given and what came of it."""
        tick, digest, began = self.tick_id, files.digest(arguments), time.monotonic()
        self.run.log(now(), "tool_call_start", tick, "", tool_id=tool_id, args_digest=digest)
        try:
            result, error = work(), None
        except StrataError as caught:
            result, error = None, caught
        ended = {"ok": not error, "duration_ms": round((time.monotonic() - began) * 1000)}
        ended |= {"error_code": error.code} if error else {}
        self.run.log(now(), "tool_call_end", tick, "", tool_id=tool_id, args_digest=digest, **ended)
        said = f"{error.code}: {error}" if error else _shown(result)
        bundle = [
            "# " + tool_id,
            "",
            f"Inputs digest: `{digest}`",
            "",
            "## Arguments",
            "",
            "```json",
            _shown(arguments),
            "```",
            "",
        ]
        bundle += ["## Result", "", "```json", said, "```", ""]
        files.write_atomic(self.root / "evidence/tools" / tool_id / f"{tick}.md", "\n".join(bundle))
        if error:
            raise error
        return result

    def write(self, path: str, text: str) -> None:
        """An artifact. One that is there with the same words stays."""
        place = self.root / path
        size = {"path": path, "bytes": len(text.encode()), "sha256": files.sha256_text(text)}
        if place.is_file() and place.read_text(encoding="utf-8") == text:
            self.log("artifact_skipped", "it is there, as it should be", **size)
            return
        files.write_atomic(place, text)
        self.log("artifact_written", "", **size)

    def invalid(self, path: str, why: str) -> StrataError:
        """What is there and cannot be used: said, and never replaced behind somebody's back."""
        self.log("artifact_invalid", why, path=path)
        return StrataError(
            "SCHEMA_VALIDATION_FAILED", f"{self.root / path}: {why}", "correct the file, or bring it back", final=True
        )

    def write_json(self, path: str, document: Any) -> None:
        self.write(path, json.dumps(records.document(document), indent=2, ensure_ascii=False, sort_keys=True) + "\n")

    def gate(self, decision: Decision) -> Decision:
        """Writes down what a gate came to: for the same inputs once."""
        known = self.run.gates()
        gate = known.gates[decision.gate]
        if gate.inputs_digest == decision.inputs_digest and gate.status != "not_run":
            self.log("artifact_skipped", f"gate {decision.gate} was decided for these inputs", path="gates.json")
            return decision
        payload = {"inputs_digest": decision.inputs_digest, "expected_revision": known.revision}
        self.log("gate_write_requested", decision.gate, **payload)
        metrics = {rule.name: rule.found for rule in decision.evaluated if rule.found is not None}
        arguments = {"gate": decision.gate, "status": decision.decision, **payload}
        made = self.tool("gates_write", arguments, lambda: self.run.write_gate(decision, metrics, now(), known.revision))
        self.log("gate_write_applied", decision.gate, **payload, actual_revision=made.revision)
        return decision

    def is_past(self, stage: str) -> bool:
        """Whether the run has left this stage: a tick that was cut off behind its advance has nothing more to do."""
        return STAGES.index(self.run.manifest().stage.current) > STAGES.index(stage)

    def halt(self, code: str, message: str, place: str, document: Any, failed: bool = False) -> None:
        """A typed stop: the reason is on disk, in the log and in the exit code."""
        self.write_json(place, {"code": code, "message": message, "at_stage": self.run.manifest().stage.current, "why": document})
        self.log("run_halted", f"{code}: {message}")
        if failed:
            self.tool("manifest_write", {"status": FAILED}, lambda: self.run.write_manifest(now(), status=FAILED))
        hint = f"deep_research.py triage says why; {place} in the run has all of it"
        raise StrataError(code, message, hint, final=True)


def given(path: str) -> Path:
    """A file that somebody named."""
    if not Path(path).is_file():
        usage(f"{path} is no file")
    return Path(path)


class At(Desk, frozen=True):
    """One tick."""

    call: Call
    task: Task
    out: Path
    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, call: Call, task: Task, out: Path, words: tuple[str, ...] = ()) -> At:
        return cls(call.session.folder / HOME / task.target, call, task, out, words)

    @property
    def round(self) -> int:
        """Of the loop this tick is in: by it, one that was cut off behind its advance knows that it has nothing more to do."""
        return next((int(part[6:]) for part in reversed(self.out.parts) if re.fullmatch(r"round-\d+", part)), 1)

    def data(self, name: str) -> Any:
        return json.loads(self.task.input_path(name).read_text(encoding="utf-8"))

    def text(self, name: str) -> str:
        return self.task.input_path(name).read_text(encoding="utf-8")

    def leave(self, name: str, document: Any) -> None:
        """For the stages of the orchestrator behind."""
        files.write_json(self.out / name, document)

    def tick(self, name: str, work: Callable[[At], Verdict]) -> Verdict:
        """One tick, with its beginning and its end in the log: advanced, no_op, or failed by its name."""
        there = self.run.manifest_path.exists()
        before = self.run.manifest().stage.current if there else "init"
        if there:
            self.log("tick_start", name)
            self.log("stage_handler_start", name)
        try:
            verdict = work(self)
        except StrataError as error:
            if self.run.manifest_path.exists():
                self.log("stage_handler_end", error.code, outcome="failed")
                self.log("tick_end", error.code, outcome="blocked" if error.code in REFUSALS else "failed")
            raise
        if not there:
            self.log("tick_start", name)
        moved = self.run.manifest().stage.current != before
        self.log("stage_handler_end", name, outcome="done")
        self.log("tick_end", name, outcome="advanced" if moved else "no_op")
        return verdict


def _shown(document: Any) -> str:
    return json.dumps(records.document(document), indent=2, ensure_ascii=False)
