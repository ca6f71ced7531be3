# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 2: from a research question to quotes that are really in the papers. `uv run core/academic.py run my-review`"""

from __future__ import annotations

import argparse
from pathlib import Path

from lib import cli
from lib.cli import Call, Tool
from lib.contract import Json, usage
from lib.stages import runs
from packs.academic import operating

TOOL = Tool(
    "academic",
    layer=2,
    summary="Set up a review, run it, answer its questions, run a phase again, show its status, or pack it.",
    example='uv run core/academic.py setup my-review --project "Trees" --question "Do street trees cool the night?" '
    '--keywords "street trees, night" --disciplines Geography',
)
VERBS = ("setup", "run", "status", "answer", "phase", "export")


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("verb", choices=VERBS, metavar="VERB", help=f"{', '.join(VERBS)}")
    add("words", nargs="*", default=[], metavar="RUN", help="the folder of the run; phase N RUN; answer RUN WORD")
    add("--config", metavar="FILE", help="setup: a run_config.json instead of questions")
    add("--project", help="setup: the title of the work")
    add("--question", help="setup: the research question")
    add("--keywords", metavar="A,B", help="setup: keywords of the question")
    add("--disciplines", metavar="A,B", help="setup: which fields")
    add("--databases", metavar="A,B", help=f"setup: the databases to search (default: {', '.join(operating.DATABASES)})")
    add("--portal", help="setup: a portal of the settings that lists databases")
    add("--from-year", type=int, help="setup: the first year of publication")
    add("--to-year", type=int, help="setup: the last year of publication")
    add("--mail", help="setup: an address that the services may write to")
    add("--force", action="store_true", help="setup: write over a configuration that is there")
    add("--to", metavar="FILE", help="export: the file (default: RUN.zip)")
    runs.arguments(parser, modifier=False)


def main(call: Call) -> Json:
    options = call.options
    if options.verb == "setup":
        return operating.setup(options)
    if not options.words:
        usage(f"{options.verb} of which run?", f"uv run core/academic.py {options.verb} RUN")
    root = Path(options.words[0]).absolute()
    if options.verb == "status":
        return operating.status(root)
    if options.verb == "export":
        return operating.export(root, Path(options.to).absolute() if options.to else None)
    return operating.run(call)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main, words=operating.words)
