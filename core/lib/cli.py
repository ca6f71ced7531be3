"""The edge every tool shares: arguments in; events, signals, one document and an exit code out. Tools hand `main` to `run`."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from lib import (
    calling,
    files,
    grant,
    keeper,
    ledger,
    live,
    names,
    nursery,
    observability,
    page,
    printing,
    process,
    resuming,
    signals,
)
from lib import depth as depths
from lib.contract import HOUSE, LAYER_NAMES, MEANING, STATUS, ExitCode, Interrupted, Json, StrataError, usage
from lib.redact import redact
from lib.session import Session, open_session

DRIVERS = ("live", "replay", "record")


class AlreadyDone(Exception):  # noqa: N818 - good news
    """There is nothing to do for this tool; here is what it would have said."""

    def __init__(self, document: Json) -> None:
        super().__init__(document.get("status"))
        self.document = document


@dataclass(frozen=True)
class Tool:
    name: str
    layer: int
    summary: str
    example: str


@dataclass
class Call:
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
    timer: observability.Timer = field(default_factory=observability.Timer)
    looking: bool = False  # only reads: leaves no word in the session
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
        inherited = os.environ.get(names.SESSION)
        asked = self.options.session_dir
        if self.grant and inherited and asked and Path(asked).resolve() != Path(inherited).resolve():
            raise StrataError("WIDENING_REFUSED", "an agent cannot start work in another session", "leave out --session-dir")
        self._session = open_session(asked, self.options.session_base, topic, observability.get_trace_id() or "")
        files.works_in = self._session.folder
        if self._session.outermost:
            ledger.Ledger(self._session.folder).close_open()
        self.label = label
        self.trace_id = observability.propagate_trace_id(self._session.folder)
        os.environ[names.SESSION] = str(self._session.folder)
        if self._session.outermost and self.tool.layer in (2, 3) and not self.grant:
            resuming.keep(self._session.folder, self.tool.name, self.driver, sys.argv[1:])
        signals.clear(self._session.folder, LAYER_NAMES[self.tool.layer], label)  # an old run's word is not this one's
        if self._session.outermost and self.tool.layer:
            live.begin(self._session.folder)
        self.report("started")
        return self._session

    def look_at_session(self) -> None:
        """Only to read in it: nothing is made, locked or signalled. One that is not there yet is an empty one."""
        folder = Path(self.options.session_dir or HOUSE / "sessions" / "none yet").resolve()
        self._session = Session(folder, None)
        self.looking = True

    def event(self, stage: str, status: str, detail: Json | str | None = None, elapsed_ms: int | None = None) -> None:
        layer = LAYER_NAMES[self.tool.layer]
        observability.emit_event(layer, stage, status, detail=detail, elapsed_ms=elapsed_ms)
        seconds = elapsed_ms / 1000 if elapsed_ms is not None else None
        observability.write_live_report(self.session_dir, layer, stage, status, elapsed_seconds=seconds, detail=detail)

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
        env = observability.build_child_env_with_trace(self.depth.current, self.trace_id)
        env[names.MAX_DEPTH] = str(self.depth.maximum)
        env[names.DRIVER] = self.driver
        env[names.SESSION] = str(self.session.folder)
        env[names.CHECKED] = "1"
        return env | changes

    def call(
        self, tool: str, arguments: Sequence[str], *, env: dict[str, str] | None = None, **options: Any
    ) -> calling.ToolResult:
        return calling.call_tool(
            self.tool.layer,
            tool,
            [*self.child_flags(), *arguments],
            env=env or self.child_env(),
            on_line=observability.relay,
            **options,
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        usage(message, f"try: {self.prog} --help")


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of at least 0")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def _parser(tool: Tool) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"uv run core/{tool.name}.py",
        description=tool.summary,
        epilog=f"example:\n  {tool.example}",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=shutil.get_terminal_size().columns - 2),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", metavar="TIER", help="low-tier, medium-tier, high-tier (config/models.yaml), or a model id")
    add("--output-format", choices=("text", "json"), default="text", help="KEY=value lines, or one JSON document")
    add("--cwd", metavar="DIR", help="the folder agents work in (default: where you stand)")
    add("--max-depth", type=count, metavar="N", help="how deep agents may start agents")
    add("--current-depth", type=count, metavar="D", help=argparse.SUPPRESS)
    add("--session-dir", metavar="DIR", help="the session folder to work in; made if it is not there")
    add("--session-base", metavar="DIR", help="where new session folders are made (default: sessions/ beside core/)")
    add("--driver", choices=DRIVERS, help="live: real agents; record: live, and kept for replay; replay: from --fixtures")
    add("--fixtures", metavar="DIR", help="the recorded session folder that --driver replay answers from")
    add("--max-wait", type=seconds, metavar="SECONDS", help="how long to wait for a rate limit to reset (default: 6 hours)")
    add("--accept-drift", action="store_true", help="replay even where the prompt differs from the recorded one")
    return parser


def run(tool: Tool, arguments: Callable[[argparse.ArgumentParser], None], main: Callable[[Call], Json]) -> NoReturn:
    """Runs a tool from its arguments to its exit code. Nothing else in Strata ends a process."""
    _open_missing_streams()
    if tool.layer:
        nursery.open_nursery()
    keeper.become_subreaper()
    process.inherit_lock()
    interrupts = _Signals()
    keeper.watch_lease(lambda: _parent_is_gone(tool.layer))
    keeper.watch_starter(lambda: _parent_is_gone(tool.layer))
    call: Call | None = None
    try:
        with interrupts:
            parser = _parser(tool)
            arguments(parser)
            call = _read_call(tool, parser)
            observability.start_heart(LAYER_NAMES[tool.layer], lambda label=call: label.label)
            document = main(call)
    except AlreadyDone as done:
        document = done.document
    except StrataError as error:
        document = error_document(tool, error)
    except OSError as error:
        document = error_document(tool, _system_error(error))
    except Exception as error:  # noqa: BLE001 - the last resort: every tool promises a code and one clear error, never a traceback
        document = error_document(tool, _unexpected(error, call))
    live.end()
    process.say_stop()
    nursery.close_nursery()
    keeper.end_descendants(ask_seconds=0.2)
    code = ExitCode(document.get("exit_code", ExitCode.FAILURE))
    if call and call.session_dir:
        _draw(call, document)
        _leave_word(call, code, document)
    printing.document(document, _format(call), outermost=call is None or call.outermost)
    if code != ExitCode.SUCCESS and document.get("error"):
        printing.error(document["error"])
    sys.exit(int(code))


def _draw(call: Call, document: Json) -> None:
    """The report a person opens, made when everything has ended; an error says where it is. Not having one does not change how
    the run ended."""
    if call.session.outermost and call.tool.layer:
        try:
            made = page.write(call.session.folder, ended=True)
            if document.get("error"):
                document["error"] = {**document["error"], "evidence": document["error"].get("evidence") or str(made)}
        except Exception as error:  # noqa: BLE001 - it reads what agents could have written: none of that may change how a run ended
            words = f"{type(error).__name__}: {error}"
            observability.emit_event(LAYER_NAMES[call.tool.layer], call.label, "no-report", detail=words)


def error_document(tool: Tool, error: StrataError) -> Json:
    code = int(error.exit_code)
    return {"tool": tool.name, "status": STATUS[code], "exit_code": code, "error": error.document()}


def _read_call(tool: Tool, parser: argparse.ArgumentParser) -> Call:
    words = sys.argv[1:]
    if tool.layer in (1, 2, 3) and "--of" in words:
        from lib import agent_mode  # only for what is called by an agent that stands for a tool

        words = agent_mode.expand(tool.name, words) if tool.layer == 1 else agent_mode.expand_upper(tool.name, words)
    options = parser.parse_args(resuming.recall(tool.name, words) if tool.layer in (2, 3) else words)
    current_grant = grant.inherited()
    cwd = Path(options.cwd or ".").resolve()  # the agent CLI compares real paths
    if not cwd.is_dir():
        usage(f"--cwd {options.cwd}: there is no such folder")
    if options.cwd:
        grant.check(current_grant, folders=(cwd,))
    if current_grant and not keeper.leased and "--of" not in sys.argv and "Bash" not in current_grant.tools:
        _check_files(current_grant, options)
    inherited = os.environ.get(names.DRIVER)
    if inherited is not None and inherited not in DRIVERS:
        raise StrataError("BAD_ENVIRONMENT", f"{names.DRIVER} is {inherited!r}", f"one of {', '.join(DRIVERS)}")
    if current_grant and inherited and options.driver and options.driver != inherited:
        raise StrataError("WIDENING_REFUSED", f"an agent run with {inherited} asked for {options.driver}", "leave out --driver")
    return Call(
        tool=tool,
        options=options,
        depth=depths.from_environment(tool.layer, options.current_depth, options.max_depth),
        driver=options.driver or inherited or "live",
        cwd=cwd,
        label=tool.name,
        trace_id=observability.get_trace_id() or "",
        grant=current_grant,
    )


def _open_missing_streams() -> None:
    """Started with a closed stream, a tool still works; there is only nobody to hear it. In this order each gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < enough:  # many children at once need many descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


class _Signals:
    """Turns a signal into `Interrupted`, but only while the tool does its work: before and after, it is noted and no more, so
    that how a tool ended is always said."""

    def __init__(self) -> None:
        self.asked = 0.0
        self.working = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for that
                signal.signal(number, self._hear)

    def __enter__(self) -> None:
        self.working = True
        if self.asked:
            raise Interrupted()

    def __exit__(self, *_: object) -> None:
        self.working = False

    def _hear(self, number: int, _frame: object) -> None:
        if self.asked or process.stopping.is_set():
            # uv passes on what the terminal already sent: only a second, later Ctrl-C means "now".
            if number == signal.SIGINT and self.asked and time.monotonic() - self.asked > 1.0:
                keeper.end_descendants()
                os._exit(int(ExitCode.INTERRUPTED))
            return
        self.asked = time.monotonic()
        process.stopping.set()
        if process.stop_softly:
            process.stop_softly()
        elif self.working:
            raise Interrupted(f"stopped by {signal.Signals(number).name}")


def _parent_is_gone(layer: int) -> None:
    """Ends this tool the usual way; if that does not work in time, the other way."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(process.grace_seconds(layer))
    keeper.end_descendants()
    os._exit(int(ExitCode.INTERRUPTED))


def _system_error(error: OSError) -> StrataError:
    where = f" ({error.filename})" if error.filename else ""
    return StrataError("SYSTEM_ERROR", f"{error.strerror or error}{where}", "check the path, its permissions and the free space")


def _unexpected(error: Exception, call: Call | None) -> StrataError:
    text = redact("".join(traceback.format_exception(error)))
    folder = call.session_dir if call else None
    if folder:
        log = folder / "strata.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
    else:
        descriptor, name = tempfile.mkstemp(prefix="strata-", suffix=".log")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        log = Path(name)
    return StrataError("INTERNAL", f"{type(error).__name__}: {error}", f"this is a bug; the traceback is in {log}")


def _leave_word(call: Call, code: ExitCode, document: Json) -> None:
    """The signal and the last live-report line of this tool, on success and on failure alike."""
    status = MEANING[code].signal
    error = document.get("error")
    try:
        if call.session.outermost and code != ExitCode.INTERRUPTED:
            call.session.say_ended()
        call.report(STATUS[code], {"code": error["code"]} if error else None)
        observability.signal_completion(
            call.session_dir,
            LAYER_NAMES[call.tool.layer],
            call.label,
            status,
            call.artifact,
            call.trace_id,
            call.timer.elapsed_seconds(),
            int(code),
        )
    except (OSError, StrataError) as problem:  # a full disk must not hide how the tool itself ended
        observability.emit_event("monitor", call.label, "signal-not-written", detail=str(problem))


def _format(call: Call | None) -> str:
    if call:
        return call.options.output_format
    return "json" if ("json" in sys.argv and "--output-format" in sys.argv) or "--output-format=json" in sys.argv else "text"


def keyword(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """`--input name=value` flags as a table."""
    table: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            usage(f"{flag} takes name=value, not {pair!r}")
        table[name] = value
    return table


def _check_files(given: grant.Grant, options: argparse.Namespace) -> None:
    """An agent that has no free shell itself names no commands, and only files it may read."""
    if getattr(options, "checks", None):
        raise StrataError("WIDENING_REFUSED", "an agent without a free shell named checks of its own", "leave out --checks")
    named = [*getattr(options, "extra_context", ())]
    named += [n for n in (getattr(options, flag, None) for flag in ("prompt_file", "system_prompt", "schema")) if n and n != "-"]
    grant.check(given, folders=tuple(Path(n).absolute() for n in named))


def read_text(path: str, what: str) -> str:
    """A text file named on the command line; `-` is stdin."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise StrataError("FILE_UNREADABLE", f"{what} {path}: {error.strerror}", "check the path") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise StrataError("FILE_UNREADABLE", f"{what} {path} is not UTF-8 text", "convert it first") from None
