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
_SHAPES = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|glpat-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|AIza[0-9A-Za-z_-]{30,}|npm_[A-Za-z0-9]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|(?<=://)[^/\s:@\"'<>]+:(?!\d{1,5}/)[^\s@\"'<>]+(?=@)|(?<=://:)[^\s@\"'<>]+(?=@)"  # a password may hold a slash
    r"|(?<=://)(?=[^/\s:@]*\d)[^/\s:@\"'<>]{8,}(?=@)|(?<=://)[^/\s:@\"'<>]{20,}(?=@)"  # a token alone
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}|(?<=BEARER )[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    re.S,
)


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
    return _SHAPES.sub(REDACTED, text)


def remember(*values: str) -> None:
    """Takes the secrets of the environment as it is now: it may be about to change. And these, whatever they are called."""
    _named.update(value for value in values if len(value) >= LEAST_NAMED)
    _values.cache_clear()
    _values()
