# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: a question becomes a report whose claims can be looked up. `uv run core/deep_research.py live "Which wikis last?"`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files
from lib.plan import orchestrator_file
from lib.stages import runs
from packs.deep_research import gating, operating, serving, tools

TOOL = Tool(
    "deep_research",
    layer=2,
    summary="Research a question from several sides; plan it only, replay a recorded run, or look after one that is there.",
    example='uv run core/deep_research.py fixture "Which self-hosted wikis survive ten years?" --effort quick',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    verbs = (*operating.MODES, *operating.GOING_ON, *operating.VERBS, *operating.BY_HAND)
    add(
        "mode",
        choices=verbs,
        metavar="MODE",
        help=f"with a QUERY: {', '.join(operating.MODES)}; with a RUN: {', '.join(verbs[3:])}",
    )
    add("what", metavar="QUERY|RUN", help="the question; or the session of a run")
    add("words", nargs="*", default=[], metavar="NAME=VALUE", help="arguments of a tool that you call by hand")
    add("--run-id", help="the name of the run (default: from the query)")
    add("--sensitivity", choices=gating.SENSITIVITIES, default="normal", help="the web, only listed hosts, or only a folder")
    add("--effort", choices=tuple(tools.EFFORTS), default="standard", help="how many sides to research")
    add("--corpus", metavar="DIR", default="", help="also search a folder of documents; with no_web, only that folder")
    add("--approve-plan", action="store_true", help="do not ask whether to approve the sides; on a resume: approve them")
    add("--max-perspectives", type=int, choices=range(1, 51), metavar="N", help="at most N sides, 1 to 50 (default: 3 or 6)")
    add("--max-attempts", type=int, metavar="N", help="attempts per perspective, including the first (default: 2)")
    add("--max-retries", type=int, metavar="N", help="retries of all perspectives of a wave together (default: 4)")
    add("--watchdog", type=int, metavar="SECONDS", help="end the run if nothing happens for this long (default: by stage)")
    runs.arguments(parser, modifier=False)


def main(call: Call) -> Json:
    options = call.options
    if options.mode in operating.BY_HAND:
        return operating.hand(call, operating.find(options.what), options.mode, options.words)
    if options.words:
        usage(f"the query must be one argument: {options.what!r} was followed by {options.words}", "put it into quotes")
    if options.mode in operating.VERBS:
        return operating.VERBS[options.mode](operating.find(options.what))
    if not options.what.strip():
        usage("the query is empty: what should be researched?", TOOL.example)
    serving.require_enabled()
    slug = files.slug(options.run_id or options.what, "")[:48].strip("-") or f"run-{files.digest(options.what)[:8]}"
    folder = str(Path(options.corpus).absolute()) if options.corpus else "none"
    params = {
        "query": options.what,
        "run_id": slug,
        "sensitivity": options.sensitivity,
        "effort": options.effort,
        "corpus": folder,
    }
    params |= {"limits": operating.limits_of(options)}
    orchestration = orchestrator_file.load("deep_research", "approved" if operating.is_approved(options) else "")
    return operating.carry_out(call, slug, lambda: runs.run(call, orchestration, params, topic=slug))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=operating.words)
