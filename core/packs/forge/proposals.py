"""What features have proposed to write down: a person lists it, and takes one by its number, with git."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from lib.contract import Json, StrataError, usage
from lib.disk import files
from lib.process import processes
from msgspec import Struct

_HEAD = re.compile(r"^## (\d+)\. \[([\w-]+)\] (.+)$", re.M)
_DIFF = re.compile(r"```diff\n(.*?)\n```", re.S)
_FILE = re.compile(r"^- File: `([^`,]+)(?:, [^`]*)?`$", re.M)


class Proposal(Struct, frozen=True):
    number: int
    feature: str
    category: str
    title: str
    file: str
    diff: str


def every(cwd: Path) -> list[Proposal]:
    """Of all features, numbered through."""
    found: list[Proposal] = []
    for path in sorted(cwd.glob("docs/feature/*/review/knowledge-suggestions.md")):
        text = path.read_text(encoding="utf-8").split("\n## Rejected")[0]
        heads = list(_HEAD.finditer(text))
        for place, head in enumerate(heads):
            part = text[head.end() : heads[place + 1].start() if place + 1 < len(heads) else len(text)]
            file, diff = _FILE.search(part), _DIFF.search(part)
            if file and diff:
                feature = path.parent.parent.name
                found.append(Proposal(len(found) + 1, feature, head[2], head[3], file[1], diff[1]))
    return found


def answer(cwd: Path, words: list[str]) -> Json:
    """`list`, or `apply N`."""
    known = every(cwd)
    if words in ([], ["list"]):
        lines = [f"{p.number}. [{p.category}] {p.title} ({p.feature}): {p.file}" for p in known]
        rows = [{"number": p.number, "title": p.title, "file": p.file, "feature": p.feature} for p in known]
        return _said(proposals=rows, text="\n".join(lines) or "nothing is proposed")
    if len(words) != 2 or words[0] != "apply" or not words[1].isdecimal():
        usage(f"knowledge {' '.join(words)}: list, or apply N", "uv run core/forge.py knowledge list")
    chosen = next((p for p in known if p.number == int(words[1])), None)
    if not chosen:
        usage(f"there is no proposal {words[1]}", f"there are {len(known)}: knowledge list")
    return apply(cwd, chosen)


def apply(cwd: Path, proposal: Proposal) -> Json:
    """Shows the diff, and applies it with git; where it does not fit any more, says why."""
    path = cwd / proposal.file
    if not files.leads_inside(cwd, path):
        raise StrataError("DOES_NOT_FIT", f"{proposal.file} is not in this repository", "edit it by hand")
    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
    ending = "\r\n" if "\r\n" in text else "\n"
    before = text.splitlines(keepends=True)
    names = (f"a/{proposal.file}" if path.exists() else "/dev/null", f"b/{proposal.file}")
    after = _after(path.name, before, proposal.diff.splitlines(), ending)
    told = "\n\\ No newline at end of file\n"  # as git writes it
    lines = [line if line.endswith("\n") else line + told for line in difflib.unified_diff(before, after, *names)]
    patch = "".join(lines)
    done = processes.ask(
        ["git", "-C", str(cwd), "apply", "--whitespace=nowarn", "-"], stdin=patch.encode("utf-8", "surrogateescape")
    )
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip()
        raise StrataError("DOES_NOT_FIT", f"proposal {proposal.number} does not fit any more: {why}", "edit it by hand")
    shown = f"{patch}\napplied to {proposal.file}; git diff shows it"
    return _said(applied=proposal.number, file=proposal.file, diff=patch, text=shown)


def _after(name: str, before: list[str], lines: list[str], ending: str) -> list[str]:
    """The file with the proposal in it: in the place of its old lines, or behind the end. All lines end as the file's do."""
    body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    old = [line[1:] for line in body if not line.startswith("+")]
    new = [line[1:] + ending for line in body if not line.startswith("-")]
    plain = [line.rstrip("\r\n") for line in before]
    if not old:
        return [*before[:-1], *(line.rstrip("\r\n") + ending for line in before[-1:]), *new]
    at = next((n for n in range(len(plain) - len(old) + 1) if plain[n : n + len(old)] == old), None)
    if at is None:
        message = f"{name} does not have the lines it would change: {old[0][:80]!r}"
        raise StrataError("DOES_NOT_FIT", message, "edit it by hand")
    return [*before[:at], *new, *before[at + len(old) :]]


def _said(**fields: object) -> Json:
    return {"tool": "forge", "status": "success", "exit_code": 0, **fields}
