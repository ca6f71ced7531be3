"""Secrets of any shape are kept out of what is written, and out of names."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.disk import files, redact

SHAPES = {
    "redis://:pa55word@host/0": "pa55word",
    "redis://:123/abc@host": "123/abc",
    "postgres://user:pa/ss/word@host:5432/db": "pa/ss/word",
    "https://user:pw123@host": "pw123",
    "https://abcdef1234567890@github.com/x.git": "abcdef1234567890",
    "Authorization: Bearer abc.def-1234567": "abc.def-1234567",
    "ASIAABCDEFGHIJKLMNOP": "ASIAABCDEFGHIJKLMNOP",
    "glpat-abcdefghij0123456789": "glpat-abcdefghij0123456789",
    "hf_abcdefghijklmnopqrstuvwx": "hf_abcdefghijklmnopqrstuvwx",
    "AIzaSyA0123456789012345678901234567890a": "AIzaSyA0123456789012345678901234567890a",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nxx\nlQVYBF\n-----END PGP PRIVATE KEY BLOCK-----": "lQVYBF",
}
PLAIN = ("http://host:8080/a@b", "ssh://git@host/x.git", "https://host/path?q=1", "see user@host.example", "the bearer of news")


@pytest.fixture(autouse=True)
def fresh() -> None:
    redact._values.cache_clear()


@pytest.mark.parametrize("text", SHAPES)
def test_a_secret_is_known_by_its_shape(text: str) -> None:
    shown = redact.redact(f"before {text} after")
    assert SHAPES[text] not in shown and redact.REDACTED in shown
    assert shown.startswith("before ") and shown.endswith(" after")


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact.redact(text) == text


@pytest.mark.parametrize("name", ["GHTOKEN", "GITHUB_PAT", "NPM_AUTH", "DB_PASSWORD", "API_KEY", "SLACKTOKEN", "MY_SECRET_2"])
def test_a_variable_is_known_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/not+a/path==")
    assert redact.redact("x /not+a/path== y") == "x [redacted] y"


@pytest.mark.parametrize(
    "name", ["PATH", "GIT_AUTHOR_NAME", "SSH_AUTH_SOCK", "MAX_THINKING_TOKENS", "KEYBOARD", "COMPASS", "TOKEN_FILE"]
)
def test_other_variables_are_none(name: str) -> None:
    assert not redact.credential_name(name)


def test_a_path_that_is_there_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", str(tmp_path))
    assert redact.redact(f"{tmp_path}/x") == f"{tmp_path}/x"


def test_a_long_secret_that_begins_like_a_path_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_KEY", "/" + "a" * 5000)
    assert redact.redact("x /" + "a" * 5000) == "x [redacted]"


def test_no_folder_is_named_by_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    assert "correct" not in files.safe_name("correct-horse") and files.safe_name("correct-horse") != files.safe_name("x")
    assert "sk-ant" not in files.slug("use sk-ant-abcdefghijklmnop0123 please")
    (tmp_path / "correct-horse.txt").write_text("x")
    files.redact_below(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["[redacted].txt"]


def test_a_name_that_was_not_written_down_is_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/correct-horse.md").write_text("x")
    assert files.find(tmp_path, "in/[redacted].md") == tmp_path / "in/correct-horse.md"
    assert files.find(tmp_path, "in/gone.md") == tmp_path / "in/gone.md"
