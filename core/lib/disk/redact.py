"""Keeps credentials out of everything that is written: values of credential-looking variables, and token shapes."""

from __future__ import annotations

import json
import os
import re
from functools import cache

REDACTED = "[redacted]"
_WORDS = r"(?:API)?KEY|PAT|AUTH|PASS|PWD|COOKIE|JWT|DSN"  # as a word of the name; the others anywhere in it
_NAME = re.compile(rf"(?:^|_)(?:{_WORDS})(?:_|$)|TOKEN(?!S)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|PRIVATE_?KEY", re.I)
_NO_SECRET = re.compile(r"_(?:SOCK|FILE|PATH|DIR|HELPER)$", re.I)  # where something is, not what it is
_KEPT = rf"\1{REDACTED}"
# What a secret looks like, behind the letters that it begins with: where these do not stand, nothing is looked for. Each by
# itself, because a pattern that begins with plain letters is found many times faster than a choice of all of them.
_SHAPES = tuple(
    (mark, re.compile(pattern, re.S))
    for mark, pattern in (
        ("eyJ", r"()eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
        ("-----BEGIN ", r"()-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"),
        ("://", r"(://)[^/\s:@\"'<>]+:(?!\d{1,5}/)[^\s@\"'<>]+(?=@)"),  # a password may hold a slash
        ("://:", r"(://:)[^\s@\"'<>]+(?=@)"),
        ("://", r"(://)(?:(?=[^/\s:@]*\d)[^/\s:@\"'<>]{8,}|[^/\s:@\"'<>]{20,})(?=@)"),  # a token alone
        ("earer ", r"([Bb]earer )[A-Za-z0-9._~+/=-]{8,}"),
        ("EARER ", r"(BEARER )[A-Za-z0-9._~+/=-]{8,}"),
        ("sk-", r"()sk-[A-Za-z0-9_-]{16,}"),
        ("gh", r"()gh[pousr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"()github_pat_[A-Za-z0-9_]{20,}"),
        ("xox", r"()xox[abprs]-[A-Za-z0-9-]{10,}"),
        ("AKIA", r"()AKIA[0-9A-Z]{16}"),
        ("ASIA", r"()ASIA[0-9A-Z]{16}"),
        ("glpat-", r"()glpat-[A-Za-z0-9_-]{16,}"),
        ("hf_", r"()hf_[A-Za-z0-9]{20,}"),
        ("AIza", r"()AIza[0-9A-Za-z_-]{30,}"),
        ("npm_", r"()npm_[A-Za-z0-9]{20,}"),
    )
)


@cache
def credential_name(name: str) -> bool:
    """Whether a variable of this name looks as if it held a secret."""
    return _NAME.search(name) is not None and _NO_SECRET.search(name) is None and name not in ("PWD", "OLDPWD")


_named: set[str] = set()  # secrets that somebody pointed at
LEAST_NAMED = 4  # letters: less than that stands in any text


@cache
def _values() -> tuple[str, ...]:
    named = {v for k, v in os.environ.items() if credential_name(k) and len(v) >= 8}
    found = _named | {v for v in named if not (v.startswith("/") and os.path.exists(v))}  # noqa: PTH110 - a path that is there is only a path; pathlib would raise for a long one
    found |= {json.dumps(v)[1:-1] for v in found}  # as it stands inside JSON
    return tuple(sorted(found, key=len, reverse=True))


def redact(text: str) -> str:
    for value in _values():
        if value in text:
            text = text.replace(value, REDACTED)
    for mark, shape in _SHAPES:
        if mark in text:
            text = shape.sub(_KEPT, text)
    return text


def remember(*values: str) -> None:
    """Takes the secrets of the environment as it is now: it may be about to change. And these, whatever they are called."""
    _named.update(value for value in values if len(value) >= LEAST_NAMED)
    _values.cache_clear()
    _values()


def prepare_for_forks() -> None:
    for name in os.environ:
        credential_name(name)
