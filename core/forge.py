# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: takes a feature from its request to reviewed code. `uv run core/forge.py "Add a --dry-run flag to the importer"`"""

from __future__ import annotations

import argparse

from lib import cli
from lib.campaign import named
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.disk import files
from lib.plan import orchestrator_file
from lib.stages import runs
from packs.forge import proposals

TOOL = Tool(
    "forge",
    layer=2,
    summary="Take a feature from its request to designed, built, verified and reviewed code; or look at what it proposes.",
    example="uv run core/forge.py knowledge list --cwd my-project",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("request", metavar="REQUEST", help="the feature you want; or `knowledge`, to see what earlier features propose")
    add("words", nargs="*", default=[], metavar="WORD", help="knowledge: list, or apply N")
    add("--slug", help="the feature's short name (default: from the request); its artifacts are under docs/feature/")
    add("--tests", default="pytest", metavar="CHECK", help="the check that runs the test suite (default: pytest)")
    add("--build", default="auto", metavar="COMMAND", help="the build command, if the repository does not show it")
    add("--depth", choices=("auto", "full", "standard", "lightweight"), default="auto", help="how deep the review goes")
    add("--ask", action="store_true", help="ask for a yes after the design, and before the change is committed")
    runs.arguments(parser, modifier=False)


def main(call: Call) -> Json:
    options = call.options
    if options.request == "knowledge":
        return proposals.answer(call.cwd, options.words)
    if options.words:
        usage(f"the request must be one argument: {options.request!r} was followed by {options.words}", "put it into quotes")
    if not options.request.strip():
        usage("the request is empty: what should be built?", TOOL.example)
    named_so = options.slug or options.request
    slug = files.slug(named_so, "")[:48].strip("-") or f"feature-{files.digest(named_so)[:8]}"
    params = {"request": options.request, "slug": slug, "tests": options.tests, "build": options.build, "depth": options.depth}
    return runs.run(call, orchestrator_file.load("forge", "" if options.ask else "unattended"), params, topic=slug)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=named.words)
