"""What a campaign says of itself while it runs and when it ends: its state, checkpoints, manifest, and what to do next."""

from __future__ import annotations

import json
import os
import shlex
import threading
from pathlib import Path

from msgspec import Struct, field

from lib.attempt.audits import worst
from lib.campaign import approvals, checkpoints, goals
from lib.campaign.ending import Ending
from lib.contract import DONE, STATUS, ExitCode, Json, command, part
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan.plan import Phase, Plan
from lib.process.tools import ToolResult
from lib.session import ledger, produced, verified, watchers
from lib.stages import asking
from lib.tool.call import Call


class Progress(Struct):
    """A campaign as far as it has come, and what it says of itself on disk, all of it derived from the outcomes."""

    call: Call
    plan: Plan
    effective: Path
    started_at: str = ""
    results: dict[str, ToolResult] = {}
    said: approvals.Said = field(default_factory=approvals.Said)
    resolutions: list[Path] = []  # what a person answered to an escalation
    only: str = ""  # the one phase to run
    held: ToolResult | None = None  # the plan itself waits for a person
    evaluation: Json = {}  # what was made of the goal
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def approvals(self) -> approvals.Approvals:
        return approvals.Approvals(self.call.session.folder, self.plan)

    @property
    def base(self) -> Path:
        return self.call.session.folder.parent

    @property
    def source(self) -> str:
        """Where the plan came from, as the user may name it."""
        path = Path(files.read_json(self.effective)["settings"]["plan_file"])
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)

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
        if reply and reply.waiting:  # it waits for a person; how it was verified is another thing
            return part(self.report_of(phase), "sentinel_grade")
        return reply.said.sentinel_grade if reply else ""

    # The end

    def finish(self, code: ExitCode, error: Json | None) -> Json:
        folder = self.call.session.folder
        grades = [g for p in self.plan.phases if (g := self.grade_of(p))]
        unfinished = code == ExitCode.INTERRUPTED or (code == ExitCode.HUMAN_INPUT and bool(self.waiting()))
        missing = "PENDING" if unfinished else "FAIL"
        grade = worst(*grades) if len(grades) == len(self.plan.phases) else missing
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
        if self.plan.goal:
            manifest |= {"goal": self.plan.goal, "round": self.plan.round, "rounds": self.plan.rounds}
            manifest["evaluation"] = self.evaluation or goals.last_evaluation(folder)
        warnings = [f"{name}/{w}" for name, reply in self.results.items() for w in reply.warnings]
        if warnings:
            manifest["warnings"] = warnings
        if error:
            manifest["error"] = error
        asked = [question for waits in self.waiting() if "digest" not in waits for question in asking.each(waits)]
        if self.undecided() or asked:
            how = f"--resume {shlex.quote(str(folder))} --approve"
            manifest["waiting"] = [*({**one, "answer_with": how} for one in self.undecided()), *asked]
        manifest["outputs"] = records.document(produced.of_session(folder))
        produced.write(folder, self.source)
        files.write_json(folder / "manifest.json", manifest)
        self.state("COMPLETE" if code in DONE else ("WAITING" if self.waiting() else "STOPPED"))
        path = watchers.place(folder)
        self.call.artifact = folder / "manifest.json"
        sums = ledger.Ledger(folder).figures()
        held = f", {sums.held:.4f} held" if sums.held else ""
        spent = f"{sums.usd:.4f} USD{held}, {sums.agents} agent sessions"
        said: Json = {"spent": spent + (", replayed" if self.call.driver == "replay" else ""), "session_dir": str(folder)}
        said |= {"usd": sums.usd, "usd_held": sums.held, "tokens": sums.tokens, "agent_sessions": sums.agents}
        said |= {"report": str(path), "page": str(folder / "report.html"), "next": self.next_command(code, error)}
        return manifest | said

    def next_command(self, code: ExitCode, error: Json | None) -> str:
        """What a person would do now."""
        if code not in DONE and part(error, "code") == "BUDGET_EXCEEDED":
            return str((error or {})["hint"])
        if code not in DONE:
            waits = next(iter(self.waiting()), None)
            return " ".join([self.resume_command(), *([asking.flag(waits) or "--approve"] if waits else [])])
        if self.call.driver == "replay":
            return f"{command('campaign')} {shlex.quote(self.source)} --driver live   (the same with real agents)"
        return f"{command('session')} show {shlex.quote(str(self.call.session.folder))}   (or open report.html there)"

    def resume_command(self) -> str:
        return f"{command('campaign')} --resume {shlex.quote(str(self.call.session.folder))}"

    def waiting(self) -> list[Json]:
        return [r.waiting for r in self.replies() if r.waiting]

    def replies(self) -> list[ToolResult]:
        return [*self.results.values(), *([self.held] if self.held else [])]

    def undecided(self) -> list[Json]:
        """What --approve and --reject speak about next time: what waits, and what was said no to."""
        found = [r.waiting or r.said.rejected for r in self.replies()]
        return [asked for asked in found if asked and "digest" in asked]

    def _phase_entry(self, phase: Phase) -> Json:
        reply = self.results.get(phase.name)
        begun = any((self.call.session.folder / "phases" / phase.folder).glob("*/stages/*"))
        status = "unfinished" if begun else "not-run"
        entry: Json = {"name": phase.name, "status": status, "exit_code": None, "report": None, "sentinel_grade": None}
        story = verified.of(self.call.session.folder, self.call.session.folder / "phases" / phase.folder / "sentinel")
        entry |= {"verified": story.words} if story.words else {}
        if reply:
            entry |= {"status": reply.status, "exit_code": int(reply.exit_code)}
            entry |= {"report": f"phases/{phase.folder}/report.json", "sentinel_grade": self.grade_of(phase) or None}
            if reply.error:
                entry["error"] = reply.message
        return entry

    def ending(self) -> Ending:
        return Ending(self.call.session.folder, self.plan, self.results, self.resume_command(), self.source)

    def verdict(self) -> tuple[ExitCode, Json | None]:
        return self.ending().verdict()

    def report_of(self, phase: Phase) -> Json:
        path = self.call.session.folder / "phases" / phase.folder / "report.json"
        return files.read_json(path) if path.exists() else {}
