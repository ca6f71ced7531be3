"""Layer 4's runtime: phases by dependency, the session's state and checkpoints, and what becomes of what went wrong."""

from __future__ import annotations

import json
import shlex
import threading
from dataclasses import dataclass, field
from pathlib import Path

from lib import checkpoints, fanout, files, report
from lib.cli import Call
from lib.contract import STATUS, ExitCode, Json, StrataError
from lib.phases import GRADES
from lib.plan import Phase, Plan
from lib.process import ToolResult
from lib.session import now
from lib.stages import NEVER_ABSORBED

DONE = (ExitCode.SUCCESS, ExitCode.PARTIAL_SUCCESS)


def prepare(call: Call, plan: Plan, plan_text: str) -> Path:
    """What was asked and what it resolved to, on disk before anything runs. Returns what is handed down."""
    folder = call.session.folder
    if not (folder / "plan.yaml").exists() or (folder / "plan.yaml").read_text(encoding="utf-8") != plan_text:
        files.write_atomic(folder / "plan.yaml", plan_text)
    if plan.workspace == "session":
        workspace = folder / "workspace"
        workspace.mkdir(exist_ok=True)
        for name, text in plan.files.items():
            target = files.inside(workspace, name, "a file of the plan")
            if not target.exists():
                files.write_atomic(target, text)
        call.cwd = workspace
    effective = folder / "effective-config.json"
    settings = {"driver": call.driver, "cwd": str(call.cwd), "max_depth": call.depth.maximum, "model": call.options.model}
    files.write_json(effective, {"plan": plan.document(), "settings": settings})
    return effective


@dataclass
class Campaign:
    call: Call
    plan: Plan
    effective: Path
    started_at: str = field(default_factory=now)
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def go(self) -> Json:
        self.state("INIT")
        self.checkpoint()
        fanout.run(
            {p.name: p.depends_on for p in self.plan.phases},
            self.plan.max_parallel,
            lambda name: self.phase(self.plan.phase(name)),
            succeeded=lambda r: r.exit_code in DONE,
            blocked=self.blocked,
            go_on=lambda r: r.exit_code not in NEVER_ABSORBED,
        )
        return self.finish()

    def blocked(self, name: str, cause: str) -> ToolResult:
        error = {"code": "BLOCKED", "message": f"the phase {cause} did not succeed"}
        self.results[name] = ToolResult(ExitCode.FAILURE, {"status": "blocked", "exit_code": 1, "error": error})
        return self.results[name]

    def phase(self, phase: Phase) -> ToolResult:
        """One phase through its coordinator. The seed's table: 10 is tried once more; the rest is logged or goes up."""
        self.state("PHASE_N", phase)
        flags = ["--phase", phase.name]
        for path in self.call.options.extra_context:
            flags += ["--extra-context", str(Path(path).absolute())]
        for answer in self.call.options.answer:
            flags += ["--answer", answer]
        reply = self.call.call("coordinator.py", [*flags, str(self.effective)])
        if reply.exit_code == ExitCode.NEEDS_REFINEMENT:
            self.state("REFINEMENT", phase)
            reply = self.call.call("coordinator.py", [*flags, str(self.effective)])
        self.state("VERIFY", phase)
        with self._lock:
            self.results[phase.name] = reply
            self.checkpoint()
        self.state("CHECKPOINT", phase)
        return reply

    # State on disk, all of it derived from the outcomes

    def state(self, state: str, phase: Phase | None = None) -> None:
        names = [p.name for p in self.plan.phases]
        fields: Json = {
            "state": state,
            "current_phase": names.index(phase.name) + 1 if phase else 0,
            "total_phases": len(names),
            "started_at": self.started_at,
            "last_checkpoint": self.latest_checkpoint(),
            "depth_used": self.call.depth.current,
            "depth_max": self.call.depth.maximum,
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())  # JSON scalars are YAML scalars
        files.write_atomic(self.call.session.folder / ".session-state", text)
        self.call.event(f"{self.plan.name}.{phase.name}" if phase else self.plan.name, state)

    def latest_checkpoint(self) -> str | None:
        path = checkpoints.newest(self.call.session.folder)
        return f"checkpoints/{path.name}" if path else None

    def checkpoint(self) -> None:
        done = [p for p in self.plan.phases if p.name in self.results and self.results[p.name].exit_code in DONE]
        completed: list[Json] = [
            {"name": p.folder, "exit_code": int(self.results[p.name].exit_code), "sentinel_grade": self.grade_of(p)} for p in done
        ]
        pending = [p.folder for p in self.plan.phases if p not in done]
        checkpoints.write(self.call, self.call.session.folder, "phases", completed, pending)

    def grade_of(self, phase: Phase) -> str:
        reply = self.results.get(phase.name)
        return str(reply.document.get("sentinel_grade") or "") if reply else ""

    # The end

    def finish(self) -> Json:
        code, error = self.verdict()
        folder = self.call.session.folder
        grades = [g for p in self.plan.phases if (g := self.grade_of(p))]
        grade = min(grades, key=GRADES.index) if len(grades) == len(self.plan.phases) else "FAIL"
        files.write_atomic(folder / "sentinel" / "grade.txt", f"{grade}\n")
        files.write_json(folder / "sentinel" / "summary.json", {p.folder: self.grade_of(p) or None for p in self.plan.phases})
        manifest: Json = {
            "campaign": self.plan.name,
            "status": STATUS[code],
            "exit_code": int(code),
            "grade": grade,
            "phases": [self._phase_entry(p) for p in self.plan.phases],
            "trace_id": self.call.trace_id,
            "started_at": self.started_at,
            "finished_at": now(),
        }
        if error:
            manifest["error"] = error
        files.write_json(folder / "manifest.json", manifest)
        self.state("COMPLETE" if code in DONE else "STOPPED")
        path = report.write(folder)
        self.call.artifact = folder / "manifest.json"
        return manifest | {"session_dir": str(folder), "report": str(path), "next": self.next_command(code)}

    def next_command(self, code: ExitCode) -> str:
        """What a person would do now."""
        if code not in DONE:
            return f"uv run core/campaign.py --resume {shlex.quote(str(self.call.session.folder))}"
        if self.call.driver == "replay":
            return f"uv run core/campaign.py config/plans/{self.plan.name}.yaml --driver live   (the same with real agents)"
        return f"less {shlex.quote(str(self.call.session.folder / 'execution-report.md'))}"

    def _phase_entry(self, phase: Phase) -> Json:
        reply = self.results.get(phase.name)
        entry: Json = {"name": phase.name, "status": "not-run", "exit_code": None, "report": None, "sentinel_grade": None}
        if reply:
            entry |= {"status": reply.document.get("status"), "exit_code": int(reply.exit_code)}
            entry |= {"report": f"phases/{phase.folder}/report.json", "sentinel_grade": self.grade_of(phase) or None}
            if reply.error:
                entry["error"] = reply.error.get("message", "")
        return entry

    def verdict(self) -> tuple[ExitCode, Json | None]:
        codes = {name: r.exit_code for name, r in self.results.items()}
        for grave in NEVER_ABSORBED:
            name = next((n for n, c in codes.items() if c == grave), None)
            if name and grave != ExitCode.NEEDS_ESCALATION:
                return grave, self.results[name].error
        bad = {n: r for n, r in self.results.items() if r.exit_code not in DONE}
        if bad:
            return ExitCode.HUMAN_INPUT, self.escalate(bad)
        if ExitCode.PARTIAL_SUCCESS in codes.values():
            names = ", ".join(n for n, c in codes.items() if c == ExitCode.PARTIAL_SUCCESS)
            return ExitCode.PARTIAL_SUCCESS, {"code": "PARTIAL_SUCCESS", "message": f"not everything succeeded: {names}"}
        return ExitCode.SUCCESS, None

    def escalate(self, bad: dict[str, ToolResult]) -> Json:
        """What could not be resolved here, as one document for a person, with the command that goes on."""
        folder = self.call.session.folder / "escalations"
        number = 1 + len(list(folder.glob("*.md")))
        command = f"uv run core/campaign.py --resume {shlex.quote(str(self.call.session.folder))}"
        lines = [f"# {self.plan.name}: a decision is needed", ""]
        for name, reply in bad.items():
            error = reply.error or {}
            lines += [
                f"## Phase {name}: {reply.document.get('status')}",
                "",
                f"{error.get('code', '')}: {error.get('message', '')}",
                "",
            ]
            lines += [f"Evidence: phases/{self.plan.phase(name).folder}/", ""]
        lines += [
            "## Choices",
            "",
            "- Mend the cause (a spec, a plan, the code), then go on; what is finished is not done again:",
            "",
        ]
        lines += [f"      {command}", "", "- Tell the stages that run again something they did not know:", ""]
        lines += [f"      {command} --extra-context answer.md", ""]
        path = folder / f"{number:02d}.md"
        files.write_atomic(path, "\n".join(lines))
        first = next(iter(bad.values())).error or {}
        message = f"{', '.join(bad)} did not succeed: {first.get('message', '')}"
        return {"code": "ESCALATED", "message": message, "hint": f"read {path}, then: {command}"}


def read_effective(session: Path) -> Json:
    path = session / "effective-config.json"
    if not path.is_file():
        raise StrataError("NO_SESSION", f"{session} is not the session of a campaign", "campaign.py --list shows those there are")
    return files.read_json(path)


def find_session(name: str, base: Path) -> Path:
    """A path, or the name (or its beginning) of a session under `base`."""
    if (Path(name) / "effective-config.json").is_file():
        return Path(name).resolve()
    found = [p for p in sorted(base.glob(f"{name}*")) if (p / "effective-config.json").is_file()] if base.is_dir() else []
    if len(found) != 1:
        what = "no session" if not found else f"{len(found)} sessions"
        raise StrataError("NO_SESSION", f"there is {what} {name!r} under {base}", "campaign.py --list shows those there are")
    return found[0]


def listing(base: Path) -> list[Json]:
    """The campaigns under `base`, newest first."""
    found: list[Json] = []
    for path in sorted(base.iterdir() if base.is_dir() else [], reverse=True):
        manifest = path / "manifest.json"
        if (path / "effective-config.json").is_file():
            known = files.read_json(manifest) if manifest.is_file() else {"status": "not ended", "grade": ""}
            found.append({"session": path.name, "status": known.get("status"), "grade": known.get("grade")})
    return found
