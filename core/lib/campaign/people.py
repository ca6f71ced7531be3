"""Asking a person: at a terminal at once, otherwise by a document that says what was tried, what failed, and what can be done."""

from __future__ import annotations

import re
import select
import sys
from pathlib import Path

from lib.campaign.approvals import Asked, Decision, read_answer
from lib.contract import Interrupted, StrataError, part
from lib.disk import files, records
from lib.plan.plan import Phase
from lib.process import processes, streams
from lib.process.tools import ToolResult
from lib.session import events
from lib.session.attempts import every_outcome
from lib.session.documents import PhaseReport, Results


def at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty() and not processes.stopping.is_set()


def read_line(prompt: str) -> str:
    """A line from the terminal. A Ctrl-C ends the waiting as it ends everything else."""
    with events.aside():
        streams.write(sys.stderr, streams.harmless(prompt))
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            if processes.stopping.is_set():
                raise Interrupted()
        return sys.stdin.readline().strip()


def decide(asked: Asked, session: Path) -> Decision | None:
    """Approve, reject, or later; None where there is nobody to ask."""
    if not at_a_terminal():
        return None
    shown = "".join(f"  {name}: {value}\n" for name, value in asked.params.items())
    shown += "".join(f"  {session / path}\n" for path in asked.show)
    while asked.answer_schema:
        text = read_line(f"\n{asked.question}\n{shown}Your answer as JSON ({asked.answer_schema}) or @FILE, or Enter for later: ")
        if not text:
            return None
        try:
            return "approve", "", read_answer(asked, text)
        except StrataError as error:
            sys.stderr.write(f"{error.message}\n")
    answer = read_line(f"\n{asked.question}\n{shown}[y]es, [n]o, or Enter for later: ").lower()
    if answer in ("y", "yes"):
        return "approve", "", None
    if answer in ("n", "no"):
        return "reject", read_line("Why? ") or "no reason given", None
    return None


def resolve(document: Path, session: Path) -> Path | None:
    """A person's answer to an escalation, as a resolution document; None for later."""
    if not at_a_terminal():
        return None
    text = read_line(f"\n{document.read_text(encoding='utf-8')}\nYour answer in one line, or Enter to stop here: ")
    return keep_resolution(session, text) if text else None


def keep_resolution(session: Path, text: str) -> Path:
    """What a person said, kept with the session: it is told to every stage that runs again."""
    number = 1 + len(list((session / "resolutions").glob("human-*.md")))
    path = session / "resolutions" / f"human-{number:02d}.md"
    files.write_atomic(path, f"# Resolution\n\n{text.strip()}\n")
    return path


def resolutions(session: Path) -> list[Path]:
    """What a person has answered since the last time one was asked. It is told until what it is about has succeeded."""
    asked = max((p.stat().st_mtime for p in (session / "escalations").glob("*.md")), default=0.0)
    return [p for p in sorted((session / "resolutions").glob("human-*.md")) if p.stat().st_mtime >= asked]


def escalation(campaign: str, session: Path, phases: list[tuple[Phase, ToolResult]], command: str) -> str:
    """What a busy person needs: what failed, what was tried, where the evidence is, and the choices."""
    lines = [f"# {campaign}: a decision is needed", ""]
    for phase, reply in phases:
        lines += [f"## Phase {phase.name}: {reply.status}", ""]
        lines += [f"{reply.code}: {reply.message}", "", "What was tried:", ""]
        lines += _tried(session, phase) or ["- nothing beyond the first attempt"]
        request = part(reply.error, "refinement")
        lines += (
            ["", "What was asked below:", "", _bounded(session / request)] if request and (session / request).is_file() else []
        )
        question = part(reply.error, "question")
        lines += ["", f"**Question:** {question}"] if question else []
        lines += ["", "Evidence:", "", *_evidence(session, phase), ""]
        report = session / "phases" / phase.folder / "report.json"
        failed_rollback = part(reply.error, "rollback_failed")
        lines += [f"The workspace could not be put back: {failed_rollback}", ""] if failed_rollback else []
        rolled = records.read(report, PhaseReport).rolled_back if report.exists() else None
        lines += [f"The workspace was put back; what failed is kept as `{rolled.ref}`.", ""] if rolled else []
    lines += ["## Choices", "", "- Say how to resolve it; every stage that runs again is told:", ""]
    lines += [f"      {command} --resolution FILE", ""]
    lines += ["- Fix the cause yourself (a spec, a plan, the code), then go on; what is finished is not done again:", ""]
    lines += [f"      {command}", "", "- Give up on it, and record why:", "", f'      {command} --reject "why"', ""]
    return "\n".join(lines)


def _tried(session: Path, phase: Phase) -> list[str]:
    failed = [(attempt, outcome) for attempt, outcome in every_outcome(session, phase.folder) if outcome.exit_code]
    lines: list[str] = []
    for attempt, outcome in failed[-8:]:
        why = re.sub(r"\s+", " ", outcome.message)[:200]
        lines.append(f"- `{attempt.folder.relative_to(session)}` ({outcome.kind}): {why}")
    return lines


def _evidence(session: Path, phase: Phase) -> list[str]:
    """The output of the checks that failed last, then where everything else is."""
    folder = session / "phases" / phase.folder
    cycles = sorted(folder.glob("sentinel/cycle-*"), key=lambda p: int(p.name.removeprefix("cycle-")))
    lines: list[str] = []
    for results in sorted(cycles[-1].glob("*-results.json")) if cycles else []:
        found = records.read(results, Results).checks
        lines += [f"- `{r.evidence}` ({r.name})" for r in found if not r.passed and r.evidence]
    lines += [f"- `{cycles[-1].relative_to(session)}/`: what the checks found, the audit, the fix list"] if cycles else []
    return [*dict.fromkeys(lines), f"- `phases/{phase.folder}/report.json`"]


def _bounded(path: Path) -> str:
    text = path.read_text(encoding="utf-8")[:3000]
    return "\n".join(f"> {line}" for line in text.splitlines())
