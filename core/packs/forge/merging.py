"""A person has said yes: what a feature changed becomes one commit, on the branch that is checked out."""

from __future__ import annotations

from lib.attempt.verdicts import Verdict
from lib.contract import StrataError
from lib.process import processes

from packs.forge import setting
from packs.forge import tasks as plans
from packs.forge.changes import Changes
from packs.forge.step import Step


def merge(at: Step) -> Verdict:
    """Only the files that tasks own, and the artifacts. What else is changed or staged in the repository stays as it is."""
    folder = str(at.folder.relative_to(at.call.cwd))
    tasks = plans.read(at.data("tasks"))
    changes = Changes.of(at.session, at.call.cwd, tasks)
    paths = [*sorted(changes.touched & changes.owned), folder]
    known = set(_git(at, "ls-files", "-z", "--", *paths).split("\0"))
    known |= set(_git(at, "diff", "--cached", "--name-only", "-z").split("\0"))  # deleted, and staged by an earlier try
    there = [path for path in paths if (at.call.cwd / path).exists() or path in known]
    _git(at, "add", "-A", "-f", "--", *there)
    staged = [path for path in there if _git(at, "diff", "--cached", "--name-only", "--", path)]
    if not staged:
        return Verdict("done", "it is committed already")
    request = " ".join(str(at.task.inputs["request"]).split())
    _git(at, "commit", "--quiet", "--only", "-m", _subject(request), "-m", f"How it came about: {folder}/", "--", *staged)
    commit = _git(at, "rev-parse", "--short", "HEAD")
    at.leave("merged.json", {"commit": commit, "paths": paths})
    mine = sorted(set(paths) & set(setting.dirty(at.session)))
    warned = (f"your own changes in {', '.join(mine)}, from before the run, are in the commit",) if mine else ()
    return Verdict("done", f"commit {commit}", warned)


def _subject(request: str) -> str:
    return request if len(request) <= 72 else f"{request[:71]}…"


def _git(at: Step, *words: str) -> str:
    done = processes.ask(["git", "--literal-pathspecs", "-C", str(at.call.cwd), *words], timeout_seconds=600)
    if done.returncode:
        why = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise StrataError("NOT_MERGED", f"git {words[0]}: {why[-600:]}", "fix that in the repository, then resume")
    return done.stdout.decode("utf-8", "replace").strip()
