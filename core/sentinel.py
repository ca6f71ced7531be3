# /// script
# requires-python = ">=3.11"
# dependencies = ["claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "pyyaml>=6.0,<7", "pytest>=8.3,<10", "ruff>=0.12,<1"]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: verifies a folder with named checks and grades it. `uv run core/sentinel.py --cwd my-project pytest ruff`"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lib import cli, files, orchestrator_file, stages
from lib.cli import Call, Tool
from lib.contract import ExitCode, Json

TOOL = Tool(
    "sentinel",
    layer=2,
    summary="Run checks on a folder, keep the evidence, and grade it: PASS, WARN or FAIL.",
    example="uv run core/sentinel.py --cwd my-project pytest ruff",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="CHECK", nargs="+", help="checks of config/checks.yaml, or of --checks FILE")
    stages.arguments(parser)


def main(call: Call) -> Json:
    manifest = stages.run(call, orchestrator_file.for_checks(call.options.names), {}, topic=call.cwd.name)
    results = _results(manifest)
    grade = results["overall"] if results else "FAIL"
    home = Path(manifest["manifest"]).parent
    files.write_json(home / "cycle-1" / "verification-results.json", results)
    files.write_json(home / "summary.json", {"cycles": 1, "blocking_count": results.get("blocking_count", 0), "grade": grade})
    files.write_atomic(home / "grade.txt", f"{grade}\n")
    document = manifest | {"grade": grade, "results": results}
    # A grade and an exit code never disagree: evidence that is missing or says FAIL is no pass, whatever the stage said.
    if grade == "FAIL" and manifest["exit_code"] in (ExitCode.SUCCESS, ExitCode.FAILURE):
        code = int(ExitCode.NEEDS_REFINEMENT)  # there is work, and it did not pass
        document |= {"exit_code": code, "status": "needs-refinement", "summary": manifest["summary"] | {"exit_code": code}}
        document.setdefault("error", {"code": "NOT_VERIFIED", "message": "the evidence of the checks is not there"})
    return document


def _results(manifest: Json) -> Json:
    """What the checks found, from their evidence on disk: the newest attempt's."""
    attempts = sorted(
        Path(manifest["manifest"]).parent.glob("stages/01-checks/attempt-*/out/verification-results.json"),
        key=lambda path: int(path.parent.parent.name.removeprefix("attempt-")),
    )
    return json.loads(attempts[-1].read_text(encoding="utf-8")) if attempts else {}


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
