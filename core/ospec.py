# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: takes a specification through its runs. `uv run core/ospec.py lean docs/spec.md`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.campaign import named
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.plan import orchestrator_file
from lib.stages import runs

TOOL = Tool(
    "ospec",
    layer=2,
    summary="Take a specification from its plan to tested, documented code.",
    example="uv run core/ospec.py lean docs/spec.md --cwd my-project",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("modifier", choices=("full", "lean", "leanest"), help="how many of the stages to run")
    parser.add_argument("target", metavar="TARGET", help="the specification; full writes it first")
    parser.add_argument("--request", metavar="TEXT", help="full: what the specification is to be about, if it is not written yet")
    runs.arguments(parser, modifier=False)


def main(call: Call) -> Json:
    options = call.options
    if options.modifier == "full" and not options.request and not (call.cwd / options.target).is_file():
        usage(f"there is no {options.target} yet, and nothing to write it from", '--request "what it is to be about"')
    chosen = orchestrator_file.load("ospec", options.modifier)
    return runs.run(call, chosen, {"target": options.target, "request": options.request}, topic=options.target)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
