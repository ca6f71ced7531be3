"""The knowledge base of the story, built without agents: both runs, as sources."""

from __future__ import annotations

import hashlib
from pathlib import Path

from packs.downstream import settings
from packs.downstream.upstream import OutputEntry
from packs.kb import taking
from packs.kb.store import Built, Store

from scripted_model import gtm_corpus as corpus

RUNS = (("security", "healthcare"), ("cloud", "financial_services"))


def entries(folder: Path, category: str, vertical: str, second: bool, run: str) -> list[OutputEntry]:
    """What a run leaves, as files and entries of its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[OutputEntry] = []

    def add(kind: str, text: str, **dimensions: str) -> None:
        path = folder / f"{len(found):03d}.md"
        path.write_text(text)
        sha = hashlib.sha256(text.encode()).hexdigest()
        date = "2026-11-02T10:00:00Z" if second else "2026-11-01T10:00:00Z"
        found.append(
            OutputEntry(
                "x", kind, "", dimensions, path.name, str(path), sha, len(text), path.name, completed_at=date, execution_id=run
            )
        )

    add("service_category", corpus.CATEGORIES[category], service_category=category)
    for name, text in corpus.HORIZONTALS.items():
        add("horizontal", text.replace("{cloud_trigger}", corpus.CLOUD_TRIGGER if second else ""), report=name)
    add("vertical", corpus.VERTICALS[vertical], vertical=vertical)
    for title, text in corpus.TITLES.items():
        add("title", text, title=title)
    for key, text in corpus.PLAYBOOKS.items():
        parts = key.split(".")
        if parts[0] == vertical:
            dimensions = dict(zip(("vertical", "title", "service_category"), parts, strict=False))
            add("playbook_3d" if len(parts) == 3 else "playbook_2d", text, **dimensions)
    return found


def build(root: Path, work: Path) -> list[Built]:
    """Two versions."""
    made: list[Built] = []
    for number, (category, vertical) in enumerate(RUNS):
        run = f"run_{number + 1}"
        listed = entries(work / run, category, vertical, bool(number), run)
        offered = taking.sources(listed, run)
        made.append(Store(root).build(offered, run, str(work), f"2026-11-0{number + 1}", settings.read().aliases))
    return made
