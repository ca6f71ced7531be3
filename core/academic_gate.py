# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: the validation gate for one file that an agent left. `uv run core/academic_gate.py --help`"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import ExitCode, Json, StrataError
from lib.disk import files, records
from packs.academic import gate

TOOL = Tool(
    "academic_gate",
    layer=1,
    summary="Check one output of an agent: its schema, types and texts. What reads like an instruction goes into quarantine.",
    example="uv run core/academic_gate.py --agent search-strategist --phase 1 --output-file run/metadata/search_strings.json "
    "--schema academic/search_strings --run-id run --write-sanitized",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--agent", required=True, help="who made it")
    add("--phase", required=True, type=int, choices=range(7), metavar="0-6", help="in which phase")
    add("--output-file", required=True, metavar="FILE", help="what it made")
    add("--schema", required=True, help="a file, or a name such as academic/quotes")
    add("--run-id", required=True, help="the run it belongs to")
    add("--write-sanitized", action="store_true", help="write FILE.sanitized.json beside it")
    add("--release", action="append", default=[], metavar="SHA256", help="let this text out of quarantine (repeatable)")


def main(call: Call) -> Json:
    options = call.options
    path = Path(options.output_file)
    if not path.is_file():
        raise StrataError("NOT_FOUND", f"{path} is not there", f"phase {options.phase} ({options.agent}) owes it", final=True)
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise StrataError("BAD_HANDOVER", f"{path} is not JSON: {error}", f"{options.agent} owes it", final=True) from None
    gated = gate.passed(document, options.schema, frozenset(options.release))
    beside = path.with_name(f"{path.stem}.sanitized.json")
    if options.write_sanitized and not gated.problems:
        files.write_json(beside, gated.document)
    found: Json = {
        "tool": TOOL.name,
        "run_id": options.run_id,
        "phase": options.phase,
        "agent": options.agent,
        "cleaned": list(gated.cleaned),
        "quarantined": [records.document(q) for q in gated.quarantined],
        "problems": list(gated.problems),
    }
    if gated.problems:
        listed = "; ".join(gated.problems[:5])
        hint = f"{options.agent} of phase {options.phase} owes it: nothing goes on from here"
        raise StrataError("GATE_REFUSED", f"{path}: {listed}", hint, ExitCode.FAILURE, found, final=True)
    status = "partial" if gated.quarantined else "success"
    code = ExitCode.PARTIAL_SUCCESS if gated.quarantined else ExitCode.SUCCESS
    written = {"sanitized": str(beside)} if options.write_sanitized else {}
    return {**found, **written, "status": status, "exit_code": int(code)}


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
