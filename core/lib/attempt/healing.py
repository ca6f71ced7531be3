"""What an executor does about work that did not pass: try again knowing why, or ask its parent with a document."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.agent.drivers.conversation import AGENT_SESSION
from lib.attempt import refinements
from lib.attempt.underway import Underway
from lib.contract import REPEATED, ExitCode, Json
from lib.disk import files, lenient
from lib.plan.task import Task
from lib.session.attempts import Attempt
from lib.session.outcome import Outcome
from lib.session.step import Step
from lib.tool.call import Call

SELF_HEAL_MAX = 2
CONTINUE_TOKENS = 200_000  # of a whole session, each turn counted: beyond that a fresh start reads less
# The work was done and only its shape is wrong: a small model can fix that.
REPAIRABLE = frozenset({"NO_STRUCTURED_OUTPUT", "SCHEMA_RETRIES"})


def can_heal(call: Call, task: Task, work: Outcome, tries: int) -> bool:
    """Heal n runs at depth d+n: where that does not fit any more, the parent is asked instead."""
    if not task.limits.self_heal or work.exit_code not in REPEATED:
        return False
    if tries > SELF_HEAL_MAX or work.final:
        return False
    if call.depth.remaining - tries < 1:
        call.report("cannot-heal", f"heal {tries} needs depth {call.depth.current + tries + 1} of {call.depth.maximum}")
        return False
    return True


def must_ask_parent(task: Task, work: Outcome) -> bool:
    """What healing gave up on is the parent's to answer; what nobody's answer could fix is simply a failure."""
    return bool(task.limits.self_heal and work.exit_code == ExitCode.FAILURE and work.wrong and not work.final)


def worth_continuing(work: Outcome) -> str:
    """The agent session a heal continues: it has read everything already. One that broke off, or has grown so long that
    sending all of it again costs more than starting over, is not continued."""
    read = work.tokens - sum(int(used["outputTokens"]) for used in work.usage.values() if "outputTokens" in used)
    ended_well = work.code in ("STAGE_FAILED", "NOT_VERIFIED")
    return work.agent_session_id if ended_well and read <= CONTINUE_TOKENS else ""


def interrupted(call: Call, step: Step, task: Task) -> Attempt | None:
    """The last attempt at this very work, if it was cut short in the middle of an agent session that can be resumed."""
    last = next((a for a in call.session.cut_short(step) if (a.folder / AGENT_SESSION).exists()), None)
    if not last or call.driver != "live" or task.isolation:
        return None  # a worktree begins anew: what it had done there is not there any more
    asked = call.session.folder / step.folder / f"task-{last.number}.json"
    same = asked.exists() and task.fingerprint and Task.read(asked).fingerprint == task.fingerprint
    return last if same else None


def go_on(cut_short: Attempt, out: Path) -> tuple[Path, str]:
    """What an interrupted session is told, and which one it is. What it had written is where it will look for it."""
    shutil.copytree(cut_short.out, out, dirs_exist_ok=True)
    path = out.parent / "interrupted.md"
    files.write_atomic(
        path,
        "You were interrupted in the middle of this task; nobody else has worked on it since. Go on from where you were: do not "
        "begin again, and do not repeat what is done. The paths above are the ones that count now; what you had written for the "
        "outputs has been copied there.\n",
    )
    return path, str(files.read_json(cut_short.folder / AGENT_SESSION)["id"])


def used(cut_short: Attempt) -> Counter[str]:
    """How often an interrupted session had called each tool: that counts, where it is continued."""
    path = cut_short.folder / "transcript.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    said = [lenient.parse(line, _Message) for line in lines]
    blocks = [block for message in said if message.type == "AssistantMessage" for block in message.content]
    return Counter(str(block["name"]) for block in blocks if "name" in block and "input" in block)


class _Message(Struct, frozen=True):
    """A line of a transcript, of which the last may be torn."""

    type: str = ""
    content: tuple[Json, ...] = ()


def feedback(done: Underway, work: Outcome) -> Path:
    """What the next attempt is told."""
    issues = "\n".join(f"{number}. {text}" for number, text in enumerate(work.wrong, 1))
    path = done.attempt.folder / "feedback.md"
    files.write_atomic(
        path,
        f"The previous attempt did not pass. What was found:\n\n{issues}\n\nFix exactly these, and keep what was right. "
        f"What it wrote is in {done.attempt.out}.\n",
    )
    return path


def ask_parent(done: Underway, work: Outcome, tries: int) -> Outcome:
    """Tier 2: what could not be healed here becomes a refinement document, and exit 10."""
    session = done.call.session
    path = session.folder / "refinements" / f"exec-{done.step.slug}.md"
    allowed = 1 + min(SELF_HEAL_MAX, max(done.call.depth.remaining - 1, 0))
    context = [f"Stage: {done.step}", f"Artifact: {session.relative(done.attempt.folder)}"]
    context.append(f"Attempt: {tries} of {allowed} (self-heal exhausted)")
    files.write_atomic(path, refinements.document(work.wrong[0], context, work.message, list(work.wrong)))
    error = {**(work.error or {}), "refinement": session.relative(path)}
    return replace(work, exit_code=ExitCode.NEEDS_REFINEMENT, error=error)
