"""One run of one tool: what it was asked, where it works, and how it reaches the layer below."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lib import names
from lib.contract import HOUSE, LAYER_NAMES, Json, StrataError
from lib.disk import files, places
from lib.process import tools
from lib.session import began, events, ledger, remembered, signals, trace, watchers
from lib.session.folder import Session, open_session
from lib.session.owner import PLACED
from lib.tool import depth as depths
from lib.tool import grant


class AlreadyDone(Exception):  # noqa: N818 - good news
    """There is nothing to do for this tool; here is what it would have said."""

    def __init__(self, document: Json) -> None:
        super().__init__(document.get("status"))
        self.document = document


class Tool(Struct, frozen=True):
    name: str
    layer: int
    summary: str
    example: str
    serves: bool = False  # until it is stopped; its stdout is the protocol's


class Call(Struct):
    """One run of one tool: what it was asked, where it works, and how it reaches the layer below."""

    tool: Tool
    options: argparse.Namespace
    depth: depths.Depth
    driver: str
    cwd: Path
    label: str
    trace_id: str
    grant: grant.Grant | None
    artifact: Path | None = None  # what the final signal points at
    timer: events.Timer = field(default_factory=events.Timer)
    looking: bool = False  # only reads: leaves no word in the session
    reach_workers: Callable[[Call], None] | None = None  # for the outermost tool: what it starts may run on other machines
    _session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            raise StrataError("INTERNAL", "the session was used before it was opened")
        return self._session

    @property
    def outermost(self) -> bool:
        """Whether a person, or a program that is none of ours, reads what this tool says."""
        return self._session is None or self.looking or self._session.outermost

    @property
    def session_dir(self) -> Path | None:
        return self._session.folder if self._session and not self.looking else None

    def open_session(self, topic: str, label: str) -> Session:
        """From here on everything this tool does is on disk, and its end is signalled under `label`."""
        inherited = os.getenv(names.SESSION)
        asked = self.options.session_dir
        if self.grant and inherited and asked and Path(asked).resolve() != Path(inherited).resolve():
            raise StrataError("WIDENING_REFUSED", "an agent cannot start work in another session", "leave out --session-dir")
        self._session = open_session(asked, self.options.session_base, topic, trace.get_trace_id() or "", _settle)
        files.works_in = self._session.folder
        if self._session.outermost:
            ledger.Ledger(self._session.folder).close_open()
            self.keep_places()
            if self.tool.layer in (2, 3):
                began.keep(self._session.folder, self.cwd)
        self.label = label
        self.trace_id = trace.propagate_trace_id(self._session.folder)
        os.environ[names.SESSION] = str(self._session.folder)
        if self._session.outermost and self.reach_workers and self.backend:
            self.reach_workers(self)
        if self._session.outermost and self.tool.layer in (2, 3) and not self.grant:
            where = ["--backend", self.backend] if self.backend and "--backend" not in " ".join(sys.argv) else []
            remembered.keep(self._session.folder, self.tool.name, self.driver, [*where, *sys.argv[1:]])
        signals.clear(self._session.folder, LAYER_NAMES[self.tool.layer], label)  # an old run's word is not this one's
        if self._session.outermost and self.tool.layer:
            for watcher in watchers.watchers:
                watcher.opened(self._session.folder)
        self.report("started")
        return self._session

    @property
    def backend(self) -> str:
        """What the command line says, an earlier run, or the plan; then what the environment says."""
        return str(getattr(self.options, "backend", None) or os.getenv("STRATA_BACKEND", ""))

    def keep_places(self) -> None:
        """Says where this run looks for what is named, and what it found that is not the house's own."""
        files.write_json(self.session.folder / places.KEPT, places.kept())

    def look_at_session(self) -> None:
        """Only to read in it: nothing is made, locked or signalled. One that is not there yet is an empty one."""
        folder = Path(self.options.session_dir or HOUSE / "sessions" / "none yet").resolve()
        self._session = Session(folder, None)
        self.looking = True

    def event(self, stage: str, status: str, detail: Json | str | None = None, elapsed_ms: int | None = None) -> None:
        layer = LAYER_NAMES[self.tool.layer]
        events.emit_event(layer, stage, status, detail=detail, elapsed_ms=elapsed_ms)
        seconds = elapsed_ms / 1000 if elapsed_ms is not None else None
        events.write_live_report(self.session_dir, layer, stage, status, elapsed_seconds=seconds, detail=detail)

    def report(self, status: str, detail: Json | str | None = None) -> None:
        self.event(self.label, status, detail, None if status == "started" else self.timer.elapsed_ms())

    def child_flags(self) -> list[str]:
        """What is passed down unchanged."""
        options = self.options
        flags = ["--output-format", "json", "--max-depth", str(self.depth.maximum), "--cwd", str(self.cwd)]
        flags += ["--driver", self.driver, "--session-dir", str(self.session.folder)]
        for name in ("model", "fixtures", "permission_mode", "max_wait"):
            if getattr(options, name, None) is not None:
                flags += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        for name in ("accept_drift", "inherit_settings"):
            if getattr(options, name, False):
                flags.append(f"--{name.replace('_', '-')}")
        return flags

    def child_env(self, **changes: str) -> dict[str, str]:
        env = trace.build_child_env_with_trace(self.depth.current, self.trace_id)
        env[names.MAX_DEPTH] = str(self.depth.maximum)
        env[names.DRIVER] = self.driver
        env[names.SESSION] = str(self.session.folder)
        env[names.CHECKED] = "1"
        return env | changes

    def call(self, tool: str, arguments: Sequence[str], *, env: dict[str, str] | None = None, **options: Any) -> tools.ToolResult:
        return tools.call_tool(
            self.tool.layer,
            tool,
            [*self.child_flags(), *arguments],
            env=env or self.child_env(),
            on_line=events.relay,
            **options,
        )


def _settle(session: Path) -> None:
    """Ends what an earlier run has left on other machines, where there was one that worked there."""
    if (session / PLACED).exists():
        from lib.machines import placed

        placed.settle(session, lambda count: events.emit_event("monitor", "backend", "settling", detail={"left": count}))
