"""Keeps what replay needs: the answer, the conversation, and every file the agent changed, with this run's paths as names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lib import files
from lib.contract import Json
from lib.drivers import Answer, Request
from lib.drivers.paths import Names
from lib.redact import redact
from lib.snapshot import Change


def keep(request: Request, answer: Answer, changes: list[Change], roots: dict[str, Path]) -> None:
    """Writes `meta.json` last: with it, the attempt can be replayed."""
    names = request.names
    for change in changes:
        if change.change != "deleted" and change.kind == "file":
            source = roots[change.root] / change.path
            target = request.attempt / "files" / change.root / change.path
            files.write_atomic(target, _portable(source.read_bytes(), names), change.mode)
    for name in ("prompt.md", "system.md", "output.md", "transcript.jsonl"):
        path = request.attempt / name
        if path.exists():
            files.write_atomic(path, names.hide(path.read_text(encoding="utf-8")))
    meta = describe(request, answer, changes)
    files.write_atomic(request.attempt / "meta.json", names.hide(json.dumps(meta, indent=2, ensure_ascii=False)) + "\n")


def describe(request: Request, answer: Answer, changes: list[Change]) -> Json:
    """What is known of an agent session, for the attempt folder."""
    return {
        "version": 1,
        "agent": request.agent,
        "model": request.model,
        "tools": list(request.tools),
        "permission_mode": request.permission_mode,
        "prompt_sha256": files.sha256_text(redact(request.names.hide(request.prompt))),
        "answer": answer.document(),
        "changes": [c.document() for c in changes],
    }


def _portable(data: bytes, names: Names) -> bytes:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data  # a binary file is kept byte for byte
    return redact(names.hide(text)).encode()


def restore(request: Request, recorded: Path, meta: Json, roots: dict[str, Path]) -> None:
    """Applies the recorded changes again: folders first, deletions last and deepest first."""
    names = request.names
    changes: list[Json] = meta.get("changes", [])
    for change in [c for c in changes if c["change"] != "deleted"]:
        target = files.inside(roots[change["root"]], change["path"], "a recorded file")
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = int(change["mode"], 8)
        if change["kind"] == "folder":
            target.mkdir(exist_ok=True)
            target.chmod(mode)
        elif change["kind"] == "symlink":
            target.unlink(missing_ok=True)
            target.symlink_to(names.show(change["target"]))
        else:
            data = (recorded / "files" / change["root"] / change["path"]).read_bytes()
            try:
                data = names.show(data.decode("utf-8")).encode()
            except UnicodeDecodeError:
                pass  # a binary file holds no names
            files.write_atomic(target, data, mode)
    for change in sorted((c for c in changes if c["change"] == "deleted"), key=lambda c: -len(c["path"])):
        target = files.inside(roots[change["root"]], change["path"], "a recorded file")
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
