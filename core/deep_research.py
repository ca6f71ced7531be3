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

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files
from lib.plan import orchestrator_file
from lib.stages import runs
from packs.deep_research import operating

TOOL = Tool(
    "deep_research",
    layer=2,
    summary="Research a question from several sides; plan it only, replay a recorded run, or look after one that is there.",
    example='uv run core/deep_research.py fixture "Which self-hosted wikis survive ten years?" --effort quick',
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("mode", choices=(*operating.MODES, *operating.GOING_ON, *operating.VERBS), help="a mode and a QUERY; or a verb and a RUN")
    add("what", metavar="QUERY|RUN", help="what is to be found out; for a verb, the session of a run")
    add("--run-id", help="the name of the run (default: from the query)")
    add("--sensitivity", choices=("normal", "restricted", "no_web"), default="normal", help="which sources may be asked")
    add("--effort", choices=("quick", "standard", "deep"), default="standard", help="how many sides are looked at")
    runs.arguments(parser, modifier=False)


def main(call: Call) -> Json:
    options = call.options
    if options.mode in operating.VERBS:
        return operating.VERBS[options.mode](operating.find(options.what))
    if not options.what.strip():
        usage("what is to be found out? The query is empty", TOOL.example)
    slug = files.slug(options.run_id or options.what, "")[:48].strip("-") or f"run-{files.digest(options.what)[:8]}"
    params = {"query": options.what, "run_id": slug, "sensitivity": options.sensitivity, "effort": options.effort}
    return operating.carry_out(call, slug, lambda: runs.run(call, orchestrator_file.load("deep_research"), params, topic=slug))


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=operating.words)
