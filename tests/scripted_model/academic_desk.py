"""One academic run of a test: its configuration, its folder, its session."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import House, Ran

from scripted_model import academic_papers
from scripted_model.academic_library import Library
from scripted_model.academic_story import Scholars

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine (Debian: apt-get install chromium)")
AGREED = {"0": "yes", "1": "yes", "3": "yes", "5": "yes", "6": "yes"}


class Desk:
    """One run, and what it is made with."""

    def __init__(self, house: House, library: Library, scholars: Scholars, name: str = "run") -> None:
        self.house, self.library, self.scholars, self.name = house, library, scholars, name
        self.root = house.workspace / name

    def configure(self, **more: Any) -> Desk:
        config: dict[str, Any] = {
            "version": 1,
            "run_id": self.name,
            "project": "Trees at night",
            "research_question": academic_papers.QUESTION,
            "keywords": ["street trees", "night", "heat"],
            "disciplines": ["Geography"],
            "mail": "reader@example.org",
            "databases": [{"name": "OpenAlex"}, {"name": "Crossref"}, {"name": "Semantic Scholar"}, {"name": "arXiv"}],
            "search": {"max_iterations": 3},
            "checkpoints": AGREED,
        }
        (self.root / "config").mkdir(parents=True, exist_ok=True)
        (self.root / "config/run_config.json").write_text(json.dumps(config | more))
        (self.root / "config/academic_settings.yaml").write_text(yaml.safe_dump(self.library.settings()))
        rules = f"version: 1\nprivate: ['127.0.0.1:{self.library.port}']\nrobots: false\ndelay_seconds: 0\n"
        for working in (self.house.workspace, self.root):  # a plan works in the one, academic.py in the other
            (working / ".strata").mkdir(exist_ok=True)
            (working / ".strata/web.yaml").write_text(rules)
        return self

    def run(self, *flags: str, timeout: float = 280) -> Ran:
        words = ("orchestrator", "academic", "--param", f"run={self.name}", "--session-dir", str(self.session))
        return self.house.json(*words, *flags, timeout=timeout)

    @property
    def session(self) -> Path:
        return self.house.folder / f"session-{self.name}"

    def read(self, file: str) -> Any:
        return json.loads((self.root / file).read_text())

    @property
    def state(self) -> dict[str, Any]:
        return self.read("research_state.json")
