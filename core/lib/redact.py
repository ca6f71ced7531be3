"""Keeps credentials out of everything that is written: values of credential-looking variables, and token shapes."""

from __future__ import annotations

import json
import os
import re
from functools import cache

_NAME = re.compile(r"(?:^|_)(?:(?:API)?KEY|TOKEN|SECRET|PASS|PWD|PASSWORD|PASSWD|CREDENTIALS?|COOKIE)(?:_|$)", re.I)
_SHAPES = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"
    r"|(?<=://)[^/\s:@]+:[^/\s:@]+(?=@)"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    re.S,
)


def credential_name(name: str) -> bool:
    """Whether a variable of this name looks as if it held a secret."""
    return _NAME.search(name) is not None


@cache
def _values() -> tuple[str, ...]:
    found = {v for k, v in os.environ.items() if credential_name(k) and len(v) >= 8 and not v.startswith("/")}
    found |= {json.dumps(v)[1:-1] for v in found}  # as it stands inside JSON
    return tuple(sorted(found, key=len, reverse=True))


def redact(text: str) -> str:
    for value in _values():
        if value in text:
            text = text.replace(value, "[redacted]")
    return _SHAPES.sub("[redacted]", text)


def remember() -> None:
    """Takes the secrets of the environment as it is now: it may be about to change."""
    _values()
