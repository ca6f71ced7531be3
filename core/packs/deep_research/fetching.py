"""What is cited is read by Python itself, through the one door to the web; what cannot be read is said, not hidden."""

from __future__ import annotations

from pathlib import Path

from lib.attempt.verdicts import Verdict
from lib.contract import StrataError
from lib.plan.task import Task
from lib.tool.call import Call
from lib.web.door import Door

from packs.deep_research import sources
from packs.deep_research.at import At
from packs.deep_research.sources import Got


def citations(call: Call, task: Task, out: Path) -> Verdict:
    door = Door(call, out)

    def fetch(url: str) -> Got:
        try:
            page = door.get(url, "it is cited")
        except StrataError as error:  # refused, too slow, too large, not there: blocked, with the reason
            return Got(note=f"{error.code}: {error}"[:300])
        got = Got(page.evidence.status, page.evidence.final_url)
        if not page.ok:
            return got
        try:
            text = page.readable()
        except StrataError as error:
            return Got(0, page.evidence.final_url, note=f"{error.code}: {error}"[:300])
        return Got(got.status, got.final_url, text.title, text.date, text.text)

    return At(call, task, out).tick("citations", lambda at: sources.citations(at, fetch))
