# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: verifies a folder, fixes what failed, and grades it. `uv run core/sentinel.py --cwd my-project pytest ruff`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.campaign import named, outlook
from lib.cli import Call, Tool
from lib.contract import MINIMUM_STACK, Json, usage
from lib.plan import checks_file
from lib.session.step import Step
from lib.stages import look, runs
from lib.stages.sentinel import Verification
from lib.stages.terms import Terms

TOOL = Tool(
    "sentinel",
    layer=2,
    summary="Run checks on a folder, have what failed fixed and checked again, and grade it: PASS, WARN or FAIL.",
    example="uv run core/sentinel.py --cwd my-project pytest ruff",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", metavar="CHECK", nargs="*", help="checks of config/checks.yaml, or of --checks FILE (default: all of that file)")
    add("--audit", action="store_true", help="let agents write down the requirements and compare the results with them")
    add("--no-fix", action="store_true", help="only check: fix nothing, and call no agent")
    add("--protect", metavar="GLOB", action="append", default=[], help="judging files that a fix may not touch (repeatable)")
    add("--scope", metavar="GLOB", action="append", default=[], help="what a fix may write (repeatable; default: all)")
    add("--request", metavar="TEXT", default="", help="the original request: a text, or a file that contains it")
    runs.arguments(parser, modifier=False, stages=False)


def main(call: Call) -> Json:
    terms = read_terms(call)
    # Looking needs no depth at all: it asks no agent.
    call.depth.require(0 if not terms.audit and not terms.fix else (MINIMUM_STACK[2] if call.depth.current == 0 else 1))
    step = Step(phase=call.options.phase, orchestrator=call.options.run_name or "sentinel")
    if call.options.explain:
        call.look_at_session()
        return outlook.verification(look.begin(call), terms, step).document()
    call.open_session(f"sentinel-{call.cwd.name}", step.slug)
    return Verification(call, terms, step).go()


def read_terms(call: Call) -> Terms:
    options = call.options
    source = str(Path(options.checks).resolve()) if options.checks else ""
    known = checks_file.known(source)
    if not options.names and not options.checks:
        usage("which checks?", f"name some of {', '.join(known.table)}, or give a file of your own with --checks")
    names = options.names or list(checks_file.load(Path(source)))
    known.choose(names)
    if len(set(names)) != len(names):
        usage("a check is named twice")
    return Terms(
        tuple(names),
        source,
        audit=options.audit,
        fix=not options.no_fix,
        protect=tuple(options.protect),
        scope=tuple(options.scope),
        request=options.request,
    )


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
