"""Steps that work at the same time in the same project, each in a git worktree of its own, merged back one after the other.

A worktree starts as the workspace is: uncommitted files included. What a step left there becomes a commit under `refs/strata/`,
and is merged into the workspace's files in the order of the stage; the user's branch, index and stash are not touched. A step
whose changes conflict is not merged, and nothing of it is lost: the request for refinement names the commit and the paths.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.attempt import refinements
from lib.contract import ExitCode, Json, StrataError
from lib.disk import files, locks, records
from lib.disk.clock import now
from lib.process import fanout, processes
from lib.session.attempts import MERGED, merge_of
from lib.session.outcome import FileChange, Left
from lib.session.step import Step
from lib.stages.finished import WORKTREE
from lib.stages.finished import Worktree as Known
from lib.stages.order import Order
from lib.stages.results import StepResult
from lib.tool.call import Call
from lib.workspace import trees

NOWHERE = Path("/nonexistent")


class Worktree(Struct, frozen=True):
    """Where one step works."""

    call: Call
    step: Step

    @property
    def folder(self) -> Path:
        return self.call.session.folder / "worktrees" / self.step.slug

    @property
    def cwd(self) -> Path:
        """The same place in it that the workspace is in the repository."""
        root = _git(self.call.cwd, "rev-parse", "--show-toplevel")
        return self.folder / self.call.cwd.resolve().relative_to(root)

    @property
    def record(self) -> Path:
        return self.call.session.folder / self.step.folder / WORKTREE

    @property
    def refs(self) -> str:
        return f"{trees.ref_home(self.call.session.folder, self.call.trace_id)}/worktrees/{self.step.slug}"

    @property
    def workspace(self) -> trees.Tree:
        return trees.of_workspace(self.call.cwd, self.call.session.folder)

    def open(self) -> Path:
        """A worktree like the workspace is now."""
        self.put_away()
        number = max((a.number for a in self.call.session.attempts(self.step)), default=0) + 1
        base = self.workspace.take(f"{self.refs}/base-{number}", f"{self.step}, before it started")
        files.write_json(self.record, records.document(Known(number, base, now())))
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.alone():
            _git(self.call.cwd, "worktree", "add", "--quiet", "--detach", str(self.folder), "HEAD")
        self.cwd.mkdir(parents=True, exist_ok=True)
        trees.Tree(self.cwd, NOWHERE).put_back(base)
        return self.cwd

    def keep(self, name: str) -> str:
        """What is in it now, as a commit. Another attempt's never takes its place."""
        known = self.known()
        return trees.Tree(self.cwd, NOWHERE).take(f"{self.refs}/{name}-{known.attempt}", f"{self.step}: {name}", known.base)

    def known(self) -> Known:
        return records.read(self.record, Known)

    def note(self, work: str = "", conflict: tuple[str, ...] = ()) -> None:
        known = self.known()
        files.write_json(
            self.record, records.document(replace(known, work=work or known.work, conflict=conflict or known.conflict))
        )

    def save(self) -> None:
        """Keeps what is in it, as the work of the step if that had finished: only keeping it was cut short then."""
        known, attempts = self.known(), self.call.session.attempts(self.step)
        here = [a for a in attempts if a.number >= known.attempt]  # a heal is one more attempt in the same worktree
        outcome = here[-1].outcome if here else None
        if outcome and outcome.good and not known.work:
            self.note(work=self.keep("work"))
        else:
            self.keep("cut-short")

    def close(self) -> None:
        with self.alone():
            if self.folder.exists():
                _git(self.call.cwd, "worktree", "remove", "--force", "--force", str(self.folder), check=False)
                shutil.rmtree(self.folder, ignore_errors=True)
            _git(self.call.cwd, "worktree", "prune", check=False)

    @contextmanager
    def alone(self) -> Generator[None]:
        """git adds, removes and prunes worktrees badly at the same time, also for two sessions in one repository."""
        common = Path(_git(self.call.cwd, "rev-parse", "--path-format=absolute", "--git-common-dir"))
        with locks.held(common / "strata.lock"):  # a file: NFS locks no folder
            yield

    def reconnect(self) -> None:
        """git links a worktree and its repository by absolute paths, both ways. Of a session that was moved they lead nowhere; of
        one that was copied, into the original: `git worktree repair` then works on that, and this run would, too. All of
        the session at once: to close one worktree prunes those that seem to be gone."""
        homes = Path(_git(self.call.cwd, "rev-parse", "--path-format=absolute", "--git-common-dir")) / "worktrees"
        for link in self.folder.parent.glob("*/.git"):
            home = homes / Path(link.read_text(encoding="utf-8").strip()).name
            ways = ((link, f"gitdir: {home}\n"), (home / "gitdir", f"{link}\n"))
            for place, text in ways if home.is_dir() else ():
                if place.read_text(encoding="utf-8") != text:
                    files.write_atomic(place, text)

    def put_away(self) -> None:
        """What a run that was cut short left here: kept as a commit, then gone."""
        if not self.folder.exists():
            return
        if self.record.exists():
            self.reconnect()
            try:
                self.save()
            except StrataError:
                lost = self.call.session.folder / "lost-worktrees"  # git does not know it any more: the files are kept
                lost.mkdir(exist_ok=True)
                shutil.move(self.folder, lost / f"{self.folder.name}-{len(list(lost.iterdir())) + 1}")
        self.close()

    # Merging back

    def merge(self, attempt: int) -> list[str]:
        """Brings what the step did into the workspace. Returns the paths that conflict; then nothing was merged."""
        base, work = self.known().base, self.known().work
        tree = self.workspace
        ours = tree.take(f"{self.refs}/ours-{attempt}", f"the workspace, when {self.step} was merged", base)
        commit, conflicts = tree.merge(base, ours, work, f"{self.refs}/merged-{attempt}")
        if conflicts:
            return conflicts
        tree.put_back(commit)
        changes: list[FileChange] = []
        for path in tree.differing(base, work):
            sha = files.fingerprint(self.call.cwd / path)
            changes.append(FileChange("workspace", path, "merged" if sha else "deleted", sha256=sha))
        number = self.call.session.next_number()
        merged = Left(number, str(self.step), tuple(changes), now(), attempt=attempt, commit=commit)
        files.write_json(self.record.with_name(MERGED), merged.document())
        return []


def _git(cwd: Path, *words: str, check: bool = True) -> str:
    done = processes.ask(["git", "-C", str(cwd), *words])
    if done.returncode and check:
        why = done.stderr.decode("utf-8", "replace").strip() or f"it ended with {done.returncode}"
        hint = "make a first commit" if "HEAD" in why else "run it by hand to see more"
        raise StrataError("GIT_FAILED", f"git {words[0]} failed in {cwd}: {why}", hint)
    return os.fsdecode(done.stdout).strip()


@contextmanager
def opened(call: Call, order: Order) -> Generator[Path]:
    """A worktree for one attempt. However it ends, none is left behind: what was done is a commit by then."""
    tree = Worktree(call, order.step)
    try:
        yield tree.open()
        tree.note(work=tree.keep("work"))
    except BaseException:  # whatever it was, a stop included: what was done is kept, and no worktree stays behind
        tree.put_away()
        raise
    tree.close()


def run(
    call: Call,
    orders: list[Order],
    after: dict[str, list[str]],
    cap: int,
    perform: Callable[[str], StepResult],
    blocked: Callable[[str, str], StepResult],
    go_on: Callable[[StepResult], bool],
) -> dict[str, StepResult]:
    """Wave by wave: those that wait for nobody together, then merged in the order they are listed, then those behind them."""
    trees.require_repository(call.cwd, "`isolation: worktree`")
    for order in orders:
        Worktree(call, order.step).put_away()  # what an earlier run left
    table = {o.key: o for o in orders}
    results: dict[str, StepResult] = {}
    while len(results) < len(orders):
        wave = [k for k in table if k not in results and all(other in results for other in after[k])]
        for key in list(wave):
            cause = next((o for o in after[key] if not results[o].ok), None)
            if cause:
                results[key] = blocked(key, cause)
                wave.remove(key)
        done = fanout.run({key: () for key in wave}, cap, perform, lambda r: r.ok, blocked=blocked, go_on=go_on)
        for key in wave:
            if key in done:
                results[key] = bring_back(call, table[key], done[key]) if done[key].ok else done[key]
        if any(not go_on(results[k]) for k in wave if k in results) or not all(k in results for k in wave):
            break
    return fanout.with_blocked(after, results, lambda r: r.ok, blocked)


def bring_back(call: Call, order: Order, result: StepResult) -> StepResult:
    """The finished step, merged; or, where that is not possible, as a request for refinement."""
    tree = Worktree(call, order.step)
    merged = merge_of(call.session.folder, order.step)
    if merged and merged.attempt == result.attempts:
        return result
    conflicts = tree.merge(result.attempts)
    if not conflicts:
        merged = merge_of(call.session.folder, order.step)
        call.event(order.step.slug, "merged", {"paths": len(merged.changes) if merged else 0})
        return result
    tree.note(conflict=tuple(conflicts))
    known = tree.known()
    message = f"its changes conflict with those merged before: {', '.join(conflicts[:8])}"
    path = call.session.folder / "refinements" / f"exec-{order.step.slug}.md"
    context = [f"Stage: {order.step}", f"Its changes are the commit {known.work} ({tree.refs}/work-{known.attempt})"]
    text = refinements.document(message, context, "Two steps that worked at the same time changed the same lines.", conflicts)
    files.write_atomic(path, text)
    error: Json = {"code": "MERGE_CONFLICT", "message": message, "refinement": call.session.relative(path)}
    error["hint"] = f"git show {known.work} has its changes; running it again starts from what is merged"
    call.event(order.step.slug, "conflict", {"paths": conflicts[:8]})
    return replace(result, exit_code=ExitCode.NEEDS_REFINEMENT, verdict="failed", error=error, note=message, skipped=False)
