"""Whether what came back is what was asked for: the status line, and the files themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lib.attempt.verdicts import Verdict
from lib.disk import files, schemas
from lib.plan.task import Output, Task

_MARKS = r"[\s>*_`#-]*"
_STATUS_LINE = re.compile(
    rf"^{_MARKS}(?:STAGE_(?P<action>[A-Z][A-Z0-9_]*)_COMPLETE|STAGE_FAILED{_MARKS}:?\s*(?P<failed>.*?)"
    rf"|(?P<word>DONE|NEEDS_REVISION|ERROR)(?:{_MARKS}[:\u2013\u2014]\s*(?P<note>.*?)|(?P<bare>[.!]?)))[\s*_`.]*$"
)


_WARNING = re.compile(rf"^{_MARKS}WARNING{_MARKS}:\s*(.+?)[\s*_`]*$")


def status_line(result: str, action: str, completion: str) -> Verdict:
    """The last status line counts; an answer without one is not a success, whatever else it says. Lines that begin with
    `WARNING:` are for others to know."""
    warnings = tuple(found[1] for line in result.splitlines() if (found := _WARNING.match(line)))
    for line in reversed(result.splitlines()):
        found = _STATUS_LINE.match(line)
        if not found:
            continue
        if found["action"]:
            if found["action"] != (action or "TASK"):
                return Verdict("failed", f"it reported {line.strip()!r}, but was asked for {action or 'TASK'}")
            return Verdict("done", warnings=warnings)
        if found["word"]:
            word = {"DONE": "done", "NEEDS_REVISION": "needs_revision", "ERROR": "failed"}[found["word"]]
            return Verdict(word, (found["note"] or "").strip(" *_`"), warnings)
        return Verdict("failed", (found["failed"] or "").strip(" *_`") or "it gave no reason")
    wanted = f"`STAGE_{action or 'TASK'}_COMPLETE` or `STAGE_FAILED: <reason>`"
    if completion != "stage":
        wanted = "`DONE: <one sentence>`, `NEEDS_REVISION: <what>` or `ERROR: <reason>`"
    last = next((line.strip() for line in reversed(result.splitlines()) if line.strip()), "")
    ends = f"it ends with {last[:80]!r}" if last else "it is empty"
    return Verdict("failed", f"the answer has no status line: {ends}; its last line must be {wanted}, alone")


def outputs(
    task: Task, out: Path, cwd: Path, untouched: frozenset[str] = frozenset()
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """What was verified of every declared output, and what is wrong. `untouched`: those that are as they were before."""
    verified: dict[str, tuple[str, ...]] = {}
    wrong: list[str] = []
    for output in task.outputs:
        path = output.locate(out, cwd, task.target)
        root = out if output.place == "session" else cwd
        problem = _problem(output, path) if files.leads_inside(root, path) else "leaves its folder through a symbolic link"
        if not problem and output.name in untouched and not output.optional and not output.unchanged:
            problem = "was there before and was not touched (write it anew; where it may stay as it is, `unchanged: true`)"
        if problem and not (problem == "missing" and output.optional):
            wrong.append(f"output {output.name} ({path.name}): {problem}")
        elif not problem:
            verified[output.name] = ("exists", "not empty", *([f"matches schema {output.schema}"] if output.schema else []))
    return verified, wrong


def _problem(output: Output, path: Path) -> str:
    if path.is_symlink():
        return "is a symbolic link, not a file"
    if not path.exists():
        return "missing"
    if output.path.endswith("/"):
        held = list(path.rglob("*")) if path.is_dir() else []
        if any(p.is_symlink() for p in held):
            return "holds a symbolic link"
        return "" if any(p.is_file() and p.stat().st_size for p in held) else "is not a folder with something in it"
    if not path.is_file():
        return "is not a regular file"
    if not path.read_bytes().strip():
        return "empty"
    if output.schema:
        return schema_problem(path, output.schema)
    return ""


def schema_problem(path: Path, schema: str) -> str:
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (ValueError, UnicodeDecodeError) as error:
        return f"is not valid JSON: {error}"
    wrong = schemas.describe(document, schemas.load(schema))
    return f"does not match schema {schema}: {'; '.join(wrong)}" if wrong else ""


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not JSON")
