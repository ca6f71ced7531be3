"""A person has said yes: what a feature changed becomes one commit, on the branch that is checked out."""

from __future__ import annotations

from lib.attempt.verdicts import Verdict
from lib.contract import StrataError
from lib.process import processes
from lib.session import began

from packs.forge import criteria
from packs.forge import tasks as plans
from packs.forge.step import Step


def merge(at: Step) -> Verdict:
    """Only the files that tasks own, and the artifacts. What else is changed or staged in the repository stays as it is."""
    folder = str(at.folder.relative_to(at.call.cwd))
    owned = {file for task in plans.read(at.data("tasks")) for file in task.files}
    touched = criteria.changed(at.call.cwd, began.read(at.session).commit)
    paths = [*sorted(path for path in touched & owned), folder]
    _git(at, "add", "--", *paths)
    if not _git(at, "status", "--porcelain", "--", *paths):
        return Verdict("done", "it is committed already")
    request = " ".join(str(at.task.inputs["request"]).split())
    _git(at, "commit", "--quiet", "--only", "-m", _subject(request), "-m", f"How it came about: {folder}/", "--", *paths)
    commit = _git(at, "rev-parse", "--short", "HEAD")
    at.leave("merged.json", {"commit": commit, "paths": paths})
    return Verdict("done", f"commit {commit}")


def _subject(request: str) -> str:
    return request if len(request) <= 72 else f"{request[:71]}…"


def _git(at: Step, *words: str) -> str:
    done = processes.ask(["git", "--literal-pathspecs", "-C", str(at.call.cwd), *words], timeout_seconds=600)
    if done.returncode:
        why = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise StrataError("NOT_MERGED", f"git {words[0]}: {why[-600:]}", "fix that in the repository, then resume")
    return done.stdout.decode("utf-8", "replace").strip()
