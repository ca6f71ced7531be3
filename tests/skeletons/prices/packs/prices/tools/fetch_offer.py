# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "claude-agent-sdk>=0.2.182,<0.3", "jsonschema>=4.23,<5", "msgspec>=0.19,<1", "pyyaml>=6.0,<7",
#   "pytest>=8.3,<10", "ruff>=0.12,<1", "rich>=14,<16", "httpx2>=2.16,<3", "protego>=0.5,<1", "trafilatura>=2.1,<3",
# ]
# [tool.uv]
# exclude-newer = "2026-11-15T00:00:00Z"
# ///
"""Layer 1: reads the page of one product."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lib import cli
from lib.attempt import executor
from lib.attempt.verdicts import Verdict
from lib.cli import Call, Tool
from lib.contract import Json
from lib.plan.task import Task
from lib.web.door import Door

TOOL = Tool("fetch_offer", layer=1, summary="Read a product's page.", example="uv run fetch_offer.py https://shop.example lamp")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shop")
    parser.add_argument("product")
    executor.arguments(parser)


def main(call: Call) -> Json:
    shop, product = call.options.shop, call.options.product

    def work(task: Task, out: Path) -> Verdict:
        page = Door(call, out).get(f"{shop}/{product}", f"what the {product} costs").require()
        said = {"product": product, "text": page.readable().text, "url": page.evidence.final_url, "sha256": page.evidence.sha256}
        (out / "offer.json").write_text(json.dumps(said))
        return Verdict("done")

    return executor.run_function(call, TOOL.name, executor.read_task(call, Task()), work)


if __name__ == "__main__":
    cli.run(TOOL, arguments, main)
