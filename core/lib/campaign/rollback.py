"""Putting the workspace back as it was before a phase that failed. What failed stays reachable under a git ref.

It can be cut short at any moment: what was begun is written down first, and finished when the phase is resumed.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lib.contract import DONE, Json, StrataError
from lib.disk import files, records
from lib.disk.clock import now
from lib.plan.plan import Phase
from lib.session.documents import PhaseReport
from lib.stages.finished import BEFORE, Before, Failed
from lib.tool.call import Call
from lib.workspace import trees


class Rollback(Struct):
    call: Call
    phase: Phase

    @property
    def folder(self) -> Path:
        return self.call.session.folder / "phases" / self.phase.folder

    @property
    def tree(self) -> trees.Tree:
        return trees.of_workspace(self.call.cwd, self.call.session.folder)

    @property
    def refs(self) -> str:
        return f"{trees.ref_home(self.call.session.folder, self.call.trace_id)}/{self.phase.folder}"

    def known(self) -> Before | None:
        path = self.folder / BEFORE
        return records.read(path, Before) if path.exists() else None

    def keep(self, before: Before) -> Before:
        files.write_json(self.folder / BEFORE, records.document(before))
        return before

    def begin(self) -> Json:
        """Where the workspace is put back to, if it comes to that: as it was before the phase first touched it. Returns what was
        put back just now, where an earlier run was cut short while it did so."""
        if not self.phase.rollback:
            return {}
        trees.require_repository(self.call.cwd, f"{self.phase.name}: `on_failure: rollback`")
        report = self.folder / "report.json"
        before, done = self.known(), Json()
        if before and before.rolling_back:
            done = self._finish(before)
            before = self.known()
        ended_well = report.exists() and records.read(report, PhaseReport).exit_code in DONE
        if before and not before.rolled_back and not ended_well and not self._touched_while_waiting(before):
            return done  # resumed: what there is now is already this phase's work
        commit = self.tree.take(f"{self.refs}/before", f"before {self.phase.name}")
        known = before or Before()
        since = Before(
            rollbacks=known.rollbacks, rolled_back_at=known.rolled_back_at, rolled_back_at_number=known.rolled_back_at_number
        )
        self.keep(replace(since, commit=commit, ref=f"{self.refs}/before", at=now()))
        return done

    def _touched_while_waiting(self, before: Before) -> bool:
        """Whether somebody else worked here while the phase waited for a person: that is not ours to put back."""
        found = before.paused and self.tree.take(f"{self.refs}/resumed", "as it was found")
        return bool(found) and not self.tree.same(before.paused, found)

    def pause(self) -> None:
        """The phase waits: what the workspace is like now is what it left."""
        before = self.known()
        if self.phase.rollback and before:
            self.keep(replace(before, paused=self.tree.take(f"{self.refs}/paused", f"{self.phase.name}, while it waits")))

    def roll_back(self) -> Json:
        before = self.known()
        if not self.phase.rollback or not before:
            return {}
        number = before.rollbacks + 1
        ref = f"{self.refs}/failed-{number}"
        failed = self.tree.take(ref, f"{self.phase.name}, failed, as it was before it was rolled back")
        return self._finish(self.keep(replace(before, rolling_back=Failed(ref, failed), rollbacks=number)))

    def _finish(self, before: Before) -> Json:
        """From here on it can be cut short at any moment, and is resumed."""
        failed = before.rolling_back
        assert failed
        changed = self.tree.put_back(before.commit)
        done: Json = {"ref": failed.ref, "commit": failed.commit, "to": before.commit, "paths": changed[:200]}
        files.write_json(self.folder / f"rolled-back-{before.rollbacks}.json", done)
        number = self.call.session.next_number()
        known = replace(before, rolling_back=None, paused="", rolled_back=True)
        self.keep(replace(known, rolled_back_at=now(), rolled_back_at_number=number))
        self.call.event(self.call.label, "rolled-back", {"paths": len(changed), "failed_state": failed.ref})
        return done

    def only(self) -> Json:
        """What a campaign asks for when it has given up on the phase."""
        before, report = self.known(), self.folder / "report.json"
        if not before:
            raise StrataError(
                "NOTHING_TO_ROLL_BACK", f"the phase {self.phase.name} has kept no state of before", "on_failure: rollback"
            )
        done = self.roll_back() if not before.rolled_back else {}
        if report.exists() and done:
            files.write_json(report, files.read_json(report) | {"rolled_back": done})
        return done
