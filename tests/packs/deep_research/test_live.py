"""A smoke test with real agents on the real web. It runs only where the settings of the pack say so: `live_tests: true`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packs.deep_research import serving
from support import CORE


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not serving.settings().live_tests, reason="live_tests: false in config/packs/deep_research/settings.yaml")
def test_a_small_question_is_answered_by_real_agents(tmp_path: Path) -> None:
    words = ["live", "In which year was the first release of MediaWiki?", "--effort", "quick", "--approve-plan"]
    argv = [
        sys.executable,
        str(CORE / "deep_research.py"),
        *words,
        "--session-dir",
        str(tmp_path / "s"),
        "--output-format",
        "json",
    ]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ.copy(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["run_status"] == "completed"
