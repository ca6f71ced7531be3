"""Who looks on does not change what happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.session import watchers


def test_a_view_that_breaks_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def reported(self, session: Path) -> None:
            raise SyntaxError("half a module")

    monkeypatch.setattr(watchers, "watchers", [Broken()])
    assert watchers.report(tmp_path) == tmp_path / watchers.REPORT
    told = json.loads(capfd.readouterr().err)
    assert (told["status"], told["detail"]) == ("no-report", "SyntaxError: half a module")
