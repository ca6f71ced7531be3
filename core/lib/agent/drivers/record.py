"""Keeps what replay needs: the answer, the conversation, and every file the agent changed, with this run's paths as names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lib.agent.drivers import Answer, Request
from lib.agent.drivers.paths import Names
from lib.contract import Json, StrataError
from lib.disk import files, records
from lib.disk.redact import redact
from lib.session.outcome import FileChange
from lib.workspace.snapshot import real_name


def keep(request: Request, answer: Answer, changes: list[FileChange], roots: dict[str, Path], whole: bool) -> None:
    """Writes `meta.json` last. `whole`: with all that is needed to replay the attempt."""
    if not whole:
        files.write_json(request.attempt / "meta.json", describe(request, answer))
        return
    names = request.names
    for change in changes:
        if change.change != "deleted" and change.kind == "file":
            place = real_name(change.path)
            target = request.attempt / "files" / change.root / place
            data = _portable((roots[change.root] / place).read_bytes(), names)
            files.write_atomic(target, data, int(change.mode, 8))
    for name in ("prompt.md", "system.md", "output.md", "transcript.jsonl"):
        path = request.attempt / name
        if path.exists():
            files.write_atomic(path, names.hide(path.read_text(encoding="utf-8")))
    meta = describe(request, answer) | {"changes": [c.document() for c in changes]}
    files.write_atomic(request.attempt / "meta.json", names.hide(json.dumps(meta, indent=2, ensure_ascii=False)) + "\n")


def describe(request: Request, answer: Answer) -> Json:
    """What is known of an agent session, for the attempt folder."""
    return {
        "version": 1,
        "agent": request.agent,
        "model": request.model,
        "tools": list(request.tools),
        "permission_mode": request.permission_mode,
        "prompt_sha256": files.sha256_text(redact(request.names.told(request.prompt))),
        "answer": answer.document(),
        "scripted": _on_this_machine(request.env.get("ANTHROPIC_BASE_URL", "")),
    }


def _on_this_machine(address: str) -> bool:
    """Whether the model was one on loopback: what it says it cost is made up."""
    from urllib.parse import urlsplit

    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _portable(data: bytes, names: Names) -> bytes:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data  # a binary file is kept byte for byte
    return redact(names.hide(text)).encode()


def restore(request: Request, recorded: Path, meta: Json, roots: dict[str, Path]) -> None:
    """Applies the recorded changes again: first what was deleted, deepest first, for a file may stand where a folder was."""
    names = request.names
    changes = records.of(meta["changes"], list[FileChange])
    for change in sorted((c for c in changes if c.change == "deleted"), key=lambda c: -len(c.path)):
        _make_room(_place(roots[change.root], real_name(change.path)), "nothing")
    for change in [c for c in changes if c.change != "deleted" and c.kind != "special"]:
        path = real_name(change.path)
        target = _place(roots[change.root], path)
        mode = int(change.mode, 8)
        _make_room(target, change.kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        if change.kind == "folder":
            target.mkdir(exist_ok=True)
            target.chmod(mode)
        elif change.kind == "symlink":
            target.symlink_to(names.show(change.target))
        else:
            data = (recorded / "files" / change.root / path).read_bytes()
            try:
                data = names.show(data.decode("utf-8")).encode()
            except UnicodeDecodeError:
                pass  # a binary file holds no names
            files.write_atomic(target, data, mode)


def _place(root: Path, path: str) -> Path:
    """Below `root`, whatever the name holds; a link may stand at the place itself, but none on the way may lead out."""
    target = root / path
    if Path(path).is_absolute() or ".." in Path(path).parts or not files.leads_inside(root, target.parent):
        raise StrataError("UNSAFE_PATH", f"the recorded file {path!r} leaves its folder", "this recording cannot be trusted")
    return target


def _make_room(target: Path, kind: str) -> None:
    """Takes away what stands at `target`, unless it is a folder and shall stay one, or a file that is replaced whole."""
    if target.is_dir() and not target.is_symlink():
        if kind != "folder":
            shutil.rmtree(target)
    elif kind != "file" or target.is_symlink():
        target.unlink(missing_ok=True)
