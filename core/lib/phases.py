"""Layer 3's runtime: the orchestrators of one phase by dependency, then verification, then the phase report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lib import checkpoints, fanout, files, refinements, report, trees
from lib.approvals import Approvals
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Json, StrataError
from lib.plan import Phase, Plan, Run
from lib.process import ToolResult
from lib.session import Step, now
from lib.stages import GRAVEST_FIRST, NEVER_ABSORBED

UNFINISHED = (ExitCode.INTERRUPTED, ExitCode.HUMAN_INPUT)  # it goes on from where it is: nothing is to be undone


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--answer", metavar="STAGE=ANSWER", action="append", default=[], help="answer a stage that waits; @FILE reads it")
    add("--extra-context", metavar="FILE", action="append", default=[], help="told to every stage that runs (repeatable)")
    add("--inherit-settings", action="store_true", help="let agents load CLAUDE.md, settings, hooks and MCP servers")


def run(call: Call, plan: Plan, phase: Phase) -> Json:
    """Runs the phase and returns its report. What is finished is skipped: running it again is how it is resumed."""
    coordinator = Coordinator(call, plan, phase)
    if call.options.roll_back:
        return coordinator.only_roll_back()
    coordinator.begin()
    results = fanout.run(
        {r.name: r.depends_on for r in phase.runs},
        phase.cap,
        lambda name: coordinator.orchestrate(next(r for r in phase.runs if r.name == name)),
        succeeded=lambda r: r.exit_code in (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS),
        blocked=_blocked,
        go_on=lambda r: r.exit_code not in NEVER_ABSORBED,
    )
    code = _together([r.exit_code for r in results.values()])
    grade = ""
    if code in (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS):
        verified, grade = coordinator.verify()
        code = verified if verified != ExitCode.SUCCESS else code
    if code not in (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS, *UNFINISHED) and not call.options.keep_failed:
        coordinator.roll_back()
    document = coordinator.report(code, grade)
    coordinator.checkpoint(grade)
    return document | {"report": str(report.write(call.session.folder))}


def _escalated(reply: ToolResult) -> ToolResult:
    code = ExitCode.NEEDS_ESCALATION
    return ToolResult(code, reply.document | {"exit_code": int(code), "status": STATUS[code]})


def _blocked(name: str, cause: str) -> ToolResult:
    error = {"code": "BLOCKED", "message": f"{cause} did not succeed"}
    return ToolResult(ExitCode.FAILURE, {"status": "blocked", "exit_code": 1, "error": error})


def _together(codes: list[ExitCode]) -> ExitCode:
    bad = [c for c in codes if c not in (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS)]
    if bad:
        return min(bad, key=GRAVEST_FIRST.index)
    return ExitCode.PARTIAL_SUCCESS if ExitCode.PARTIAL_SUCCESS in codes else ExitCode.SUCCESS


class Coordinator:
    def __init__(self, call: Call, plan: Plan, phase: Phase) -> None:
        self.call = call
        self.plan = plan
        self.phase = phase
        self.folder = call.session.folder / "phases" / phase.folder
        self.replies: dict[str, ToolResult] = {}
        self.sentinel: Json = {}
        self.rolled_back: Json = {}

    def orchestrate(self, run: Run) -> ToolResult:
        """One orchestrator, with the seed's table: 1 and 12 are run once more, 10 is answered, the rest goes up."""
        reply = self._call(run, [])
        if reply.exit_code in (ExitCode.FAILURE, ExitCode.PARTIAL_SUCCESS):
            self.call.event(f"{self.call.label}.{run.name}", "again", "what failed")
            reply = self._call(run, [])
        if reply.exit_code == ExitCode.NEEDS_REFINEMENT:
            step = Step(self.phase.folder, "coordinator", "01-evaluate", item=run.name)
            resolution = refinements.answer(self.call, reply, step, f"orch-{self.phase.folder}.{run.name}")
            if resolution:
                self.call.event(f"{self.call.label}.{run.name}", "again", "with a resolution")
                reply = self._call(run, ["--extra-context", str(resolution)])
            else:
                reply = _escalated(reply)
        self.replies[run.name] = reply
        self.report(None, "")
        self.checkpoint("")
        return reply

    def checkpoint(self, grade: str) -> None:
        ended = {name: reply.exit_code for name, reply in self.replies.items()}
        good = (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS)
        completed = [{"name": n, "exit_code": int(c), "sentinel_grade": grade} for n, c in ended.items() if c in good]
        pending = [r.name for r in self.phase.runs if ended.get(r.name) not in good]
        checkpoints.write(self.call, self.folder, "runs", completed, pending)

    def _call(self, run: Run, extra: list[str]) -> ToolResult:
        params = self.folder / run.name / "params.json"
        files.write_json(params, run.params | {name: self._input(text) for name, text in run.inputs.items()})
        flags = ["--params", str(params), "--phase", self.phase.folder, "--run-name", run.name, *extra]
        flags += ["--modifier", run.modifier] if run.modifier else []
        flags += ["--checks", self.plan.checks_file] if self.plan.checks_file else []
        for path in self.call.options.extra_context:
            flags += ["--extra-context", str(Path(path).absolute())]
        for answer in self.call.options.answer:
            flags += ["--answer", answer]
        return self.call.call("orchestrator.py", [*flags, run.orchestrator])

    def _input(self, text: str) -> str:
        """The path of `PHASE.RUN.OUTPUT`: what the last stage that has such an output produced; of `PHASE.answer`: what a
        person answered."""
        if text.count(".") == 1:
            return str(Approvals(self.call.session.folder, self.plan).answer_file(text.split(".", maxsplit=1)[0]))
        phase, run, output = text.split(".")
        path = self.call.session.folder / "phases" / self.plan.phase(phase).folder / run / "manifest.json"
        stages: list[Json] = files.read_json(path)["stages"] if path.exists() else []
        found = [s["outputs"][output] for s in stages if output in s.get("outputs", {})]
        if not found:
            raise StrataError("MISSING_INPUT", f"{text}: that run has not produced it", "run that phase first")
        return str(self.call.session.folder / found[-1])

    def verify(self) -> tuple[ExitCode, str]:
        """Whether what the phase produced holds: checks that Python runs, through the sentinel."""
        if not self.phase.checks:
            return ExitCode.SUCCESS, "UNVERIFIABLE"
        phase = self.phase
        flags = ["--phase", phase.folder, *(["--audit"] if phase.audit else []), *([] if phase.fix else ["--no-fix"])]
        flags += ["--checks", self.plan.checks_file] if self.plan.checks_file else []
        for glob in phase.protect:
            flags += ["--protect", glob]
        for glob in phase.scope:
            flags += ["--scope", glob]
        for path in self.call.options.extra_context:
            flags += ["--extra-context", str(Path(path).absolute())]
        flags += ["--request", self._request()]
        reply = self.call.call("sentinel.py", [*flags, "--", *phase.checks])
        self.sentinel = reply.document
        return reply.exit_code, str(reply.document.get("grade", "FAIL"))

    def _request(self) -> str:
        """What the phase was asked for, for those who judge it: the file a run was pointed at, or the words."""
        for run in self.phase.runs:
            for value in run.params.values():
                if isinstance(value, str) and files.is_file(self.call.cwd / value):
                    return str(self.call.cwd / value)
        return "; ".join(f"{name}: {value}" for run in self.phase.runs for name, value in run.params.items())[:2000]

    # Rollback

    def begin(self) -> None:
        """Where the workspace is put back to, if it comes to that: as it was before the phase first touched it."""
        if not self.phase.rollback:
            return
        trees.require_repository(self.call.cwd, f"the phase {self.phase.name}")
        path = self.folder / "before.json"
        if path.exists() and not files.read_json(path).get("rolled_back"):
            return  # resumed: what there is now is already this phase's work
        commit = self.tree.take(f"{self.refs}/before", f"before {self.phase.name}")
        files.write_json(path, {"commit": commit, "ref": f"{self.refs}/before", "at": now()})

    def roll_back(self) -> None:
        if not self.phase.rollback:
            return
        path = self.folder / "before.json"
        before = files.read_json(path)
        number = 1 + len(list(self.folder.glob("rolled-back-*.json")))
        ref = f"{self.refs}/failed-{number}"
        failed = self.tree.take(ref, f"{self.phase.name}, failed, as it was before it was rolled back")
        changed = self.tree.put_back(before["commit"])
        self.rolled_back = {"ref": ref, "commit": failed, "to": before["commit"], "paths": changed[:200]}
        files.write_json(self.folder / f"rolled-back-{number}.json", self.rolled_back)
        files.write_json(path, before | {"rolled_back": True})
        self.call.event(self.call.label, "rolled-back", {"paths": len(changed), "failed_state": ref})

    def only_roll_back(self) -> Json:
        """What a campaign asks for when it has given up on the phase."""
        path = self.folder / "before.json"
        known = self.folder / "report.json"
        if not path.exists() or not known.exists():
            raise StrataError(
                "NOTHING_TO_ROLL_BACK", f"the phase {self.phase.name} has kept no state of before", "on_failure: rollback"
            )
        if not files.read_json(path).get("rolled_back"):
            self.roll_back()
        document = files.read_json(known) | ({"rolled_back": self.rolled_back} if self.rolled_back else {})
        files.write_json(known, document)
        report.write(self.call.session.folder)
        return {
            "tool": "coordinator",
            "status": "success",
            "exit_code": 0,
            "phase": self.phase.folder,
            "rolled_back": self.rolled_back,
        }

    @property
    def tree(self) -> trees.Tree:
        return trees.Tree(self.call.cwd, self.call.session.folder)

    @property
    def refs(self) -> str:
        return f"refs/strata/{files.slug(self.call.session.folder.name)}/{self.phase.folder}"

    def report(self, code: ExitCode | None, grade: str) -> Json:
        """The seed's phase report. Before the end it says so, and can be taken for nothing else."""
        runs: list[Json] = []
        artifacts: list[str] = []
        error: Json | None = None
        for run in self.phase.runs:
            reply = self.replies.get(run.name)
            manifest = self.folder / run.name / "manifest.json"
            runs.append(
                {
                    "name": run.name,
                    "manifest": self.call.session.relative(manifest) if manifest.exists() else None,
                    "exit_code": int(reply.exit_code) if reply else None,
                }
            )
            error = error or (reply.error if reply and reply.exit_code == code else None)
            artifacts += _artifacts(reply.document) if reply else []
        status = "running" if code is None else ("complete" if code == ExitCode.SUCCESS else STATUS[code])
        document: Json = {
            "phase": self.phase.folder,
            "name": self.phase.name,
            "status": status,
            "exit_code": None if code is None else int(code),
            "orchestrators": runs,
            "artifacts": [self.call.session.relative(Path(a)) for a in artifacts],
            "sentinel_grade": grade,
            "updated_at": now(),
        }
        if self.rolled_back:
            document["rolled_back"] = self.rolled_back
        if self.phase.unverified:
            document["unverified"] = self.phase.unverified
        if code not in (None, ExitCode.SUCCESS):
            document["error"] = error or self.sentinel.get("error") or {"code": "PHASE_FAILED", "message": self.phase.name}
        files.write_json(self.folder / "report.json", document)
        self.call.artifact = self.folder / "report.json"
        return document | {"session_dir": str(self.call.session.folder)}


def _artifacts(document: Json) -> list[str]:
    found: list[str] = []
    stages: list[dict[str, Any]] = document.get("stages", [])
    for stage in stages:
        found += list(stage.get("outputs", {}).values())
        found += [i["artifact"] for i in stage.get("items", []) if i.get("artifact")]
    return found
