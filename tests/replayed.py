"""Many agent stages on replay, from one that was recorded."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from scripted_model.server import say, scripted, turns
from support import House

AGENT = "---\nname: trial\ndescription: A trial.\nstrata: {completion: stage}\n---\nYou do the task.\n"


def fan(made: House, count: int, cap: int, name: str) -> list[str]:
    """A command line that replays `count` agent stages. The first was recorded; the others are copies of it by name."""
    keys = [f"item-{n:04}" for n in range(count)]
    (made.folder / "prompts/executors/trial.md").write_text(AGENT)

    def write(items: list[str]) -> None:
        made.orchestrator(
            f"version: 1\nname: {name}\nparams: {{items: {{type: list, default: {json.dumps(items)}}}}}\nstages:\n"
            f"  - {{name: a, agent: trial, foreach: {{items: param.items, cap: {cap}, max_items: 10000}}}}\n",
            name,
        )

    recorded = made.folder / f"recorded-{name}"
    write(keys[:1])
    with scripted(turns(say("STAGE_TASK_COMPLETE"))) as model:
        env = model.environment(str(made.folder / "claude"))
        ran = made.json("orchestrator", name, "--driver", "record", "--session-dir", str(recorded), **env)
        assert ran.code == 0, ran.stderr
    write(keys)
    (first,) = recorded.rglob(keys[0])
    for key in keys[1:]:
        copy = Path(shutil.copytree(first, first.with_name(key))) / "attempt-1"
        prompt = (copy / "prompt.md").read_text().replace(keys[0], key)
        (copy / "prompt.md").write_text(prompt)
        meta = json.loads((copy / "meta.json").read_text())
        meta["prompt_sha256"] = hashlib.sha256(prompt.encode()).hexdigest()
        (copy / "meta.json").write_text(json.dumps(meta))
    return made.argv("orchestrator", name, "--driver", "replay", "--fixtures", str(recorded))
