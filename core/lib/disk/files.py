"""Files that are whole or not there at all, and names that cannot lead out of a folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import msgspec

from lib.contract import Json, StrataError
from lib.disk import locks
from lib.disk.redact import REDACTED, redact

_BEGUN = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp\.\d+")  # as `write_atomic` names what it has not finished
REDACT_AT_MOST = 16 * 1024 * 1024
_ATTEMPT = re.compile(r"(attempt|round)-\d+\Z")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
# What other names become, or mean something else in a session or on some file system.
_RESERVED = re.compile(r"(attempt|round)-\d+\Z|(con|prn|aux|nul|com\d|lpt\d)\Z|.*-[0-9a-f]{8}\Z", re.I)


def write_atomic(path: Path, data: str | bytes, mode: int | None = None) -> None:
    """Replaces `path` in one step that survives a power cut. Text is redacted on its way to disk."""
    raw = redact(data).encode() if isinstance(data, str) else data
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - ten of these for every step: pathlib would double what they cost
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    name = f"{folder}/.{path.name[:60]}.{secrets.token_hex(4)}.tmp.{os.getpid()}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(file.fileno(), mode if mode is not None else 0o644)
            os.fsync(file.fileno())
        os.replace(name, path)  # noqa: PTH105
    except BaseException:  # whatever it was, a stop included: no half-written file stays behind
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(folder)


def redact_below(folder: Path) -> None:
    """Takes secrets out of every text in a folder. What is no text, or is very large, is left as it is."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < REDACT_AT_MOST:
            try:
                text = path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue
            if redact(text) != text:
                write_atomic(path, text, path.stat().st_mode & 0o777)
    for path in sorted(folder.rglob("*"), key=lambda p: -len(p.parts)):  # the deepest first
        if redact(path.name) != path.name:
            shown = redact(path.name)
            number = sum(p.name.startswith(shown) for p in path.parent.iterdir())
            path.replace(path.with_name(f"{shown}-{number}" if number else shown))


def sweep(folder: Path) -> None:
    """Removes what writers that were killed had begun. Only for who knows that no writer is left."""
    for place, _, names in os.walk(folder):
        for name in names:
            if _BEGUN.fullmatch(name):
                Path(place, name).unlink(missing_ok=True)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: Any) -> None:
    write_atomic(path, as_written(document))


def as_written(document: Any) -> bytes:
    """A document as it stands on disk: without secrets."""
    plain = json.dumps(document, ensure_ascii=False, allow_nan=False)  # with an indent it is made in Python, many times slower
    return redact(msgspec.json.format(plain, indent=2) + "\n").encode()


works_in: Path | None = None  # the session this process may write in; who only looks on moves nothing


def read_json(path: Path) -> Json:
    """A state file. One that is torn or is not an object stops the run under its name; it is never replaced unseen."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise corrupt(path, f"{path} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise corrupt(path, f"{path} does not hold a JSON object")
    return document  # type: ignore[return-value]


# What a session is, not how far it has come: without these there is nothing to resume.
_NEEDED = ("effective-config.json", "plan.yaml", "goal.json", "held.json")


def corrupt(path: Path, message: str) -> StrataError:
    """The error for a state file that cannot be used. In a run it is kept aside, so that the next one goes on without it."""
    if not works_in or not path.is_relative_to(works_in) or path.name in _NEEDED:
        return StrataError("CORRUPT_STATE", message, "move it aside, or put it right")
    aside = set_aside(path)
    return StrataError("CORRUPT_STATE", message, f"it is kept as {aside.name}; run it again to go on without it")


def set_aside(path: Path, copy: bool = False) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    if copy:
        shutil.copy2(path, aside)
    else:
        path.replace(aside)
    return aside


def append_line(path: Path, document: Json) -> None:
    """One whole line in one write, under a lock, so that writers in many processes never mix."""
    line = redact(json.dumps(document, ensure_ascii=False)) + "\n"
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)  # noqa: PTH103, PTH120
    with locks.held(path) as descriptor:
        os.write(descriptor, line.encode())


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(path: Path) -> str:
    """Of a file its hash; of a folder the hashes of all it holds; of nothing, nothing."""
    if path.is_dir():
        return digest({str(p.relative_to(path)): sha256(p) for p in sorted(path.rglob("*")) if p.is_file()})
    return sha256(path) if path.is_file() else ""


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest(document: Any) -> str:
    return sha256_text(json.dumps(document, sort_keys=True, ensure_ascii=False))


def safe_name(text: str) -> str:
    """A folder name for any text: itself where it is plain, otherwise a readable part and a hash, so that none collide."""
    shown = redact(text)
    if shown != text:  # a key that is a secret names no folder
        return f"redacted-{sha256_text(text)[:8]}"
    if _PLAIN.match(text) and not _RESERVED.match(text):
        return text
    return f"{slug(text)[:40]}-{sha256_text(text)[:8]}"


def is_safe(name: str) -> bool:
    """Whether `safe_name` could have made this."""
    return bool(_PLAIN.match(name)) and not _ATTEMPT.match(name)


def slug(text: str, fallback: str = "x") -> str:
    plain = unicodedata.normalize("NFKD", redact(text)).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-") or fallback


def exists(path: str | Path) -> bool:
    """Whether any text names something that is there. A text too long or too odd for a name does not; pathlib would raise."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def below(root: Path, relative: str, what: str) -> Path:
    """`relative` below `root`, as far as its text tells: not absolute, no `..`, no control characters."""
    odd = any(unicodedata.category(c) in ("Cc", "Cf") for c in relative)
    if not relative or odd or Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise StrataError("UNSAFE_PATH", f"{what} {relative!r} leaves its folder", "give a plain relative path")
    return root / relative


def inside(root: Path, relative: str, what: str) -> Path:
    """The same, and no symbolic link on the way leads out either."""
    path = below(root, relative, what)
    if not leads_inside(root, path):
        raise StrataError("UNSAFE_PATH", f"{what} {relative!r} leaves its folder", "there is a symbolic link on the way")
    return path


def find(root: Path, recorded: str) -> Path:
    """The file that is meant by a path as it was written down. A secret in a name never is: that is looked up."""
    path = root / recorded
    if REDACTED not in recorded or os.path.lexists(path):
        return path
    place = root
    for part in Path(recorded).parts:
        there = os.listdir(place) if REDACTED in part and place.is_dir() else []  # noqa: PTH208
        place /= next((name for name in sorted(there) if redact(name) == part), part)
    return place


def leads_inside(root: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def copy_whole(source: Path, target: Path) -> None:
    """Puts a copy of a file or folder at `target` without a moment in which half of it is there."""
    if source.is_dir():
        beside = target.with_name(f".{target.name}.tmp.{os.getpid()}")
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(source, beside, symlinks=True)
        if target.is_dir():
            shutil.rmtree(target)
        elif target.exists():
            target.unlink()
        beside.replace(target)
    else:
        if target.is_dir():
            shutil.rmtree(target)
        write_atomic(target, source.read_bytes(), source.stat().st_mode & 0o777)
