"""A library is imported without the part of it that is slow and not used."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from lib.agent.drivers.stand_in import standing_in

CORE = Path(__file__).resolve().parents[3] / "core"


def test_the_sdk_needs_only_names_of_mcp() -> None:
    words = (
        "import sys\nfrom lib.agent.drivers.stand_in import standing_in\n"
        "with standing_in('claude_agent_sdk', 'mcp', 'jsonschema', 'importlib.metadata'):\n    import claude_agent_sdk as sdk\n"
        "sdk.ClaudeAgentOptions(); assert not {'pydantic', 'email'} & set(sys.modules); sdk.ToolAnnotations()"
    )
    done = subprocess.run([sys.executable, "-c", words], cwd=CORE, capture_output=True, text=True, check=False)
    assert "only a stand-in" in done.stderr, done.stderr


def test_what_was_stood_in_for_is_there_for_others_afterwards() -> None:
    words = (
        "import spawn\nsdk = spawn.load_sdk()\nimport importlib.metadata, jsonschema\n"
        "assert importlib.metadata.version('jsonschema') and jsonschema.Draft202012Validator({}).is_valid(1)\n"
        "from claude_agent_sdk._internal._client_app import derive_client_app\nassert derive_client_app() is None"
    )
    done = subprocess.run([sys.executable, "-c", words], cwd=CORE, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "heavy_part").mkdir()
    (tmp_path / "heavy_part" / "__init__.py").write_text("number = 41\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("heavy_part", "heavy_user"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_one_that_needs_more_than_names_gets_the_real_thing(library: Path) -> None:
    (library / "heavy_user.py").write_text("import heavy_part\nnumber = heavy_part.number + 1\n")
    with suppress(TypeError), standing_in("heavy_user", "heavy_part"):
        import heavy_user  # type: ignore[import-not-found]
    import heavy_user  # type: ignore[import-not-found]

    assert heavy_user.number == 42
