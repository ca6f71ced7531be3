# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: runs named checks (commands) and records the evidence; no model. `uv run core/check.py pytest ruff`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.attempt import checks, executor
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files, records
from lib.plan import checks_file, listing
from lib.plan.task import Task
from lib.session.step import Step
from lib.stages import agent_mode
from lib.stages.finished import JUDGED
from lib.workspace import snapshot

TOOL = Tool(
    "check",
    layer=1,
    summary="Run named checks in the working folder and keep the evidence.",
    example="uv run core/check.py pytest ruff --cwd my-project",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="your own, a pack's or built-in checks, or of --checks FILE")
    parser.add_argument("--list", action="store_true", help="list all checks, and where each was found")
    executor.arguments(parser)


def main(call: Call) -> Json:
    if call.options.list:
        return listing.of("check", "check")
    if not call.options.names:
        usage("which checks?", "--list shows those there are")
    task = executor.read_task(call, Task(action="CHECK"))
    if len(set(call.options.names)) != len(call.options.names):
        usage("a check is named twice")
    chosen = checks_file.known(task.checks).choose(call.options.names)
    phase = Step.parse(call.options.step).phase if call.options.step else ""
    if checks_file.ARTIFACTS in call.options.names and not phase:
        usage("the check `artifacts` judges a phase of a campaign", "name a check of --checks")

    def judge(task: Task, out: Path) -> Json:
        found, after, steady = checks.run_steadily(chosen, call.cwd, out / "evidence", call.session.folder)
        if checks_file.ARTIFACTS in call.options.names:
            found.append(checks.run_artifacts(call.session.folder, phase, call.cwd))
        results = checks.summary(found)
        document = records.document(results)
        files.write_json(out / "verification-results.json", document)
        reason = "; ".join(f"{r.name}: {r.count}; it ends: {r.tail}" for r in results.failed)
        # What was judged is the folder as it stands: once somebody changes it, this judgement is no longer worth anything.
        judged = snapshot.state(call.cwd, (call.session.folder,)) if steady else "changed while it was judged"
        if steady:
            files.write_json(out.parent / JUDGED, after)
        verdict = "failed" if results.failed else "done"
        return {"verdict": verdict, "reason": reason, "results": document, "judged": judged}

    return executor.run_function(call, "check", task, judge, clock=False)  # every check has its own


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=agent_mode.words)
